//! Writing a sale's stock into Redis under a new epoch.
//!
//! One procedure for every cause: first opening, a lost or foreign Redis, a changed quantity, another number of segments. The caller
//! has fenced the old epoch in the ledger; what follows here is seal, adopt, load and finish. Every step
//! may be repeated, and a loader that was overtaken changes nothing that anyone reads: the ledger
//! refuses it, and its keys carry its own epoch.

mod content;
mod progress;

use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::{self, TryStreamExt as _};
use redis::aio::ConnectionLike;

use self::content::{WRITE_ATTEMPTS, split, write};
pub use self::progress::{Progress, Step};
use super::redis::send;
use super::{Calls, Error, SegmentKeys, journal, scripts};
use crate::domain::{Purchase, Sale, SaleId};
use crate::ledger::{self, Adopted, COMMIT_MAX, ChangeAnswer, Ledger, Snapshot, StockChange};

/// How long the ledger keeps others from loading after the loader's last sign of life.
pub const LEASE: Duration = Duration::from_secs(3);
/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Keys of an unfinished load run out after this.
const UNFINISHED_MS: u64 = 600_000;
/// Segments that are written at the same time.
const WRITTEN_AT_ONCE: usize = 8;
/// Unfinished loads before this one whose keys are deleted; others run out by themselves.
const EPOCHS_CLEARED: u64 = 4;

/// A load did not end.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Another loader began after this one; its load counts.
    #[error("another loader has taken over")]
    Overtaken,
    /// Redis did not take it.
    #[error(transparent)]
    Redis(#[from] Error),
    /// The ledger did not answer.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// Redis loses what is written to it.
    #[error("segment {segment} of sale {sale} was not whole after {WRITE_ATTEMPTS} attempts")]
    NotWhole {
        /// The sale.
        sale: SaleId,
        /// The segment.
        segment: u32,
    },
}

/// What a load has done besides loading.
#[derive(Debug)]
pub struct Loaded {
    /// What was taken over from the epoch before.
    pub adopted: Adopted,
    /// What became of the change that was asked for.
    pub change: Option<ChangeAnswer>,
}

/// Whoever has fenced a sale, and now loads it.
#[derive(Debug)]
pub struct Loader<'a, F> {
    /// The connection of each segment.
    pub connection_of: F,
    /// How long one call to Redis may take.
    pub calls: Calls,
    /// The authority.
    pub ledger: &'a Ledger,
    /// The sale, fenced under its current epoch by this loader.
    pub sale: &'a Sale,
    /// Where the loader tells how far it has come.
    pub progress: &'a Progress,
}

