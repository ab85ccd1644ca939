//! A lock in one Redis: `SET key token NX PX lease`, released by a script that compares the token.
//!
//! Source: "Distributed Locks with Redis", the single-instance algorithm
//! (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>).

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{RedisError, Script, Value};

use super::Released;
use crate::env::Env;

static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../scripts/redis/lock_release.lua")));

/// Longest pause between two tries of one waiter.
const POLL: Duration = Duration::from_millis(4);

/// A lock of this name; at most one holder per lease, as long as Redis keeps its data and its clock.
#[derive(Debug, Clone)]
pub struct TokenLock {
    key: String,
    lease: Duration,
}

/// Proof of one acquisition. Dropped without [`Guard::release`], the lock stays taken until its lease
/// runs out.
#[derive(Debug)]
pub struct Guard {
    key: String,
    token: String,
    waited: bool,
}

impl TokenLock {
    /// The lock of this key; a holder that does not release it loses it after `lease`.
    #[must_use]
    pub fn new(key: String, lease: Duration) -> Self {
        assert!(lease.as_millis() > 0, "a lease of at least a millisecond");
        Self { key, lease }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// Redis' error; the lock may be taken then, until the lease runs out.
    pub async fn try_acquire<C: ConnectionLike>(
        &self,
        connection: &mut C,
    ) -> Result<Option<Guard>, RedisError> {
        let token = format!("{:032x}", rand::random::<u128>());
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg(&token).arg("NX").arg("PX");
        set.arg(u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX));
        let answer = connection.req_packed_command(&set).await?.extract_error()?;
        Ok((answer == Value::Okay).then(|| Guard {
            key: self.key.clone(),
            token,
            waited: false,
        }))
    }

    /// Takes the lock, waiting for it at most `wait`.
    ///
    /// # Errors
    /// As [`Self::try_acquire`].
    pub async fn acquire<C: ConnectionLike>(
        &self,
        connection: &mut C,
        env: &Env,
        wait: Duration,
    ) -> Result<Option<Guard>, RedisError> {
        let end = env.now() + wait;
        let mut waited = false;
        loop {
            if let Some(guard) = self.try_acquire(connection).await? {
                return Ok(Some(Guard { waited, ..guard }));
            }
            if env.now() >= end {
                return Ok(None);
            }
            waited = true;
            env.sleep(env.jittered(POLL)).await;
        }
    }
}

impl Guard {
    /// Whether somebody else held the lock in between: what was read before it may be stale.
    #[must_use]
    pub const fn waited(&self) -> bool {
        self.waited
    }

    /// Gives the lock back, if it is still this acquisition's.
    pub async fn release<C: ConnectionLike>(self, connection: &mut C) -> Released {
        let mut call = RELEASE.key(&self.key);
        match call.arg(&self.token).invoke_async::<i64>(connection).await {
            Ok(1) => Released::Released,
            Ok(_) => Released::NotMine,
            Err(_) => Released::Unknown,
        }
    }
}
