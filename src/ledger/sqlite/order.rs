//! Orders end: confirm, cancel, expire; and the lists of orders.

use sqlx::{SqliteConnection, query, query_as, query_scalar};
use uuid::Uuid;

use super::Sqlite;
use super::change::{lock, now_ms, record_locked};
use super::commit::insert_returns;
use super::error::sort;
use super::json;
use crate::domain::{BuyerId, Order, OrderId, OrderState, SaleId, Timestamp};
use crate::ledger::change::NewChange;
use crate::ledger::row::{self, Locked, OrderRow, ReturnRow};
use crate::ledger::sql::{self, order_columns};
use crate::ledger::{Change, Error, OrderPage, StockReturn, Transition};

/// $1 ids as JSON.
const ORDERS: &str = concat!(
    "select ",
    order_columns!(),
    " from purchase_order where order_id in (select unhex(value) from json_each($1))"
);

/// $1 ids as JSON, $2 state, $3 now. The condition makes one winner of two transactions that end
/// one order.
const FINISH: &str = concat!(
    "update purchase_order set state = $2, finished_at_ms = $3
      where order_id in (select unhex(value) from json_each($1)) and state = 'reserved' returning ",
    order_columns!()
);

/// $1 limit.
const EXPIRIES_DUE: &str = concat!(
    "select sale_id from hold_group where due_at_ms <= ",
    now_ms!(),
    " group by sale_id order by min(due_at_ms) limit $1"
);

/// $1 ids as JSON.
const RETURNS_DONE: &str =
    "delete from stock_return where order_id in (select unhex(value) from json_each($1))";

/// What the caller of confirm or cancel is told.
type Ended = (Transition, Option<StockReturn>);

impl Sqlite {
    pub(in crate::ledger) async fn orders(&self, ids: &[OrderId]) -> Result<Vec<Order>, Error> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        let mut connection = self.readers.acquire().await.map_err(sort)?;
        read(&mut connection, &ids).await
    }

    pub(in crate::ledger) async fn confirm(&self, id: OrderId) -> Result<Ended, Error> {
        self.end(id, OrderState::Confirmed).await
    }

    pub(in crate::ledger) async fn cancel(&self, id: OrderId) -> Result<Ended, Error> {
        self.end(id, OrderState::Cancelled).await
    }

    async fn end(&self, id: OrderId, wanted: OrderState) -> Result<Ended, Error> {
        let mut tx = self.begin().await?;
        let Some(locked) = lock(&mut tx, id.sale()).await? else {
            return Ok((Transition::Missing, None));
        };
        let Some(order) = read(&mut tx, &[id.uuid()]).await?.pop() else {
            return Ok((Transition::Missing, None));
        };
        if order.state == wanted {
            return Ok((Transition::Done(order), None));
        }
        if order.state != OrderState::Reserved {
            return Ok((Transition::Final(order), None));
        }
        let over = order
            .hold_expires_at
            .is_some_and(|due| due.millis() <= locked.now_ms);
        let expired = wanted == OrderState::Confirmed && over;
        let state = if expired { OrderState::Expired } else { wanted };
        let (mut orders, mut returns) = finish(&mut tx, &locked, &[id.uuid()], state).await?;
        super::commit(tx).await?;
        let order = orders.pop().expect("it was reserved, under the lock");
        let transition = if expired {
            Transition::Final(order)
        } else {
            Transition::Done(order)
        };
        Ok((transition, returns.pop()))
    }

    pub(in crate::ledger) async fn expiries_due(&self, limit: u32) -> Result<Vec<SaleId>, Error> {
        let sales: Vec<i64> = query_scalar(EXPIRIES_DUE)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(sort)?;
        sales
            .into_iter()
            .map(|sale| Ok(SaleId::new(sale)?))
            .collect()
    }

    pub(in crate::ledger) async fn expire(
        &self,
        sale: SaleId,
    ) -> Result<Option<Vec<StockReturn>>, Error> {
        let mut tx = self.begin().await?;
        let Some(locked) = lock(&mut tx, sale).await? else {
            return Ok(None);
        };
        let group: Option<(i64, i64, Vec<u8>)> = query_as(sql::DUE_GROUP)
            .bind(i64::from(sale.get()))
            .bind(locked.now_ms)
            .fetch_optional(&mut *tx)
            .await
            .map_err(sort)?;
        let Some((number, due_at_ms, ids)) = group else {
            return Ok(None);
        };
        let ids: Vec<Uuid> = divided(&ids)?.into_iter().map(OrderId::uuid).collect();
        let (_, returns) = finish(&mut tx, &locked, &ids, OrderState::Expired).await?;
        query(sql::DELETE_GROUP)
            .bind(i64::from(sale.get()))
            .bind(due_at_ms)
            .bind(number)
            .execute(&mut *tx)
            .await
            .map_err(sort)?;
        super::commit(tx).await?;
        Ok(Some(returns))
    }

    pub(in crate::ledger) async fn returns(&self, limit: u32) -> Result<Vec<StockReturn>, Error> {
        let rows: Vec<ReturnRow> = query_as(sql::RETURNS)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(sort)?;
        row::all(rows)
    }

    pub(in crate::ledger) async fn sale_returns(
        &self,
        sale: SaleId,
        limit: u32,
    ) -> Result<Vec<StockReturn>, Error> {
        let rows: Vec<ReturnRow> = query_as(sql::SALE_RETURNS)
            .bind(i64::from(sale.get()))
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(sort)?;
        row::all(rows)
    }

    pub(in crate::ledger) async fn returns_done(&self, orders: &[OrderId]) -> Result<(), Error> {
        let ids: Vec<Uuid> = orders.iter().map(|id| id.uuid()).collect();
        let mut tx = self.begin().await?;
        query(RETURNS_DONE)
            .bind(json::ids(&ids))
            .execute(&mut *tx)
            .await
            .map_err(sort)?;
        super::commit(tx).await
    }

    pub(in crate::ledger) async fn buyer_orders(
        &self,
        buyer: &BuyerId,
        after: Option<OrderId>,
        limit: u32,
    ) -> Result<OrderPage, Error> {
        let rows: Vec<OrderRow> = query_as(sql::BUYER_ORDERS)
            .bind(buyer.as_str())
            .bind(after.map_or(Uuid::max(), OrderId::uuid))
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(sort)?;
        Ok(OrderPage::of(row::all(rows)?, limit))
    }

    pub(in crate::ledger) async fn sale_orders(
        &self,
        sale: SaleId,
        after: Option<OrderId>,
        limit: u32,
    ) -> Result<OrderPage, Error> {
        let (lowest, highest) = row::id_range(sale);
        let rows: Vec<OrderRow> = query_as(sql::SALE_ORDERS)
            .bind(after.map_or(lowest, OrderId::uuid))
            .bind(highest)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(sort)?;
        Ok(OrderPage::of(row::all(rows)?, limit))
    }

    pub(in crate::ledger) async fn changes(
        &self,
        sale: SaleId,
        from: u64,
        limit: u32,
    ) -> Result<Vec<Change>, Error> {
        let rows: Vec<(i64, String, i64, Vec<u8>)> = query_as(sql::CHANGES)
            .bind(i64::from(sale.get()))
            .bind(row::sql(from))
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(sort)?;
        let change = |(number, state, at_ms, ids): (i64, String, i64, Vec<u8>)| {
            Ok(Change {
                number: row::counter(number)?,
                state: OrderState::parse(&state)?,
                at: Timestamp::from_millis(at_ms)?,
                orders: divided(&ids)?,
            })
        };
        rows.into_iter().map(change).collect()
    }
}

