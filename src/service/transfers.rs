//! Moving units between the segments of a sale: lend, receive, settle.
//!
//! Whoever begins a transfer may die at any point of it, and whoever meets it then finishes it. The locks
//! only keep many from doing the same work at once: nothing here is wrong when one is lost, and nobody
//! waits long for one that is not granted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::live::LiveSale;
use crate::lock::redis::{RedisLocks, Server};
use crate::lock::{Guard, Kind, OwnerId, Terms, Waiting};
use crate::stock::plan::Move;
use crate::stock::scripts::{
    OpenTransfer, Presence, TransferId, lend, open_transfers, receive, settle_transfer,
};
use crate::stock::{Error, borrow_lock, gather_lock};

/// Half a second is how long a lock keeps others away if its holder dies.
const TERMS: Terms = Terms {
    lease: Duration::from_millis(500),
    renewing: false,
    hold_max: Duration::from_millis(500),
    waiting: Waiting::Polled(Duration::from_millis(4)),
};
/// How long one waits for a lock before going on without it.
const LOCK_WAIT: Duration = Duration::from_millis(50);

impl LiveSale {
    /// The turn of those who gather scattered units; none if it is not granted in time.
    pub(super) async fn gather_turn(&self) -> Option<Guard> {
        self.lock(gather_lock(self.id), 0).await
    }

    async fn lock(&self, key: String, segment: u32) -> Option<Guard> {
        let core = &self.core;
        let server = Server::new(self.connection(segment), core.redis.timeout());
        let locks = RedisLocks::new(server, core.env.clone());
        let lock = locks.lock(Kind::TokenLua, &key, TERMS).ok()?;
        let acquired = lock.acquire(OwnerId::random(), LOCK_WAIT).await;
        acquired.ok().flatten()
    }

    /// Carries out moves, those of different borrowers at the same time. What fails is left to whoever
    /// meets it.
    pub(super) async fn carry_out(self: &Arc<Self>, epoch: u64, moves: &[Move], take_turns: bool) {
        let mut borrowers: BTreeMap<u32, Vec<Move>> = BTreeMap::new();
        for one in moves {
            borrowers.entry(one.borrower).or_default().push(*one);
        }
        let all = borrowers
            .into_iter()
            .map(|(borrower, moves)| self.borrow(epoch, borrower, moves, take_turns));
        join_all(all).await;
    }

    async fn borrow(
        self: &Arc<Self>,
        epoch: u64,
        borrower: u32,
        moves: Vec<Move>,
        take_turns: bool,
    ) {
        let turn = if take_turns {
            self.lock(borrow_lock(self.id, borrower), borrower).await
        } else {
            None
        };
        // Whoever held the lock before has just borrowed for this segment: try there first.
        if !turn.as_ref().is_some_and(Guard::waited) {
            for one in moves {
                if let Err(error) = self.transfer(epoch, one).await {
                    self.core.metrics.transfer_failed();
                    tracing::debug!(sale.id = %self.id, error = %error, "a transfer is left to others");
                }
            }
        }
        if let Some(turn) = turn {
            turn.release().await;
        }
    }

    async fn transfer(self: &Arc<Self>, epoch: u64, wanted: Move) -> Result<(), Error> {
        let id = TransferId::random();
        let Move {
            donor,
            borrower,
            units,
        } = wanted;
        let (mut connection, keys) = (self.connection(donor), self.keys(donor, epoch));
        let lend = lend(&mut connection, &keys, &id, borrower, units);
        let units = match self.within(lend).await? {
            Ok(0) => return Ok(()),
            Ok(units) => units,
            Err(presence) => {
                self.not_there(epoch, presence).await;
                return Ok(());
            }
        };
        crate::crash_point!("transfer:lent");
        let open = OpenTransfer {
            id,
            borrower,
            units,
        };
        self.finish_transfer(epoch, donor, &open).await?;
        self.core.metrics.transferred(units);
        Ok(())
    }

    /// Second and third step.
    async fn finish_transfer(
        self: &Arc<Self>,
        epoch: u64,
        donor: u32,
        open: &OpenTransfer,
    ) -> Result<(), Error> {
        let (mut connection, keys) = (
            self.connection(open.borrower),
            self.keys(open.borrower, epoch),
        );
        let receive = receive(&mut connection, &keys, &open.id, open.units);
        match self.within(receive).await? {
            Presence::Loaded => {}
            presence => {
                self.not_there(epoch, presence).await;
                return Ok(());
            }
        }
        crate::crash_point!("transfer:received");
        let (mut connection, keys) = (self.connection(donor), self.keys(donor, epoch));
        self.within(settle_transfer(&mut connection, &keys, &open.id))
            .await?;
        crate::crash_point!("transfer:settled");
        Ok(())
    }

    /// Finishes the open transfers of these donors, whoever began them.
    ///
    /// # Errors
    /// See [`Error`]; what is not finished then is found again.
    pub(super) async fn finish_transfers(
        self: &Arc<Self>,
        epoch: u64,
        donors: &[u32],
    ) -> Result<(), Error> {
        for donor in donors {
            let (mut connection, keys) = (self.connection(*donor), self.keys(*donor, epoch));
            let open = self.within(open_transfers(&mut connection, &keys)).await?;
            for transfer in open {
                self.finish_transfer(epoch, *donor, &transfer).await?;
                self.core.metrics.transfer_finished();
            }
        }
        Ok(())
    }
}
