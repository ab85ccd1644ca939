//! `lease-row`: a row with a holder, a fence and the end of the lease by the database's clock.
//!
//! The row is never deleted: its fence only grows, over restarts too. MySQL has no `RETURNING`, so what a try has
//! come to is read by a second statement; it counts only if the row still names this acquisition.
//!
//! `utc_timestamp` is the start of the statement. One that waited for the row's lock reads a time that is past,
//! which errs on the safe side: it takes nothing over that has not ended, and its lease began after the client
//! had begun to count.

use std::time::Duration;

use sqlx::MySqlPool;

use crate::lock::sql::{Calls, LOOK_AGAIN, ms};
use crate::lock::{Ask, Error, Protocol, Tried};

/// Takes a lock whose lease has ended, or says again to its holder that it holds it. Assignments run from
/// left to right and see each other: the fence comes first, while the row still names the one before.
const TAKE: &str = "
    insert into stockade_lock (name, token, fence, expires_at)
    values (?, ?, 1, utc_timestamp(6) + interval ? microsecond)
    on duplicate key update
        fence = fence + (expires_at <= utc_timestamp(6) and token <> values(token)),
        token = if(expires_at <= utc_timestamp(6), values(token), token),
        expires_at = if(token = values(token), values(expires_at), expires_at)";
const HELD: &str = "select fence from stockade_lock
     where name = ? and token = ? and expires_at > utc_timestamp(6)";
const EXTEND: &str = "update stockade_lock
       set expires_at = utc_timestamp(6) + interval ? microsecond
     where name = ? and token = ? and expires_at > utc_timestamp(6)";
const RELEASE: &str = "update stockade_lock set expires_at = utc_timestamp(6)
     where name = ? and token = ? and expires_at > utc_timestamp(6)";

#[derive(Debug)]
pub(super) struct LeaseRow {
    pool: MySqlPool,
    calls: Calls,
    name: Vec<u8>,
}

impl LeaseRow {
    pub(super) fn new(pool: MySqlPool, calls: Calls, name: &str) -> Self {
        Self {
            pool,
            calls,
            name: name.into(),
        }
    }
}

fn microseconds(time: Duration) -> i64 {
    ms(time).saturating_mul(1_000)
}

impl Protocol for LeaseRow {
    type Session = Ask;

    fn session(&self, ask: Ask) -> Ask {
        ask
    }

    async fn try_acquire(&self, ask: &mut Ask) -> Result<Tried, Error> {
        let token = ask.token.to_string();
        let take = sqlx::query(TAKE)
            .bind(&self.name)
            .bind(&token)
            .bind(microseconds(ask.lease));
        self.calls.run(TAKE, take.execute(&self.pool)).await?;
        let held = sqlx::query_scalar::<_, u64>(HELD)
            .bind(&self.name)
            .bind(&token);
        let fence = self
            .calls
            .run(HELD, held.fetch_optional(&self.pool))
            .await?;
        Ok(match fence {
            Some(fence) => Tried::Granted { fence: Some(fence) },
            None => Tried::Busy {
                retry_within: Some(LOOK_AGAIN),
            },
        })
    }

    async fn wait(&self, _ask: &mut Ask, at_most: Duration) {
        tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
    }

    async fn extend(&self, ask: &mut Ask, lease: Duration) -> Result<bool, Error> {
        let extend = sqlx::query(EXTEND)
            .bind(microseconds(lease))
            .bind(&self.name)
            .bind(ask.token.to_string());
        let done = self.calls.run(EXTEND, extend.execute(&self.pool)).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn release(&self, ask: &mut Ask) -> Result<bool, Error> {
        let release = sqlx::query(RELEASE)
            .bind(&self.name)
            .bind(ask.token.to_string());
        let done = self.calls.run(RELEASE, release.execute(&self.pool)).await?;
        Ok(done.rows_affected() == 1)
    }
}
