//! What the shop does with its sales.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::live::LiveSale;
use super::{Error, Service};
use crate::domain::{NewSale, Sale, SaleId, Stage, Timestamp};
use crate::stock::scripts;

/// How long a part may take to answer before it counts as not ready.
const READINESS_WAIT: Duration = Duration::from_secs(1);

/// Something that must work before buyers are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// `redis`, `ledger`, or `sale 12`.
    pub part: String,
    /// Whether it works.
    pub ready: bool,
    /// Why not, or a word on how it is.
    pub detail: String,
}

impl Service {
    /// Creates a sale. It is loaded by itself shortly before `opens_at`, if that is set.
    ///
    /// # Errors
    /// [`Error::Invalid`] for terms out of their bounds.
    pub async fn create_sale(&self, terms: NewSale) -> Result<Sale, Error> {
        let terms = terms.checked()?;
        Ok(self.core.ledger.create_sale(&terms).await?)
    }

    /// Sales by number, after `after`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sales(&self, after: Option<SaleId>, limit: u32) -> Result<Vec<Sale>, Error> {
        Ok(self.core.ledger.sales(after, limit).await?)
    }

    /// The sale as the ledger has it now.
    ///
    /// # Errors
    /// [`Error::NotFound`], or see [`Error`].
    pub async fn sale(&self, id: SaleId) -> Result<Sale, Error> {
        self.core.ledger.sale(id).await?.ok_or(Error::NotFound)
    }

    /// The sale as this instance knows it; price and currency never change.
    ///
    /// # Errors
    /// [`Error::NotFound`], or see [`Error`].
    pub async fn terms(&self, id: SaleId) -> Result<Arc<Sale>, Error> {
        Ok(self.live(id).await?.row())
    }

    /// The clock that judges the sale's window: Redis' as last heard, or this machine's before that.
    #[must_use]
    pub fn clock(&self, id: SaleId) -> Timestamp {
        let known = self
            .known(id)
            .map_or(0, |live| live.redis_clock_after(Duration::ZERO));
        let millis = if known > 0 {
            known
        } else {
            self.core.env.wall_clock_ms()
        };
        Timestamp::from_millis(millis).expect("the clock lies between 1970 and 9999")
    }

    /// Puts the stock into Redis, if it is not there; it sells from `opens_at` on.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if that did not succeed yet, or see [`Error`].
    pub async fn load(&self, id: SaleId) -> Result<Sale, Error> {
        let live = self.live(id).await?;
        let row = live.refresh().await?;
        still_selling(&row)?;
        if !row.drained {
            live.load_by(self.core.env.now() + self.core.limits.purchase_wait)
                .await?;
        }
        self.sale(id).await
    }

    /// Lets the sale sell from now on.
    ///
    /// # Errors
    /// As [`Service::load`].
    pub async fn open(&self, id: SaleId) -> Result<Sale, Error> {
        let began = self.core.env.now();
        let row = self
            .core
            .ledger
            .open_now(id)
            .await?
            .ok_or(Error::NotFound)?;
        still_selling(&row)?;
        self.apply(row, began).await?;
        self.load(id).await
    }

    /// Stops selling until [`Service::resume`].
    ///
    /// # Errors
    /// See [`Error`]; if Redis did not hear of it, the upkeep tells it.
    pub async fn pause(&self, id: SaleId) -> Result<Sale, Error> {
        let began = self.core.env.now();
        let row = self
            .core
            .ledger
            .set_paused(id, true)
            .await?
            .ok_or(Error::NotFound)?;
        still_selling(&row)?;
        self.apply(row, began).await
    }

    /// Sells again.
    ///
    /// # Errors
    /// As [`Service::pause`].
    pub async fn resume(&self, id: SaleId) -> Result<Sale, Error> {
        let began = self.core.env.now();
        let row = self
            .core
            .ledger
            .set_paused(id, false)
            .await?
            .ok_or(Error::NotFound)?;
        still_selling(&row)?;
        self.apply(row, began).await
    }

    /// Ends the sale for good. What was admitted is still committed; orders live on.
    ///
    /// # Errors
    /// As [`Service::pause`].
    pub async fn close(&self, id: SaleId) -> Result<Sale, Error> {
        let began = self.core.env.now();
        let row = self
            .core
            .ledger
            .close_sale(id)
            .await?
            .ok_or(Error::NotFound)?;
        self.apply(row, began).await
    }

    /// Tells Redis about changed switches, if the sale is there.
    async fn apply(&self, row: Sale, began: Instant) -> Result<Sale, Error> {
        let live = self.live_from(row.clone(), began);
        if row.stage == Stage::Loaded && !row.drained {
            live.control(&row).await?;
        }
        Ok(row)
    }

    /// What works and what does not.
    pub async fn readiness(&self) -> Vec<Readiness> {
        let part = |part: &str, result: Result<(), String>| Readiness {
            part: part.to_owned(),
            ready: result.is_ok(),
            detail: result.err().unwrap_or_else(|| "answers".to_owned()),
        };
        let (redis, ledger) = tokio::join!(
            in_time(self.core.redis.ping()),
            in_time(self.core.ledger.ping())
        );
        let mut parts = vec![part("redis", redis), part("ledger", ledger)];
        for live in self.live_sales() {
            let row = live.row();
            let wanted = row.stage != Stage::Scheduled && !row.drained;
            if wanted && live.if_loaded().is_none() {
                let name = format!("sale {}", live.id);
                let how = format!("its stock is being loaded: {}", live.progress);
                parts.push(part(&name, Err(how)));
            }
        }
        parts
    }
}

/// What is over stays over.
fn still_selling(row: &Sale) -> Result<(), Error> {
    if row.closed {
        return Err(Error::Over);
    }
    Ok(())
}

/// A part that does not answer soon is named, and does not hide the others.
async fn in_time<E: std::fmt::Display>(
    ping: impl Future<Output = Result<(), E>>,
) -> Result<(), String> {
    match tokio::time::timeout(READINESS_WAIT, ping).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("does not answer within {READINESS_WAIT:?}")),
    }
}

impl LiveSale {
    /// Brings all segments' switches to those of the row.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if Redis did not hear of it.
    pub(super) async fn control(&self, row: &Sale) -> Result<(), Error> {
        for segment in 0..row.terms.segments {
            let mut connection = self.connection(segment);
            let keys = self.keys(segment, row.epoch);
            let call = scripts::control(&mut connection, &keys, row);
            self.within(call).await?;
        }
        Ok(())
    }
}
