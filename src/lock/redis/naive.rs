//! The naive locks, each wrong in exactly one documented way. They are here to be broken: see their pages in
//! the documentation, and never guard anything with them.

use std::time::Duration;

use super::{Connection, Server, ms};
use crate::lock::{Ask, Error, Kind, Protocol, Tried};

/// They have nobody to wake them.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// What all holders write who do not tell themselves apart.
const FIXED: &str = "1";

#[derive(Debug)]
pub(super) struct Naive<C> {
    server: Server<C>,
    kind: Kind,
    key: String,
}

pub(super) struct Session {
    ask: Ask,
    /// What `setnx-getset` wrote: when its lease ends, by this machine's clock.
    ends_at_ms: Option<i64>,
}

impl<C: Connection> Naive<C> {
    pub(super) fn new(server: Server<C>, kind: Kind, name: &str) -> Self {
        Self {
            server,
            kind,
            key: name.to_owned(),
        }
    }

    async fn setnx(&self, value: &str) -> Result<bool, Error> {
        let mut setnx = redis::cmd("SETNX");
        self.server.command(setnx.arg(&self.key).arg(value)).await
    }

    async fn set_px(&self, value: &str, lease: Duration) -> Result<bool, Error> {
        let mut set = redis::cmd("SET");
        set.arg(&self.key)
            .arg(value)
            .arg("NX")
            .arg("PX")
            .arg(ms(lease));
        let done: Option<String> = self.server.command(&set).await?;
        Ok(done.is_some())
    }

    async fn get(&self) -> Result<Option<String>, Error> {
        self.server.command(redis::cmd("GET").arg(&self.key)).await
    }

    async fn del(&self) -> Result<bool, Error> {
        self.server.command(redis::cmd("DEL").arg(&self.key)).await
    }

    /// `SETNX` with the end of the lease as its value; who finds a value in the past takes over with `GETSET`.
    async fn getset(&self, session: &mut Session) -> Result<bool, Error> {
        let now_ms = self.server.wall_clock_ms();
        let ends_at_ms = now_ms + i64::try_from(session.ask.lease.as_millis()).unwrap_or(i64::MAX);
        let mine = ends_at_ms.to_string();
        let past = |value: Option<String>| {
            value.is_none_or(|value| value.parse::<i64>().is_ok_and(|ends_at| ends_at < now_ms))
        };
        let mut getset = redis::cmd("GETSET");
        getset.arg(&self.key).arg(&mine);
        let won = self.setnx(&mine).await?
            || (past(self.get().await?) && past(self.server.command(&getset).await?));
        if won {
            session.ends_at_ms = Some(ends_at_ms);
        }
        Ok(won)
    }
}

impl<C: Connection> Protocol for Naive<C> {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session {
            ask,
            ends_at_ms: None,
        }
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        let lease = session.ask.lease;
        let won = match self.kind {
            Kind::Setnx => self.setnx(FIXED).await?,
            Kind::SetnxExpire => {
                let won = self.setnx(FIXED).await?;
                if won {
                    let mut expire = redis::cmd("PEXPIRE");
                    expire.arg(&self.key).arg(ms(lease));
                    self.server.command::<bool>(&expire).await?;
                }
                won
            }
            Kind::SetnxGetset => self.getset(session).await?,
            Kind::SetPxDel => self.set_px(FIXED, lease).await?,
            _ => self.set_px(&session.ask.token.to_string(), lease).await?,
        };
        Ok(match won {
            true => Tried::Granted { fence: None },
            false => Tried::Busy {
                retry_within: Some(LOOK_AGAIN),
            },
        })
    }

    async fn wait(&self, _session: &mut Session, at_most: Duration) {
        tokio::time::sleep(at_most.min(LOOK_AGAIN)).await;
    }

    async fn extend(&self, _session: &mut Session, _lease: Duration) -> Result<bool, Error> {
        Err(Error::Unsupported(self.kind, "prolong its lease"))
    }

    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        match self.kind {
            Kind::TokenGetDel => {
                let mine = self.get().await? == Some(session.ask.token.to_string());
                Ok(mine && self.del().await?)
            }
            Kind::SetnxGetset => {
                let now_ms = self.server.wall_clock_ms();
                let in_time = session.ends_at_ms.is_some_and(|ends_at| now_ms < ends_at);
                Ok(in_time && self.del().await?)
            }
            _ => self.del().await,
        }
    }
}
