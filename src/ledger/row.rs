//! Rows as the databases return them, and their way into the domain's types.
//!
//! Both databases store the same columns under types that decode to the same Rust types, so one
//! struct serves both. A value outside its type is reported, never repaired: it means that somebody
//! has changed the database by hand.

use std::time::Duration;

use uuid::Uuid;

use super::Error;
use super::value::{SnapshotOrder, StockReturn};
use crate::domain::{
    BuyerId, NewSale, Order, OrderId, OrderState, Sale, SaleId, Stage, Strategy, Timestamp,
};

/// A row of `sale`, without the columns that only SQL reads.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct SaleRow {
    sale_id: i64,
    product: String,
    title: String,
    price_minor: i64,
    currency: String,
    quantity: i32,
    segments: i32,
    per_buyer_limit: i32,
    opens_at_ms: Option<i64>,
    closes_at_ms: Option<i64>,
    hold_seconds: i32,
    strategy: String,
    stage: String,
    paused: bool,
    closed: bool,
    drained: bool,
    control: i64,
    epoch: i64,
    loaded_epoch: i64,
    loaded_segments: i32,
    taken: i64,
    confirmed: i64,
    created_at_ms: i64,
}

impl TryFrom<SaleRow> for Sale {
    type Error = Error;

    fn try_from(row: SaleRow) -> Result<Self, Error> {
        let terms = NewSale {
            product: row.product,
            title: row.title,
            price_minor: row.price_minor,
            currency: row.currency,
            quantity: natural(row.quantity)?,
            segments: natural(row.segments)?,
            per_buyer_limit: natural(row.per_buyer_limit)?,
            opens_at: row.opens_at_ms.map(Timestamp::from_millis).transpose()?,
            closes_at: row.closes_at_ms.map(Timestamp::from_millis).transpose()?,
            hold_seconds: natural(row.hold_seconds)?,
            strategy: Strategy::parse(&row.strategy)?,
        };
        Ok(Self {
            id: SaleId::new(row.sale_id)?,
            terms: terms.checked()?,
            stage: Stage::parse(&row.stage)?,
            paused: row.paused,
            closed: row.closed,
            epoch: counter(row.epoch)?,
            loaded_epoch: counter(row.loaded_epoch)?,
            loaded_segments: natural(row.loaded_segments)?,
            control: counter(row.control)?,
            taken: counter(row.taken)?,
            confirmed: counter(row.confirmed)?,
            created_at: Timestamp::from_millis(row.created_at_ms)?,
            drained: row.drained,
        })
    }
}

/// A row of `sale` that the transaction has locked, with the database's time.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct LockedRow {
    #[sqlx(flatten)]
    sale: SaleRow,
    now_ms: i64,
}

/// A sale that nobody else changes until the end of the transaction.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) sale: Sale,
    pub(super) now_ms: i64,
}

impl TryFrom<LockedRow> for Locked {
    type Error = Error;

    fn try_from(row: LockedRow) -> Result<Self, Error> {
        Ok(Self {
            sale: row.sale.try_into()?,
            now_ms: row.now_ms,
        })
    }
}

/// A row of `purchase_order`.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct OrderRow {
    order_id: Uuid,
    buyer_id: String,
    quantity: i32,
    state: String,
    created_at_ms: i64,
    hold_expires_at_ms: Option<i64>,
    finished_at_ms: Option<i64>,
}

impl TryFrom<OrderRow> for Order {
    type Error = Error;

    fn try_from(row: OrderRow) -> Result<Self, Error> {
        Ok(Self {
            id: OrderId::from_bytes(row.order_id.as_bytes())?,
            buyer: BuyerId::parse(&row.buyer_id)?,
            quantity: natural(row.quantity)?,
            state: OrderState::parse(&row.state)?,
            created_at: Timestamp::from_millis(row.created_at_ms)?,
            hold_expires_at: row
                .hold_expires_at_ms
                .map(Timestamp::from_millis)
                .transpose()?,
            finished_at: row.finished_at_ms.map(Timestamp::from_millis).transpose()?,
        })
    }
}

/// What a load reads of an order.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct SnapshotRow {
    order_id: Uuid,
    buyer_id: String,
    quantity: i32,
    active: bool,
}

impl TryFrom<SnapshotRow> for SnapshotOrder {
    type Error = Error;

    fn try_from(row: SnapshotRow) -> Result<Self, Error> {
        Ok(Self {
            id: OrderId::from_bytes(row.order_id.as_bytes())?,
            buyer: BuyerId::parse(&row.buyer_id)?,
            quantity: natural(row.quantity)?,
            active: row.active,
        })
    }
}

/// A row of `stock_return`.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct ReturnRow {
    order_id: Uuid,
    buyer_id: String,
    quantity: i32,
    epoch: i64,
}

impl TryFrom<ReturnRow> for StockReturn {
    type Error = Error;

    fn try_from(row: ReturnRow) -> Result<Self, Error> {
        Ok(Self {
            order: OrderId::from_bytes(row.order_id.as_bytes())?,
            buyer: BuyerId::parse(&row.buyer_id)?,
            quantity: natural(row.quantity)?,
            epoch: counter(row.epoch)?,
        })
    }
}

/// The sums that the audit takes over a sale's orders.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct CountRow {
    #[sqlx(flatten)]
    pub(super) sale: SaleRow,
    pub(super) reserved_units: i64,
    pub(super) confirmed_units: i64,
    pub(super) returning_units: i64,
    pub(super) buyers_over_limit: i64,
}

impl TryFrom<CountRow> for super::Count {
    type Error = Error;

    fn try_from(row: CountRow) -> Result<Self, Error> {
        Ok(Self {
            sale: row.sale.try_into()?,
            reserved: counter(row.reserved_units)?,
            confirmed: counter(row.confirmed_units)?,
            returning: counter(row.returning_units)?,
            buyers_over_limit: counter(row.buyers_over_limit)?,
        })
    }
}

/// Each row as what it stands for.
pub(super) fn all<Row, T: TryFrom<Row, Error = Error>>(rows: Vec<Row>) -> Result<Vec<T>, Error> {
    rows.into_iter().map(T::try_from).collect()
}

/// The row, if there was one, as what it stands for.
pub(super) fn one<Row, T: TryFrom<Row, Error = Error>>(
    row: Option<Row>,
) -> Result<Option<T>, Error> {
    row.map(T::try_from).transpose()
}

/// A number that SQL keeps in 32 bits with a sign.
fn natural(value: i32) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::Corrupt(format!("{value} where no number is negative")))
}

/// A number that SQL keeps in 64 bits with a sign.
pub(super) fn counter(value: i64) -> Result<u64, Error> {
    u64::try_from(value).map_err(|_| Error::Corrupt(format!("{value} where no number is negative")))
}

/// Ids on their way out of SQL.
pub(super) fn order_ids(ids: &[Uuid]) -> Result<Vec<OrderId>, Error> {
    ids.iter()
        .map(|id| Ok(OrderId::from_bytes(id.as_bytes())?))
        .collect()
}

/// The lowest and the highest id that an order of this sale could have.
pub(super) fn id_range(sale: SaleId) -> (Uuid, Uuid) {
    let lowest = u128::from(sale.get()) << 96;
    (
        Uuid::from_u128(lowest),
        Uuid::from_u128(lowest | (u128::MAX >> 32)),
    )
}

/// A lease on its way into SQL; one of centuries is as good as the longest that fits.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}

/// A counter on its way into SQL. One beyond 63 bits equals no stored counter, and neither does
/// this.
pub(super) fn sql(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}
