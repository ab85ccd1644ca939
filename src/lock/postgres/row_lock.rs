//! `row-lock`: `SELECT … FOR UPDATE` in a transaction that lasts as long as the lock is held.
//!
//! There is no lease: a holder that pauses keeps the lock, and one whose connection the server has given up
//! cannot commit any more. What is written in the same transaction is fenced by that alone.

use sqlx::{Executor as _, PgConnection};

use crate::lock::Error;
use crate::lock::sql::held::Way;
use crate::lock::sql::{Calls, why};

const ROW: &str = "insert into stockade_lock_row (name) values ($1) on conflict do nothing";
const LOCK: &str = "select true from stockade_lock_row where name = $1 for update nowait";
/// The server's word for "somebody else has it".
const LOCK_NOT_AVAILABLE: &str = "55P03";

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
    type Connection = PgConnection;

    async fn lock(&self, connection: &mut PgConnection, calls: &Calls) -> Result<bool, Error> {
        let row = sqlx::query(ROW).bind(&self.name).execute(&mut *connection);
        calls.run(ROW, row).await?;
        calls.run("begin", connection.execute("begin")).await?;
        let lock = sqlx::query(LOCK).bind(&self.name).execute(&mut *connection);
        let locked = match calls.answer(LOCK, lock).await? {
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

    async fn number(&self, connection: &mut PgConnection, calls: &Calls) -> Result<u64, Error> {
        super::number(connection, calls).await
    }

    async fn unlock(&self, connection: &mut PgConnection, calls: &Calls) -> Result<bool, Error> {
        let commit = connection.execute("commit");
        calls.run("commit", commit).await.map(|_| true)
    }
}

fn is_taken(error: &sqlx::Error) -> bool {
    let said = error.as_database_error().and_then(|said| said.code());
    said.as_deref() == Some(LOCK_NOT_AVAILABLE)
}
