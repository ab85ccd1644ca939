//! `find-and-modify`: a document with a holder, a fence and the end of the lease by the primary's clock.
//!
//! The document is never deleted, by nobody and by no TTL index: its fence only grows
//! (<https://github.com/johanhaleby/occurrent/pull/672>), and a lease is compared when somebody wants the lock
//! instead of being swept away once a minute (<https://github.com/alturkovic/distributed-lock/issues/5>).

use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::calls::{Calls, Held};
use crate::lock::{Ask, Error, Protocol, Tried};

/// Whoever waits looks again after this long at the latest: a standalone server wakes nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Nobody's token.
const NOBODY: &str = "";

/// The lock of one name.
pub(super) struct FindAndModify {
    calls: Calls,
    name: String,
}

/// What one acquisition knows.
#[derive(Debug)]
pub(in crate::lock) struct Session {
    token: String,
    lease: Duration,
    fence: Option<u64>,
    /// Whether a step that takes the lock has been sent and not been answered.
    uncertain: bool,
}

impl FindAndModify {
    pub(super) fn new(calls: Calls, name: &str) -> Self {
        Self {
            calls,
            name: name.to_owned(),
        }
    }

    /// Takes a lock whose lease has ended. A copy that comes late takes nothing from anybody: the document of
    /// whoever was there meanwhile ends after the `now` of this step.
    async fn take(&self, session: &Session, now_ms: i64) -> Result<Option<u64>, Error> {
        let ended = doc! { "_id": &self.name, "expiresAtMs": { "$lte": now_ms } };
        let mine = doc! {
            "$set": { "token": &session.token, "expiresAtMs": after_ms(now_ms, session.lease) },
            "$inc": { "fence": 1_i64 },
        };
        let found = self.calls.find_one_and_update(ended, mine, true).await?;
        let mine = found.filter(|held| held.token == session.token);
        Ok(mine.map(|held| held.fence))
    }

    /// Gives what was taken a new lease, if it was taken.
    async fn retake(&self, session: &Session, now_ms: i64) -> Result<Option<u64>, Error> {
        let mine = self.mine(session);
        let found = self.prolong(mine, now_ms, session.lease).await?;
        Ok(found.map(|held| held.fence))
    }

    /// Moves the end of a lease, never to an earlier time: a copy of a step that comes late would else take from a
    /// holder what a later step has given.
    async fn prolong(
        &self,
        mine: Document,
        now_ms: i64,
        lease: Duration,
    ) -> Result<Option<Held>, Error> {
        let later = doc! { "$max": { "expiresAtMs": after_ms(now_ms, lease) } };
        self.calls.find_one_and_update(mine, later, false).await
    }

    /// The document, as long as it is this acquisition's.
    fn mine(&self, session: &Session) -> Document {
        let mut mine = doc! { "_id": &self.name, "token": &session.token };
        if let Some(fence) = session.fence {
            mine.insert("fence", fence.cast_signed());
        }
        mine
    }

    /// The same, as long as its lease lasts.
    fn mine_still(&self, session: &Session, now_ms: i64) -> Document {
        let mut mine = self.mine(session);
        mine.insert("expiresAtMs", doc! { "$gt": now_ms });
        mine
    }
}

impl Protocol for FindAndModify {
    type Session = Session;

    fn session(&self, ask: Ask) -> Session {
        Session {
            token: ask.token.to_string(),
            lease: ask.lease,
            fence: None,
            uncertain: false,
        }
    }

    async fn try_acquire(&self, session: &mut Session) -> Result<Tried, Error> {
        let now_ms = self.calls.now_ms().await?;
        let mut fence = None;
        let uncertain = std::mem::replace(&mut session.uncertain, true);
        if uncertain {
            fence = self.retake(session, now_ms).await?;
        }
        if fence.is_none() {
            fence = self.take(session, now_ms).await?;
        }
        // A step whose answer was lost may still be on its way.
        session.uncertain = uncertain;
        session.fence = fence;
        Ok(match fence {
            Some(_) => Tried::Granted { fence },
            None => Tried::Busy {
                retry_within: Some(LOOK_AGAIN),
            },
        })
    }

    async fn wait(&self, _session: &mut Session, at_most: Duration) {
        // Not all at the same time.
        let part = rand::random_range(0.5..=1.0);
        tokio::time::sleep(at_most.min(LOOK_AGAIN).mul_f64(part)).await;
    }

    async fn extend(&self, session: &mut Session, lease: Duration) -> Result<bool, Error> {
        let now_ms = self.calls.now_ms().await?;
        let mine = self.mine_still(session, now_ms);
        Ok(self.prolong(mine, now_ms, lease).await?.is_some())
    }

    /// The lease ends now and not at the beginning of time, and the token goes: a copy of an earlier step that
    /// comes late finds neither a lease that has long ended nor its token.
    async fn release(&self, session: &mut Session) -> Result<bool, Error> {
        let now_ms = self.calls.now_ms().await?;
        let mine = self.mine_still(session, now_ms);
        let free = doc! { "$set": { "expiresAtMs": now_ms, "token": NOBODY } };
        let found = self.calls.find_one_and_update(mine, free, false).await?;
        Ok(found.is_some())
    }
}

/// The end of a lease. A number and no date: a TTL index, which deletes what is past, passes over numbers.
fn after_ms(now_ms: i64, lease: Duration) -> i64 {
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    now_ms.saturating_add(lease_ms)
}
