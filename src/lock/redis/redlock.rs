//! `redlock`: a majority of independent masters.
//!
//! Source: "Distributed Locks with Redis", the Redlock algorithm
//! (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>), and what was said against it:
//! <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>. Key and value are those of npm's
//! `redlock` and of pottery, so that all exclude each other.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Connection, EXTEND, RELEASE, Server, companion, ms};
use crate::lock::{Ask, Error, Protocol, Tried};

/// After a split vote everybody tries again, each after another time.
const RETRY_MAX: Duration = Duration::from_millis(60);

#[derive(Debug)]
pub(super) struct Redlock<C> {
    servers: Vec<Server<C>>,
    key: String,
    channel: String,
}

pub(super) struct Session {
    ask: Ask,
}

impl<C: Connection> Redlock<C> {
    pub(super) fn new(servers: Vec<Server<C>>, name: &str) -> Self {
        assert!(!servers.is_empty(), "Redlock needs masters");
        Self {
            servers,
            key: name.to_owned(),
            channel: companion(name, "released"),
        }
    }

    const fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// Whether a lease that was asked for at `sent` would still hold.
    fn in_time(sent: Instant, lease: Duration) -> bool {
        let drift = lease / 100 + Duration::from_millis(2);
        sent.elapsed() + drift < lease
    }

    async fn set(&self, server: &Server<C>, ask: &Ask) -> Result<bool, Error> {
        let token = ask.token.to_string();
        let mut set = redis::cmd("SET");
        set.arg(&self.key)
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(ms(ask.lease))
            .arg("GET");
        let holder: Option<String> = server.command(&set).await?;
        Ok(holder.is_none_or(|holder| holder == token))
    }

    async fn release_on(&self, server: &Server<C>, ask: &Ask) -> Result<bool, Error> {
        let mut call = RELEASE.key(&self.key);
        call.arg(ask.token.to_string()).arg(&self.channel);
        server.script(&call).await
    }

    async fn extend_on(
        &self,
        server: &Server<C>,
        ask: &Ask,
        lease: Duration,
    ) -> Result<bool, Error> {
        let mut call = EXTEND.key(&self.key);
        call.arg(ask.token.to_string()).arg(ms(lease));
        server.script(&call).await
    }

    /// Gives back what may have been granted anywhere; how many had it, and whether all answered.
    async fn release_everywhere(&self, ask: &Ask) -> (usize, bool) {
        let all = self
            .servers
            .iter()
            .map(|server| self.release_on(server, ask));
        let answers = join_all(all).await;
        let released = answers.iter().filter(|one| matches!(one, Ok(true))).count();
        (released, answers.iter().all(Result::is_ok))
    }
}

impl<C: Connection> Protocol for Redlock<C> {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session { ask }
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        let ask = &session.ask;
        let sent = Instant::now();
        let answers = join_all(self.servers.iter().map(|server| self.set(server, ask))).await;
        let granted = answers.iter().filter(|one| matches!(one, Ok(true))).count();
        if granted >= self.majority() && Self::in_time(sent, ask.lease) {
            return Ok(Tried::Granted { fence: None });
        }
        self.release_everywhere(ask).await;
        let down = answers.iter().filter(|one| one.is_err()).count();
        if down > self.servers.len() - self.majority() {
            let all = self.servers.len();
            return Err(Error::Unreachable(format!(
                "{down} of {all} masters do not answer"
            )));
        }
        Ok(Tried::Busy { retry_within: None })
    }

    async fn wait(&self, _session: &mut Session, at_most: Duration) {
        let pause = RETRY_MAX.mul_f64(rand::random_range(0.1..=1.0));
        tokio::time::sleep(pause.min(at_most)).await;
    }

    /// A majority must prolong it within the new lease.
    async fn extend(&self, session: &mut Session, lease: Duration) -> Result<bool, Error> {
        let sent = Instant::now();
        let all = self
            .servers
            .iter()
            .map(|server| self.extend_on(server, &session.ask, lease));
        let answers = join_all(all).await;
        let extended = answers.iter().filter(|one| matches!(one, Ok(true))).count();
        if extended >= self.majority() && Self::in_time(sent, lease) {
            return Ok(true);
        }
        let refused = answers
            .iter()
            .filter(|one| matches!(one, Ok(false)))
            .count();
        if refused > self.servers.len() - self.majority() {
            return Ok(false);
        }
        Err(Error::Unreachable(
            "no majority of the masters answers".into(),
        ))
    }

    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        let (released, all_answered) = self.release_everywhere(&session.ask).await;
        if released >= self.majority() || all_answered {
            return Ok(released >= self.majority());
        }
        Err(Error::Unreachable("not all masters answer".into()))
    }

    /// A try that was not granted has given back what it had.
    async fn withdraw(&self, session: &mut Session, uncertain: bool) -> Result<(), Error> {
        if uncertain {
            self.release_everywhere(&session.ask).await;
        }
        Ok(())
    }
}
