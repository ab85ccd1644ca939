//! Locks in PostgreSQL: rows, a lease in a row, and advisory locks.

mod advisory;
mod lease_row;
mod row_lock;
mod unique_row;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::gate::Steps;
use super::resource::PostgresValue;
use super::sql::held::{OfConnection, Way};
use super::sql::{Calls, why};
use super::{Error, Kind, Lock, Terms};
use crate::env::Env;

/// The locks of one PostgreSQL database.
///
/// `lease-row` and `unique-row` share a pool. `row-lock` and `advisory` belong to a connection: each
/// acquisition opens one of its own and closes it, so a pooled connection never holds a lock.
#[derive(Debug, Clone)]
pub struct PostgresLocks {
    pool: PgPool,
    options: PgConnectOptions,
    calls: Calls,
    env: Env,
}

impl PostgresLocks {
    /// Locks in the database of this URL; a call that takes longer than `timeout` is given up.
    ///
    /// # Errors
    /// [`Error::Refused`] if the URL cannot be used, [`Error::Unreachable`] if the database does not answer.
    pub async fn connect(url: &str, timeout: Duration, env: Env) -> Result<Self, Error> {
        let options: PgConnectOptions = url
            .parse()
            .map_err(|error: sqlx::Error| Error::Refused(error.to_string()))?;
        let pool = PgPoolOptions::new()
            .acquire_timeout(timeout)
            .connect_with(options.clone())
            .await
            .map_err(|error| why(&error))?;
        let locks = Self {
            pool,
            options,
            calls: Calls::new(timeout),
            env,
        };
        let schema = include_str!("schema.sql");
        let making = sqlx::raw_sql(schema).execute(&locks.pool);
        locks.calls.run(schema, making).await?;
        Ok(locks)
    }

    /// The same locks as another client has them, each statement of which waits for a permit.
    #[must_use]
    pub fn gated(&self) -> (Self, Steps) {
        let (calls, steps) = self.calls.gated();
        let gated = Self {
            calls,
            ..self.clone()
        };
        (gated, steps)
    }

    /// A value that only the latest holder of a lock can change.
    #[must_use]
    pub fn fenced_value(&self, name: &str) -> PostgresValue {
        PostgresValue::new(self.pool.clone(), name)
    }

    /// The lock of this kind and name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind is not one of PostgreSQL.
    pub fn lock(&self, kind: Kind, name: &str, terms: Terms) -> Result<Lock, Error> {
        let (pool, env, calls) = (self.pool.clone(), self.env.clone(), self.calls.clone());
        Ok(match kind {
            Kind::LeaseRow => {
                let protocol = lease_row::LeaseRow::new(pool, calls, name);
                Lock::new(kind, name, terms, env, protocol)
            }
            Kind::UniqueRow => {
                let protocol = unique_row::UniqueRow::new(pool, calls, name);
                Lock::new(kind, name, terms, env, protocol)
            }
            Kind::RowLock => {
                let protocol = self.of_connection(row_lock::RowLock::new(pool, name));
                Lock::new(kind, name, terms, env, protocol)
            }
            Kind::Advisory => {
                let protocol = self.of_connection(advisory::Advisory::new(name));
                Lock::new(kind, name, terms, env, protocol)
            }
            _ => return Err(Error::Unsupported(kind, "live in PostgreSQL")),
        })
    }

    fn of_connection<W: Way<Connection = PgConnection>>(&self, way: W) -> OfConnection<W> {
        OfConnection::new(self.options.clone(), self.calls.clone(), way)
    }
}

/// Draws a number of the sequence, which no rollback takes back. It is durable with the transaction in which it was
/// drawn, not before.
async fn number(executor: impl PgExecutor<'_>, calls: &Calls) -> Result<u64, Error> {
    const NEXT: &str = "select nextval('stockade_lock_fence')";
    let next = sqlx::query_scalar::<_, i64>(NEXT).fetch_one(executor);
    let number = calls.run(NEXT, next).await?;
    u64::try_from(number).map_err(|_| Error::Refused(format!("the fence is {number}")))
}

/// Whether the server says that somebody else has it.
fn is_taken(error: &sqlx::Error) -> bool {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    let said = error.as_database_error().and_then(|said| said.code());
    said.as_deref() == Some(LOCK_NOT_AVAILABLE)
}
