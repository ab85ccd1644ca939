//! `advisory`: a number that the server locks for a session, `pg_advisory_lock`.
//!
//! The lock belongs to the connection: each acquisition has one of its own, which is closed with it. Through a
//! pool, or a proxy that shares connections between transactions, lock and unlock may reach different sessions
//! (<https://github.com/pgbouncer/pgbouncer/issues/102>).

use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

use crate::lock::Error;
use crate::lock::sql::Calls;
use crate::lock::sql::held::Way;

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

    async fn number(&self, connection: &mut PgConnection, calls: &Calls) -> Result<u64, Error> {
        super::number(connection, calls).await
    }

    async fn unlock(&self, connection: &mut PgConnection, calls: &Calls) -> Result<bool, Error> {
        self.ask("select pg_advisory_unlock($1)", connection, calls)
            .await
    }
}
