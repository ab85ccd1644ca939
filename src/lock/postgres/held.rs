//! A connection that holds a lock, and nothing else.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

use super::{why, within};
use crate::lock::Error;

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

    /// The connection, if there is one.
    pub(super) fn connection(&mut self) -> Option<&mut PgConnection> {
        self.connection.as_mut()
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
