//! What one kind of lock does on its server. Waiting, deadlines, renewal and release are the same for all
//! kinds and live elsewhere.

use std::time::Duration;

use super::{Error, OwnerId, Token};

/// How a lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with others who share it.
    Shared,
}

/// One acquisition, as it is known on the server.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Who asks; a reentrant lock lets its holder in again.
    pub owner: OwnerId,
    /// The name of this acquisition, which nobody has used before.
    pub token: Token,
    /// How long the server keeps the lock without a word of its holder.
    pub lease: Duration,
    /// How it is taken.
    pub mode: Mode,
}

/// What one try has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// The lock is this acquisition's.
    Granted {
        /// A number that only grows with each new holder, if the lock has one.
        fence: Option<u64>,
    },
    /// Somebody else has it.
    Busy {
        /// After how long it is worth trying again at the latest, if the server knows.
        retry_within: Option<Duration>,
    },
}

/// The steps of one kind of lock.
///
/// Each method must end by itself: with the server's answer, or with an error after a bounded time. A
/// caller who hangs up never cancels one of them half-way.
pub trait Protocol: Send + Sync + 'static {
    /// Whether the server frees the lock of a holder who says nothing for the time of the lease.
    const LEASED: bool = true;

    /// What this acquisition keeps between its steps: a connection, a node, a subscription.
    type Session: Send;

    /// Begins an acquisition; sends nothing.
    fn session(&self, ask: Ask) -> Self::Session;

    /// Tries once. If an earlier try of this acquisition was granted and its answer was lost, this one is
    /// granted too.
    fn try_acquire(
        &self,
        session: &mut Self::Session,
    ) -> impl Future<Output = Result<Tried, Error>> + Send;

    /// Takes note that the last try was granted, so that there is nothing to wait for any more.
    fn granted(&self, _session: &mut Self::Session) {}

    /// Returns when it is worth trying again: woken by the holder's release, or after `at_most`.
    fn wait(
        &self,
        session: &mut Self::Session,
        at_most: Duration,
    ) -> impl Future<Output = ()> + Send;

    /// Prolongs the lease from now on; false if the lock is not this acquisition's any more.
    fn extend(
        &self,
        session: &mut Self::Session,
        lease: Duration,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Gives the lock back; false if it was not this acquisition's any more. May be repeated.
    fn release(
        &self,
        session: &mut Self::Session,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Leaves nothing of an acquisition that nobody wants any more. `uncertain`: a try may have been
    /// granted without an answer. May be repeated.
    fn withdraw(
        &self,
        session: &mut Self::Session,
        uncertain: bool,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            if uncertain {
                self.release(session).await?;
            }
            Ok(())
        }
    }

    /// Returns when the server says that the lock is lost; never, if it has no way to say so.
    fn lost(&self, _session: &mut Self::Session) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}
