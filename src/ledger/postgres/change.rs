//! The sale's row: its lock, its counters, and the numbers of its changes.

use sqlx::{PgConnection, query, query_as};

use super::error::sort;
use crate::domain::SaleId;
use crate::ledger::Error;
use crate::ledger::change::NewChange;
use crate::ledger::row::{self, Locked, LockedRow};
use crate::ledger::sql::sale_columns;

/// $1 sale.
const LOCK: &str = concat!(
    "select ",
    sale_columns!(),
    ", now_ms() from sale where sale_id = $1 for update"
);

/// The only statement that writes taken, confirmed or `change_number`.
///
/// $1 sale, $2 epoch, $3 units taken, $4 units confirmed, $5 state, $6 now, $7 orders, $8 due or
/// null. No row if the sale has another epoch or no room: the guard.
const RECORD: &str = "
    with moved as (
        update sale
           set taken = taken + $3, confirmed = confirmed + $4, change_number = change_number + 1
         where sale_id = $1 and epoch = $2 and taken + $3 <= quantity
        returning sale_id, change_number
    ), change as (
        insert into sale_change (sale_id, change_number, state, at_ms, order_ids)
        select sale_id, change_number, $5, $6, $7 from moved
    ), held as (
        insert into hold_group (sale_id, due_at_ms, change_number)
        select sale_id, $8, change_number from moved where $8 is not null
    )
    select change_number from moved";

/// Locks the sale's row until the end of the transaction and reads the clock.
pub(super) async fn lock(tx: &mut PgConnection, sale: SaleId) -> Result<Option<Locked>, Error> {
    let row: Option<LockedRow> = query_as(LOCK)
        .bind(i64::from(sale.get()))
        .fetch_optional(tx)
        .await
        .map_err(sort)?;
    row::one(row)
}

/// Numbers the change and moves the counters; false if the guard refused.
pub(super) async fn record(tx: &mut PgConnection, change: &NewChange) -> Result<bool, Error> {
    let number = query(RECORD)
        .bind(i64::from(change.sale.get()))
        .bind(row::sql(change.epoch))
        .bind(change.taken)
        .bind(change.confirmed)
        .bind(change.state.as_str())
        .bind(change.at_ms)
        .bind(&change.ids)
        .bind(change.due_at_ms)
        .fetch_optional(tx)
        .await
        .map_err(sort)?;
    Ok(number.is_some())
}

/// [`record`] by a transaction that has locked the sale and checked what the guard checks.
pub(super) async fn record_locked(tx: &mut PgConnection, change: &NewChange) -> Result<(), Error> {
    let recorded = record(tx, change).await?;
    assert!(recorded, "the guard refused under the lock: {change:?}");
    Ok(())
}
