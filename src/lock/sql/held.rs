//! Locks that last as long as a connection, which has nothing else to do.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use sqlx::Connection;
use tokio::time::Instant;

use super::{Calls, LOOK_AGAIN};
use crate::lock::{Ask, Error, Protocol, Tried};

/// How often a holder asks whether its connection, and so its lock, is still there.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A way to lock something for a connection.
pub(in crate::lock) trait Way: Send + Sync + 'static {
    /// The connection that locks.
    type Connection: Connection + fmt::Debug + 'static;

    /// Makes a fresh connection ready.
    fn prepare(
        &self,
        _connection: &mut Self::Connection,
        _calls: &Calls,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }

    /// Locks it, if it is free.
    fn lock(
        &self,
        connection: &mut Self::Connection,
        calls: &Calls,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Stands in the server's own queue for it, no longer than `at_most`; true if it got it.
    fn wait(
        &self,
        connection: &mut Self::Connection,
        at_most: Duration,
        calls: &Calls,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Draws the number of an acquisition that has locked it; it stays drawn, whatever becomes of the
    /// connection.
    fn number(
        &self,
        connection: &mut Self::Connection,
        calls: &Calls,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Frees it; false if it was not locked.
    fn unlock(
        &self,
        connection: &mut Self::Connection,
        calls: &Calls,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// A question whether the connection is still there: it comes back with the answer.
type Heartbeat<C> = Pin<Box<dyn Future<Output = Option<C>> + Send>>;

/// The connection of one acquisition. Closed or dropped, the server frees what it held.
pub(in crate::lock) struct Held<C> {
    connection: Option<C>,
    /// Has the connection as long as the question is not answered. Kept here, since whoever waits for the loss hangs
    /// up as soon as there is something else to do: what is sent while an answer is still on its way would take
    /// that answer for its own.
    heartbeat: Option<Heartbeat<C>>,
    /// Whether the connection has locked it.
    locked: bool,
    /// The number of the acquisition, when it holds the lock.
    fence: Option<u64>,
    /// When its holder next asks whether the connection is still there.
    ask_at: Instant,
}

impl<C: Connection + 'static> Held<C> {
    /// Asks whether the connection is still there; one that does not answer within `patience` is gone.
    fn ask(&mut self, patience: Duration) {
        if let Some(mut connection) = self.connection.take() {
            self.heartbeat = Some(Box::pin(async move {
                let answer = tokio::time::timeout(patience, connection.ping()).await;
                matches!(answer, Ok(Ok(()))).then_some(connection)
            }));
        }
    }

    /// Waits for the answer to a question that is under way.
    async fn answered(&mut self) {
        if let Some(heartbeat) = &mut self.heartbeat {
            self.connection = heartbeat.await;
            self.heartbeat = None;
        }
    }

    /// Closes the connection, and with it all that it holds.
    async fn close(&mut self, calls: &Calls) {
        self.locked = false;
        self.fence = None;
        self.heartbeat = None;
        if let Some(connection) = self.connection.take() {
            let _ = calls.run("(disconnect)", connection.close()).await;
        }
    }
}

/// A lock of a connection; each acquisition opens one of its own and closes it.
#[derive(Debug)]
pub(in crate::lock) struct OfConnection<W: Way> {
    options: <W::Connection as Connection>::Options,
    calls: Calls,
    way: W,
}

impl<W: Way> OfConnection<W> {
    pub(in crate::lock) fn new(
        options: <W::Connection as Connection>::Options,
        calls: Calls,
        way: W,
    ) -> Self {
        Self {
            options,
            calls,
            way,
        }
    }

    /// One try; after an error the connection may hold the lock, and must not be used again.
    async fn lock(&self, held: &mut Held<W::Connection>) -> Result<(), Error> {
        let calls = &self.calls;
        let connection = match &mut held.connection {
            Some(connection) => connection,
            none => {
                let opening = W::Connection::connect_with(&self.options);
                let opened = none.insert(calls.run("(connect)", opening).await?);
                self.way.prepare(opened, calls).await?;
                opened
            }
        };
        held.locked = held.locked || self.way.lock(connection, calls).await?;
        if held.locked {
            held.fence = Some(self.way.number(connection, calls).await?);
        }
        Ok(())
    }
}

impl<W: Way> Protocol for OfConnection<W> {
    type Session = Held<W::Connection>;
    const LEASED: bool = false;

    fn session(&self, _ask: Ask) -> Self::Session {
        Held {
            connection: None,
            heartbeat: None,
            locked: false,
            fence: None,
            ask_at: Instant::now(),
        }
    }

    async fn try_acquire(&self, held: &mut Self::Session) -> Result<Tried, Error> {
        if held.fence.is_none()
            && let Err(error) = self.lock(held).await
        {
            held.close(&self.calls).await;
            return Err(error);
        }
        Ok(match held.fence {
            Some(fence) => Tried::Granted { fence: Some(fence) },
            None => Tried::Busy { retry_within: None },
        })
    }

    fn granted(&self, held: &mut Self::Session) {
        held.ask_at = Instant::now() + HEARTBEAT;
    }

    /// Who hangs up meanwhile leaves a connection that may get the lock: it is closed, never asked again.
    async fn wait(&self, held: &mut Self::Session, at_most: Duration) {
        let Some(connection) = &mut held.connection else {
            return tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
        };
        match self.way.wait(connection, at_most, &self.calls).await {
            Ok(locked) => held.locked = locked,
            Err(_) => held.close(&self.calls).await,
        }
    }

    /// There is nothing to prolong; but whoever is told that it holds the lock is told so by the server.
    async fn extend(&self, held: &mut Self::Session, _lease: Duration) -> Result<bool, Error> {
        if held.heartbeat.is_none() {
            held.ask(self.calls.timeout());
        }
        held.answered().await;
        held.ask_at = Instant::now() + HEARTBEAT;
        Ok(held.fence.is_some() && held.connection.is_some())
    }

    async fn release(&self, held: &mut Self::Session) -> Result<bool, Error> {
        held.answered().await;
        let Some(connection) = &mut held.connection else {
            return Ok(false);
        };
        let released = self.way.unlock(connection, &self.calls).await;
        held.close(&self.calls).await;
        released
    }

    async fn withdraw(&self, held: &mut Self::Session, _uncertain: bool) -> Result<(), Error> {
        held.close(&self.calls).await;
        Ok(())
    }

    /// Returns when the connection is gone, or says nothing for the time of a call. Begun anew, it does not begin
    /// the wait anew.
    async fn lost(&self, held: &mut Self::Session) {
        loop {
            if held.heartbeat.is_none() {
                tokio::time::sleep_until(held.ask_at).await;
                held.ask(self.calls.timeout());
            }
            held.answered().await;
            if held.connection.is_none() {
                return;
            }
            held.ask_at = Instant::now() + HEARTBEAT;
        }
    }
}
