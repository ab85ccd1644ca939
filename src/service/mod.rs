//! The service behind the HTTP face: sales, purchases, orders, books, and the upkeep that needs nobody.
//!
//! A purchase passes two natural batchers in series (`batcher` to Redis, `writer` to the ledger) and
//! is answered from the second. Everything that an instance keeps in memory may be lost at any time:
//! what was admitted is in the journal, and the upkeep of any instance finishes it.

mod admin;
mod attempt;
mod audit;
mod batcher;
mod books;
mod decided;
mod ender;
mod feed;
mod live;
mod loading;
mod orders;
mod reading;
mod settler;
mod shortage;
mod transfers;
mod upkeep;
mod writer;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

pub use admin::Readiness;
pub use attempt::AnswerWhen;
use attempt::Attempt;
pub use audit::{Audit, AuditVerdict};
pub use books::{STOCK_AGE_MAX, SegmentFigures, Stock};
pub use feed::{Cursor, Event, Feed, WAIT_MAX};
use live::LiveSale;
pub use loading::Changed;
pub use orders::{Confirmation, OrderView};

use crate::domain::{
    BuyerId, IdempotencyKey, Invalid, OrderId, Outcome, Purchase, Refusal, Sale, SaleId, Stage,
    Unavailable,
};
use crate::env::Env;
use crate::ledger::{self, Ledger};
use crate::metrics::Metrics;
use crate::stock::{self, Redis};

/// Bounds of what one instance takes on, and how long it makes anyone wait.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Purchases of one sale that are queued, at Redis or on their way to the ledger.
    pub backlog_max: usize,
    /// How long a buyer waits for the commit of an admitted purchase before the answer is "admitted".
    pub commit_wait: Duration,
    /// How long a buyer waits for Redis' decision before the answer is "try again".
    pub purchase_wait: Duration,
    /// Age at which a journal entry of somebody else is taken to be abandoned.
    pub journal_grace: Duration,
    /// How long a closed sale's keys stay in Redis.
    pub redis_retention: Duration,
    /// Pause between two rounds of the upkeep.
    pub upkeep_pause: Duration,
}

impl Default for Limits {
    /// What `stockade serve` does when nothing else is asked for.
    fn default() -> Self {
        Self {
            backlog_max: 20_000,
            commit_wait: Duration::from_secs(2),
            purchase_wait: Duration::from_secs(3),
            journal_grace: Duration::from_secs(2),
            redis_retention: Duration::from_secs(86_400),
            upkeep_pause: Duration::from_millis(250),
        }
    }
}

/// What a call could not do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No such sale or order.
    #[error("not found")]
    NotFound,
    /// The sale is closed, for good.
    #[error("the sale is over")]
    Over,
    /// A server does not answer, or the sale is being loaded: retry.
    #[error("unavailable: {0:?}")]
    Unavailable(Unavailable),
    /// Input that the rules refuse.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A defect, or data changed by hand.
    #[error("internal: {0}")]
    Internal(String),
}

impl From<ledger::Error> for Error {
    fn from(error: ledger::Error) -> Self {
        match error {
            ledger::Error::Transient(_) => Self::Unavailable(Unavailable::Unreachable),
            ledger::Error::Unknown(_) => Self::Unavailable(Unavailable::OutcomeUnknown),
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<stock::Error> for Error {
    fn from(error: stock::Error) -> Self {
        match error {
            stock::Error::NotRun(_) => Self::Unavailable(Unavailable::Unreachable),
            stock::Error::Unknown(_) | stock::Error::TimedOut => {
                Self::Unavailable(Unavailable::OutcomeUnknown)
            }
            other => Self::Internal(other.to_string()),
        }
    }
}

/// What all parts of one instance share.
#[derive(Debug)]
struct Core {
    ledger: Ledger,
    redis: Redis,
    env: Env,
    limits: Limits,
    metrics: Arc<Metrics>,
}

/// A running instance; clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct Service {
    core: Arc<Core>,
    sales: Arc<RwLock<HashMap<SaleId, Arc<LiveSale>>>>,
}

impl Service {
    /// Starts an instance with its upkeep.
    #[must_use]
    pub fn start(ledger: Ledger, redis: Redis, limits: Limits, metrics: Arc<Metrics>) -> Self {
        let service = Self::without_upkeep(ledger, redis, limits, metrics);
        upkeep::start(&service);
        service
    }

    /// An instance that does nothing by itself: to look at the books beside running instances.
    #[must_use]
    pub fn without_upkeep(
        ledger: Ledger,
        redis: Redis,
        limits: Limits,
        metrics: Arc<Metrics>,
    ) -> Self {
        let core = Arc::new(Core {
            ledger,
            redis,
            env: Env::default(),
            limits,
            metrics,
        });
        Self {
            core,
            sales: Arc::default(),
        }
    }

    /// Finishes what was admitted, stops all tasks and closes the ledger, within `limit`; true if nothing
    /// was left. Call it when no purchase comes in any more.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        const POLL: Duration = Duration::from_millis(5);
        let end = self.core.env.now() + limit;
        while self.attempts() > 0 && self.core.env.now() < end {
            self.core.env.sleep(POLL).await;
        }
        let left = self.attempts();
        let stopped = self
            .core
            .env
            .stop(end.saturating_duration_since(self.core.env.now()).max(POLL))
            .await;
        self.core.ledger.close().await;
        left == 0 && stopped
    }

    /// Purchases that this instance is working on.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.live_sales().iter().map(|live| live.attempts()).sum()
    }

