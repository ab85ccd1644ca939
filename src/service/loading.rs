//! Bringing a sale's stock into Redis: at its opening, after a loss, and under changed terms.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::live::LiveSale;
use super::{Error, Service};
use crate::domain::{Sale, SaleId, Stage, Unavailable};
use crate::ledger::{ChangeAnswer, ScheduledChange, StockChange};
use crate::stock::load::{self, Failed, Loader};

/// Between two looks at a sale that somebody else loads.
const LOADING_POLL: Duration = Duration::from_millis(25);

/// Between two loads that failed: grows from the first to the second.
const LOAD_PAUSE_MIN: Duration = Duration::from_millis(100);
const LOAD_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a change of the terms may take, other loaders included.
const CHANGE_WAIT: Duration = Duration::from_secs(10);

/// Why the stock of a sale must be loaded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadCause {
    /// A script found no segment, or one of another Redis process.
    NotLoaded,
    /// A segment is sealed, but the ledger has not begun a newer epoch.
    Sealed,
    /// Redis admitted units that the sale does not have.
    GuardRefused,
    /// Redis does not know an order of its own load.
    MarkMissing,
    /// An operator has asked for it.
    Asked,
}

impl LoadCause {
    const fn as_str(self) -> &'static str {
        match self {
            Self::NotLoaded => "not-loaded",
            Self::Sealed => "sealed",
            Self::GuardRefused => "guard-refused",
            Self::MarkMissing => "mark-missing",
            Self::Asked => "asked",
        }
    }
}

/// What became of a change of a sale's stock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The sale sells under the new terms; it as it is now.
    Done(Sale),
    /// Nothing was changed.
    Refused(ChangeAnswer),
    /// Nothing was changed: the sale is over.
    Closed,
}

impl LiveSale {
    /// Takes note that this epoch is not in Redis, or is full of units that the sale does not have.
    pub(super) fn mark_lost(&self, epoch: u64, cause: LoadCause) {
        if self.lost_epoch.fetch_max(epoch, Ordering::SeqCst) < epoch {
            self.core.metrics.load_needed(cause.as_str());
            tracing::warn!(sale.id = %self.id, sale.epoch = epoch, cause = cause.as_str(),
                "the stock of the sale must be loaded again");
        }
    }

    /// The row, if the sale is loaded under its epoch as far as this instance knows.
    pub(super) fn if_loaded(&self) -> Option<Arc<Sale>> {
        let row = self.row();
        let here = row.stage == Stage::Loaded && row.epoch > self.lost_epoch.load(Ordering::SeqCst);
        here.then_some(row)
    }

    /// Brings the sale into Redis if it is not there, or waits a moment for whoever does.
    ///
    /// # Errors
    /// [`Unavailable`] if it is not there yet: ask again.
    pub(super) async fn loaded(self: &Arc<Self>) -> Result<Arc<Sale>, Unavailable> {
        if let Some(row) = self.if_loaded() {
            return Ok(row);
        }
        let _one_at_a_time = self.recovery.lock().await;
        if let Some(row) = self.if_loaded() {
            return Ok(row);
        }
        let row = self.refresh().await.map_err(|_| Unavailable::Unreachable)?;
        if let Some(row) = self.if_loaded() {
            return Ok(row);
        }
        if row.drained {
            return Err(Unavailable::Loading);
        }
        if let Err(error) = self.load_from(&row).await {
            // Each attempt reads the whole sale: they come less and less often.
            let failures = self.load_failures.fetch_add(1, Ordering::Relaxed);
            let pause = LOAD_PAUSE_MIN * 2_u32.saturating_pow(failures);
            let pause = self.core.env.jittered(pause.min(LOAD_PAUSE_MAX));
            tracing::warn!(sale.id = %self.id, sale.epoch = row.epoch, error = %error,
                pause_ms = pause.as_millis(), "the stock of the sale could not be loaded; trying again");
            self.core.env.sleep_or_stop(pause).await;
            return Err(Unavailable::Loading);
        }
        self.load_failures.store(0, Ordering::Relaxed);
        self.if_loaded().ok_or(Unavailable::Loading)
    }

