//! The sale's row: its counters and the numbers of its changes.

use sqlx::{SqliteConnection, query, query_as, query_scalar};
use uuid::Uuid;

use super::error::sort;
use crate::domain::SaleId;
use crate::ledger::Error;
use crate::ledger::change::NewChange;
use crate::ledger::row::{self, Locked, LockedRow};
use crate::ledger::sql::sale_columns;

/// The clock, in milliseconds. Rounded, since unixepoch('subsec') is a binary fraction that may lie
/// a hair below the millisecond it stands for.
macro_rules! now_ms {
    () => {
        "cast(round(unixepoch('subsec') * 1000) as integer)"
    };
}
pub(super) use now_ms;

/// $1 sale.
const SALE_AND_CLOCK: &str = concat!(
    "select ",
    sale_columns!(),
    ", ",
    now_ms!(),
    " as now_ms from sale where sale_id = $1"
);

/// The only statement that writes taken, confirmed or `change_number`.
///
/// $1 sale, $2 epoch, $3 units taken, $4 units confirmed. No row if the sale has another epoch or
/// no room: the guard.
const MOVE: &str = "
    update sale
       set taken = taken + $3, confirmed = confirmed + $4, change_number = change_number + 1
     where sale_id = $1 and epoch = $2 and taken + $3 <= quantity
    returning change_number";

/// $1 sale, $2 change number, $3 state, $4 now, $5 ids one after the other.
const INSERT_CHANGE: &str = "
    insert into sale_change (sale_id, change_number, state, at_ms, order_ids)
    values ($1, $2, $3, $4, $5)";

/// $1 sale, $2 due, $3 change number.
const INSERT_GROUP: &str =
    "insert into hold_group (sale_id, due_at_ms, change_number) values ($1, $2, $3)";

/// Reads the sale and the clock. The transaction began with the right to write, hence nobody else
/// changes the row before it ends.
pub(super) async fn lock(tx: &mut SqliteConnection, sale: SaleId) -> Result<Option<Locked>, Error> {
    let row: Option<LockedRow> = query_as(SALE_AND_CLOCK)
        .bind(i64::from(sale.get()))
        .fetch_optional(tx)
        .await
        .map_err(sort)?;
    row::one(row)
}

/// Numbers the change and moves the counters; false if the guard refused.
pub(super) async fn record(tx: &mut SqliteConnection, change: &NewChange) -> Result<bool, Error> {
    let sale = i64::from(change.sale.get());
    let number: Option<i64> = query_scalar(MOVE)
        .bind(sale)
        .bind(row::sql(change.epoch))
        .bind(change.taken)
        .bind(change.confirmed)
        .fetch_optional(&mut *tx)
        .await
        .map_err(sort)?;
    let Some(number) = number else {
        return Ok(false);
    };
    query(INSERT_CHANGE)
        .bind(sale)
        .bind(number)
        .bind(change.state.as_str())
        .bind(change.at_ms)
        .bind(concatenated(&change.ids))
        .execute(&mut *tx)
        .await
        .map_err(sort)?;
    if let Some(due_at_ms) = change.due_at_ms {
        let insert = query(INSERT_GROUP).bind(sale).bind(due_at_ms).bind(number);
        insert.execute(tx).await.map_err(sort)?;
    }
    Ok(true)
}

/// [`record`] by a transaction that has checked what the guard checks.
pub(super) async fn record_locked(
    tx: &mut SqliteConnection,
    change: &NewChange,
) -> Result<(), Error> {
    let recorded = record(tx, change).await?;
    assert!(recorded, "the guard refused under the lock: {change:?}");
    Ok(())
}

fn concatenated(ids: &[Uuid]) -> Vec<u8> {
    ids.iter().flat_map(|id| *id.as_bytes()).collect()
}
