//! `multi`: several names, all or none, in one step.
//!
//! One script takes all of them, so two holders can never have half each, and nothing must be given back when
//! the last one is busy. The names must lie on one server (in a Redis Cluster: in one slot).

use std::time::Duration;

use super::bell::Wakes;
use super::session::Session;
use super::{Connection, MULTI_ACQUIRE, MULTI_EXTEND, MULTI_RELEASE, Server, companion, ms};
use crate::lock::{Ask, Error, Protocol, Tried};

#[derive(Debug)]
pub(super) struct Multi<C> {
    server: Server<C>,
    keys: Vec<String>,
    channels: Vec<String>,
}

impl<C: Connection> Multi<C> {
    /// `names` are separated by commas.
    pub(super) fn new(server: Server<C>, names: &str) -> Self {
        let mut keys: Vec<String> = names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let channels = keys
            .iter()
            .map(|name| companion(name, "released"))
            .collect();
        Self {
            server,
            keys,
            channels,
        }
    }
}

impl<C: Connection> Protocol for Multi<C> {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session::new(ask)
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        let mut call = MULTI_ACQUIRE.key(&self.keys);
        call.arg(session.ask.token.to_string())
            .arg(ms(session.ask.lease));
        let left: u64 = self.server.script(&call).await?;
        Ok(match left {
            0 => Tried::Granted { fence: None },
            _ => Tried::Busy {
                retry_within: Some(Duration::from_millis(left)),
            },
        })
    }

    /// Listens to the first name; a release of another one is found out by looking again.
    fn granted(&self, session: &mut Session) {
        session.granted();
    }

    async fn wait(&self, session: &mut Session, at_most: Duration) {
        let channel = &self.channels[0];
        let at_most = match self.channels.len() {
            1 => at_most,
            _ => at_most.min(Duration::from_millis(50)),
        };
        self.server
            .listen(&mut session.listener, channel, Wakes::One, at_most)
            .await;
    }

    async fn extend(&self, session: &mut Session, lease: Duration) -> Result<bool, Error> {
        let mut call = MULTI_EXTEND.key(&self.keys);
        call.arg(session.ask.token.to_string()).arg(ms(lease));
        self.server.script(&call).await
    }

    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        let mut call = MULTI_RELEASE.key(&self.keys);
        call.arg(session.ask.token.to_string()).arg(&self.channels);
        let released: usize = self.server.script(&call).await?;
        Ok(released == self.keys.len())
    }
}
