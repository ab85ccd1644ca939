//! `etcd`: first come, first served, by the revision that created a key on a lease of one's own.
//!
//! The server's `Lock` call is not used: it does not look at its own key again after it has waited, and so grants
//! the lock to somebody whose lease has ended (<https://github.com/etcd-io/etcd/issues/11456>).

use std::time::Duration;

use super::lease::{self, whole_seconds};
use super::queue::{Queue, Turn};
use super::session::Session;
use super::watch;
use crate::lock::{Ask, Error, Protocol, Tried};

/// Whoever waits looks again after this long at the latest, should a watch be silent for no good reason.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Before a watch that broke is opened again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The lock of one name.
pub(super) struct Exclusive {
    queue: Queue,
}

impl Exclusive {
    pub(super) const fn new(queue: Queue) -> Self {
        Self { queue }
    }

    /// Returns when the key before one's own has gone, or one's own has: the end of a lease that somebody waits
    /// with is no reason to wait on (<https://github.com/etcd-io/etcd/issues/19597>).
    async fn turn(&self, key: &str, created: i64) -> Result<(), Error> {
        let Turn::After(before, at) = self.queue.turn(key, created).await? else {
            return Ok(());
        };
        let mut watch = watch::open(&self.queue.calls, &[&before, key], at + 1).await?;
        watch::end(&mut watch).await
    }

    /// Keeps the lease of somebody who waits; returns when it has ended or etcd does not answer.
    async fn keep(&self, lease: lease::Lease) {
        loop {
            tokio::time::sleep(lease.third()).await;
            let alive = lease::keep_alive(&self.queue.calls, lease.id).await;
            if !matches!(alive, Ok(true)) {
                return;
            }
        }
    }
}

impl Protocol for Exclusive {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session::new(&self.queue, ask.lease)
    }

    /// The lease first, so that its time counts from this try on; then the place. A place that is first after a
    /// wait is looked at again here like any other: it may have gone while its owner waited.
    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        session.refresh(&self.queue).await?;
        let first = session.enter(&self.queue).await?;
        Ok(match session.created.filter(|_| first) {
            Some(created) => Tried::Granted {
                fence: u64::try_from(created).ok(),
            },
            None => Tried::Busy {
                retry_within: Some(LOOK_AGAIN),
            },
        })
    }

    async fn wait(&self, session: &mut Session, at_most: Duration) {
        let Some(created) = session.created else {
            return;
        };
        let turn = async {
            if self.turn(&session.key, created).await.is_err() {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        tokio::select! {
            () = turn => {}
            () = self.keep(session.lease) => {}
            () = tokio::time::sleep(at_most) => {}
        }
    }

    async fn extend(&self, session: &mut Session, lease: Duration) -> Result<bool, Error> {
        if whole_seconds(lease) > session.lease.ttl_seconds {
            return session.move_on(&self.queue, lease).await;
        }
        session.prolong(&self.queue).await
    }

    /// The key says whether the lock was held: a lease may outlive a key that somebody has deleted.
    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        let released = match session.created {
            Some(created) => self.queue.leave(&session.key, created).await?,
            None => false,
        };
        // Nothing is on them any more: what is not revoked runs out.
        let _ = session.revoke(&self.queue).await;
        Ok(released)
    }

    async fn withdraw(&self, session: &mut Session, _uncertain: bool) -> Result<(), Error> {
        session.revoke(&self.queue).await
    }

    async fn lost(&self, session: &mut Session) {
        loop {
            if session.gone(&self.queue).await.is_ok() {
                return;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            if let Ok(false) = session.is_there(&self.queue).await {
                return;
            }
        }
    }
}
