//! A case as it is played: Redis, what the model holds, and who has what in hand.

use std::collections::BTreeMap;
use std::fmt::Debug;

use redis::aio::MultiplexedConnection;
use stockade::domain::{BuyerId, IdempotencyKey, OrderId, Purchase, SaleId};
use stockade::ledger::Snapshot;
use stockade::stock::scripts::{Presence, TransferId};
use stockade::stock::{SegmentKeys, journal};

use super::Outcome;
use super::loading::Stage;
use super::model::{Ledger, Segment};
use super::readings::Collect;
use super::step::{Case, Step};

/// The segments under one epoch.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) segments: Vec<Segment>,
    /// None: a late copy of a load has written into keys that were deleted. Whatever answers there,
    /// the ledger takes nothing of it.
    pub(super) presence: Option<Presence>,
}

/// A call of the purchase script, and what its owner knows of it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) epoch: u64,
    pub(super) segment: u32,
    pub(super) batch: Vec<Purchase>,
    pub(super) admitted: Vec<Purchase>,
    pub(super) entries: Vec<(String, Vec<Purchase>)>,
}

/// A transfer, and how far it has come.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) id: TransferId,
    pub(super) epoch: u64,
    pub(super) donor: u32,
    pub(super) borrower: u32,
    pub(super) wanted: u64,
    pub(super) lent: u64,
    pub(super) arrived: bool,
}

pub(super) struct World {
    pub(super) connection: MultiplexedConnection,
    pub(super) sale: SaleId,
    pub(super) limit: u32,
    pub(super) buyers: Vec<BuyerId>,
    pub(super) ledger: Ledger,
    /// By epoch; only loads that were finished.
    pub(super) loads: BTreeMap<u64, Load>,
    /// The last of them.
    pub(super) loaded: u64,
    pub(super) stage: Stage,
    pub(super) calls: Vec<Call>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) collect: Option<Collect>,
    /// Commands that loads have sent, with their epoch.
    pub(super) sent: Vec<(u64, redis::Cmd)>,
    /// What loaders had read when they were overtaken.
    pub(super) overtaken: Vec<Snapshot>,
    /// Returns that are brought when the load under way has ended.
    pub(super) waiting: Vec<usize>,
    /// Units that are available or in transfer, as the last look at Redis showed.
    pub(super) free: u64,
    pub(super) names: BTreeMap<OrderId, String>,
    story: Vec<String>,
}

impl World {
    /// Plays a case to its end. An error is the whole story.
    pub(super) async fn play(connection: MultiplexedConnection, case: &Case) -> Outcome<()> {
        let mut world = Self::new(connection, case);
        let played = world.play_steps(case).await;
        played.map_err(|what| {
            let lines = world.story.iter().enumerate();
            let story: String = lines.map(|(n, line)| format!("{n:>3}: {line}\n")).collect();
            format!("{story}then {what}")
        })
    }

    fn new(connection: MultiplexedConnection, case: &Case) -> Self {
        let buyers = (0..case.buyers).map(|n| BuyerId::parse(&format!("b{n}")).unwrap());
        Self {
            connection,
            sale: SaleId::new(case.sale.into()).unwrap(),
            limit: case.limit,
            buyers: buyers.collect(),
            ledger: Ledger {
                quantity: case.quantity.into(),
                epoch: 0,
                orders: BTreeMap::new(),
                returns: Vec::new(),
            },
            loads: BTreeMap::new(),
            loaded: 0,
            stage: Stage::Loaded,
            calls: Vec::new(),
            transfers: Vec::new(),
            collect: None,
            sent: Vec::new(),
            overtaken: Vec::new(),
            waiting: Vec::new(),
            free: 0,
            names: BTreeMap::new(),
            story: Vec::new(),
        }
    }

    async fn play_steps(&mut self, case: &Case) -> Outcome<()> {
        // The server is this case's alone.
        let flush = redis::cmd("FLUSHALL");
        sound(flush.query_async::<()>(&mut self.connection).await)?;
        self.load(3, case.segments, 0, false).await?;
        self.check().await?;
        for step in &case.steps {
            let told = self.story.len();
            self.take(step).await?;
            if self.story.len() > told {
                let looks = matches!(step, Step::Look { .. });
                self.check().await?;
                self.watch(looks);
            }
        }
        self.sell_out().await
    }

