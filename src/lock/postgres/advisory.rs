//! `advisory`: a number that the server locks for a session, `pg_advisory_lock`.
//!
//! The lock belongs to the connection: each acquisition has one of its own, which is closed with it. Through a
//! pool, or a proxy that shares connections between transactions, lock and unlock may reach different sessions
//! (<https://github.com/pgbouncer/pgbouncer/issues/102>).

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgConnectOptions;

use super::held::Held;
use super::{LOOK_AGAIN, within};
use crate::lock::{Ask, Error, Protocol, Tried};

#[derive(Debug)]
pub(super) struct Advisory {
    options: PgConnectOptions,
    timeout: Duration,
    /// Two names with one number would exclude each other, which is unlikely and harmless.
    number: i64,
}

impl Advisory {
    pub(super) fn new(options: PgConnectOptions, timeout: Duration, name: &str) -> Self {
        let hash = Sha256::digest(name.as_bytes());
        let mut number = [0; 8];
        number.copy_from_slice(&hash[..8]);
        Self {
            options,
            timeout,
            number: i64::from_be_bytes(number),
        }
    }
}

impl Protocol for Advisory {
    type Session = Held;
    const LEASED: bool = false;

    fn session(&self, _ask: Ask) -> Held {
        Held::default()
    }

    async fn try_acquire(&self, held: &mut Held) -> Result<Tried, Error> {
        if held.fence.is_none() {
            let connection = held.open(&self.options, self.timeout).await?;
            let lock = sqlx::query_scalar::<_, bool>("select pg_try_advisory_lock($1)");
            let got = within(self.timeout, lock.bind(self.number).fetch_one(connection)).await;
            match got {
                Ok(true) => held.number(self.timeout).await?,
                Ok(false) => {}
                Err(error) => {
                    // It may hold the lock: it must not be used again.
                    held.close(self.timeout).await;
                    return Err(error);
                }
            }
        }
        Ok(match held.fence {
            Some(fence) => Tried::Granted { fence: Some(fence) },
            None => Tried::Busy {
                retry_within: Some(LOOK_AGAIN),
            },
        })
    }

    async fn wait(&self, _held: &mut Held, at_most: Duration) {
        tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
    }

    async fn extend(&self, held: &mut Held, _lease: Duration) -> Result<bool, Error> {
        Ok(held.fence.is_some())
    }

    async fn release(&self, held: &mut Held) -> Result<bool, Error> {
        let Some(connection) = held.connection() else {
            return Ok(false);
        };
        let unlock = sqlx::query_scalar::<_, bool>("select pg_advisory_unlock($1)");
        let released = within(self.timeout, unlock.bind(self.number).fetch_one(connection)).await;
        held.close(self.timeout).await;
        released
    }

    async fn withdraw(&self, held: &mut Held, _uncertain: bool) -> Result<(), Error> {
        held.close(self.timeout).await;
        Ok(())
    }

    async fn lost(&self, held: &mut Held) {
        held.lost().await;
    }
}
