//! `advisory`: `GET_LOCK`, a name that the server locks for a session.
//!
//! The lock belongs to the connection: each acquisition has one of its own, which is closed with it. The server
//! ends a session that says nothing for its `wait_timeout`, and with it the lock, without a word
//! (<https://github.com/Combodo/iTop/pull/209>): the holder's heartbeat keeps it, and hears of its end.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::{MySqlConnection, MySqlPool};

use crate::lock::Error;
use crate::lock::sql::held::Way;
use crate::lock::sql::{Calls, LOOK_AGAIN};

const LOCK: &str = "select get_lock(?, 0)";
/// The server counts in whole seconds.
const WAIT: &str = "select get_lock(?, 1)";
const SECOND: Duration = Duration::from_secs(1);
const UNLOCK: &str = "select release_lock(?)";

#[derive(Debug)]
pub(super) struct GetLock {
    pool: MySqlPool,
    /// The server takes 64 characters and tells no upper case from lower: a hash serves it.
    name: String,
}

impl GetLock {
    pub(super) fn new(pool: MySqlPool, name: &str) -> Self {
        let hash = Sha256::digest(name.as_bytes());
        let hex: String = hash
            .iter()
            .take(24)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            pool,
            name: format!("stockade-{hex}"),
        }
    }

    /// 1 is yes; 0 is no; nothing is an error of the server's.
    async fn ask(
        &self,
        statement: &'static str,
        connection: &mut MySqlConnection,
        calls: &Calls,
    ) -> Result<bool, Error> {
        let answer = sqlx::query_scalar::<_, Option<i64>>(statement).bind(&self.name);
        let answer = calls.run(statement, answer.fetch_one(connection)).await?;
        Ok(answer == Some(1))
    }
}

impl Way for GetLock {
    type Connection = MySqlConnection;

    async fn lock(&self, connection: &mut MySqlConnection, calls: &Calls) -> Result<bool, Error> {
        self.ask(LOCK, connection, calls).await
    }

    async fn wait(
        &self,
        connection: &mut MySqlConnection,
        at_most: Duration,
        calls: &Calls,
    ) -> Result<bool, Error> {
        if at_most < SECOND {
            tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
            return Ok(false);
        }
        self.ask(WAIT, connection, calls).await
    }

    async fn number(&self, _: &mut MySqlConnection, calls: &Calls) -> Result<u64, Error> {
        super::number(&self.pool, calls).await
    }

    async fn unlock(&self, connection: &mut MySqlConnection, calls: &Calls) -> Result<bool, Error> {
        self.ask(UNLOCK, connection, calls).await
    }
}
