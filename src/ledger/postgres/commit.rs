//! Purchases become orders: commit and reject.

use sqlx::{PgConnection, query, query_as};
use uuid::Uuid;

use super::change::{lock, record, record_locked};
use super::error::sort;
use super::{Postgres, Tx};
use crate::domain::{Order, Purchase, SaleId};
use crate::ledger::change::NewChange;
use crate::ledger::group::{self, Group};
use crate::ledger::row::{self, OrderRow};
use crate::ledger::sql::order_columns;
use crate::ledger::{Commit, Error};

/// $1 sale, $2 ids, $3 buyers, $4 quantities; returns the orders that were not there.
///
/// The clock is read once, so that all orders of one commit end their hold at one instant. It is
/// read here and not after the lock of the sale's row, so that two instances can insert at the same
/// time and wait for each other only for the short rest of their transactions.
const INSERT: &str = concat!(
    "with term as materialized (
        select hold_seconds, now_ms() as now from sale where sale_id = $1
     )
     insert into purchase_order
            (order_id, buyer_id, quantity, state, created_at_ms, hold_expires_at_ms, finished_at_ms)
     select item.order_id, item.buyer_id, item.quantity,
            case when term.hold_seconds > 0 then 'reserved' else 'confirmed' end,
            term.now,
            case when term.hold_seconds > 0 then term.now + term.hold_seconds * 1000::bigint end,
            case when term.hold_seconds > 0 then null else term.now end
       from term
      cross join unnest($2::uuid[], $3::text[], $4::integer[])
              as item (order_id, buyer_id, quantity)
     on conflict on constraint purchase_order_pk do nothing
     returning ",
    order_columns!()
);

/// $1 id, $2 buyer, $3 quantity; returns the order if it was not there.
const INSERT_REJECTED: &str = concat!(
    "insert into purchase_order
            (order_id, buyer_id, quantity, state, created_at_ms, finished_at_ms)
     select $1, $2, $3, 'rejected', clock.now, clock.now from (select now_ms() as now) as clock
     on conflict on constraint purchase_order_pk do nothing
     returning ",
    order_columns!()
);

/// $1 orders, $2 sale, $3 epoch.
const INSERT_RETURNS: &str = "
    insert into stock_return (order_id, sale_id, epoch, buyer_id, quantity)
    select order_id, $2, $3, buyer_id, quantity from purchase_order where order_id = any($1)
     order by order_id";

impl Postgres {
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
        let fresh = insert(&mut tx, sale, &group).await?;
        if let Some(begun) = NewChange::begun(sale, epoch, &fresh) {
            if !record(&mut tx, &begun).await? {
                tx.rollback().await.map_err(sort)?;
                return self.refused(sale, epoch).await;
            }
            super::commit(tx).await?;
        } else {
            tx.rollback().await.map_err(sort)?;
        }
        let known = self.known(group.without(&fresh)).await?;
        if fresh.is_empty() && known.is_empty() {
            return Err(Error::no_such_sale(sale));
        }
        group::answer(purchases, fresh, known).map(Commit::Committed)
    }

    /// The orders of purchases that were there before.
    async fn known(&self, group: Group<'_>) -> Result<Vec<Order>, Error> {
        if group.is_empty() {
            Ok(Vec::new())
        } else {
            self.orders_by_uuid(&group.ids()).await
        }
    }

    /// Why the guard refused. Read after the rollback: what has become true since is as good a
    /// reason.
    async fn refused(&self, sale: SaleId, epoch: u64) -> Result<Commit, Error> {
        match self.sale(sale).await? {
            Some(sale) if sale.epoch == epoch => Ok(Commit::Full(sale)),
            Some(sale) => Ok(Commit::Fenced(sale)),
            None => Err(Error::no_such_sale(sale)),
        }
    }

    pub(in crate::ledger) async fn reject(
        &self,
        sale: SaleId,
        purchase: &Purchase,
        give_back: Option<u64>,
    ) -> Result<Order, Error> {
        let group = Group::of(sale, std::slice::from_ref(purchase))?;
        let mut tx = self.begin().await?;
        let Some(order) = insert_rejected(&mut tx, &group).await? else {
            tx.rollback().await.map_err(sort)?;
            let known = self.orders(&[purchase.order]).await?.pop();
            return known
                .ok_or_else(|| Error::Corrupt(format!("order {} is gone", purchase.order)));
        };
        record_rejected(&mut tx, sale, &order, give_back).await?;
        super::commit(tx).await?;
        Ok(order)
    }
}

/// Inserts what is not there yet; returns that.
pub(super) async fn insert(
    tx: &mut PgConnection,
    sale: SaleId,
    group: &Group<'_>,
) -> Result<Vec<Order>, Error> {
    let buyers: Vec<_> = group
        .iter()
        .map(|purchase| purchase.buyer.as_str())
        .collect();
    let quantities: Vec<_> = group.iter().map(|p| p.quantity.cast_signed()).collect();
    let rows: Vec<OrderRow> = query_as(INSERT)
        .bind(i64::from(sale.get()))
        .bind(group.ids())
        .bind(buyers)
        .bind(quantities)
        .fetch_all(tx)
        .await
        .map_err(sort)?;
    row::all(rows)
}

async fn insert_rejected(tx: &mut PgConnection, group: &Group<'_>) -> Result<Option<Order>, Error> {
    let purchase = group.iter().next().expect("made of one purchase");
    let row: Option<OrderRow> = query_as(INSERT_REJECTED)
        .bind(purchase.order.uuid())
        .bind(purchase.buyer.as_str())
        .bind(purchase.quantity.cast_signed())
        .fetch_optional(tx)
        .await
        .map_err(sort)?;
    row::one(row)
}

async fn record_rejected(
    tx: &mut Tx,
    sale: SaleId,
    order: &Order,
    give_back: Option<u64>,
) -> Result<(), Error> {
    let locked = lock(tx, sale)
        .await?
        .ok_or_else(|| Error::no_such_sale(sale))?;
    let ids = vec![order.id.uuid()];
    let rejected = NewChange::rejected(&locked.sale, order.created_at.millis(), ids);
    record_locked(tx, &rejected).await?;
    // Units of an older epoch were counted as free by the load that ended it.
    if give_back == Some(locked.sale.epoch) && !locked.sale.drained {
        insert_returns(tx, sale, locked.sale.epoch, &rejected.ids).await?;
    }
    Ok(())
}

/// Sends the units of these orders on their way back to Redis.
pub(super) async fn insert_returns(
    tx: &mut PgConnection,
    sale: SaleId,
    epoch: u64,
    ids: &[Uuid],
) -> Result<(), Error> {
    query(INSERT_RETURNS)
        .bind(ids)
        .bind(i64::from(sale.get()))
        .bind(row::sql(epoch))
        .execute(tx)
        .await
        .map_err(sort)?;
    Ok(())
}
