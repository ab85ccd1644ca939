//! `reentrant`: the owner that holds it may take it again, and frees it with the last release.
//!
//! Source: Redisson's `RLock` (<https://redisson.pro/docs/data-and-services/locks-and-synchronizers/>), whose
//! hash and channel are used here too. Unlike there, each acquisition has a token, so a call whose answer was
//! lost is not counted twice and a stale guard ends nothing of a later turn.

use std::time::Duration;

use super::bell::Wakes;
use super::session::{Session, tried};
use super::{
    Connection, REENTRANT_ACQUIRE, REENTRANT_EXTEND, REENTRANT_RELEASE, Server, companion, ms,
    tagged,
};
use crate::lock::{Ask, Error, Protocol, Tried};

#[derive(Debug)]
pub(super) struct Reentrant<C> {
    server: Server<C>,
    key: String,
    fence: String,
    channel: String,
}

impl<C: Connection> Reentrant<C> {
    pub(super) fn new(server: Server<C>, name: &str) -> Self {
        Self {
            server,
            key: name.to_owned(),
            fence: companion(name, "fence"),
            channel: format!("redisson_lock__channel:{}", tagged(name)),
        }
    }
}

impl<C: Connection> Protocol for Reentrant<C> {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session::new(ask)
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        let ask = &session.ask;
        let mut call = REENTRANT_ACQUIRE.key(&self.key);
        call.key(&self.fence).arg(ask.owner.to_string());
        call.arg(ask.token.to_string()).arg(ms(ask.lease));
        Ok(tried(self.server.script(&call).await?))
    }

    fn granted(&self, session: &mut Session) {
        session.granted();
    }

    async fn wait(&self, session: &mut Session, at_most: Duration) {
        self.server
            .listen(&mut session.listener, &self.channel, Wakes::One, at_most)
            .await;
    }

    async fn extend(&self, session: &mut Session, lease: Duration) -> Result<bool, Error> {
        let mut call = REENTRANT_EXTEND.key(&self.key);
        call.arg(session.ask.token.to_string()).arg(ms(lease));
        self.server.script(&call).await
    }

    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        let mut call = REENTRANT_RELEASE.key(&self.key);
        call.arg(session.ask.owner.to_string());
        call.arg(session.ask.token.to_string()).arg(&self.channel);
        self.server.script(&call).await
    }
}
