//! A sale as this instance serves it: what it knows of the row, its queues, and who loads it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::attempt::{Attempt, Place};
use super::batcher::Batcher;
use super::books::StockCache;
use super::ender::{Ender, Wish};
use super::settler::{Settled, Settler};
use super::shortage::{Short, Shortage};
use super::writer::{Group, Writer};
use super::{Core, Error, Service};
use crate::domain::{Sale, SaleId, Stage};
use crate::stock::load::Progress;
use crate::stock::{self, Connection, SegmentKeys};

/// One sale on this instance.
#[derive(Debug)]
pub(super) struct LiveSale {
    pub(super) core: Arc<Core>,
    pub(super) id: SaleId,
    /// What was last read of the sale's row, and when that reading began.
    row: RwLock<(Arc<Sale>, Instant)>,
    /// The newest epoch that is known not to be in Redis.
    pub(super) lost_epoch: AtomicU64,
    /// Held by whoever looks after the row or loads the sale: one at a time in this process.
    pub(super) recovery: tokio::sync::Mutex<()>,
    /// Loads by this instance that failed in a row.
    pub(super) load_failures: AtomicU32,
    /// How far a load by this instance has come.
    pub(super) progress: Progress,
    /// Redis' clock minus this process' monotonic clock, in milliseconds; [`NO_CLOCK`] before the first
    /// reply.
    redis_clock_offset_ms: AtomicI64,
    started: Instant,
    attempts: Arc<AtomicUsize>,
    purchases: mpsc::UnboundedSender<Attempt>,
    writer: mpsc::UnboundedSender<Vec<Group>>,
    /// Groups that wait for a transaction.
    uncommitted: watch::Sender<usize>,
    shortage: mpsc::UnboundedSender<Short>,
    settler: mpsc::UnboundedSender<Vec<Settled>>,
    pub(super) ender: mpsc::Sender<Wish>,
    /// Journal entries that this instance is committing; the sweep leaves them alone.
    in_flight: Mutex<HashSet<(u64, u32, String)>>,
    pub(super) stock_cache: StockCache,
}

const NO_CLOCK: i64 = i64::MIN;

impl LiveSale {
    /// Starts the queues of a sale. They end when the last handle and the last purchase are gone.
    pub(super) fn start(service: &Service, row: Sale, began: Instant) -> Arc<Self> {
        let core = &service.core;
        let now = core.env.now();
        let (purchases, purchase_queue) = mpsc::unbounded_channel();
        let (writer, writer_queue) = mpsc::unbounded_channel();
        let (shortage, shortage_queue) = mpsc::unbounded_channel();
        let (settler, settler_queue) = mpsc::unbounded_channel();
        let (ender, ender_queue) = mpsc::channel(core.limits.backlog_max);
        let live = Arc::new(Self {
            id: row.id,
            row: RwLock::new((Arc::new(row), began)),
            lost_epoch: AtomicU64::new(0),
            recovery: tokio::sync::Mutex::new(()),
            load_failures: AtomicU32::new(0),
            progress: Progress::default(),
            redis_clock_offset_ms: AtomicI64::new(NO_CLOCK),
            started: now,
            attempts: Arc::new(AtomicUsize::new(0)),
            purchases,
            writer,
            uncommitted: watch::Sender::new(0),
            shortage,
            settler,
            ender,
            in_flight: Mutex::new(HashSet::new()),
            stock_cache: StockCache::default(),
            core: Arc::clone(core),
        });
        core.env
            .spawn(Batcher::new(Arc::clone(&live)).run(purchase_queue));
        core.env
            .spawn(Writer::new(Arc::clone(&live)).run(writer_queue));
        core.env
            .spawn(Shortage::new(Arc::clone(&live)).run(shortage_queue));
        core.env
            .spawn(Settler::new(Arc::clone(&live)).run(settler_queue));
        core.env
            .spawn(Ender::new(Arc::clone(&live), service.clone()).run(ender_queue));
        live
    }

