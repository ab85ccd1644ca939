//! Locks in MySQL and MariaDB: rows, a lease in a row, and `GET_LOCK`. Feature `mysql`; tested on MariaDB 10.11.

mod get_lock;
mod lease_row;
mod row_lock;
mod unique_row;

use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{MySqlConnection, MySqlPool};

use super::gate::Steps;
use super::sql::held::{OfConnection, Way};
use super::sql::{Calls, why};
use super::{Error, Kind, Lock, Terms};
use crate::env::Env;

/// The longest name of a lock, as the tables have it.
const NAME_BYTES_MAX: usize = 255;

/// The locks of one MySQL or MariaDB database.
///
/// `lease-row` and `unique-row` share a pool. `row-lock` and `advisory` belong to a connection: each
/// acquisition opens one of its own and closes it, so a pooled connection never holds a lock.
#[derive(Debug, Clone)]
pub struct MysqlLocks {
    pool: MySqlPool,
    options: MySqlConnectOptions,
    calls: Calls,
    env: Env,
}

impl MysqlLocks {
    /// Locks in the database of this URL; a call that takes longer than `timeout` is given up.
    ///
    /// # Errors
    /// [`Error::Refused`] if the URL cannot be used, [`Error::Unreachable`] if the database does not answer.
    pub async fn connect(url: &str, timeout: Duration, env: Env) -> Result<Self, Error> {
        let options: MySqlConnectOptions = url
            .parse()
            .map_err(|error: sqlx::Error| Error::Refused(error.to_string()))?;
        let pool = MySqlPoolOptions::new()
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

    /// The lock of this kind and name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind is not one of MySQL, [`Error::Refused`] if the name is too long.
    pub fn lock(&self, kind: Kind, name: &str, terms: Terms) -> Result<Lock, Error> {
        if name.len() > NAME_BYTES_MAX {
            let refused = format!("a name of more than {NAME_BYTES_MAX} bytes");
            return Err(Error::Refused(refused));
        }
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
                let protocol = self.of_connection(get_lock::GetLock::new(pool, name));
                Lock::new(kind, name, terms, env, protocol)
            }
            _ => return Err(Error::Unsupported(kind, "live in MySQL")),
        })
    }

    fn of_connection<W: Way<Connection = MySqlConnection>>(&self, way: W) -> OfConnection<W> {
        OfConnection::new(self.options.clone(), self.calls.clone(), way)
    }
}

/// Draws a number by a transaction of its own: a holder that dies takes none back.
async fn number(pool: &MySqlPool, calls: &Calls) -> Result<u64, Error> {
    const NEXT: &str = "update stockade_lock_fence set value = last_insert_id(value + 1)";
    let next = calls.run(NEXT, sqlx::query(NEXT).execute(pool)).await?;
    Ok(next.last_insert_id())
}
