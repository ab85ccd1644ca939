//! Locks in PostgreSQL: rows, a lease in a row, and advisory locks.

mod advisory;
mod held;
mod lease_row;
mod row_lock;
mod unique_row;

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::resource::PostgresValue;
use super::{Error, Kind, Lock, Terms};
use crate::env::Env;

/// Whoever waits looks again after this long: the database wakes nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The locks of one PostgreSQL database.
///
/// `lease-row` and `unique-row` share a pool. `row-lock` and `advisory` belong to a connection: each
/// acquisition opens one of its own and closes it, so a pooled connection never holds a lock.
#[derive(Debug, Clone)]
pub struct PostgresLocks {
    pool: PgPool,
    options: PgConnectOptions,
    timeout: Duration,
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
            timeout,
            env,
        };
        let schema = sqlx::raw_sql(include_str!("schema.sql")).execute(&locks.pool);
        within(timeout, schema).await?;
        Ok(locks)
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
        let (pool, env, timeout) = (self.pool.clone(), self.env.clone(), self.timeout);
        Ok(match kind {
            Kind::LeaseRow => {
                let protocol = lease_row::LeaseRow::new(pool, timeout, name);
                Lock::new(kind, name, terms, env, protocol)
            }
            Kind::UniqueRow => {
                let protocol = unique_row::UniqueRow::new(pool, timeout, name);
                Lock::new(kind, name, terms, env, protocol)
            }
            Kind::RowLock => {
                let protocol = self.of_connection(row_lock::RowLock::new(name));
                Lock::new(kind, name, terms, env, protocol)
            }
            Kind::Advisory => {
                let protocol = self.of_connection(advisory::Advisory::new(name));
                Lock::new(kind, name, terms, env, protocol)
            }
            _ => return Err(Error::Unsupported(kind, "live in PostgreSQL")),
        })
    }

    fn of_connection<W>(&self, way: W) -> held::OfConnection<W> {
        held::OfConnection {
            options: self.options.clone(),
            timeout: self.timeout,
            way,
        }
    }
}

async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(why(&error)),
        Err(_) => Err(Error::Unreachable(
            "no answer from PostgreSQL in time".into(),
        )),
    }
}

/// What the server says by itself is final, but for its own end; the rest may pass.
pub(super) fn why(error: &sqlx::Error) -> Error {
    let final_word = error.as_database_error().is_some_and(|said| {
        let code = said.code().unwrap_or_default();
        // Connection exceptions, too many connections, operator's intervention.
        !["08", "53", "57"]
            .iter()
            .any(|class| code.starts_with(class))
    });
    match final_word {
        true => Error::Refused(error.to_string()),
        false => Error::Unreachable(error.to_string()),
    }
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
