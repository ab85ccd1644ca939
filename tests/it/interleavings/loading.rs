//! Loads: the fence, seal and adopt, write; overtaken and late ones.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};
use stockade::domain::{NewSale, Sale, Stage as SaleStage, Strategy, Timestamp};
use stockade::ledger::{Snapshot, SnapshotOrder};
use stockade::stock::Calls;
use stockade::stock::load::{self, Progress};
use stockade::stock::requests::Mark;
use stockade::stock::scripts::{self, Presence};

use super::Outcome;
use super::model::Segment;
use super::world::{Load, World, pick, same, sound};

/// Far more than any call here takes.
const CALLS: Calls = Calls {
    timeout: Duration::from_secs(10),
};

/// No case has more segments than this.
const SEGMENTS_MAX: u32 = 5;

/// How far a load has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// The sale can sell.
    Loaded,
    /// The ledger takes nothing of the old epoch any more.
    Fenced,
    /// The old epoch is sealed and adopted, the new content is read.
    Read(Box<Snapshot>),
}

/// A connection that keeps a copy of each command: the copies come late.
#[derive(Clone)]
struct Recorder {
    connection: MultiplexedConnection,
    sent: Arc<Mutex<Vec<Cmd>>>,
}

impl ConnectionLike for Recorder {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        self.sent.lock().unwrap().push(cmd.clone());
        self.connection.req_packed_command(cmd)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

impl World {
    /// Goes some stages further. `segments` and `more` units take effect with the reading.
    pub(super) async fn load(
        &mut self,
        stages: usize,
        segments: u32,
        more: i64,
        sweeps: bool,
    ) -> Outcome<()> {
        for _ in 0..stages {
            match std::mem::replace(&mut self.stage, Stage::Fenced) {
                Stage::Loaded => self.fence(),
                Stage::Fenced => self.seal_and_read(segments, more).await?,
                Stage::Read(snapshot) => {
                    self.write(&snapshot).await?;
                    self.loaded = snapshot.sale.epoch;
                    self.stage = Stage::Loaded;
                    if sweeps {
                        self.sweep_epochs().await?;
                    }
                    self.bring_waiting().await?;
                }
            }
        }
        Ok(())
    }

    fn fence(&mut self) {
        self.ledger.epoch += 1;
        self.tell(format!(
            "a loader fences: epoch {} begins",
            self.ledger.epoch
        ));
    }

    /// Another loader takes over from one that has not finished.
    pub(super) fn overtake(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Fenced) {
            Stage::Loaded => self.stage = Stage::Loaded,
            Stage::Fenced => self.fence(),
            Stage::Read(snapshot) => {
                self.overtaken.push(*snapshot);
                self.fence();
            }
        }
    }

    async fn seal_and_read(&mut self, segments: u32, more: i64) -> Outcome<()> {
        self.tell(format!(
            "the loader of epoch {} seals and adopts",
            self.ledger.epoch
        ));
        for epoch in self.loaded.max(1)..self.ledger.epoch {
            for segment in 0..SEGMENTS_MAX {
                let keys = self.keys(epoch, segment);
                let (sealed, left) = sound(scripts::seal(&mut self.connection, &keys).await)?;
                let load = self.loads.get(&epoch);
                let known = load.and_then(|load| load.segments.get(segment as usize));
                let entries = known.map_or(0, |one| one.journal.len());
                same("entries left in a sealed segment", left, entries as u64)?;
                same(
                    "whether a segment is sealed",
                    sealed || known.is_none(),
                    true,
                )?;
            }
        }
        if let Some(old) = self.loads.get_mut(&self.loaded) {
            old.presence = Some(Presence::Sealed);
            for segment in 0..self.segments().len() as u32 {
                for entry in self.journal(self.loaded, segment).await? {
                    self.ledger.insert(&entry.purchases)?;
                }
            }
        }
        let (taken, quantity) = (self.ledger.taken(), self.ledger.quantity);
        self.ledger.quantity = quantity.saturating_add_signed(more).max(taken).max(1);
        self.ledger.absorb_returns();
        let snapshot = self.snapshot(segments);
        self.so(&format!(
            "quantity {}, taken {taken}, {segments} segments",
            self.ledger.quantity
        ));
        self.stage = Stage::Read(Box::new(snapshot));
        Ok(())
    }

