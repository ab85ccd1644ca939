//! Purchases for which the stock is short: which refusal is true?
//!
//! Only the ledger can say "sold out". One read of the sale's row serves all who were refused before it
//! began; while it is under way, the next ones gather.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::live::LiveSale;
use crate::domain::{Refusal, Sale};
use crate::stock::scripts;

/// The most refusals that one read of the ledger decides.
const GATHERED_MAX: usize = 4_096;

/// A purchase that its segment could not serve.
#[derive(Debug)]
pub(super) struct Short {
    pub(super) attempt: Attempt,
    /// Units that were available at that moment.
    pub(super) available: u64,
    pub(super) epoch: u64,
}

/// Decides refusals for lack of stock.
#[derive(Debug)]
pub(super) struct Shortage {
    live: Arc<LiveSale>,
    /// The newest epoch in which the segments were told that everything is sold.
    told_epoch: u64,
}

impl Shortage {
    pub(super) fn new(live: Arc<LiveSale>) -> Self {
        Self {
            live,
            told_epoch: 0,
        }
    }

    /// Serves the queue until the service stops.
    pub(super) async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Short>) {
        let env = self.live.core.env.clone();
        let mut gathered = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = queue.recv_many(&mut gathered, GATHERED_MAX) => {}
                () = env.stopping() => return,
            }
            // Without the ledger's word the last known row serves: confirmed only grows, so "sold out"
            // read from it is true, and where it is too old the refusal is the softer "held".
            let row = match self.live.refresh().await {
                Ok(row) => row,
                Err(_) => self.live.row(),
            };
            for short in gathered.drain(..) {
                self.decide(short, &row);
            }
            if row.is_sold_out() && row.epoch > self.told_epoch {
                self.tell(&row).await;
            }
        }
    }

    fn decide(&self, short: Short, row: &Sale) {
        let Short {
            attempt,
            available,
            epoch,
        } = short;
        let requested = attempt.purchase.quantity;
        if epoch != row.epoch {
            // More stock may have come with the new epoch: ask again there.
            attempt.come_back();
            self.live.submit(attempt);
            return;
        }
        let refusal = if row.is_sold_out() {
            Refusal::SoldOut
        } else if available > 0 {
            Refusal::Insufficient {
                requested,
                available,
            }
        } else {
            let quantity = u64::from(row.terms.quantity);
            Refusal::Held {
                available,
                held: quantity - row.confirmed,
            }
        };
        super::refuse(&self.live, attempt, refusal);
    }

    /// Marks all segments as sold out, so that they refuse without asking the ledger.
    async fn tell(&mut self, row: &Sale) {
        for segment in 0..row.terms.segments {
            let mut connection = self.live.connection(segment);
            let keys = self.live.keys(segment, row.epoch);
            let call = scripts::control(&mut connection, &keys, row);
            if !matches!(
                timeout(self.live.core.redis.timeout(), call).await,
                Ok(Ok(_))
            ) {
                return;
            }
        }
        self.told_epoch = row.epoch;
    }
}
