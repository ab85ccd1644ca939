//! `lease-row`: a row with a holder, a fence and the end of the lease by the database's clock.
//!
//! The row is never deleted: its fence only grows, over restarts too. Each step is one statement whose clock is
//! read by the database while it runs, so no client's clock and no pause before the statement counts
//! (<https://github.com/lukas-krecan/ShedLock/issues/132>).

use std::time::Duration;

use sqlx::PgPool;

use crate::lock::sql::{Calls, LOOK_AGAIN, ms};
use crate::lock::{Ask, Error, Protocol, Tried};

/// Takes a lock whose lease has ended, or says again to its holder that it holds it.
const TAKE: &str = "
    insert into stockade_lock as lock (name, token, fence, expires_at)
    values ($1, $2, 1, clock_timestamp() + $3 * interval '1 millisecond')
    on conflict (name) do update
       set fence = case when lock.token = excluded.token then lock.fence else lock.fence + 1 end,
           token = excluded.token,
           expires_at = clock_timestamp() + $3 * interval '1 millisecond'
     where lock.expires_at <= clock_timestamp() or lock.token = excluded.token
    returning fence";
const EXTEND: &str = "
    update stockade_lock
       set expires_at = clock_timestamp() + $3 * interval '1 millisecond'
     where name = $1 and token = $2 and expires_at > clock_timestamp()";
const RELEASE: &str = "
    update stockade_lock set expires_at = clock_timestamp()
     where name = $1 and token = $2 and expires_at > clock_timestamp()";

#[derive(Debug)]
pub(super) struct LeaseRow {
    pool: PgPool,
    calls: Calls,
    name: String,
}

impl LeaseRow {
    pub(super) fn new(pool: PgPool, calls: Calls, name: &str) -> Self {
        Self {
            pool,
            calls,
            name: name.to_owned(),
        }
    }
}

impl Protocol for LeaseRow {
    type Session = Ask;

    fn session(&self, ask: Ask) -> Ask {
        ask
    }

    async fn try_acquire(&self, ask: &mut Ask) -> Result<Tried, Error> {
        let take = sqlx::query_scalar::<_, i64>(TAKE)
            .bind(&self.name)
            .bind(ask.token.to_string())
            .bind(ms(ask.lease));
        let fence = self
            .calls
            .run(TAKE, take.fetch_optional(&self.pool))
            .await?;
        Ok(match fence {
            Some(fence) => Tried::Granted {
                fence: u64::try_from(fence).ok(),
            },
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
            .bind(&self.name)
            .bind(ask.token.to_string())
            .bind(ms(lease));
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
