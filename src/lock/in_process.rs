//! `mutex`: a lock in this process' memory. Correct for one process; two processes have two of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::{Ask, Error, Kind, Lock, Protocol, Terms, Tried};
use crate::env::Env;

/// The locks of this process, by name.
#[derive(Debug, Clone, Default)]
pub struct InProcess {
    locks: Arc<Mutex<HashMap<String, Arc<Turn<()>>>>>,
    /// One for all names, so that it outlives each.
    holders: Arc<AtomicU64>,
}

impl InProcess {
    /// The lock of this name.
    #[must_use]
    pub fn lock(&self, name: &str, terms: Terms, env: Env) -> Lock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        // Names that nobody holds or asks for any more would stay for ever.
        locks.retain(|known, turn| known == name || Arc::strong_count(turn) > 1);
        let turn = locks.entry(name.to_owned()).or_default();
        let protocol = Held {
            turn: Arc::clone(turn),
            holders: Arc::clone(&self.holders),
        };
        Lock::new(Kind::Mutex, name, terms, env, protocol)
    }
}

struct Held {
    turn: Arc<Turn<()>>,
    /// How many there were so far: the fence.
    holders: Arc<AtomicU64>,
}

#[derive(Default)]
struct Session(Option<(OwnedMutexGuard<()>, u64)>);

impl Held {
    fn granted(&self, turn: OwnedMutexGuard<()>) -> Session {
        Session(Some((
            turn,
            self.holders.fetch_add(1, Ordering::SeqCst) + 1,
        )))
    }
}

impl Protocol for Held {
    type Session = Session;
    const LEASED: bool = false;

    fn session(&self, _ask: Ask) -> Session {
        Session::default()
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        if session.0.is_none()
            && let Ok(turn) = Arc::clone(&self.turn).try_lock_owned()
        {
            *session = self.granted(turn);
        }
        Ok(match &session.0 {
            Some((_, fence)) => Tried::Granted {
                fence: Some(*fence),
            },
            None => Tried::Busy {
                retry_within: Some(Duration::MAX),
            },
        })
    }

    /// Waits in the mutex' own queue, which is first come, first served.
    async fn wait(&self, session: &mut Session, at_most: Duration) {
        let turn = Arc::clone(&self.turn).lock_owned();
        if let Ok(turn) = tokio::time::timeout(at_most, turn).await {
            *session = self.granted(turn);
        }
    }

    async fn extend(&self, session: &mut Session, _lease: Duration) -> Result<bool, Error> {
        Ok(session.0.is_some())
    }

    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        Ok(session.0.take().is_some())
    }
}
