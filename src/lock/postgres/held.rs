//! Locks that last as long as a connection, which has nothing else to do.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

use super::{LOOK_AGAIN, why, within};
use crate::lock::{Ask, Error, Protocol, Tried};

/// How often a holder asks whether its connection, and so its lock, is still there.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// The server's word for "somebody else has it".
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The connection of one acquisition. Closed or dropped, the server frees what it held.
#[derive(Debug, Default)]
pub(super) struct Held {
    connection: Option<PgConnection>,
    /// The number of the acquisition, when it holds the lock.
    pub(super) fence: Option<u64>,
}

impl Held {
    /// The connection, opened when it is needed first.
    pub(super) async fn open(
        &mut self,
        options: &PgConnectOptions,
        timeout: Duration,
    ) -> Result<&mut PgConnection, Error> {
        if self.connection.is_none() {
            let opening = PgConnection::connect_with(options);
            self.connection = Some(within(timeout, opening).await?);
        }
        self.connection.as_mut().ok_or(Error::Stopped)
    }

    /// Draws the number of this acquisition.
    pub(super) async fn number(&mut self, timeout: Duration) -> Result<(), Error> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let next = sqlx::query_scalar::<_, i64>("select nextval('stockade_lock_fence')");
        let number = within(timeout, next.fetch_one(connection)).await?;
        self.fence = u64::try_from(number).ok();
        Ok(())
    }

    /// Closes the connection, and with it all that it holds.
    pub(super) async fn close(&mut self, timeout: Duration) {
        self.fence = None;
        if let Some(connection) = self.connection.take() {
            let _ = within(timeout, connection.close()).await;
        }
    }

    /// Returns when the connection is gone.
    pub(super) async fn lost(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            if connection.ping().await.is_err() {
                return;
            }
        }
    }
}

/// Whether the lock was got: an answer, "not available", or a real error.
pub(super) fn got<T>(answer: Result<T, sqlx::Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let said = error.as_database_error().and_then(|said| said.code());
            match said.as_deref() {
                Some(LOCK_NOT_AVAILABLE) => Ok(None),
                _ => Err(why(&error)),
            }
        }
    }
}

/// A way to lock something for a connection.
pub(super) trait Way: Send + Sync + 'static {
    /// Locks it, if it is free.
    fn lock(
        &self,
        connection: &mut PgConnection,
        timeout: Duration,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Frees it; false if it was not locked.
    fn unlock(
        &self,
        connection: &mut PgConnection,
        timeout: Duration,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// A lock of a connection; each acquisition opens one of its own and closes it.
#[derive(Debug)]
pub(super) struct OfConnection<W> {
    pub(super) options: PgConnectOptions,
    pub(super) timeout: Duration,
    pub(super) way: W,
}

impl<W: Way> Protocol for OfConnection<W> {
    type Session = Held;
    const LEASED: bool = false;

    fn session(&self, _ask: Ask) -> Held {
        Held::default()
    }

    async fn try_acquire(&self, held: &mut Held) -> Result<Tried, Error> {
        if held.fence.is_none() {
            let connection = held.open(&self.options, self.timeout).await?;
            match self.way.lock(connection, self.timeout).await {
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
        let Some(connection) = &mut held.connection else {
            return Ok(false);
        };
        let released = self.way.unlock(connection, self.timeout).await;
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