    /// The metrics that this instance counts in.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.core.metrics
    }

    /// Buys, or finds what an earlier attempt under this key has bought.
    ///
    /// The outcome is definite unless it is [`Outcome::Unavailable`]; then the same call may be repeated
    /// with the same key, here or on another instance.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such sale.
    pub async fn purchase(
        &self,
        sale: SaleId,
        buyer: &BuyerId,
        key: &IdempotencyKey,
        quantity: u32,
        answer_when: AnswerWhen,
    ) -> Result<Outcome, Error> {
        assert!(
            quantity > 0,
            "a purchase of nothing must be refused at the door"
        );
        let live = self.live(sale).await?;
        let row = live.current().await?;
        let order = OrderId::of(sale, buyer, key);
        if let Some(outcome) = self.without_stock(&row, order, quantity).await? {
            return Ok(outcome);
        }
        let Some(place) = live.place() else {
            return Ok(Outcome::Unavailable(Unavailable::Overloaded));
        };
        let now = self.core.env.now();
        let decide_by = now + self.core.limits.purchase_wait;
        let commit_by = now + self.core.limits.commit_wait;
        let purchase = Purchase {
            order,
            buyer: buyer.clone(),
            quantity,
        };
        let (attempt, receipt) = Attempt::new(purchase, answer_when, decide_by, place);
        live.submit(attempt);
        let unsent = || match live.if_loaded() {
            Some(_) => Unavailable::Unreachable,
            None => Unavailable::Loading,
        };
        Ok(receipt.wait(commit_by, decide_by, unsent).await)
    }

    /// The answer for a sale that has nothing in Redis: not yet, or no longer.
    async fn without_stock(
        &self,
        row: &Sale,
        order: OrderId,
        quantity: u32,
    ) -> Result<Option<Outcome>, Error> {
        if row.drained {
            return Ok(Some(match self.core.ledger.order(order).await? {
                Some(order) if order.quantity != quantity => Outcome::Refused(Refusal::KeyReused {
                    quantity: order.quantity,
                }),
                Some(order) => Outcome::Committed {
                    order,
                    replayed: true,
                },
                None => Outcome::Refused(Refusal::Closed),
            }));
        }
        if row.stage == Stage::Scheduled {
            let opens_at = row.terms.opens_at;
            return Ok(Some(Outcome::Refused(Refusal::NotOpen {
                opens_at,
                paused: row.paused,
            })));
        }
        Ok(None)
    }

    /// The sale as this instance serves it; started on first use.
    async fn live(&self, id: SaleId) -> Result<Arc<LiveSale>, Error> {
        if let Some(live) = self.known(id) {
            return Ok(live);
        }
        let began = self.core.env.now();
        let row = self.core.ledger.sale(id).await?.ok_or(Error::NotFound)?;
        Ok(self.live_from(row, began))
    }

    /// As [`Self::live`], for a row whose reading began at `began`.
    fn live_from(&self, row: Sale, began: Instant) -> Arc<LiveSale> {
        let mut sales = self.sales.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = sales.get(&row.id) {
            live.learn(row, began);
            return Arc::clone(live);
        }
        let id = row.id;
        let live = LiveSale::start(self, row, began);
        sales.insert(id, Arc::clone(&live));
        live
    }

    fn known(&self, id: SaleId) -> Option<Arc<LiveSale>> {
        let sales = self.sales.read().unwrap_or_else(PoisonError::into_inner);
        sales.get(&id).cloned()
    }

    fn live_sales(&self) -> Vec<Arc<LiveSale>> {
        self.sales
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }
}

/// Refuses an attempt. One that had been admitted under an older epoch, and whose buyer was told so, is
/// recorded as rejected: whoever asks for it later gets a final answer.
fn refuse(live: &Arc<LiveSale>, mut attempt: Attempt, refusal: Refusal) {
    const PAUSE: Duration = Duration::from_millis(200);
    let promised = attempt.was_admitted();
    let heard = attempt.answer(Outcome::Refused(refusal));
    if !promised || heard {
        return;
    }
    let live = Arc::clone(live);
    live.core.env.clone().spawn(async move {
        let core = &live.core;
        while let Err(error) = core.ledger.reject(live.id, &attempt.purchase, None).await {
            tracing::warn!(order.id = %attempt.purchase.order, error = %error,
                "a rejection is not recorded yet");
            if core.env.sleep_or_stop(PAUSE).await {
                return;
            }
        }
        core.metrics.rejected();
    });
}
