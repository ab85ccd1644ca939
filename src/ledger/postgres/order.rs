//! Orders as they are: by id, by buyer, by sale; and the feed of their changes.

use sqlx::{PgConnection, query_as};
use uuid::Uuid;

use super::Postgres;
use super::error::sort;
use crate::domain::{BuyerId, Order, OrderId, OrderState, SaleId, Timestamp};
use crate::ledger::row::{self, OrderRow};
use crate::ledger::sql::{self, order_columns};
use crate::ledger::{Change, Error, OrderPage};

/// $1 ids.
const ORDERS: &str = concat!(
    "select ",
    order_columns!(),
    " from purchase_order where order_id = any($1)"
);

impl Postgres {
    pub(in crate::ledger) async fn orders(&self, ids: &[OrderId]) -> Result<Vec<Order>, Error> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        self.orders_by_uuid(&ids).await
    }

    pub(super) async fn orders_by_uuid(&self, ids: &[Uuid]) -> Result<Vec<Order>, Error> {
        let mut connection = self.pool.acquire().await.map_err(sort)?;
        read(&mut connection, ids).await
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
            .fetch_all(&self.pool)
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
            .fetch_all(&self.pool)
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
        let rows: Vec<(i64, String, i64, Vec<Uuid>)> = query_as(sql::CHANGES)
            .bind(i64::from(sale.get()))
            .bind(row::sql(from))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(sort)?;
        let change = |(number, state, at_ms, ids): (i64, String, i64, Vec<Uuid>)| {
            let orders = ids.iter().map(|id| OrderId::from_bytes(id.as_bytes()));
            Ok(Change {
                number: row::counter(number)?,
                state: OrderState::parse(&state)?,
                at: Timestamp::from_millis(at_ms)?,
                orders: orders.collect::<Result<_, _>>()?,
            })
        };
        rows.into_iter().map(change).collect()
    }
}

/// Those orders of the given ids that exist.
pub(super) async fn read(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Order>, Error> {
    let rows: Vec<OrderRow> = query_as(ORDERS)
        .bind(ids)
        .fetch_all(connection)
        .await
        .map_err(sort)?;
    row::all(rows)
}
