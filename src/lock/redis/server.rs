//! One Redis as the locks see it: calls with a bound, and wake-ups.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, ScriptInvocation, ServerErrorKind};

use super::bell::{Bell, Listener, Wakes};
use crate::env::Env;
use crate::lock::Error;

/// Those who cannot be woken look again after this long.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Those who can be woken look again after this long: a message can be lost with a connection that nobody sees
/// break, and not every neighbour says a word when it releases.
const LOOK_AT_LATEST: Duration = Duration::from_secs(1);

/// A connection that every part of the program may share: pipelined, and back by itself when it breaks.
pub trait Connection: ConnectionLike + Clone + Send + Sync + 'static {}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for C {}

/// One Redis.
#[derive(Debug, Clone)]
pub struct Server<C> {
    connection: C,
    timeout: Duration,
    bell: Option<Bell>,
    clock_ahead_ms: i64,
}

impl<C: Connection> Server<C> {
    /// The Redis behind this connection; a call that takes longer than `timeout` is given up.
    #[must_use]
    pub const fn new(connection: C, timeout: Duration) -> Self {
        Self {
            connection,
            timeout,
            bell: None,
            clock_ahead_ms: 0,
        }
    }

    /// Pretends that this machine's wall clock is ahead, to show what becomes of a lock that trusts it.
    #[must_use]
    pub const fn with_clock_ahead(mut self, by_ms: i64) -> Self {
        self.clock_ahead_ms = by_ms;
        self
    }

    /// This machine's wall clock, which no correct lock looks at.
    pub(super) fn wall_clock_ms(&self) -> i64 {
        Env::default().wall_clock_ms() + self.clock_ahead_ms
    }

    /// Those who wait are woken through `bell`. Without one they look again every now and then.
    #[must_use]
    pub fn with_bell(mut self, bell: Bell) -> Self {
        self.bell = Some(bell);
        self
    }

    /// One command.
    pub(super) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let mut connection = self.connection.clone();
        self.within(command.query_async(&mut connection)).await
    }

    /// One script; its text is sent again if the server has forgotten it.
    pub(in crate::lock) async fn script<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, Error> {
        let mut connection = self.connection.clone();
        self.within(call.invoke_async(&mut connection)).await
    }

    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(why(&error)),
            Err(_) => Err(Error::Unreachable("no answer from Redis in time".into())),
        }
    }

    /// Waits for a message on `channel`, at most `at_most`. The first call only begins to listen: what was
    /// said before must be looked for once more.
    pub(super) async fn listen(
        &self,
        listener: &mut Option<Listener>,
        channel: &str,
        wakes: Wakes,
        at_most: Duration,
    ) {
        let Some(bell) = &self.bell else {
            return tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
        };
        match listener {
            Some(listener) => {
                let at_most = at_most.min(LOOK_AT_LATEST);
                let _ = tokio::time::timeout(at_most, listener.heard()).await;
            }
            None => {
                let subscribed =
                    tokio::time::timeout(self.timeout, bell.listen(channel, wakes)).await;
                match subscribed {
                    Ok(Some(subscribed)) => *listener = Some(subscribed),
                    // No subscription: looking again is what is left.
                    _ => tokio::time::sleep(at_most.min(LOOK_AGAIN)).await,
                }
            }
        }
    }
}

/// Whether the server refuses for good, or did not answer.
fn why(error: &RedisError) -> Error {
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot | ServerErrorKind::ResponseError,
        )
        | ErrorKind::AuthenticationFailed
        | ErrorKind::UnexpectedReturnType => Error::Refused(error.to_string()),
        _ if error.code() == Some("WRONGTYPE") => Error::Refused(error.to_string()),
        _ => Error::Unreachable(error.to_string()),
    }
}
