//! `fair`: who asked first gets it first.
//!
//! Source: the idea of Redisson's `RFairLock`, with Redis' clock instead of the clients', and a short lease for
//! each waiter instead of deadlines that add up
//! (<https://github.com/redisson/redisson/issues/1104>: a dead waiter blocked the queue for hours).

use std::time::Duration;

use super::bell::Wakes;
use super::session::{Session, tried};
use super::{Connection, EXTEND, FAIR_ACQUIRE, FAIR_RELEASE, Server, companion, ms};
use crate::lock::{Ask, Error, Protocol, Terms, Tried, Waiting};

/// What a dead waiter costs the others at most.
pub(super) const WAITER_LEASE: Duration = Duration::from_millis(1_000);

/// Terms under which a waiter says that it waits before it is taken for dead, however rarely it is to ask.
pub(super) fn within_a_waiters_lease(terms: Terms) -> Terms {
    match terms.waiting {
        Waiting::Polled(pause) => Terms {
            waiting: Waiting::Polled(pause.min(WAITER_LEASE / 2)),
            ..terms
        },
        Waiting::Woken => terms,
    }
}

#[derive(Debug)]
pub(super) struct Fair<C> {
    server: Server<C>,
    key: String,
    queue: String,
    waiters: String,
    fence: String,
    numbers: String,
    /// Each waiter has a channel of its own: this and its token.
    channels: String,
}

impl<C: Connection> Fair<C> {
    pub(super) fn new(server: Server<C>, name: &str) -> Self {
        Self {
            server,
            key: name.to_owned(),
            queue: companion(name, "queue"),
            waiters: companion(name, "waiters"),
            fence: companion(name, "fence"),
            numbers: companion(name, "numbers"),
            channels: companion(name, "turn:"),
        }
    }
}

impl<C: Connection> Protocol for Fair<C> {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session::new(ask)
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        session.asked = true;
        let ask = &session.ask;
        let mut call = FAIR_ACQUIRE.key(&self.key);
        call.key(&self.queue)
            .key(&self.waiters)
            .key(&self.fence)
            .key(&self.numbers);
        call.arg(ask.token.to_string())
            .arg(ms(ask.lease))
            .arg(ms(WAITER_LEASE));
        Ok(tried(self.server.script(&call).await?))
    }

    fn granted(&self, session: &mut Session) {
        session.granted();
    }

    async fn wait(&self, session: &mut Session, at_most: Duration) {
        let channel = format!("{}{}", self.channels, session.ask.token);
        self.server
            .listen(&mut session.listener, &channel, Wakes::One, at_most)
            .await;
    }

    async fn extend(&self, session: &mut Session, lease: Duration) -> Result<bool, Error> {
        let mut call = EXTEND.key(&self.key);
        call.arg(session.ask.token.to_string()).arg(ms(lease));
        self.server.script(&call).await
    }

    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        let mut call = FAIR_RELEASE.key(&self.key);
        call.key(&self.queue).key(&self.waiters);
        call.arg(session.ask.token.to_string()).arg(&self.channels);
        self.server.script(&call).await
    }

    /// A waiter leaves the queue, whatever its last try came to.
    async fn withdraw(&self, session: &mut Session, _uncertain: bool) -> Result<(), Error> {
        if session.asked {
            self.release(session).await?;
        }
        Ok(())
    }
}
