//! `unique-row`: insert a row to take the lock, delete it to free it. The naive one of the articles: a holder
//! that dies leaves its row behind for ever, and anybody's delete frees it.

use std::time::Duration;

use sqlx::PgPool;

use crate::lock::sql::{Calls, LOOK_AGAIN};
use crate::lock::{Ask, Error, Kind, Protocol, Tried};

const INSERT: &str = "insert into stockade_lock_unique (name) values ($1) on conflict do nothing";
const DELETE: &str = "delete from stockade_lock_unique where name = $1";

#[derive(Debug)]
pub(super) struct UniqueRow {
    pool: PgPool,
    calls: Calls,
    name: String,
}

impl UniqueRow {
    pub(super) fn new(pool: PgPool, calls: Calls, name: &str) -> Self {
        Self {
            pool,
            calls,
            name: name.to_owned(),
        }
    }

    async fn change(&self, statement: &'static str) -> Result<bool, Error> {
        let change = sqlx::query(statement).bind(&self.name);
        let done = self
            .calls
            .run(statement, change.execute(&self.pool))
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

impl Protocol for UniqueRow {
    type Session = ();
    const LEASED: bool = false;

    fn session(&self, _ask: Ask) {}

    async fn try_acquire(&self, (): &mut ()) -> Result<Tried, Error> {
        Ok(match self.change(INSERT).await? {
            true => Tried::Granted { fence: None },
            false => Tried::Busy {
                retry_within: Some(LOOK_AGAIN),
            },
        })
    }

    async fn wait(&self, (): &mut (), at_most: Duration) {
        tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
    }

    async fn extend(&self, (): &mut (), _lease: Duration) -> Result<bool, Error> {
        Err(Error::Unsupported(Kind::UniqueRow, "prolong its lease"))
    }

    async fn release(&self, (): &mut ()) -> Result<bool, Error> {
        self.change(DELETE).await
    }
}
