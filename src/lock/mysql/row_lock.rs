//! `row-lock`: `SELECT … FOR UPDATE` in a transaction that lasts as long as the lock is held.
//!
//! There is no lease: a holder that pauses keeps the lock, and one whose connection the server has given up
//! cannot commit any more. The row is there beforehand: an insert of a row that is there would wait for whoever
//! has locked it, where a plain read does not.

use std::time::Duration;

use sqlx::{Executor as _, MySqlConnection, MySqlPool};

use crate::lock::Error;
use crate::lock::sql::held::Way;
use crate::lock::sql::{Calls, LOOK_AGAIN, why};

/// The server counts in whole seconds: no statement waits longer than one for another's lock.
const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: &str = "set session innodb_lock_wait_timeout = 1";
const KNOWN: &str = "select exists (select 1 from stockade_lock_row where name = ?)";
const ROW: &str = "insert into stockade_lock_row (name) values (?)";
const LOCK: &str = "select name from stockade_lock_row where name = ? for update nowait";
const WAIT: &str = "select name from stockade_lock_row where name = ? for update";
/// "Somebody else has it": MariaDB's word and `InnoDB`'s for a wait that was too long, and MySQL's for `NOWAIT`.
const LOCKED: [u16; 2] = [1205, 3572];

#[derive(Debug)]
pub(super) struct RowLock {
    pool: MySqlPool,
    name: Vec<u8>,
}

impl RowLock {
    pub(super) fn new(pool: MySqlPool, name: &str) -> Self {
        Self {
            pool,
            name: name.into(),
        }
    }

    /// Makes sure that there is a row to lock; false if somebody is at it.
    async fn row(&self, connection: &mut MySqlConnection, calls: &Calls) -> Result<bool, Error> {
        let known = sqlx::query_scalar::<_, bool>(KNOWN).bind(&self.name);
        if calls.run(KNOWN, known.fetch_one(&mut *connection)).await? {
            return Ok(true);
        }
        let insert = sqlx::query(ROW).bind(&self.name).execute(connection);
        match calls.answer(ROW, insert).await? {
            Ok(_) => Ok(true),
            Err(sqlx::Error::Database(said)) if said.is_unique_violation() => Ok(true),
            Err(error) if is_taken(&error) => Ok(false),
            Err(error) => Err(why(&error)),
        }
    }

    /// Begins a transaction, which goes on if it could lock the row.
    async fn select(
        &self,
        connection: &mut MySqlConnection,
        select: &'static str,
        calls: &Calls,
    ) -> Result<bool, Error> {
        calls.run("begin", connection.execute("begin")).await?;
        let lock = sqlx::query(select)
            .bind(&self.name)
            .fetch_optional(&mut *connection);
        let locked = match calls.answer(select, lock).await? {
            Ok(row) => row.is_some(),
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
    type Connection = MySqlConnection;

    async fn prepare(&self, connection: &mut MySqlConnection, calls: &Calls) -> Result<(), Error> {
        let patience = connection.execute(PATIENCE);
        calls.run(PATIENCE, patience).await.map(drop)
    }

    async fn lock(&self, connection: &mut MySqlConnection, calls: &Calls) -> Result<bool, Error> {
        Ok(self.row(connection, calls).await? && self.select(connection, LOCK, calls).await?)
    }

    async fn wait(
        &self,
        connection: &mut MySqlConnection,
        at_most: Duration,
        calls: &Calls,
    ) -> Result<bool, Error> {
        if at_most < SECOND {
            tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
            return Ok(false);
        }
        self.select(connection, WAIT, calls).await
    }

    async fn number(&self, _: &mut MySqlConnection, calls: &Calls) -> Result<u64, Error> {
        super::number(&self.pool, calls).await
    }

    async fn unlock(&self, connection: &mut MySqlConnection, calls: &Calls) -> Result<bool, Error> {
        let commit = connection.execute("commit");
        calls.run("commit", commit).await.map(|_| true)
    }
}

fn is_taken(error: &sqlx::Error) -> bool {
    let said = error.as_database_error();
    let said = said.and_then(|said| said.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>());
    said.is_some_and(|said| LOCKED.contains(&said.number()))
}