    async fn take(&mut self, step: &Step) -> Outcome<()> {
        match step {
            Step::Buy {
                batch,
                copies,
                commits,
            } => self.buy(batch, *copies, *commits).await,
            Step::BuyAgain { call, copies } => match pick(self.calls.len(), *call) {
                Some(call) => self.deliver(call, *copies).await,
                None => Ok(()),
            },
            Step::Commit { call } => self.commit(*call),
            Step::Settle { call } => self.settle(*call).await,
            Step::Sweep { segment } => self.sweep(*segment).await,
            Step::End { order, returns } => self.end(*order, *returns).await,
            Step::GiveBack { which, row_goes } => self.give_back(*which, *row_goes).await,
            Step::Transfer {
                donor,
                distance,
                units,
                legs,
            } => {
                let count = self.segments().len() as u32;
                let donor = donor % count;
                let borrower = (donor + 1 + distance % (count - 1)) % count;
                self.transfer(donor, borrower, *units, *legs).await
            }
            Step::Carry { transfer, leg } => match pick(self.transfers.len(), *transfer) {
                Some(transfer) => self.carry(transfer, *leg).await,
                None => Ok(()),
            },
            Step::FinishTransfers => self.finish_transfers().await,
            Step::Look { from, segments } => self.look(*from, *segments).await,
            Step::Load {
                overtakes,
                stages,
                segments,
                more,
                sweeps,
            } => {
                if *overtakes {
                    self.overtake();
                }
                self.load(*stages, *segments, *more, *sweeps).await
            }
            Step::LateLoad { which } => self.late_load(*which).await,
        }
    }

    /// Ends everything that is under way; then every free unit must be for sale, and no more.
    async fn sell_out(&mut self) -> Outcome<()> {
        self.tell("everything that is under way is finished");
        while !matches!(self.stage, Stage::Loaded) {
            self.load(1, 3, 0, true).await?;
        }
        self.finish_transfers().await?;
        self.check().await?;
        for which in 0..self.ledger.returns.len() {
            if self.ledger.returns[which].open {
                self.bring(which, true).await?;
            }
        }
        let stranded = self.ledger.returns.iter().filter(|one| one.open).count();
        same("returns that nobody can bring", stranded, 0)?;
        for segment in 0..self.segments().len() {
            self.sweep(segment).await?;
        }
        self.check().await?;
        let last = self.segments().len() as u32 - 1;
        for donor in 0..last {
            let units = self.segments()[donor as usize].available;
            if units > 0 {
                self.transfer(donor, last, units, 3).await?;
            }
        }
        self.check().await?;
        same("free units in the last segment", self.free, {
            self.segments()[last as usize].available
        })?;
        self.buy_all(last).await?;
        self.check().await?;
        same("units free", self.free, 0)?;
        same("units sold", self.ledger.taken(), self.ledger.quantity)?;
        self.collect = None;
        self.look(0, 2 * self.segments().len()).await
    }

    /// The segments of the last finished load.
    pub(super) fn segments(&self) -> &[Segment] {
        &self.loads[&self.loaded].segments
    }

    pub(super) fn segment(&mut self, epoch: u64, segment: u32) -> &mut Segment {
        let load = self.loads.get_mut(&epoch).expect("a finished load");
        &mut load.segments[segment as usize]
    }

    /// Whether the segments of a finished load should be there, if anything can be said.
    pub(super) fn presence(&self, epoch: u64) -> Option<Presence> {
        self.loads[&epoch].presence
    }

    pub(super) fn keys(&self, epoch: u64, segment: u32) -> SegmentKeys {
        SegmentKeys::new(self.sale, segment, epoch)
    }

    /// All that a segment's journal holds.
    pub(super) async fn journal(&self, epoch: u64, segment: u32) -> Outcome<Vec<journal::Entry>> {
        let (mut connection, keys) = (self.connection.clone(), self.keys(epoch, segment));
        let mut all: Vec<journal::Entry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.id.as_str());
            let read = sound(journal::read(&mut connection, &keys, after).await)?;
            let last = read.len() < journal::READ_MAX;
            all.extend(read);
            if last {
                return Ok(all);
            }
        }
    }

    pub(super) fn purchase(&mut self, buyer: &BuyerId, key: &str, quantity: u32) -> Purchase {
        let order = OrderId::of(self.sale, buyer, &IdempotencyKey::parse(key).unwrap());
        self.names.insert(order, format!("{buyer}/{key}"));
        Purchase {
            order,
            buyer: buyer.clone(),
            quantity,
        }
    }

    /// Begins a line of the story.
    pub(super) fn tell(&mut self, line: impl Into<String>) {
        self.story.push(line.into());
    }

    /// Ends it with what came of it.
    pub(super) fn so(&mut self, what: &str) {
        if let Some(line) = self.story.last_mut() {
            line.push_str(" → ");
            line.push_str(what);
        }
    }

    pub(super) fn named(&self, purchases: &[Purchase]) -> String {
        let named = purchases
            .iter()
            .map(|one| format!("{} ×{}", self.names[&one.order], one.quantity));
        named.collect::<Vec<_>>().join(", ")
    }
}

/// The `n`th of `count` things, counted around.
pub(super) fn pick(count: usize, n: usize) -> Option<usize> {
    n.checked_rem(count)
}

/// An error of a call is the end of the story.
pub(super) fn sound<T, E: std::fmt::Display>(answer: Result<T, E>) -> Outcome<T> {
    answer.map_err(|error| format!("a call failed: {error}"))
}

pub(super) fn same<T: PartialEq + Debug>(what: &str, is: T, should: T) -> Outcome<()> {
    match (is, should) {
        (is, should) if is == should => Ok(()),
        (is, should) => Err(format!("{what}: {is:?}, but should be {should:?}")),
    }
}
