//! Units added or withdrawn, and another number of segments.

use sqlx::{PgConnection, query_as};

use super::Postgres;
use super::change::lock;
use super::error::sort;
use crate::domain::{Sale, SaleId, Stage};
use crate::ledger::row::SaleRow;
use crate::ledger::{ChangeAnswer, Error, ScheduledChange, StockChange, sql};

impl Postgres {
    pub(in crate::ledger) async fn change_scheduled(
        &self,
        sale: SaleId,
        change: &StockChange,
    ) -> Result<Option<ScheduledChange>, Error> {
        let mut tx = self.begin().await?;
        let Some(locked) = lock(&mut tx, sale).await? else {
            return Ok(None);
        };
        if locked.sale.stage != Stage::Scheduled || locked.sale.closed {
            return Ok(Some(ScheduledChange::NotScheduled(locked.sale)));
        }
        let (sale, answer) = apply(&mut tx, locked.sale, change).await?;
        super::commit(tx).await?;
        Ok(Some(ScheduledChange::Answered(answer, sale)))
    }
}

/// Applies the change to a sale that this transaction has locked; the sale as it is then.
///
/// A number beyond its bounds is an error of the check, or of the row that comes back: the row is
/// looked at here, before the commit, since nobody could read it afterwards.
pub(super) async fn apply(
    tx: &mut PgConnection,
    sale: Sale,
    change: &StockChange,
) -> Result<(Sale, ChangeAnswer), Error> {
    let answer = change.answer(&sale);
    if answer != ChangeAnswer::Applied {
        return Ok((sale, answer));
    }
    let row: SaleRow = query_as(sql::CHANGE_STOCK)
        .bind(i64::from(sale.id.get()))
        .bind(change.quantity.map(|quantity| quantity.to.cast_signed()))
        .bind(change.segments.map(u32::cast_signed))
        .fetch_one(tx)
        .await
        .map_err(sort)?;
    Ok((row.try_into()?, answer))
}
