//! What one acquisition has in etcd: leases, and one key on one of them.

use std::time::Duration;

use etcd_client::WatchStream;

use super::lease::{self, Lease};
use super::queue::{Queue, Seen};
use super::watch;
use crate::lock::Error;

/// Two leases of 2^63 have the same number once in a while, and never this often.
const DRAWS_MAX: u32 = 3;
/// How often a key is found on another of its leases: a move whose answer was lost explains one time. What is
/// under way beyond that is seen at the next try.
const MOVES_MAX: u32 = 2;

/// The leases and the key of one acquisition, as far as this client knows. Nobody shares them: two acquisitions on
/// one lease would be one key, and would not exclude each other.
#[derive(Debug)]
pub(in crate::lock) struct Session {
    time: Duration,
    /// The lease that the key is on, or is to be put on.
    pub(super) lease: Lease,
    standing: Standing,
    pub(super) key: String,
    /// The revision that created the key, when it is known to be in the queue.
    pub(super) created: Option<i64>,
    /// The latest revision at which the key was seen.
    seen_at: i64,
    /// Every lease that may live: asked for, and not known to have ended.
    leases: Vec<Lease>,
    /// The watch over the key's end.
    watch: Option<WatchStream>,
}

/// How a lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Not asked for yet.
    New,
    /// Asked for; no answer.
    Asked,
    /// Granted.
    Granted,
}

impl Session {
    /// An acquisition that has nothing yet.
    pub(super) fn new(queue: &Queue, time: Duration) -> Self {
        let lease = Lease::of(time);
        Self {
            time,
            lease,
            standing: Standing::New,
            key: queue.key(lease),
            created: None,
            seen_at: 0,
            leases: Vec::new(),
            watch: None,
        }
    }

    /// Begins again, at the end of the queue. A lease that has ended, or that one member takes for ended, is not
    /// used again: its number would not say any more what is on it.
    fn begin_anew(&mut self, queue: &Queue) {
        let leases = std::mem::take(&mut self.leases);
        *self = Self {
            leases,
            ..Self::new(queue, self.time)
        };
    }

    /// Sees to it that the lease has its full time left from now on. A lease that has ended takes the place in
    /// the queue with it.
    pub(super) async fn refresh(&mut self, queue: &Queue) -> Result<(), Error> {
        for _ in 0..DRAWS_MAX {
            let asked_before = self.standing == Standing::Asked;
            if self.standing != Standing::Granted {
                if !asked_before {
                    self.leases.push(self.lease);
                }
                self.standing = Standing::Asked;
                let fresh = lease::grant(&queue.calls, self.lease).await?;
                if fresh {
                    self.standing = Standing::Granted;
                    return Ok(());
                }
                if !asked_before {
                    // Somebody else's, and nothing to revoke.
                    self.leases.pop();
                    self.begin_anew(queue);
                    continue;
                }
                // The answer was lost, the lease was not.
                self.standing = Standing::Granted;
            }
            if lease::keep_alive(&queue.calls, self.lease.id).await? {
                return Ok(());
            }
            self.begin_anew(queue);
        }
        Err(Error::Unreachable("leases end at once".into()))
    }

    /// Goes to the end of the queue, or sees where it stands in it: true if nobody stands before. False, too, if
    /// the lease has ended meanwhile.
    pub(super) async fn enter(&mut self, queue: &Queue) -> Result<bool, Error> {
        let Some(entry) = queue.enter(&self.key, self.lease).await? else {
            self.begin_anew(queue);
            return Ok(false);
        };
        self.created = Some(entry.created);
        self.seen_at = entry.at;
        Ok(entry.first)
    }

    /// Whether the key is still there, on a lease that was alive a moment ago and has its full time again.
    ///
    /// The lease alone proves nothing: a leader that has been deposed and does not know it may answer for it. The
    /// key is asked of a majority afterwards. Until a move has been heard of, the key may go to the lease it was
    /// to be moved to at any time, so that one is kept alive too.
    pub(super) async fn prolong(&mut self, queue: &Queue) -> Result<bool, Error> {
        let mut alive = Vec::new();
        for lease in &self.leases {
            let may_be_moved_to = lease.ttl_seconds > self.lease.ttl_seconds;
            if (*lease == self.lease || may_be_moved_to)
                && lease::keep_alive(&queue.calls, lease.id).await?
            {
                alive.push(*lease);
            }
        }
        let seen = queue.look(&self.key).await?;
        Ok(self.stands(seen) && alive.contains(&self.lease))
    }

    /// Puts the key on a longer lease: one of etcd's cannot be made longer. False if the key is gone.
    pub(super) async fn move_on(&mut self, queue: &Queue, time: Duration) -> Result<bool, Error> {
        let Some(created) = self.created else {
            return Ok(false);
        };
        let longer = Lease::of(time);
        self.leases.push(longer);
        if !lease::grant(&queue.calls, longer).await? {
            // Somebody else's, and nothing to revoke.
            self.leases.pop();
            return Err(Error::Unreachable("a lease's number was taken".into()));
        }
        for _ in 0..MOVES_MAX {
            let seen = queue.carry(&self.key, created, self.lease, longer);
            let seen = seen.await?;
            if !self.stands(seen) {
                return Ok(false);
            }
            if self.lease == longer {
                self.end_others(queue).await;
                return Ok(true);
            }
            // It had been moved before, unheard. Never to a shorter lease: see above.
            if self.lease.ttl_seconds >= longer.ttl_seconds {
                return self.prolong(queue).await;
            }
        }
        Err(Error::Unreachable("moves are under way".into()))
    }

    /// Notes on which of its leases the key was seen; false if it was not.
    fn stands(&mut self, seen: Option<Seen>) -> bool {
        let Some(seen) = seen.filter(|seen| Some(seen.created) == self.created) else {
            return false;
        };
        let on = self.leases.iter().find(|lease| lease.id == seen.lease);
        let Some(on) = on else {
            return false;
        };
        self.lease = *on;
        self.seen_at = seen.at;
        true
    }

    /// Revokes the leases that the key is not on. No move that is under way begins at the one it is on, so nothing
    /// comes to be on them any more; those that are not revoked now are at the end, or run out.
    async fn end_others(&mut self, queue: &Queue) {
        for lease in self.leases.clone() {
            if lease != self.lease && lease::revoke(&queue.calls, lease.id).await.is_ok() {
                self.leases.retain(|other| *other != lease);
            }
        }
    }

    /// Returns when the key has gone.
    ///
    /// # Errors
    /// When the watch broke: then nothing is known.
    pub(super) async fn gone(&mut self, queue: &Queue) -> Result<(), Error> {
        let ended = match &mut self.watch {
            Some(stream) => watch::end(stream).await,
            none => {
                let opening = watch::open(&queue.calls, &[&self.key], self.seen_at + 1).await;
                watch::end(none.insert(opening?)).await
            }
        };
        if ended.is_err() {
            self.watch = None;
        }
        ended
    }

    /// Whether the key is still there.
    pub(super) async fn is_there(&mut self, queue: &Queue) -> Result<bool, Error> {
        let seen = queue.look(&self.key).await?;
        Ok(self.stands(seen))
    }

    /// Ends all its leases, and with them its key wherever it stands; then it has nothing, as at the beginning.
    pub(super) async fn revoke(&mut self, queue: &Queue) -> Result<(), Error> {
        while let Some(lease) = self.leases.last() {
            lease::revoke(&queue.calls, lease.id).await?;
            self.leases.pop();
        }
        self.begin_anew(queue);
        Ok(())
    }
}
