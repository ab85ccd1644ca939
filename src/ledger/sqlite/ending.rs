//! Orders end: confirm, cancel, expire, and the way of their units back to Redis.

use std::collections::HashMap;

use sqlx::{SqliteConnection, query, query_as, query_scalar};
use uuid::Uuid;

use super::Sqlite;
use super::change::{lock, now_ms, record_locked};
use super::commit::insert_returns;
use super::error::sort;
use super::json;
use super::order::{divided, read};
use crate::domain::{Order, OrderId, OrderState, SaleId};
use crate::ledger::change::NewChange;
use crate::ledger::row::{self, Locked, OrderRow, ReturnRow};
use crate::ledger::sql::{self, order_columns};
use crate::ledger::{End, Ended, Error, StockReturn, Transition, ending};

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

/// $1 sale, $2 now, $3 numbers as JSON. The time lets the primary key find them.
const DELETE_GROUPS: &str = "
    delete from hold_group
     where sale_id = $1 and due_at_ms <= $2
       and change_number in (select value from json_each($3))";

/// $1 ids as JSON.
const RETURNS_DONE: &str =
    "delete from stock_return where order_id in (select unhex(value) from json_each($1))";

impl Sqlite {
    pub(in crate::ledger) async fn end(
        &self,
        sale: SaleId,
        wishes: &[(OrderId, End)],
    ) -> Result<Vec<Ended>, Error> {
        let mut tx = self.begin().await?;
        let Some(locked) = lock(&mut tx, sale).await? else {
            return Ok(wishes.iter().map(|_| (Transition::Missing, None)).collect());
        };
        let known = read(&mut tx, &ending::ids(wishes)).await?;
        let decided = ending::decide(wishes, &known, locked.now_ms);
        let mut orders: HashMap<_, _> = known.into_iter().map(|order| (order.id, order)).collect();
        let mut returns = Vec::new();
        for (state, ids) in decided.iter().filter(|(_, ids)| !ids.is_empty()) {
            let (ended, back) = finish(&mut tx, &locked, ids, *state).await?;
            orders.extend(ended.into_iter().map(|order| (order.id, order)));
            returns.extend(back);
        }
        // Nothing ended: rolled back, which waits for no disk.
        if decided.iter().any(|(_, ids)| !ids.is_empty()) {
            super::commit(tx).await?;
        }
        Ok(ending::answer(wishes, &orders, returns))
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
        let groups: Vec<(i64, Vec<u8>)> = query_as(sql::DUE_GROUPS)
            .bind(i64::from(sale.get()))
            .bind(locked.now_ms)
            .bind(ending::GROUPS_MAX)
            .fetch_all(&mut *tx)
            .await
            .map_err(sort)?;
        if groups.is_empty() {
            return Ok(None);
        }
        let groups = groups
            .into_iter()
            .map(|(number, ids)| Ok((number, divided(&ids)?)));
        let (numbers, ids) = ending::together(groups.collect::<Result<_, Error>>()?);
        let (_, returns) = finish(&mut tx, &locked, &ids, OrderState::Expired).await?;
        query(DELETE_GROUPS)
            .bind(i64::from(sale.get()))
            .bind(locked.now_ms)
            .bind(json::numbers(&numbers))
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
