//! `row-lock`: `SELECT … FOR UPDATE` in a transaction that lasts as long as the lock is held.
//!
//! There is no lease: a holder that pauses keeps the lock, and one whose connection the server has given up
//! cannot commit any more. What is written in the same transaction is fenced by that alone.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor as _, PgConnection};

use super::held::{Held, got};
use super::{LOOK_AGAIN, within};
use crate::lock::{Ask, Error, Protocol, Tried};

const ROW: &str = "insert into stockade_lock_row (name) values ($1) on conflict do nothing";
const LOCK: &str = "select true from stockade_lock_row where name = $1 for update nowait";

#[derive(Debug)]
pub(super) struct RowLock {
    options: PgConnectOptions,
    timeout: Duration,
    name: String,
}

impl RowLock {
    pub(super) fn new(options: PgConnectOptions, timeout: Duration, name: &str) -> Self {
        Self {
            options,
            timeout,
            name: name.to_owned(),
        }
    }

    /// Locks the row in a new transaction; whether it was free.
    async fn lock(&self, connection: &mut PgConnection) -> Result<bool, Error> {
        let row = sqlx::query(ROW).bind(&self.name).execute(&mut *connection);
        within(self.timeout, row).await?;
        within(self.timeout, connection.execute("begin")).await?;
        let lock = sqlx::query(LOCK).bind(&self.name).execute(&mut *connection);
        let answer = tokio::time::timeout(self.timeout, lock).await;
        let late = || Error::Unreachable("no answer from PostgreSQL in time".into());
        let locked = got(answer.map_err(|_| late())?)?.is_some();
        if !locked {
            within(self.timeout, connection.execute("rollback")).await?;
        }
        Ok(locked)
    }
}

impl Protocol for RowLock {
    type Session = Held;
    const LEASED: bool = false;

    fn session(&self, _ask: Ask) -> Held {
        Held::default()
    }

    async fn try_acquire(&self, held: &mut Held) -> Result<Tried, Error> {
        if held.fence.is_none() {
            let connection = held.open(&self.options, self.timeout).await?;
            match self.lock(connection).await {
                Ok(true) => held.number(self.timeout).await?,
                Ok(false) => {}
                Err(error) => {
                    // It may hold the lock: it must not be used again.
                    held.close(self.timeout).await;
                    return Err(error);
                }
            }
        }
        Ok(match held.fence {
            Some(fence) => Tried::Granted { fence: Some(fence) },
            None => Tried::Busy {
                retry_within: Some(LOOK_AGAIN),
            },
        })
    }

    async fn wait(&self, _held: &mut Held, at_most: Duration) {
        tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
    }

    async fn extend(&self, held: &mut Held, _lease: Duration) -> Result<bool, Error> {
        Ok(held.fence.is_some())
    }

    async fn release(&self, held: &mut Held) -> Result<bool, Error> {
        let Some(connection) = held.connection() else {
            return Ok(false);
        };
        let commit = within(self.timeout, connection.execute("commit")).await;
        held.close(self.timeout).await;
        commit.map(|_| true)
    }

    async fn withdraw(&self, held: &mut Held, _uncertain: bool) -> Result<(), Error> {
        held.close(self.timeout).await;
        Ok(())
    }

    async fn lost(&self, held: &mut Held) {
        held.lost().await;
    }
}