impl<C: ConnectionLike, F: Fn(u32) -> C> Loader<'_, F> {
    /// Loads the sale; with a `change`, under new terms.
    ///
    /// # Errors
    /// [`Failed`]; the sale stays in stage loading until the lease runs out or someone tries again.
    /// Whether a change was made is then not known: read the sale.
    pub async fn load(&self, change: Option<&StockChange>) -> Result<Loaded, Failed> {
        let loaded = tokio::select! {
            loaded = self.load_once(change) => loaded,
            failed = self.keep_lease() => Err(failed),
        };
        self.progress.begin(Step::Idle, 0);
        loaded
    }

    fn begin(&self, step: Step, parts: u32) {
        tracing::info!(sale.id = %self.sale.id, sale.epoch = self.sale.epoch, parts, "{}", step.word());
        self.progress.begin(step, parts);
    }

    /// Renews the lease until this loader is overtaken.
    async fn keep_lease(&self) -> Failed {
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            let (sale, epoch) = (self.sale.id, self.sale.epoch);
            match self.ledger.renew_load(sale, epoch, LEASE).await {
                Ok(true) => {}
                Ok(false) => return Failed::Overtaken,
                Err(error) => tracing::debug!(sale.id = %sale, error = %error, "lease not renewed"),
            }
        }
    }

    async fn load_once(&self, change: Option<&StockChange>) -> Result<Loaded, Failed> {
        let (id, epoch) = (self.sale.id, self.sale.epoch);
        let adopted = self.adopt().await?;
        crate::crash_point!("load:adopted");
        self.begin(Step::Reading, 0);
        let snapshot = self.ledger.snapshot(id, epoch, change).await?;
        let snapshot = snapshot.ok_or(Failed::Overtaken)?;
        crate::crash_point!("load:read");
        // All of it is in the ledger. Memory may not hold two epochs.
        self.clear(&snapshot).await;
        self.begin(Step::Writing, snapshot.sale.terms.segments);
        fill(self.calls, &self.connection_of, &snapshot, self.progress).await?;
        crate::crash_point!("load:written");
        self.begin(Step::Opening, 0);
        if !self.ledger.finish_load(id, epoch).await? {
            return Err(Failed::Overtaken);
        }
        crate::crash_point!("load:finished");
        Ok(Loaded {
            adopted,
            change: snapshot.change,
        })
    }

    /// Seals the segments that may have sold since the last finished load, and takes what their journals
    /// hold into the ledger.
    ///
    /// That is always the last *finished* load: nobody sells under an epoch before the ledger calls it
    /// loaded. A loader may have died after its fence, so it need not be the epoch before this one. All
    /// segments are sealed before the first is adopted: one that still sells could write entries behind
    /// the reader.
    async fn adopt(&self) -> Result<Adopted, Failed> {
        let (sale, epoch) = (self.sale, self.sale.loaded_epoch);
        let mut total = Adopted::default();
        if epoch == 0 {
            return Ok(total);
        }
        self.begin(Step::Sealing, sale.loaded_segments);
        let all = (0..sale.loaded_segments).map(|segment| self.seal(segment, epoch));
        let journals = try_join_all(all).await?;
        crate::crash_point!("load:sealed");
        self.begin(Step::Adopting, sale.loaded_segments);
        for (segment, entries) in (0..).zip(journals) {
            if entries > 0 {
                self.adopt_journal(segment, epoch, &mut total).await?;
            }
            self.progress.part_done();
        }
        Ok(total)
    }

    /// Seals a segment; returns the length of its journal. One that is not there can admit nothing.
    async fn seal(&self, segment: u32, epoch: u64) -> Result<u64, Error> {
        let keys = SegmentKeys::new(self.sale.id, segment, epoch);
        let mut connection = (self.connection_of)(segment);
        let (_, entries) = self
            .calls
            .within(scripts::seal(&mut connection, &keys))
            .await?;
        self.progress.part_done();
        Ok(entries)
    }

    async fn adopt_journal(
        &self,
        segment: u32,
        epoch: u64,
        total: &mut Adopted,
    ) -> Result<(), Failed> {
        let keys = SegmentKeys::new(self.sale.id, segment, epoch);
        let mut connection = (self.connection_of)(segment);
        let mut after: Option<String> = None;
        loop {
            let read = journal::read(&mut connection, &keys, after.as_deref());
            let entries = self.calls.within(read).await?;
            let Some(last) = entries.last() else {
                return Ok(());
            };
            after = Some(last.id.clone());
            let found: Vec<Purchase> = entries
                .into_iter()
                .flat_map(|entry| entry.purchases)
                .collect();
            for group in found.chunks(COMMIT_MAX) {
                self.adopt_group(group, total).await?;
            }
        }
    }

    /// Adopts purchases; those that the database refuses for good are found by halving, and recorded as
    /// rejected.
    async fn adopt_group(&self, group: &[Purchase], total: &mut Adopted) -> Result<(), Failed> {
        let (id, epoch) = (self.sale.id, self.sale.epoch);
        match self.ledger.adopt(id, epoch, group).await {
            Ok(Some(one)) => {
                total.committed += one.committed;
                total.rejected += one.rejected;
                total.known += one.known;
                Ok(())
            }
            Ok(None) => Err(Failed::Overtaken),
            Err(ledger::Error::Permanent(_)) if group.len() > 1 => {
                let (first, second) = group.split_at(group.len() / 2);
                Box::pin(self.adopt_group(first, total)).await?;
                Box::pin(self.adopt_group(second, total)).await
            }
            Err(ledger::Error::Permanent(_)) => {
                self.ledger.reject(id, &group[0], None).await?;
                total.rejected += 1;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes what the newest finished load and the unfinished ones after it left. A failure is only a
    /// loss of memory: the next load tries again.
    async fn clear(&self, snapshot: &Snapshot) {
        let sale = self.sale;
        let unfinished = sale
            .epoch
            .saturating_sub(EPOCHS_CLEARED)
            .max(sale.loaded_epoch + 1);
        let epochs = std::iter::once(sale.loaded_epoch).chain(unfinished..sale.epoch);
        let segments = 0..sale.loaded_segments.max(snapshot.sale.terms.segments);
        let all = epochs.flat_map(|epoch| segments.clone().map(move |segment| (epoch, segment)));
        let cleared = all.map(|(epoch, segment)| async move {
            let keys = SegmentKeys::new(sale.id, segment, epoch);
            let mut connection = (self.connection_of)(segment);
            let mut unlink = redis::cmd("UNLINK");
            unlink.arg(&keys.all());
            let unlink = async { Ok(send(&mut connection, &unlink).await?) };
            self.calls.within(unlink).await
        });
        if let Err(error) = try_join_all(cleared).await {
            tracing::debug!(sale.id = %sale.id, error = %error, "old epochs are not deleted");
        }
    }
}

/// Writes all segments of a snapshot, and opens each to the scripts.
///
/// # Errors
/// [`Failed`]; may be repeated with the same snapshot.
pub async fn fill<C: ConnectionLike>(
    calls: Calls,
    connection_of: &impl Fn(u32) -> C,
    snapshot: &Snapshot,
    progress: &Progress,
) -> Result<(), Failed> {
    let contents = (0..).zip(split(snapshot));
    stream::iter(contents.map(Ok))
        .try_for_each_concurrent(WRITTEN_AT_ONCE, async |(segment, content)| {
            let mut connection = connection_of(segment);
            write(calls, &mut connection, &snapshot.sale, segment, &content).await?;
            progress.part_done();
            Ok(())
        })
        .await
}

/// Lets a segment's keys run out after `retention`: nothing in them is needed any more.
///
/// # Errors
/// See [`Error`]; idempotent, and each call begins the time anew.
pub async fn expire<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    retention: Duration,
) -> Result<(), Error> {
    let millis = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let mut pipeline = redis::pipe();
    for key in keys.all() {
        pipeline.cmd("PEXPIRE").arg(key).arg(millis).ignore();
    }
    pipeline.query_async::<()>(connection).await?;
    Ok(())
}
