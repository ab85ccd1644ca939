//! Sales: created, listed, paused, opened, closed, drained, counted.

use sqlx::{PgConnection, query, query_as, query_scalar};

use super::Postgres;
use super::error::sort;
use super::load::ABSORB_RETURNS;
use crate::domain::{NewSale, Sale, SaleId};
use crate::ledger::row::{self, CountRow, SaleRow};
use crate::ledger::sql::{self, sale_columns};
use crate::ledger::{Count, Error};

/// $1 … $11: the terms, in the order of the columns.
const INSERT: &str = concat!(
    "insert into sale
            (product, title, price_minor, currency, quantity, segments, per_buyer_limit,
             opens_at_ms, closes_at_ms, hold_seconds, strategy)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) returning ",
    sale_columns!()
);

/// $1 sale. One that has to close before it could open stays as it is.
const OPEN_NOW: &str = "
    update sale set opens_at_ms = clock.now, control = control + 1
      from (select now_ms() as now) as clock
     where sale_id = $1 and not closed
       and (opens_at_ms is null or opens_at_ms > clock.now)
       and (closes_at_ms is null or closes_at_ms > clock.now)";

const CLOSE_DUE: &str = "
    update sale set closed = true, control = control + 1, drained = (stage = 'scheduled')
     where not drained and not closed and closes_at_ms <= now_ms()";

impl Postgres {
    pub(in crate::ledger) async fn create_sale(&self, terms: &NewSale) -> Result<Sale, Error> {
        let mut tx = self.begin().await?;
        let row: SaleRow = query_as(INSERT)
            .bind(&terms.product)
            .bind(&terms.title)
            .bind(terms.price_minor)
            .bind(&terms.currency)
            .bind(terms.quantity.cast_signed())
            .bind(terms.segments.cast_signed())
            .bind(terms.per_buyer_limit.cast_signed())
            .bind(terms.opens_at.map(|at| at.millis()))
            .bind(terms.closes_at.map(|at| at.millis()))
            .bind(terms.hold_seconds.cast_signed())
            .bind(terms.strategy.as_str())
            .fetch_one(&mut *tx)
            .await
            .map_err(sort)?;
        super::commit(tx).await?;
        row.try_into()
    }

    pub(in crate::ledger) async fn sale(&self, id: SaleId) -> Result<Option<Sale>, Error> {
        let mut connection = self.pool.acquire().await.map_err(sort)?;
        read(&mut connection, id).await
    }

    pub(in crate::ledger) async fn sales(
        &self,
        after: Option<SaleId>,
        limit: u32,
    ) -> Result<Vec<Sale>, Error> {
        self.list(sql::SALES, after, limit).await
    }

    pub(in crate::ledger) async fn live_sales(
        &self,
        after: Option<SaleId>,
        limit: u32,
    ) -> Result<Vec<Sale>, Error> {
        self.list(sql::LIVE_SALES, after, limit).await
    }

    async fn list(
        &self,
        statement: &'static str,
        after: Option<SaleId>,
        limit: u32,
    ) -> Result<Vec<Sale>, Error> {
        let rows: Vec<SaleRow> = query_as(statement)
            .bind(after.map_or(0, |sale| i64::from(sale.get())))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(sort)?;
        row::all(rows)
    }

    pub(in crate::ledger) async fn set_paused(
        &self,
        id: SaleId,
        paused: bool,
    ) -> Result<Option<Sale>, Error> {
        let mut tx = self.begin().await?;
        let update = query(sql::SET_PAUSED)
            .bind(i64::from(id.get()))
            .bind(paused);
        update.execute(&mut *tx).await.map_err(sort)?;
        let sale = read(&mut tx, id).await?;
        super::commit(tx).await?;
        Ok(sale)
    }

    pub(in crate::ledger) async fn open_now(&self, id: SaleId) -> Result<Option<Sale>, Error> {
        self.control(OPEN_NOW, id).await
    }

    pub(in crate::ledger) async fn close_sale(&self, id: SaleId) -> Result<Option<Sale>, Error> {
        self.control(sql::CLOSE, id).await
    }

    /// Runs an update that takes effect at most once, and returns the sale as it is then.
    async fn control(&self, update: &'static str, id: SaleId) -> Result<Option<Sale>, Error> {
        let mut tx = self.begin().await?;
        query(update)
            .bind(i64::from(id.get()))
            .execute(&mut *tx)
            .await
            .map_err(sort)?;
        let sale = read(&mut tx, id).await?;
        super::commit(tx).await?;
        Ok(sale)
    }

    pub(in crate::ledger) async fn close_due(&self) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let closed = query(CLOSE_DUE)
            .execute(&mut *tx)
            .await
            .map_err(sort)?
            .rows_affected();
        super::commit(tx).await?;
        Ok(closed)
    }

    pub(in crate::ledger) async fn set_drained(
        &self,
        id: SaleId,
        epoch: u64,
    ) -> Result<bool, Error> {
        let mut tx = self.begin().await?;
        let number = i64::from(id.get());
        let update = query(sql::SET_DRAINED).bind(number).bind(row::sql(epoch));
        let drained = update
            .execute(&mut *tx)
            .await
            .map_err(sort)?
            .rows_affected();
        if drained > 0 {
            query(ABSORB_RETURNS)
                .bind(number)
                .execute(&mut *tx)
                .await
                .map_err(sort)?;
        }
        let sale = read(&mut tx, id).await?;
        super::commit(tx).await?;
        Ok(sale.is_some_and(|sale| sale.drained))
    }

    pub(in crate::ledger) async fn returning(&self, id: SaleId) -> Result<u64, Error> {
        let units: i64 = query_scalar(sql::RETURNING)
            .bind(i64::from(id.get()))
            .fetch_one(&self.pool)
            .await
            .map_err(sort)?;
        row::counter(units)
    }

    pub(in crate::ledger) async fn count(&self, id: SaleId) -> Result<Option<Count>, Error> {
        let (lowest, highest) = row::id_range(id);
        let mut tx = self.begin_reading_all().await?;
        let row: Option<CountRow> = query_as(sql::COUNT)
            .bind(i64::from(id.get()))
            .bind(lowest)
            .bind(highest)
            .fetch_optional(&mut *tx)
            .await
            .map_err(sort)?;
        row::one(row)
    }
}

/// The sale's row as it is.
pub(super) async fn read(connection: &mut PgConnection, id: SaleId) -> Result<Option<Sale>, Error> {
    let row: Option<SaleRow> = query_as(sql::SALE)
        .bind(i64::from(id.get()))
        .fetch_optional(connection)
        .await
        .map_err(sort)?;
    row::one(row)
}
