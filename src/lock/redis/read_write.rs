//! `read-write`: readers together, a writer alone; a writer that waits keeps new readers out, and may go on
//! reading when it has stopped writing, not the other way round.
//!
//! Source: the idea of Redisson's `RReadWriteLock`, with a lease for each reader: one that is shared ends a live
//! reader's with a dead one's, or keeps a dead reader for as long as a live one renews
//! (<https://github.com/redisson/redisson/issues/2144>).

use std::time::Duration;

use super::bell::Wakes;
use super::fair::WAITER_LEASE;
use super::session::{Session, tried};
use super::{
    Connection, EXCLUSIVE_ACQUIRE, READ_WRITE_EXTEND, READ_WRITE_RELEASE, SHARED_ACQUIRE, Server,
    companion, ms,
};
use crate::lock::{Ask, Error, Mode, Protocol, Tried};

#[derive(Debug)]
pub(super) struct ReadWrite<C> {
    server: Server<C>,
    writer: String,
    readers: String,
    writers: String,
    fence: String,
    channel: String,
}

impl<C: Connection> ReadWrite<C> {
    pub(super) fn new(server: Server<C>, name: &str) -> Self {
        Self {
            server,
            writer: name.to_owned(),
            readers: companion(name, "readers"),
            writers: companion(name, "writers"),
            fence: companion(name, "fence"),
            channel: companion(name, "released"),
        }
    }
}

impl<C: Connection> Protocol for ReadWrite<C> {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session::new(ask)
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        session.asked = true;
        let ask = &session.ask;
        let exclusive = ask.mode == Mode::Exclusive;
        let script = match ask.mode {
            Mode::Exclusive => &EXCLUSIVE_ACQUIRE,
            Mode::Shared => &SHARED_ACQUIRE,
        };
        let mut call = script.key(&self.writer);
        call.key(&self.readers).key(&self.writers);
        if exclusive {
            call.key(&self.fence);
        }
        call.arg(ask.owner.to_string())
            .arg(ask.token.to_string())
            .arg(ms(ask.lease));
        if exclusive {
            call.arg(ms(WAITER_LEASE));
        }
        Ok(tried(self.server.script(&call).await?))
    }

    fn granted(&self, session: &mut Session) {
        session.granted();
    }

    async fn wait(&self, session: &mut Session, at_most: Duration) {
        self.server
            .listen(&mut session.listener, &self.channel, Wakes::All, at_most)
            .await;
    }

    async fn extend(&self, session: &mut Session, lease: Duration) -> Result<bool, Error> {
        let mut call = READ_WRITE_EXTEND.key(&self.writer);
        call.key(&self.readers).arg(session.ask.owner.to_string());
        call.arg(session.ask.token.to_string()).arg(ms(lease));
        self.server.script(&call).await
    }

    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        let mut call = READ_WRITE_RELEASE.key(&self.writer);
        call.key(&self.readers).key(&self.writers);
        call.arg(session.ask.owner.to_string());
        call.arg(session.ask.token.to_string()).arg(&self.channel);
        self.server.script(&call).await
    }

    /// A writer that gives up lets the readers in again, whatever its last try came to.
    async fn withdraw(&self, session: &mut Session, uncertain: bool) -> Result<(), Error> {
        if uncertain || (session.asked && session.ask.mode == Mode::Exclusive) {
            self.release(session).await?;
        }
        Ok(())
    }
}
