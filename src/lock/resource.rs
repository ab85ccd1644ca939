//! Resources that check the fence: what makes a lock safe whose holder may be late.
//!
//! The fence is raised by the *read*, not only at the write. Otherwise a stale holder could write between the
//! new holder's read and its write, and that write would undo it unseen.

use sqlx::PgPool;

use super::redis::{Connection, FENCED_READ, FENCED_WRITE, Server};
use super::{Error, sql};

/// The fence is smaller than one that the resource has seen: whoever holds it has lost the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fence {fence} is stale: {seen} was here")]
pub struct Stale {
    /// The fence that was shown.
    pub fence: u64,
    /// The larger one that the resource has seen.
    pub seen: u64,
}

/// A value in Redis that only the latest holder of a lock can change.
#[derive(Debug, Clone)]
pub struct RedisValue<C> {
    server: Server<C>,
    key: String,
}

impl<C: Connection> RedisValue<C> {
    /// The value of this key.
    #[must_use]
    pub fn new(server: Server<C>, key: &str) -> Self {
        Self {
            server,
            key: key.to_owned(),
        }
    }

    /// Reads it, empty at first, and keeps all who have a smaller fence from writing.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read(&self, fence: u64) -> Result<Result<String, Stale>, Error> {
        let mut call = FENCED_READ.key(&self.key);
        let (fresh, said): (i64, String) = self.server.script(call.arg(fence)).await?;
        Ok(match fresh {
            1 => Ok(said),
            _ => Err(Stale {
                fence,
                seen: said.parse().unwrap_or_default(),
            }),
        })
    }

    /// Writes it, unless a larger fence was here.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn write(&self, fence: u64, value: &str) -> Result<Result<(), Stale>, Error> {
        let mut call = FENCED_WRITE.key(&self.key);
        let seen: u64 = self.server.script(call.arg(fence).arg(value)).await?;
        Ok(match seen {
            0 => Ok(()),
            _ => Err(Stale { fence, seen }),
        })
    }
}

/// A value in PostgreSQL that only the latest holder of a lock can change.
#[derive(Debug, Clone)]
pub struct PostgresValue {
    pool: PgPool,
    name: String,
}

const READ: &str = "
    insert into stockade_fenced_value as known (name, fence, value) values ($1, $2, '')
    on conflict (name) do update set fence = greatest(known.fence, excluded.fence)
    returning fence, value";
const WRITE: &str = "
    insert into stockade_fenced_value as known (name, fence, value) values ($1, $2, $3)
    on conflict (name) do update
       set fence = greatest(known.fence, excluded.fence),
           value = case when known.fence <= excluded.fence then excluded.value else known.value end
    returning fence";

impl PostgresValue {
    pub(super) fn new(pool: PgPool, name: &str) -> Self {
        Self {
            pool,
            name: name.to_owned(),
        }
    }

    /// Reads it, empty at first, and keeps all who have a smaller fence from writing.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read(&self, fence: u64) -> Result<Result<String, Stale>, Error> {
        let read = sqlx::query_as::<_, (i64, String)>(READ)
            .bind(&self.name)
            .bind(number(fence));
        let (seen, value) = read.fetch_one(&self.pool).await.map_err(|e| sql::why(&e))?;
        Ok(fresh(fence, seen).map(|()| value))
    }

    /// Writes it, unless a larger fence was here.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn write(&self, fence: u64, value: &str) -> Result<Result<(), Stale>, Error> {
        let write = sqlx::query_scalar::<_, i64>(WRITE);
        let write = write.bind(&self.name).bind(number(fence)).bind(value);
        let seen = write
            .fetch_one(&self.pool)
            .await
            .map_err(|e| sql::why(&e))?;
        Ok(fresh(fence, seen))
    }
}

fn number(fence: u64) -> i64 {
    i64::try_from(fence).unwrap_or(i64::MAX)
}

fn fresh(fence: u64, seen: i64) -> Result<(), Stale> {
    let seen = u64::try_from(seen).unwrap_or_default();
    match seen > fence {
        true => Err(Stale { fence, seen }),
        false => Ok(()),
    }
}
