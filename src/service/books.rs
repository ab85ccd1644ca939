//! Figures to look at: where a sale's units are at about this moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::live::LiveSale;
use super::{Error, Service};
use crate::domain::{Sale, SaleId, Stage};
use crate::stock::scripts::{Figures, Presence};

/// How old the figures of [`Service::stock`] may be: a page that polls costs Redis and the ledger nothing
/// beyond that rate.
pub const STOCK_AGE_MAX: Duration = Duration::from_millis(100);

/// A sale's figures, read one after the other and not in one instant: for showing, not for deciding.
#[derive(Debug, Clone)]
pub struct Stock {
    /// The sale as the ledger has it.
    pub sale: Sale,
    /// Units that a purchase could take now.
    pub available: u64,
    /// Units on their way between segments.
    pub in_transfer: u64,
    /// Units in journal entries; a committed entry counts until it is deleted, moments later.
    pub journaled: u64,
    /// Units in orders that wait for payment.
    pub held: u64,
    /// Units in confirmed orders.
    pub confirmed: u64,
    /// Units of ended orders on their way back to Redis.
    pub returning: u64,
}

/// What one segment has and has done since the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFigures {
    /// Its number.
    pub segment: u32,
    /// Whether its data is in Redis and selling.
    pub loaded: bool,
    /// Units that the load brought.
    pub filled: u64,
    /// Units borrowed from other segments since.
    pub borrowed: u64,
    /// Units lent to other segments since.
    pub lent: u64,
    /// Units free now.
    pub available: u64,
    /// Of those lent, units that may not have arrived.
    pub in_transfer: u64,
    /// Units admitted and not yet settled with the ledger.
    pub journaled: u64,
}

/// The last figures that were read, and when.
pub(super) type StockCache = tokio::sync::Mutex<Option<(Instant, Stock)>>;

impl Service {
    /// A sale's figures, at most [`STOCK_AGE_MAX`] old.
    ///
    /// # Errors
    /// [`Error::NotFound`], or see [`Error`].
    pub async fn stock(&self, id: SaleId) -> Result<Stock, Error> {
        let live = self.live(id).await?;
        let mut cache = live.stock_cache.lock().await;
        let now = self.core.env.now();
        if let Some((at, stock)) = &*cache
            && now - *at < STOCK_AGE_MAX
        {
            return Ok(stock.clone());
        }
        let stock = self.read_stock(&live).await?;
        *cache = Some((now, stock.clone()));
        Ok(stock)
    }

    /// The sale's epoch, and the figures of each segment; none before the first load.
    ///
    /// # Errors
    /// [`Error::NotFound`], or see [`Error`].
    pub async fn segments(&self, id: SaleId) -> Result<(u64, Vec<SegmentFigures>), Error> {
        let live = self.live(id).await?;
        let row = live.refresh().await?;
        if row.stage == Stage::Scheduled || row.drained {
            return Ok((row.epoch, Vec::new()));
        }
        let reading = live.read_segments(&row).await?;
        let numbered = (0..).zip(reading.segments());
        let figures = numbered.map(|(segment, one)| SegmentFigures {
            segment,
            loaded: one.presence == Presence::Loaded,
            filled: one.filled,
            borrowed: one.borrowed,
            lent: one.lent,
            available: one.available,
            in_transfer: one.in_transfer,
            journaled: one.journaled,
        });
        Ok((row.epoch, figures.collect()))
    }

    async fn read_stock(&self, live: &Arc<LiveSale>) -> Result<Stock, Error> {
        let returning = self.core.ledger.returning(live.id).await?;
        let row = live.refresh().await?;
        let mut stock = Stock {
            available: row.free(),
            in_transfer: 0,
            journaled: 0,
            held: row.held(),
            confirmed: row.confirmed,
            returning,
            sale: Sale::clone(&row),
        };
        if row.stage == Stage::Loaded && !row.drained {
            let reading = live.read_segments(&row).await?;
            let sum = |figure: fn(&Figures) -> u64| reading.segments().iter().map(figure).sum();
            stock.available = sum(|one| one.available);
            stock.in_transfer = sum(|one| one.in_transfer);
            stock.journaled = sum(|one| one.journaled);
        }
        Ok(stock)
    }
}
