//! The proof that a lock is held, as long as it is.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::keeper::{Command, State};
use super::{Extended, Released};

/// A held lock. Dropped, it is given back behind the holder's back.
#[derive(Debug)]
pub struct Guard {
    pub(super) fence: Option<u64>,
    pub(super) waited: bool,
    pub(super) state: watch::Receiver<State>,
    pub(super) commands: mpsc::UnboundedSender<Command>,
}

/// When a lock was lost, as far as this machine knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// From then on somebody else may hold it.
    pub since: Instant,
}

/// What became of work under a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran<T> {
    /// It was done while the lock was held, and the lock was given back.
    Completed(T),
    /// It was done, but whether the lock was held to the end is not known: the server does not answer.
    Unknown(T),
    /// It was left unfinished: the lock was lost.
    LostDuring {
        /// The fence under which it was begun.
        fence: Option<u64>,
        /// From then on somebody else may hold the lock.
        since: Instant,
    },
    /// It was not begun: the lock was not free in time.
    NotAcquired,
}

impl Guard {
    /// A number that only grows with each new holder of the lock, if the kind has one. Whoever writes under
    /// the lock hands it to what is written, which refuses a smaller one than it has seen.
    #[must_use]
    pub const fn fence(&self) -> Option<u64> {
        self.fence
    }

    /// Whether somebody else held the lock in between: what was read before it may be stale.
    #[must_use]
    pub const fn waited(&self) -> bool {
        self.waited
    }

    /// Returns when the lock is lost: at the server's word, or when its lease has run out on this machine's
    /// clock, whichever comes first.
    pub async fn lost(&self) -> Lost {
        let mut state = self.state.clone();
        let lost = state
            .wait_for(|state| matches!(state, State::Lost(_)))
            .await;
        match lost.as_deref() {
            Ok(State::Lost(since)) => Lost { since: *since },
            // Its keeper is gone with the runtime: nobody looks after it any more.
            _ => Lost {
                since: Instant::now(),
            },
        }
    }

    /// Whether it is lost by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(*self.state.borrow(), State::Lost(_))
    }

    /// Prolongs the lease: it ends `lease` after this request was sent.
    pub async fn extend(&self, lease: Duration) -> Extended {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Extend { lease, reply });
        answer.await.unwrap_or(Extended::Unknown)
    }

    /// Gives the lock back.
    pub async fn release(self) -> Released {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Release { reply });
        answer.await.unwrap_or(Released::Unknown)
    }

    /// Does `work`, and leaves it unfinished if the lock is lost meanwhile.
    pub(super) async fn race<T>(self, work: impl AsyncFnOnce(Option<u64>) -> T) -> Ran<T> {
        let fence = self.fence;
        let done = tokio::select! {
            biased;
            Lost { since } = self.lost() => Err(since),
            done = work(fence) => Ok(done),
        };
        match done {
            Ok(done) => match self.release().await {
                Released::Released => Ran::Completed(done),
                Released::NotMine | Released::Unknown => Ran::Unknown(done),
            },
            Err(since) => Ran::LostDuring { fence, since },
        }
    }
}
