//! Orders: reading them, and confirm, cancel and expiry, of which one wins.

use tokio::time::timeout;

use super::attempt::Attempt;
use super::live::LiveSale;
use super::writer::Group;
use super::{AnswerWhen, Error, Service};
use crate::domain::{
    BuyerId, IdempotencyKey, Order, OrderId, OrderState, Outcome, Refusal, Sale, SaleId, Stage,
    Unavailable,
};
use crate::ledger::{End, OrderPage, Transition};
use crate::stock::journal::{self, Entry};
use crate::stock::requests::{Mark, marks};

/// Journal reads that a search for one pending order may take.
const SEARCH_READS_MAX: usize = 256;

/// An order, or a purchase that will become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderView {
    /// The ledger has it.
    Known(Order),
    /// Redis has admitted it.
    Pending {
        /// The order it will become.
        id: OrderId,
        /// Units.
        quantity: u32,
    },
    /// It was refused for good under its key.
    Refused {
        /// The order that it would have become.
        id: OrderId,
    },
}

/// What became of a confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// Confirmed, now or before.
    Confirmed(Order),
    /// Another final state came first.
    Final(Order),
    /// It had expired, and was bought again under this new order, which is confirmed.
    Reacquired(Order),
    /// It had expired, and could not be bought again: refund.
    Refused(Refusal),
}

impl Service {
    /// The order of this id.
    ///
    /// # Errors
    /// [`Error::NotFound`], or see [`Error`].
    pub async fn order(&self, id: OrderId) -> Result<OrderView, Error> {
        if let Some(order) = self.core.ledger.order(id).await? {
            return Ok(OrderView::Known(order));
        }
        let live = self.live(id.sale()).await?;
        let row = live.current().await?;
        match self.mark(&live, &row, id).await? {
            Some(Mark::Admitted(quantity)) => return Ok(OrderView::Pending { id, quantity }),
            Some(Mark::Void) => return Ok(OrderView::Refused { id }),
            Some(Mark::Ended(_)) | None => {}
        }
        // Committed since the first look, or decided under an epoch that this instance has not heard of.
        if let Some(order) = self.core.ledger.order(id).await? {
            return Ok(OrderView::Known(order));
        }
        let newer = live.refresh().await?;
        match self.mark(&live, &newer, id).await? {
            Some(Mark::Admitted(quantity)) => Ok(OrderView::Pending { id, quantity }),
            Some(Mark::Void) => Ok(OrderView::Refused { id }),
            // What was admitted under the old epoch may be about to be adopted.
            None if newer.stage == Stage::Loading => Err(Error::Unavailable(Unavailable::Loading)),
            Some(Mark::Ended(_)) | None => Err(Error::NotFound),
        }
    }

    async fn mark(&self, live: &LiveSale, row: &Sale, id: OrderId) -> Result<Option<Mark>, Error> {
        let segment = row.home(id);
        let (mut connection, keys) = (live.connection(segment), live.keys(segment, row.epoch));
        let wanted = [id];
        let read = marks(&mut connection, &keys, &wanted);
        let found = timeout(self.core.redis.timeout(), read).await;
        let found = found.map_err(|_| Error::Unavailable(Unavailable::Unreachable))??;
        Ok(found.into_iter().next().flatten())
    }

    /// Confirms an order; a pending one is committed first. With `reacquire`, one that has expired is
    /// bought again if there is stock.
    ///
    /// # Errors
    /// [`Error::NotFound`], or see [`Error`]; repeatable.
    pub async fn confirm(&self, id: OrderId, reacquire: bool) -> Result<Confirmation, Error> {
        let order = match self.transition(id, End::Confirm).await? {
            Transition::Done(order) => return Ok(Confirmation::Confirmed(order)),
            Transition::Final(order) => order,
            Transition::Missing => return Err(Error::NotFound),
        };
        if reacquire && order.state == OrderState::Expired {
            return self.reacquire(&order).await;
        }
        Ok(Confirmation::Final(order))
    }

    /// Cancels an order; a pending one is committed first.
    ///
    /// # Errors
    /// [`Error::NotFound`], or see [`Error`]; repeatable.
    pub async fn cancel(&self, id: OrderId) -> Result<Transition, Error> {
        match self.transition(id, End::Cancel).await? {
            Transition::Missing => Err(Error::NotFound),
            other => Ok(other),
        }
    }