    fn snapshot(&self, segments: u32) -> Snapshot {
        let orders = self.ledger.orders.values().map(|order| SnapshotOrder {
            id: order.purchase.order,
            buyer: order.purchase.buyer.clone(),
            quantity: order.purchase.quantity,
            active: order.active,
        });
        let begin = Timestamp::from_millis(0).unwrap();
        let terms = NewSale {
            product: "sku".to_owned(),
            title: "a product".to_owned(),
            price_minor: 1,
            currency: "CNY".to_owned(),
            quantity: u32::try_from(self.ledger.quantity).unwrap(),
            segments,
            per_buyer_limit: self.limit,
            opens_at: Some(begin),
            closes_at: None,
            hold_seconds: 60,
            strategy: Strategy::Segmented,
        };
        let sale = Sale {
            id: self.sale,
            terms,
            stage: SaleStage::Loading,
            paused: false,
            closed: false,
            epoch: self.ledger.epoch,
            loaded_epoch: self.loaded,
            loaded_segments: segments,
            control: 0,
            taken: self.ledger.taken(),
            confirmed: 0,
            created_at: begin,
            drained: false,
        };
        Snapshot {
            sale,
            change: None,
            orders: orders.collect(),
        }
    }

    async fn write(&mut self, snapshot: &Snapshot) -> Outcome<()> {
        let epoch = snapshot.sale.epoch;
        self.tell(format!("the loader writes epoch {epoch}, and it is open"));
        let recorder = Recorder {
            connection: self.connection.clone(),
            sent: Arc::default(),
        };
        sound(load::fill(CALLS, &|_| recorder.clone(), snapshot, &Progress::default()).await)?;
        let sent = std::mem::take(&mut *recorder.sent.lock().unwrap());
        self.sent.extend(sent.into_iter().map(|call| (epoch, call)));
        let count = snapshot.sale.terms.segments;
        let mut segments: Vec<Segment> = Vec::new();
        for segment in 0..count {
            // Each segment's share is the loader's affair; only the sum is not.
            let keys = self.keys(epoch, segment);
            let figures = sound(scripts::figures(&mut self.connection, &keys).await)?;
            segments.push(Segment {
                limit: self.limit,
                available: figures.available,
                ..Segment::default()
            });
        }
        let shares = segments.iter().map(|one| one.available).sum::<u64>();
        same("units dealt out", shares, snapshot.sale.free())?;
        for order in &snapshot.orders {
            let home = &mut segments[order.id.home(count) as usize];
            let mark = match order.active {
                true => Mark::Admitted(order.quantity),
                false => Mark::Ended(order.quantity),
            };
            home.marks.insert(order.id, mark);
            if order.active {
                *home.units.entry(order.buyer.clone()).or_default() += order.quantity;
            }
        }
        let presence = Some(Presence::Loaded);
        self.loads.insert(epoch, Load { segments, presence });
        Ok(())
    }

    /// Deletes the keys of all older epochs.
    async fn sweep_epochs(&mut self) -> Outcome<()> {
        self.so("the keys of older epochs are deleted");
        let mut unlink = redis::cmd("UNLINK");
        for epoch in 0..self.loaded {
            for segment in 0..SEGMENTS_MAX {
                unlink.arg(&self.keys(epoch, segment).all());
            }
        }
        sound(unlink.query_async::<()>(&mut self.connection).await)?;
        for (_, old) in self.loads.range_mut(..self.loaded) {
            old.presence = Some(Presence::Absent);
            old.segments.iter_mut().for_each(|one| {
                one.journal.clear();
                one.open.clear();
            });
        }
        Ok(())
    }

    /// An overtaken loader goes on as if it were not, or a copy of one command arrives.
    pub(super) async fn late_load(&mut self, n: usize) -> Outcome<()> {
        let Some(n) = pick(self.overtaken.len() + self.sent.len(), n) else {
            return Ok(());
        };
        if let Some(snapshot) = self.overtaken.get(n) {
            let epoch = snapshot.sale.epoch;
            let connection = self.connection.clone();
            sound(
                load::fill(
                    CALLS,
                    &|_| connection.clone(),
                    snapshot,
                    &Progress::default(),
                )
                .await,
            )?;
            self.tell(format!("the overtaken loader writes epoch {epoch}"));
            return Ok(());
        }
        let (epoch, call) = self.sent[n - self.overtaken.len()].clone();
        self.tell(format!("a command of the load of epoch {epoch} comes late"));
        sound(call.query_async::<Value>(&mut self.connection).await)?;
        let load = self.loads.get_mut(&epoch).expect("a finished load");
        if load.presence == Some(Presence::Absent) {
            load.presence = None;
            self.collect.take_if(|collect| collect.epoch == epoch);
        }
        Ok(())
    }
}
