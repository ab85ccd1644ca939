//! `advisory`: a number that the server locks for a session, `pg_advisory_lock`.
//!
//! The lock belongs to the connection: each acquisition has one of its own, which is closed with it. Through a
//! pool, or a proxy that shares connections between transactions, lock and unlock may reach different sessions
//! (<https://github.com/pgbouncer/pgbouncer/issues/102>).

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, PgConnection};

use super::is_taken;
use crate::lock::Error;
use crate::lock::sql::held::Way;
use crate::lock::sql::{Calls, ms, why};

const WAIT: &str = "select pg_advisory_lock($1)";
/// Whether this session has it: the number's halves are two columns.
const HELD: &str = "
    select exists (
        select 1 from pg_locks
         where locktype = 'advisory' and pid = pg_backend_pid() and granted and objsubid = 1
           and (classid::bigint << 32) | objid::bigint = $1)";

#[derive(Debug)]
pub(super) struct Advisory {
    /// Two names with one number would exclude each other, which is unlikely and harmless.
    number: i64,
}

impl Advisory {
    pub(super) fn new(name: &str) -> Self {
        let hash = Sha256::digest(name.as_bytes());
        let mut number = [0; 8];
        number.copy_from_slice(&hash[..8]);
        Self {
            number: i64::from_be_bytes(number),
        }
    }

    async fn ask(
        &self,
        statement: &'static str,
        connection: &mut PgConnection,
        calls: &Calls,
    ) -> Result<bool, Error> {
        let answer = sqlx::query_scalar::<_, bool>(statement).bind(self.number);
        calls.run(statement, answer.fetch_one(connection)).await
    }
}

impl Way for Advisory {
    type Connection = PgConnection;

    async fn lock(&self, connection: &mut PgConnection, calls: &Calls) -> Result<bool, Error> {
        self.ask("select pg_try_advisory_lock($1)", connection, calls)
            .await
    }

    /// When the time is up the lock may have been granted a moment before
    /// (<https://github.com/madelson/DistributedLock/issues/147>), so whoever goes on asks whether it was.
    async fn wait(
        &self,
        connection: &mut PgConnection,
        at_most: Duration,
        calls: &Calls,
    ) -> Result<bool, Error> {
        let patience = format!("set lock_timeout = {}", ms(at_most).max(1));
        let setting = sqlx::raw_sql(AssertSqlSafe(patience.as_str())).execute(&mut *connection);
        calls.run(&patience, setting).await?;
        let lock = sqlx::query(WAIT)
            .bind(self.number)
            .execute(&mut *connection);
        match calls.answer(WAIT, lock).await? {
            Ok(_) => Ok(true),
            Err(error) if is_taken(&error) => {
                let held = sqlx::query_scalar::<_, bool>(HELD).bind(self.number);
                calls.run(HELD, held.fetch_one(connection)).await
            }
            Err(error) => Err(why(&error)),
        }
    }

    async fn number(&self, connection: &mut PgConnection, calls: &Calls) -> Result<u64, Error> {
        super::number(connection, calls).await
    }

    async fn unlock(&self, connection: &mut PgConnection, calls: &Calls) -> Result<bool, Error> {
        self.ask("select pg_advisory_unlock($1)", connection, calls)
            .await
    }
}
