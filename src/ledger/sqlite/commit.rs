//! Purchases become orders: commit and reject.

use sqlx::{SqliteConnection, query};
use uuid::Uuid;

use super::change::{lock, record, record_locked};
use super::error::sort;
use super::{Sqlite, json};
use crate::domain::{Order, OrderState, Purchase, SaleId, Timestamp};
use crate::ledger::change::NewChange;
use crate::ledger::group::{self, Group};
use crate::ledger::row::{self, Locked};
use crate::ledger::{Commit, Error};

/// $1 orders as JSON; what all of them share: $2 state, $3 created, $4 end of the hold, $5
/// finished.
const INSERT: &str = "
    insert into purchase_order
           (order_id, buyer_id, quantity, state, created_at_ms, hold_expires_at_ms, finished_at_ms)
    select unhex(value ->> 0), value ->> 1, value ->> 2, $2, $3, $4, $5 from json_each($1)";

/// $1 orders as JSON, $2 sale, $3 epoch.
const INSERT_RETURNS: &str = "
    insert into stock_return (order_id, sale_id, epoch, buyer_id, quantity)
    select order_id, $2, $3, buyer_id, quantity from purchase_order
     where order_id in (select unhex(value) from json_each($1)) order by order_id";

impl Sqlite {
    pub(in crate::ledger) async fn commit(
        &self,
        sale: SaleId,
        epoch: u64,
        purchases: &[Purchase],
    ) -> Result<Commit, Error> {
        let group = Group::of(sale, purchases)?;
        if group.is_empty() {
            return Ok(Commit::Committed(Vec::new()));
        }
        let mut tx = self.begin().await?;
        let locked = lock(&mut tx, sale)
            .await?
            .ok_or_else(|| Error::no_such_sale(sale))?;
        let known = super::order::read(&mut tx, &group.ids()).await?;
        let fresh = begin(&locked, &group.without(&known))?;
        if let Some(begun) = NewChange::begun(sale, epoch, &fresh) {
            insert(&mut tx, &fresh).await?;
            if !record(&mut tx, &begun).await? {
                tx.rollback().await.map_err(sort)?;
                let sale = locked.sale;
                let full = sale.epoch == epoch;
                return Ok(if full {
                    Commit::Full(sale)
                } else {
                    Commit::Fenced(sale)
                });
            }
            super::commit(tx).await?;
        }
        group::answer(purchases, fresh, known).map(Commit::Committed)
    }

    pub(in crate::ledger) async fn reject(
        &self,
        sale: SaleId,
        purchase: &Purchase,
        give_back: Option<u64>,
    ) -> Result<Order, Error> {
        let group = Group::of(sale, std::slice::from_ref(purchase))?;
        let mut tx = self.begin().await?;
        let locked = lock(&mut tx, sale)
            .await?
            .ok_or_else(|| Error::no_such_sale(sale))?;
        if let Some(known) = super::order::read(&mut tx, &group.ids()).await?.pop() {
            return Ok(known);
        }
        let orders = refuse(&locked, begin(&locked, &group)?)?;
        insert(&mut tx, &orders).await?;
        let rejected = NewChange::rejected(&locked.sale, locked.now_ms, group.ids());
        record_locked(&mut tx, &rejected).await?;
        // Units of an older epoch were counted as free by the load that ended it.
        if give_back == Some(locked.sale.epoch) && !locked.sale.drained {
            insert_returns(&mut tx, sale, locked.sale.epoch, &rejected.ids).await?;
        }
        super::commit(tx).await?;
        orders
            .into_iter()
            .next()
            .ok_or_else(|| Error::no_such_sale(sale))
    }
}

/// The orders that these purchases become now.
pub(super) fn begin(locked: &Locked, group: &Group<'_>) -> Result<Vec<Order>, Error> {
    let now = Timestamp::from_millis(locked.now_ms)?;
    let hold_ms = i64::from(locked.sale.terms.hold_seconds) * 1_000;
    let held = hold_ms > 0;
    let due = Timestamp::from_millis(locked.now_ms + hold_ms)?;
    let order = |purchase: &Purchase| Order {
        id: purchase.order,
        buyer: purchase.buyer.clone(),
        quantity: purchase.quantity,
        state: if held {
            OrderState::Reserved
        } else {
            OrderState::Confirmed
        },
        created_at: now,
        hold_expires_at: held.then_some(due),
        finished_at: (!held).then_some(now),
    };
    Ok(group.iter().map(order).collect())
}

/// The same orders, recorded as rejected.
pub(super) fn refuse(locked: &Locked, orders: Vec<Order>) -> Result<Vec<Order>, Error> {
    let now = Timestamp::from_millis(locked.now_ms)?;
    let refused = |order: Order| Order {
        state: OrderState::Rejected,
        hold_expires_at: None,
        finished_at: Some(now),
        ..order
    };
    Ok(orders.into_iter().map(refused).collect())
}

/// Inserts orders that are not there yet, all of one state and time.
pub(super) async fn insert(tx: &mut SqliteConnection, orders: &[Order]) -> Result<(), Error> {
    let Some(first) = orders.first() else {
        return Ok(());
    };
    query(INSERT)
        .bind(json::orders(orders))
        .bind(first.state.as_str())
        .bind(first.created_at.millis())
        .bind(first.hold_expires_at.map(|at| at.millis()))
        .bind(first.finished_at.map(|at| at.millis()))
        .execute(tx)
        .await
        .map_err(sort)?;
    Ok(())
}

/// Sends the units of these orders on their way back to Redis.
pub(super) async fn insert_returns(
    tx: &mut SqliteConnection,
    sale: SaleId,
    epoch: u64,
    ids: &[Uuid],
) -> Result<(), Error> {
    query(INSERT_RETURNS)
        .bind(json::ids(ids))
        .bind(i64::from(sale.get()))
        .bind(row::sql(epoch))
        .execute(tx)
        .await
        .map_err(sort)?;
    Ok(())
}
