//! Loads of stock into Redis: fence, adopt, snapshot, finish.

use std::time::Duration;

use sqlx::{SqliteConnection, query, query_as};

use super::change::{lock, now_ms, record_locked};
use super::error::sort;
use super::{Sqlite, commit, stock_change};
use crate::domain::{Purchase, SaleId, Stage};
use crate::ledger::change::{NewChange, fit, ids};
use crate::ledger::group::Group;
use crate::ledger::row::{self, Locked, SnapshotRow};
use crate::ledger::{Adopted, Error, Snapshot, StockChange, sql};

/// $1 sale, $2 epoch, $3 lease in milliseconds.
const FENCE: &str = concat!(
    "update sale
        set epoch = epoch + 1, stage = 'loading', load_lease_until_ms = $3 + ",
    now_ms!(),
    " where sale_id = $1 and epoch = $2 and not drained
        and (stage <> 'loading' or load_lease_until_ms <= ",
    now_ms!(),
    ")"
);

/// $1 sale, $2 epoch, $3 lease in milliseconds.
const OVERTAKE: &str = concat!(
    "update sale
        set epoch = epoch + 1, load_lease_until_ms = $3 + ",
    now_ms!(),
    " where sale_id = $1 and epoch = $2 and not drained
        and stage = 'loading' and load_lease_until_ms <= ",
    now_ms!()
);

/// $1 sale, $2 epoch, $3 lease in milliseconds.
const RENEW: &str = concat!(
    "update sale set load_lease_until_ms = $3 + ",
    now_ms!(),
    " where sale_id = $1 and epoch = $2 and stage = 'loading'"
);

/// $1 sale. A load counts the units of ended orders as free, and a drained sale sells none.
pub(super) const ABSORB_RETURNS: &str = "delete from stock_return where sale_id = $1";

impl Sqlite {
    pub(in crate::ledger) async fn fence(
        &self,
        sale: SaleId,
        from: u64,
        lease: Duration,
    ) -> Result<bool, Error> {
        self.lease(FENCE, sale, from, lease).await
    }

    pub(in crate::ledger) async fn overtake(
        &self,
        sale: SaleId,
        from: u64,
        lease: Duration,
    ) -> Result<bool, Error> {
        self.lease(OVERTAKE, sale, from, lease).await
    }

    pub(in crate::ledger) async fn renew_load(
        &self,
        sale: SaleId,
        epoch: u64,
        lease: Duration,
    ) -> Result<bool, Error> {
        self.lease(RENEW, sale, epoch, lease).await
    }

    async fn lease(
        &self,
        update: &'static str,
        sale: SaleId,
        epoch: u64,
        lease: Duration,
    ) -> Result<bool, Error> {
        let mut tx = self.begin().await?;
        let updated = query(update)
            .bind(i64::from(sale.get()))
            .bind(row::sql(epoch))
            .bind(row::millis(lease))
            .execute(&mut *tx)
            .await
            .map_err(sort)?;
        super::commit(tx).await?;
        Ok(updated.rows_affected() == 1)
    }

    pub(in crate::ledger) async fn adopt(
        &self,
        sale: SaleId,
        epoch: u64,
        purchases: &[Purchase],
    ) -> Result<Option<Adopted>, Error> {
        let group = Group::of(sale, purchases)?;
        let mut tx = self.begin().await?;
        let Some(locked) = lock_loading(&mut tx, sale, epoch).await? else {
            return Ok(None);
        };
        let known = super::order::read(&mut tx, &group.ids()).await?;
        let fresh = commit::begin(&locked, &group.without(&known))?;
        let (accepted, rejected) = fit(fresh, purchases, locked.sale.free());
        let rejected = commit::refuse(&locked, rejected)?;
        commit::insert(&mut tx, &accepted).await?;
        if let Some(begun) = NewChange::begun(sale, epoch, &accepted) {
            record_locked(&mut tx, &begun).await?;
        }
        commit::insert(&mut tx, &rejected).await?;
        if !rejected.is_empty() {
            let rejected = NewChange::rejected(&locked.sale, locked.now_ms, ids(&rejected));
            record_locked(&mut tx, &rejected).await?;
        }
        super::commit(tx).await?;
        Ok(Some(Adopted {
            committed: accepted.len() as u64,
            rejected: rejected.len() as u64,
            known: known.len() as u64,
        }))
    }

    pub(in crate::ledger) async fn snapshot(
        &self,
        sale: SaleId,
        epoch: u64,
        change: Option<&StockChange>,
    ) -> Result<Option<Snapshot>, Error> {
        let mut tx = self.begin().await?;
        let Some(locked) = lock_loading(&mut tx, sale, epoch).await? else {
            return Ok(None);
        };
        let (terms, change) = match change {
            Some(change) => {
                let (terms, answer) = stock_change::apply(&mut tx, locked.sale, change).await?;
                (terms, Some(answer))
            }
            None => (locked.sale, None),
        };
        let number = i64::from(sale.get());
        query(ABSORB_RETURNS)
            .bind(number)
            .execute(&mut *tx)
            .await
            .map_err(sort)?;
        let (lowest, highest) = row::id_range(sale);
        let orders: Vec<SnapshotRow> = query_as(sql::SNAPSHOT)
            .bind(lowest)
            .bind(highest)
            .fetch_all(&mut *tx)
            .await
            .map_err(sort)?;
        super::commit(tx).await?;
        Ok(Some(Snapshot {
            sale: terms,
            change,
            orders: row::all(orders)?,
        }))
    }

    pub(in crate::ledger) async fn finish_load(
        &self,
        sale: SaleId,
        epoch: u64,
    ) -> Result<bool, Error> {
        let mut tx = self.begin().await?;
        query(sql::FINISH_LOAD)
            .bind(i64::from(sale.get()))
            .bind(row::sql(epoch))
            .execute(&mut *tx)
            .await
            .map_err(sort)?;
        let now = super::sale::read(&mut tx, sale).await?;
        super::commit(tx).await?;
        Ok(now.is_some_and(|sale| sale.epoch == epoch && sale.stage == Stage::Loaded))
    }
}

/// Locks the sale if this loader has not been overtaken.
async fn lock_loading(
    tx: &mut SqliteConnection,
    sale: SaleId,
    epoch: u64,
) -> Result<Option<Locked>, Error> {
    let locked = lock(tx, sale)
        .await?
        .ok_or_else(|| Error::no_such_sale(sale))?;
    let loading = locked.sale.epoch == epoch && locked.sale.stage == Stage::Loading;
    Ok(loading.then_some(locked))
}