    /// Buys an expired order's units again under a key that only this order can have.
    async fn reacquire(&self, expired: &Order) -> Result<Confirmation, Error> {
        let key = IdempotencyKey::reacquire(expired.id);
        let sale = expired.id.sale();
        let when = AnswerWhen::Committed;
        match self
            .purchase(sale, &expired.buyer, &key, expired.quantity, when)
            .await?
        {
            Outcome::Committed { order, .. } => {
                match self.transition(order.id, End::Confirm).await? {
                    Transition::Done(order) => Ok(Confirmation::Reacquired(order)),
                    Transition::Final(order) => Ok(Confirmation::Final(order)),
                    Transition::Missing => Err(Error::NotFound),
                }
            }
            Outcome::Refused(refusal) => Ok(Confirmation::Refused(refusal)),
            Outcome::Admitted(_) => Err(Error::Unavailable(Unavailable::OutcomeUnknown)),
            Outcome::Unavailable(why) => Err(Error::Unavailable(why)),
        }
    }

    /// Ends an order; one that the ledger does not have is looked for in the journal and committed first.
    async fn transition(&self, id: OrderId, end: End) -> Result<Transition, Error> {
        let live = self.live(id.sale()).await?;
        let done = live.end(id, end).await?;
        if done != Transition::Missing {
            return Ok(done);
        }
        // Whether it was in the journal or not: a load may have adopted it meanwhile.
        self.commit_pending(id).await?;
        live.end(id, end).await
    }

    /// Commits the journal entry that holds this order, if there is one.
    async fn commit_pending(&self, id: OrderId) -> Result<(), Error> {
        let live = self.live(id.sale()).await?;
        let row = live.row();
        if row.stage == Stage::Scheduled || row.drained {
            return Ok(());
        }
        let Ok(row) = live.loaded().await else {
            return Err(Error::Unavailable(Unavailable::Loading));
        };
        let segment = row.home(id);
        let Some(entry) = search(&live, segment, row.epoch, id).await? else {
            return Ok(());
        };
        let Some(place) = live.place() else {
            return Err(Error::Unavailable(Unavailable::Overloaded));
        };
        let now = self.core.env.now();
        let wait_until = now + self.core.limits.commit_wait;
        let units = entry.units();
        let (wanted, others): (Vec<_>, Vec<_>) = entry
            .purchases
            .into_iter()
            .partition(|purchase| purchase.order == id);
        let mut attempts: Vec<Attempt> = others
            .into_iter()
            .map(|purchase| Attempt::found(purchase, now))
            .collect();
        let Some(purchase) = wanted.into_iter().next() else {
            return Ok(());
        };
        let (attempt, receipt) = Attempt::new(purchase, AnswerWhen::Committed, wait_until, place);
        attempt.set_out();
        attempts.push(attempt);
        let entry = Some((entry.id, units));
        live.commit(vec![Group {
            epoch: row.epoch,
            segment,
            entry,
            attempts,
        }]);
        let outcome = receipt
            .wait(wait_until, wait_until, || Unavailable::Unreachable)
            .await;
        match outcome {
            Outcome::Unavailable(_) | Outcome::Admitted(_) => {
                Err(Error::Unavailable(Unavailable::Unreachable))
            }
            Outcome::Committed { .. } | Outcome::Refused(_) => Ok(()),
        }
    }

    /// A buyer's orders, those of the newest sale first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn buyer_orders(
        &self,
        buyer: &BuyerId,
        after: Option<OrderId>,
        limit: u32,
    ) -> Result<OrderPage, Error> {
        Ok(self.core.ledger.buyer_orders(buyer, after, limit).await?)
    }

    /// A sale's orders.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such sale, or see [`Error`].
    pub async fn sale_orders(
        &self,
        sale: SaleId,
        after: Option<OrderId>,
        limit: u32,
    ) -> Result<OrderPage, Error> {
        self.live(sale).await?;
        Ok(self.core.ledger.sale_orders(sale, after, limit).await?)
    }
}

/// Looks through a segment's journal for the entry that holds an order.
async fn search(
    live: &LiveSale,
    segment: u32,
    epoch: u64,
    id: OrderId,
) -> Result<Option<Entry>, Error> {
    let (mut connection, keys) = (live.connection(segment), live.keys(segment, epoch));
    let mut after: Option<String> = None;
    for _ in 0..SEARCH_READS_MAX {
        let read = journal::read(&mut connection, &keys, after.as_deref());
        let entries = timeout(live.core.redis.timeout(), read).await;
        let entries = entries.map_err(|_| Error::Unavailable(Unavailable::Unreachable))??;
        let Some(last) = entries.last() else {
            return Ok(None);
        };
        after = Some(last.id.clone());
        let holds = |entry: &Entry| entry.purchases.iter().any(|purchase| purchase.order == id);
        if let Some(entry) = entries.into_iter().find(holds) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}