    /// As [`Self::loaded`], asking again until `deadline`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it is not there by then.
    pub(super) async fn load_by(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Sale>, Error> {
        loop {
            match self.loaded().await {
                Ok(row) => return Ok(row),
                Err(why) if self.core.env.now() >= deadline => return Err(Error::Unavailable(why)),
                Err(_) => self.core.env.sleep(LOADING_POLL).await,
            }
        }
    }

    /// Fences the row's epoch and loads the next one, or waits a moment if another loader is at it.
    async fn load_from(self: &Arc<Self>, row: &Sale) -> Result<(), Failed> {
        self.load_changed(row, None).await.map(|_| ())
    }

    /// As [`Self::load_from`]; with a `change`, under new terms. None: another loader was at it, and
    /// nothing was changed.
    async fn load_changed(
        self: &Arc<Self>,
        row: &Sale,
        change: Option<&StockChange>,
    ) -> Result<Option<Option<ChangeAnswer>>, Failed> {
        let ledger = &self.core.ledger;
        let is_loader = match row.stage {
            // The load that was under way may have ended since: that epoch must not be fenced.
            Stage::Loading => ledger.overtake(self.id, row.epoch, load::LEASE).await?,
            Stage::Scheduled | Stage::Loaded => {
                ledger.fence(self.id, row.epoch, load::LEASE).await?
            }
        };
        if !is_loader {
            self.core.env.sleep(LOADING_POLL).await;
            return Ok(None);
        }
        let _under_way = self.core.metrics.load_begins();
        let started = self.core.env.now();
        let epoch = row.epoch + 1;
        let fenced = ledger.sale(self.id).await?;
        let sale = fenced
            .filter(|sale| sale.epoch == epoch)
            .ok_or(Failed::Overtaken)?;
        crate::crash_point!("load:fenced");
        tracing::info!(sale.id = %self.id, sale.epoch = epoch, "loading the stock of the sale");
        let loader = Loader {
            connection_of: |segment| self.connection(segment),
            calls: self.core.redis.calls(),
            ledger,
            sale: &sale,
            progress: &self.progress,
        };
        let loaded = match loader.load(change).await {
            Ok(loaded) => loaded,
            Err(error) => {
                // Lets the next loader begin at once; if this fails too, the lease runs out.
                let _ = ledger.renew_load(self.id, epoch, Duration::ZERO).await;
                return Err(error);
            }
        };
        let took = self.core.env.now() - started;
        self.core.metrics.loaded(took);
        let adopted = loaded.adopted;
        tracing::info!(sale.id = %self.id, sale.epoch = epoch, duration_ms = took.as_millis(),
            adopted = adopted.committed, rejected = adopted.rejected, "the stock of the sale is loaded");
        // If the ledger does not answer, the next call reads the row.
        let _ = self.refresh().await;
        Ok(Some(loaded.change))
    }

    /// Loads the sale under new terms; once if nobody else loads it.
    async fn change(self: &Arc<Self>, change: &StockChange) -> Result<Option<Changed>, Error> {
        let _one_at_a_time = self.recovery.lock().await;
        let row = self.refresh().await?;
        if row.closed || row.drained {
            return Ok(Some(Changed::Closed));
        }
        if row.stage == Stage::Scheduled {
            let answer = self.core.ledger.change_scheduled(self.id, change).await?;
            return Ok(match answer.ok_or(Error::NotFound)? {
                ScheduledChange::Answered(ChangeAnswer::Applied, sale) => {
                    self.learn(sale.clone(), self.core.env.now());
                    Some(Changed::Done(sale))
                }
                ScheduledChange::Answered(refused, _) => Some(Changed::Refused(refused)),
                ScheduledChange::NotScheduled(sale) if sale.closed => Some(Changed::Closed),
                ScheduledChange::NotScheduled(_) => None,
            });
        }
        // Nobody is kept waiting for a load that would change nothing.
        if change.is_so_already(&row) {
            return Ok(Some(Changed::Done(Sale::clone(&row))));
        }
        match change.answer(&row) {
            ChangeAnswer::Applied => {}
            refused => return Ok(Some(Changed::Refused(refused))),
        }
        let loaded = self.load_changed(&row, Some(change)).await;
        match loaded.map_err(|error| self.changed_or_not(&error))? {
            None => Ok(None),
            Some(Some(ChangeAnswer::Applied) | None) => {
                Ok(Some(Changed::Done(Sale::clone(&self.row()))))
            }
            Some(Some(refused)) => Ok(Some(Changed::Refused(refused))),
        }
    }

    fn changed_or_not(&self, error: &Failed) -> Error {
        tracing::warn!(sale.id = %self.id, error = %error, "a change of the stock did not end");
        Error::Unavailable(Unavailable::OutcomeUnknown)
    }
}

impl Service {
    /// Adds stock, withdraws unsold stock, or splits it anew, while the sale sells. Buyers wait for the
    /// moment of the load; what was admitted is kept.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] for terms out of their bounds;
    /// [`Unavailable::OutcomeUnknown`] if it cannot be told whether it was changed: read the sale.
    pub async fn change_stock(&self, id: SaleId, change: StockChange) -> Result<Changed, Error> {
        change.checked()?;
        let live = self.live(id).await?;
        let deadline = self.core.env.now() + CHANGE_WAIT;
        loop {
            if let Some(changed) = live.change(&change).await? {
                return Ok(changed);
            }
            if self.core.env.now() >= deadline {
                return Err(Error::Unavailable(Unavailable::Loading));
            }
            self.core.env.sleep(LOADING_POLL).await;
        }
    }

    /// Loads the sale anew, whatever is in Redis: what an operator does who trusts nothing there.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if that did not succeed yet, or see [`Error`].
    pub async fn recover(&self, id: SaleId) -> Result<Sale, Error> {
        let live = self.live(id).await?;
        let row = live.refresh().await?;
        if row.stage == Stage::Scheduled || row.drained {
            return Ok(Sale::clone(&row));
        }
        live.mark_lost(row.epoch, LoadCause::Asked);
        live.load_by(self.core.env.now() + CHANGE_WAIT).await?;
        self.sale(id).await
    }
}
