//! Locks: every kind that the classic articles teach, behind one contract.
//!
//! A [`Lock`] is a name on one kind of lock; [`Lock::acquire`] waits for it within a bound and returns a
//! [`Guard`]. All kinds keep these rules, whatever their server:
//!
//! * Each acquisition has a token of its own. A stale guard can neither release nor prolong a later one,
//!   unless the kind is naive on purpose: the [`Catalogue`](Kind) says so.
//! * A lease counts from before the request was sent. When it has run out on this machine's monotonic
//!   clock, or the server says so, the loss is pushed to whoever waits for [`Guard::lost`].
//! * Whoever cancels an acquisition or drops a guard, at whatever point, leaves nothing behind but a lease
//!   that runs out, and mostly not even that: the release is sent behind their back.
//! * Renewal ends before the release is sent, and never begins again.
//!
//! A lock with a lease saves work and guards nothing by itself: its holder may be paused beyond the lease.
//! What must be right checks [`Guard::fence`] at the write.

mod catalogue;
pub mod conformance;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod gate;
mod guard;
mod in_process;
mod keeper;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(feature = "mysql")]
pub mod mysql;
pub mod postgres;
mod protocol;
pub mod redis;
pub mod resource;
mod sql;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use catalogue::{Capabilities, Entry, Fencing, Kind, Sentence, UnknownKind};
pub use error::Error;
pub use guard::{Guard, Lost, Ran};
pub use in_process::InProcess;
pub use protocol::{Ask, Mode, Protocol, Tried};

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::env::Env;
use keeper::{Keeper, Request};

/// Who asks for a lock. Explicit, since a thread or a task is no identity in asynchronous code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId(u128);

/// The name of one acquisition.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u128);

impl OwnerId {
    /// An owner whom nobody else is.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl Token {
    /// A name that no acquisition ever had.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for OwnerId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a release has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The lock was held and is free now.
    Released,
    /// The lease had run out; whoever holds the lock now keeps it.
    NotMine,
    /// The server did not answer; the lease ends it.
    Unknown,
}

/// What a prolongation has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// The new lease counts from before the request was sent.
    Extended,
    /// The lock is lost.
    NotMine,
    /// The server did not answer: the old lease counts.
    Unknown,
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long the server keeps the lock without a word of its holder.
    pub lease: Duration,
    /// Whether the lease is prolonged every third of it, until `hold_max`.
    pub renewing: bool,
    /// The longest that a renewing lock is held.
    pub hold_max: Duration,
    /// How those who wait come to know that it is free.
    pub waiting: Waiting,
}

/// How those who wait come to know that a lock is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The holder's release wakes them; a lease that runs out is waited for.
    Woken,
    /// They ask again after this long, more or less.
    Polled(Duration),
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            renewing: false,
            hold_max: Duration::from_secs(3_600),
            waiting: Waiting::Woken,
        }
    }
}

/// A named lock of one kind. Clones name the same lock.
#[derive(Clone)]
pub struct Lock {
    kind: Kind,
    name: Arc<str>,
    terms: Terms,
    mode: Mode,
    env: Env,
    start: Arc<dyn Fn(Request) + Send + Sync>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Lock {
    /// The lock of this name, whose steps on the server are those of `protocol`.
    pub fn new<P: Protocol>(kind: Kind, name: &str, terms: Terms, env: Env, protocol: P) -> Self {
        assert!(
            terms.lease.as_millis() > 0,
            "a lease of at least a millisecond"
        );
        let protocol = Arc::new(protocol);
        let tasks = env.clone();
        let start = move |request: Request| {
            let keeper = Keeper::new(Arc::clone(&protocol), terms, tasks.clone());
            tasks.spawn(keeper.run(request));
        };
        Self {
            kind,
            name: name.into(),
            terms,
            mode: Mode::Exclusive,
            env,
            start: Arc::new(start),
        }
    }

    /// Which kind it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is held.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// The same lock, to be held together with others who share it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this kind cannot be shared.
    pub fn shared(&self) -> Result<Self, Error> {
        if !self.kind.capabilities().shared {
            return Err(Error::Unsupported(self.kind, "be shared"));
        }
        Ok(Self {
            mode: Mode::Shared,
            ..self.clone()
        })
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the server did not answer: nothing is held then, or it is being given
    /// back.
    pub async fn try_acquire(&self, owner: OwnerId) -> Result<Option<Guard>, Error> {
        self.acquire(owner, Duration::ZERO).await
    }

    /// Takes the lock, waiting for it at most `wait`. None: it was not free in that time.
    ///
    /// # Errors
    /// As [`Self::try_acquire`].
    pub async fn acquire(&self, owner: OwnerId, wait: Duration) -> Result<Option<Guard>, Error> {
        let (reply, answer) = oneshot::channel();
        (self.start)(Request {
            ask: Ask {
                owner,
                token: Token::random(),
                lease: self.terms.lease,
                mode: self.mode,
            },
            until: self.env.after(wait),
            reply,
        });
        // The keeper always answers; without one the runtime is going down.
        answer.await.unwrap_or(Err(Error::Stopped))
    }

    /// Does `work` under the lock, and leaves it unfinished if the lock is lost meanwhile.
    ///
    /// # Errors
    /// As [`Self::acquire`].
    pub async fn run<T>(
        &self,
        owner: OwnerId,
        wait: Duration,
        work: impl AsyncFnOnce(Option<u64>) -> T,
    ) -> Result<Ran<T>, Error> {
        let Some(guard) = self.acquire(owner, wait).await? else {
            return Ok(Ran::NotAcquired);
        };
        Ok(guard.race(work).await)
    }
}