/// Those orders of the given ids that exist.
pub(super) async fn read(
    connection: &mut SqliteConnection,
    ids: &[Uuid],
) -> Result<Vec<Order>, Error> {
    let rows: Vec<OrderRow> = query_as(ORDERS)
        .bind(json::ids(ids))
        .fetch_all(connection)
        .await
        .map_err(sort)?;
    row::all(rows)
}

/// Ids that lie one after the other.
fn divided(bytes: &[u8]) -> Result<Vec<OrderId>, Error> {
    bytes
        .chunks(size_of::<Uuid>())
        .map(|id| Ok(OrderId::from_bytes(id)?))
        .collect()
}

/// Ends those of the given orders that are reserved, under the sale's lock.
async fn finish(
    tx: &mut SqliteConnection,
    locked: &Locked,
    ids: &[Uuid],
    state: OrderState,
) -> Result<(Vec<Order>, Vec<StockReturn>), Error> {
    let rows: Vec<OrderRow> = query_as(FINISH)
        .bind(json::ids(ids))
        .bind(state.as_str())
        .bind(locked.now_ms)
        .fetch_all(&mut *tx)
        .await
        .map_err(sort)?;
    let orders: Vec<Order> = row::all(rows)?;
    let Some(ended) = NewChange::ended(locked, state, &orders) else {
        return Ok((orders, Vec::new()));
    };
    record_locked(tx, &ended).await?;
    // Of a drained sale nothing is sold any more, hence nothing goes back to Redis.
    let sale = &locked.sale;
    if state == OrderState::Confirmed || sale.drained {
        return Ok((orders, Vec::new()));
    }
    insert_returns(tx, sale.id, sale.epoch, &ended.ids).await?;
    let returns = orders
        .iter()
        .map(|order| StockReturn::of(order, sale.epoch))
        .collect();
    Ok((orders, returns))
}
