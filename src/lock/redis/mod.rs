//! Locks in Redis: the naive ones of the articles, and those that are correct as far as a lease can be.

mod bell;
mod exclusive;
mod fair;
mod multi;
mod naive;
mod read_write;
mod redlock;
mod reentrant;
mod server;
mod session;

use std::time::Duration;

use redis::Script;

pub use bell::Bell;
pub use server::{Connection, Server};

use super::{Error, Kind, Lock, Terms};
use crate::env::Env;

/// The locks of one Redis. Clones share its connection.
#[derive(Debug, Clone)]
pub struct RedisLocks<C> {
    server: Server<C>,
    env: Env,
}

impl<C: Connection> RedisLocks<C> {
    /// Locks on this server.
    #[must_use]
    pub const fn new(server: Server<C>, env: Env) -> Self {
        Self { server, env }
    }

    /// The lock of this kind and name. Of a `multi` lock the name is that of its parts, separated by
    /// commas.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind is not one of a single Redis.
    pub fn lock(&self, kind: Kind, name: &str, terms: Terms) -> Result<Lock, Error> {
        let (server, env) = (self.server.clone(), self.env.clone());
        let naive = |naive| naive::Naive::new(server.clone(), naive, name);
        Ok(match kind {
            Kind::Setnx
            | Kind::SetnxExpire
            | Kind::SetnxGetset
            | Kind::SetPxDel
            | Kind::TokenGetDel => Lock::new(kind, name, terms, env, naive(kind)),
            Kind::TokenLua | Kind::Watchdog | Kind::Fenced => {
                let fenced = kind == Kind::Fenced;
                let renewing = terms.renewing || kind == Kind::Watchdog;
                let terms = Terms { renewing, ..terms };
                let protocol = exclusive::Exclusive::new(server, name, fenced);
                Lock::new(kind, name, terms, env, protocol)
            }
            Kind::Reentrant => Lock::new(
                kind,
                name,
                terms,
                env,
                reentrant::Reentrant::new(server, name),
            ),
            Kind::Fair => {
                let terms = fair::within_a_waiters_lease(terms);
                Lock::new(kind, name, terms, env, fair::Fair::new(server, name))
            }
            Kind::ReadWrite => {
                let terms = fair::within_a_waiters_lease(terms);
                let protocol = read_write::ReadWrite::new(server, name);
                Lock::new(kind, name, terms, env, protocol)
            }
            Kind::Multi => Lock::new(kind, name, terms, env, multi::Multi::new(server, name)),
            _ => return Err(Error::Unsupported(kind, "live in one Redis")),
        })
    }
}

/// The lock of this name on several independent Redis masters (Redlock).
#[must_use]
pub fn redlock<C: Connection>(servers: Vec<Server<C>>, name: &str, terms: Terms, env: Env) -> Lock {
    let protocol = redlock::Redlock::new(servers, name);
    Lock::new(Kind::Redlock, name, terms, env, protocol)
}

/// A key that belongs to the lock of this name: it shares the name's hash slot.
fn companion(name: &str, what: &str) -> String {
    format!("{}:{what}", tagged(name))
}

/// The name with a hash tag: its own, or all of it. (A name with a `}` and no tag cannot have one; only a cluster
/// minds.)
fn tagged(name: &str) -> String {
    let tag = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    match tag {
        Some((tag, _)) if !tag.is_empty() => name.to_owned(),
        _ => format!("{{{name}}}"),
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: std::sync::LazyLock<Script> = std::sync::LazyLock::new(|| {
            Script::new(include_str!(concat!("../../../scripts/redis/lock/", $file)))
        });)*
    };
}

scripts! {
    ACQUIRE_FENCED = "acquire_fenced.lua";
    EXTEND = "extend.lua";
    RELEASE = "release.lua";
    REENTRANT_ACQUIRE = "reentrant_acquire.lua";
    REENTRANT_EXTEND = "reentrant_extend.lua";
    REENTRANT_RELEASE = "reentrant_release.lua";
    FAIR_ACQUIRE = "fair_acquire.lua";
    FAIR_RELEASE = "fair_release.lua";
    SHARED_ACQUIRE = "shared_acquire.lua";
    EXCLUSIVE_ACQUIRE = "exclusive_acquire.lua";
    READ_WRITE_EXTEND = "read_write_extend.lua";
    READ_WRITE_RELEASE = "read_write_release.lua";
    FENCED_READ = "fenced_read.lua";
    FENCED_WRITE = "fenced_write.lua";
    MULTI_ACQUIRE = "multi_acquire.lua";
    MULTI_EXTEND = "multi_extend.lua";
    MULTI_RELEASE = "multi_release.lua";
}