    /// What this instance last read of the sale's row.
    pub(super) fn row(&self) -> Arc<Sale> {
        Arc::clone(&self.row.read().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Takes note of a row that was read, unless a newer one is known. `began` is when the reading began.
    pub(super) fn learn(&self, row: Sale, began: Instant) {
        let mut known = self.row.write().unwrap_or_else(PoisonError::into_inner);
        let age = |sale: &Sale| {
            (
                sale.epoch,
                sale.control,
                sale.stage == Stage::Loaded,
                sale.drained,
            )
        };
        if age(&row) >= age(&known.0) {
            *known = (Arc::new(row), began.max(known.1));
        }
    }

    /// Reads the row again.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is gone, [`Error::Unavailable`] if the ledger does not answer.
    pub(super) async fn refresh(&self) -> Result<Arc<Sale>, Error> {
        let began = self.core.env.now();
        let row = self
            .core
            .ledger
            .sale(self.id)
            .await?
            .ok_or(Error::NotFound)?;
        self.learn(row, began);
        Ok(self.row())
    }

    /// The row, fit to answer a purchase that has just arrived.
    ///
    /// A sale that is not open may be opened by another instance at any time, so "not open" must rest on
    /// a reading that began after the purchase came. One reading serves all who came before it.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub(super) async fn current(&self) -> Result<Arc<Sale>, Error> {
        let row = self.row();
        if row.stage != Stage::Scheduled || row.drained {
            return Ok(row);
        }
        let arrived = self.core.env.now();
        let _one_at_a_time = self.recovery.lock().await;
        let (row, began) = self
            .row
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if began >= arrived {
            return Ok(row);
        }
        self.refresh().await
    }

    /// The connection that this segment's commands go through.
    pub(super) fn connection(&self, segment: u32) -> Connection {
        self.core
            .redis
            .connection(self.id.get().wrapping_add(segment))
    }

    /// The segment's keys under an epoch.
    pub(super) fn keys(&self, segment: u32, epoch: u64) -> SegmentKeys {
        SegmentKeys::new(self.id, segment, epoch)
    }

    /// A place for one more attempt; none if this instance has too much to do for this sale.
    pub(super) fn place(&self) -> Option<Place> {
        Place::take(&self.attempts, self.core.limits.backlog_max)
    }

    /// Attempts that this instance is working on.
    pub(super) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Queues a purchase for Redis.
    pub(super) fn submit(&self, attempt: Attempt) {
        // The receiver lives as long as the process: a failed send can only be a shutdown.
        let _ = self.purchases.send(attempt);
    }

    /// A call to Redis, given up when it takes too long.
    ///
    /// # Errors
    /// Those of the call, and [`stock::Error::TimedOut`].
    pub(super) async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, stock::Error>>,
    ) -> Result<T, stock::Error> {
        self.core.redis.calls().within(call).await
    }

    /// Queues admitted purchases for the ledger.
    pub(super) fn commit(&self, groups: Vec<Group>) {
        if groups.is_empty() {
            return;
        }
        let mut in_flight = self.in_flight();
        for group in &groups {
            if let Some((entry, _)) = &group.entry {
                in_flight.insert((group.epoch, group.segment, entry.clone()));
            }
        }
        drop(in_flight);
        self.uncommitted
            .send_modify(|waiting| *waiting += groups.len());
        let _ = self.writer.send(groups);
    }

    /// Takes note that these groups have got their transaction.
    pub(super) fn committing(&self, groups: usize) {
        self.uncommitted.send_modify(|waiting| *waiting -= groups);
    }

    /// Waits until no group waits for a transaction, but not longer than this.
    pub(super) async fn ledger_keeps_up(&self, patience: Duration) {
        let mut uncommitted = self.uncommitted.subscribe();
        let none = uncommitted.wait_for(|groups| *groups == 0);
        let _ = tokio::time::timeout(patience, none).await;
    }

    /// Queues a purchase for which the stock is short.
    pub(super) fn fall_short(&self, short: Short) {
        let _ = self.shortage.send(short);
    }

    /// Queues journal entries for deletion.
    pub(super) fn settle(&self, settled: Vec<Settled>) {
        if !settled.is_empty() {
            let _ = self.settler.send(settled);
        }
    }

    /// Whether this instance is committing this journal entry.
    pub(super) fn is_in_flight(&self, epoch: u64, segment: u32, entry: &str) -> bool {
        self.in_flight()
            .contains(&(epoch, segment, entry.to_owned()))
    }

    /// Forgets an entry that is left to the sweep.
    pub(super) fn forget(&self, epoch: u64, segment: u32, entry: &str) {
        self.in_flight().remove(&(epoch, segment, entry.to_owned()));
    }

    /// Forgets entries that are deleted, or left to the sweep.
    pub(super) fn forget_all(&self, settled: impl Iterator<Item = Settled>) {
        let mut in_flight = self.in_flight();
        for one in settled {
            in_flight.remove(&(one.epoch, one.segment, one.entry));
        }
    }

    fn in_flight(&self) -> std::sync::MutexGuard<'_, HashSet<(u64, u32, String)>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of Redis' clock.
    pub(super) fn learn_clock(&self, redis_now_ms: i64) {
        self.redis_clock_offset_ms
            .store(redis_now_ms - self.local_ms(), Ordering::Relaxed);
    }

    /// Redis' clock after `time` from now, as far as it is known; 0 if it is not.
    pub(super) fn redis_clock_after(&self, time: Duration) -> i64 {
        match self.redis_clock_offset_ms.load(Ordering::Relaxed) {
            NO_CLOCK => 0,
            offset => self.local_ms() + offset + i64::try_from(time.as_millis()).unwrap_or(0),
        }
    }

    fn local_ms(&self) -> i64 {
        i64::try_from((self.core.env.now() - self.started).as_millis()).unwrap_or(i64::MAX)
    }
}
