//! `token-lua`, `watchdog` and `fenced`: `SET key token NX PX lease`, released by a script that compares the
//! token; renewed by its keeper; with a number for each acquisition.
//!
//! Source: "Distributed Locks with Redis", the single-instance algorithm
//! (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>). The key holds the token and
//! nothing else, as redis-py's `Lock` has it, so both exclude each other on one server.

use std::time::Duration;

use super::bell::Wakes;
use super::session::{Session, tried};
use super::{ACQUIRE_FENCED, Connection, EXTEND, RELEASE, Server, companion, ms};
use crate::lock::{Ask, Error, Protocol, Tried};

#[derive(Debug)]
pub(super) struct Exclusive<C> {
    server: Server<C>,
    key: String,
    fence: Option<String>,
    channel: String,
}

impl<C: Connection> Exclusive<C> {
    pub(super) fn new(server: Server<C>, name: &str, fenced: bool) -> Self {
        Self {
            server,
            key: name.to_owned(),
            fence: fenced.then(|| companion(name, "fence")),
            channel: companion(name, "released"),
        }
    }

    async fn acquire_fenced(&self, ask: &Ask, fence: &str) -> Result<Tried, Error> {
        let mut call = ACQUIRE_FENCED.key(&self.key);
        call.key(fence)
            .arg(ask.token.to_string())
            .arg(ms(ask.lease));
        Ok(tried(self.server.script(&call).await?))
    }
}

impl<C: Connection> Protocol for Exclusive<C> {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session::new(ask)
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        let ask = &session.ask;
        if let Some(fence) = &self.fence {
            return self.acquire_fenced(ask, fence).await;
        }
        let token = ask.token.to_string();
        let mut set = redis::cmd("SET");
        set.arg(&self.key)
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(ms(ask.lease))
            .arg("GET");
        let holder: Option<String> = self.server.command(&set).await?;
        // Its own token: an earlier try was granted, and its answer was lost.
        if holder.is_none_or(|holder| holder == token) {
            return Ok(Tried::Granted { fence: None });
        }
        let left: i64 = self
            .server
            .command(redis::cmd("PTTL").arg(&self.key))
            .await?;
        let retry_within = u64::try_from(left).ok().map(Duration::from_millis);
        Ok(Tried::Busy { retry_within })
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
        let mut call = EXTEND.key(&self.key);
        call.arg(session.ask.token.to_string()).arg(ms(lease));
        self.server.script(&call).await
    }

    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        let mut call = RELEASE.key(&self.key);
        call.arg(session.ask.token.to_string()).arg(&self.channel);
        self.server.script(&call).await
    }
}
