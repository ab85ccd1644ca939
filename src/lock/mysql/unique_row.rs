//! `unique-row`: insert a row to take the lock, delete it to free it. The naive one of the articles: a holder
//! that dies leaves its row behind for ever, and anybody's delete frees it.

use std::time::Duration;

use sqlx::MySqlPool;

use crate::lock::sql::{Calls, LOOK_AGAIN, why};
use crate::lock::{Ask, Error, Kind, Protocol, Tried};

const INSERT: &str = "insert into stockade_lock_unique (name) values (?)";
const DELETE: &str = "delete from stockade_lock_unique where name = ?";

#[derive(Debug)]
pub(super) struct UniqueRow {
    pool: MySqlPool,
    calls: Calls,
    name: Vec<u8>,
}

impl UniqueRow {
    pub(super) fn new(pool: MySqlPool, calls: Calls, name: &str) -> Self {
        Self {
            pool,
            calls,
            name: name.into(),
        }
    }
}

impl Protocol for UniqueRow {
    type Session = ();
    const LEASED: bool = false;

    fn session(&self, _ask: Ask) {}

    async fn try_acquire(&self, (): &mut ()) -> Result<Tried, Error> {
        let insert = sqlx::query(INSERT).bind(&self.name).execute(&self.pool);
        match self.calls.answer(INSERT, insert).await? {
            Ok(_) => Ok(Tried::Granted { fence: None }),
            Err(sqlx::Error::Database(said)) if said.is_unique_violation() => Ok(Tried::Busy {
                retry_within: Some(LOOK_AGAIN),
            }),
            Err(error) => Err(why(&error)),
        }
    }

    async fn wait(&self, (): &mut (), at_most: Duration) {
        tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
    }

    async fn extend(&self, (): &mut (), _lease: Duration) -> Result<bool, Error> {
        Err(Error::Unsupported(Kind::UniqueRow, "prolong its lease"))
    }

    async fn release(&self, (): &mut ()) -> Result<bool, Error> {
        let delete = sqlx::query(DELETE).bind(&self.name).execute(&self.pool);
        let done = self.calls.run(DELETE, delete).await?;
        Ok(done.rows_affected() == 1)
    }
}
