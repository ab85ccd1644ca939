//! `row-lock`: `SELECT … FOR UPDATE` in a transaction that lasts as long as the lock is held.
//!
//! There is no lease: a holder that pauses keeps the lock, and one whose connection the server has given up
//! cannot commit any more. What is written in the same transaction is fenced by that alone.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor as _, PgConnection, PgPool};

use super::is_taken;
use crate::lock::Error;
use crate::lock::sql::held::Way;
use crate::lock::sql::{Calls, ms, why};

const ROW: &str = "insert into stockade_lock_row (name) values ($1) on conflict do nothing";
const LOCK: &str = "select true from stockade_lock_row where name = $1 for update nowait";
const WAIT: &str = "select true from stockade_lock_row where name = $1 for update";

#[derive(Debug)]
pub(super) struct RowLock {
    pool: PgPool,
    name: String,
}

impl RowLock {
    pub(super) fn new(pool: PgPool, name: &str) -> Self {
        Self {
            pool,
            name: name.to_owned(),
        }
    }

    /// Begins a transaction, which goes on if it could lock the row.
    async fn select(
        &self,
        connection: &mut PgConnection,
        begin: &str,
        select: &'static str,
        calls: &Calls,
    ) -> Result<bool, Error> {
        let beginning = sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *connection);
        calls.run(begin, beginning).await?;
        let lock = sqlx::query(select)
            .bind(&self.name)
            .execute(&mut *connection);
        let locked = match calls.answer(select, lock).await? {
            Ok(_) => true,
            Err(error) if is_taken(&error) => false,
            Err(error) => return Err(why(&error)),
        };
        if !locked {
            let rollback = connection.execute("rollback");
            calls.run("rollback", rollback).await?;
        }
        Ok(locked)
    }
}

impl Way for RowLock {
    type Connection = PgConnection;

    async fn lock(&self, connection: &mut PgConnection, calls: &Calls) -> Result<bool, Error> {
        let row = sqlx::query(ROW).bind(&self.name).execute(&mut *connection);
        calls.run(ROW, row).await?;
        self.select(connection, "begin", LOCK, calls).await
    }

    async fn wait(
        &self,
        connection: &mut PgConnection,
        at_most: Duration,
        calls: &Calls,
    ) -> Result<bool, Error> {
        let begin = format!("begin; set local lock_timeout = {}", ms(at_most).max(1));
        self.select(connection, &begin, WAIT, calls).await
    }

    /// In a transaction of its own, which is on disk when it answers. Drawn in the holder's, it might be drawn again
    /// after a crash of the server under that holder.
    async fn number(&self, _: &mut PgConnection, calls: &Calls) -> Result<u64, Error> {
        super::number(&self.pool, calls).await
    }

    async fn unlock(&self, connection: &mut PgConnection, calls: &Calls) -> Result<bool, Error> {
        let commit = connection.execute("commit");
        calls.run("commit", commit).await.map(|_| true)
    }
}
