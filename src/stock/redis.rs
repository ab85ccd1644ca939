//! Connections to Redis, and what its configuration may promise.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, IntoConnectionInfo, RedisError, Value};

use super::Error;

/// The connection type that the service uses. It reconnects by itself; a command that was under way when
/// the connection broke is never repeated by the library.
pub type Connection = ConnectionManager;

const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(10);
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(250);
/// Attempts behind one command; the next command begins anew.
const RECONNECT_ATTEMPTS: usize = 4;
/// Unacknowledged data for this long means that the peer is gone.
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends one command. An error that the server answered is an error here too, not a value.
pub(super) async fn send<C: ConnectionLike>(
    connection: &mut C,
    command: &Cmd,
) -> Result<Value, RedisError> {
    connection
        .req_packed_command(command)
        .await?
        .extract_error()
}

/// How long a call to Redis may take; every call has such a bound.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    /// A call that takes longer is given up with an unknown outcome.
    pub timeout: Duration,
}

impl Calls {
    /// The call's answer, if it comes in time.
    ///
    /// # Errors
    /// Those of the call, and [`Error::TimedOut`].
    pub async fn within<T>(self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let answer = tokio::time::timeout(self.timeout, call).await;
        answer.unwrap_or(Err(Error::TimedOut))
    }
}

/// A few connections to one Redis. Each is shared by everyone, pipelined, never checked out.
#[derive(Clone)]
pub struct Redis {
    connections: Arc<[Connection]>,
    calls: Calls,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("connections", &self.connections.len())
            .field("calls", &self.calls)
            .finish()
    }
}

/// How much of what Redis has answered survives its process and its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persistence {
    /// What happens when memory is full; only `noeviction` keeps stock.
    pub policy: String,
    /// Whether an append-only file is written: `yes` or `no`.
    pub appendonly: String,
    /// When that file reaches the disk: `always`, `everysec` or `no`.
    pub appendfsync: String,
    /// When snapshots are written; empty: never.
    pub save: String,
}

impl Redis {
    /// Connects to the Redis that `url` names (`redis://host:port/db`, `redis+unix:///path`). A call that
    /// takes longer than `timeout` is given up with an unknown outcome.
    ///
    /// # Errors
    /// [`Error::Unusable`] for a malformed URL, [`Error::NotRun`] when the server cannot be reached.
    pub async fn connect(url: &str, connections: usize, timeout: Duration) -> Result<Self, Error> {
        assert!(connections > 0, "a Redis handle needs a connection");
        let malformed = |error| Error::Unusable(format!("the Redis URL cannot be used: {error}"));
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_user_timeout(USER_TIMEOUT);
        let info = url
            .into_connection_info()
            .map_err(malformed)?
            .set_tcp_settings(tcp);
        let client = Client::open(info).map_err(malformed)?;
        // The library's own response timeout is off: every call here has one, and knows what it means.
        let config = ConnectionManagerConfig::new()
            .set_min_delay(RECONNECT_DELAY_MIN)
            .set_max_delay(RECONNECT_DELAY_MAX)
            .set_number_of_retries(RECONNECT_ATTEMPTS)
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(None);
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            let connection =
                ConnectionManager::new_with_config(client.clone(), config.clone()).await;
            open.push(connection.map_err(Error::NotRun)?);
        }
        Ok(Self {
            connections: open.into(),
            calls: Calls { timeout },
        })
    }

    /// The connection for this number: the same number, the same connection, so that the calls of one
    /// segment stay in order.
    #[must_use]
    pub fn connection(&self, number: u32) -> Connection {
        self.connections[number as usize % self.connections.len()].clone()
    }

    /// How long a call may take.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.calls.timeout
    }

    /// The bound of each call.
    #[must_use]
    pub const fn calls(&self) -> Calls {
        self.calls
    }

    /// Answers if Redis does.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ping(&self) -> Result<(), Error> {
        let mut connection = self.connection(0);
        let cmd = redis::cmd("PING");
        let pong = cmd.query_async::<String>(&mut connection);
        tokio::time::timeout(self.timeout(), pong)
            .await
            .map_err(|_| Error::TimedOut)??;
        Ok(())
    }

    /// Reads the settings that decide what survives.
    ///
    /// # Errors
    /// See [`Error`]; a Redis that forbids `CONFIG` answers [`Error::NotRun`].
    pub async fn check(&self) -> Result<Persistence, Error> {
        let mut connection = self.connection(0);
        let mut cmd = redis::cmd("CONFIG");
        cmd.arg("GET")
            .arg("maxmemory-policy")
            .arg("appendonly")
            .arg("appendfsync")
            .arg("save");
        let answer = cmd.query_async::<std::collections::HashMap<String, String>>(&mut connection);
        let settings = tokio::time::timeout(self.timeout(), answer).await;
        let mut settings = settings.map_err(|_| Error::TimedOut)??;
        let mut take = |name| settings.remove(name).unwrap_or_default();
        Ok(Persistence {
            policy: take("maxmemory-policy"),
            appendonly: take("appendonly"),
            appendfsync: take("appendfsync"),
            save: take("save"),
        })
    }
}
