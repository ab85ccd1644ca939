//! `row-lock`: `SELECT … FOR UPDATE` in a transaction that lasts as long as the lock is held.
//!
//! There is no lease: a holder that pauses keeps the lock, and one whose connection the server has given up
//! cannot commit any more. What is written in the same transaction is fenced by that alone.

use std::time::Duration;

use sqlx::{Executor as _, PgConnection};

use super::held::{Way, got};
use super::within;
use crate::lock::Error;

const ROW: &str = "insert into stockade_lock_row (name) values ($1) on conflict do nothing";
const LOCK: &str = "select true from stockade_lock_row where name = $1 for update nowait";

#[derive(Debug)]
pub(super) struct RowLock {
    name: String,
}

impl RowLock {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl Way for RowLock {
    async fn lock(&self, connection: &mut PgConnection, timeout: Duration) -> Result<bool, Error> {
        let row = sqlx::query(ROW).bind(&self.name).execute(&mut *connection);
        within(timeout, row).await?;
        within(timeout, connection.execute("begin")).await?;
        let lock = sqlx::query(LOCK).bind(&self.name).execute(&mut *connection);
        let answer = tokio::time::timeout(timeout, lock).await;
        let late = || Error::Unreachable("no answer from PostgreSQL in time".into());
        let locked = got(answer.map_err(|_| late())?)?.is_some();
        if !locked {
            within(timeout, connection.execute("rollback")).await?;
        }
        Ok(locked)
    }

    async fn unlock(
        &self,
        connection: &mut PgConnection,
        timeout: Duration,
    ) -> Result<bool, Error> {
        within(timeout, connection.execute("commit"))
            .await
            .map(|_| true)
    }
}
