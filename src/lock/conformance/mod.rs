//! The contract of a lock as cases: what each kind must do, said once.
//!
//! Each case is a plain function whose name is the sentence that it checks; it panics if the sentence is
//! false. Cases that need a capability pass over kinds that do not claim it. They take names of their own, so
//! they may run beside each other on one server.

mod dropped;
mod exclusion;
mod guard;
mod kinds;
mod waiting;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Capabilities, Guard, Kind, Lock, OwnerId, Terms};

/// A lease that ends while a case runs, and is long enough for two calls on a busy machine.
const SHORT: Duration = Duration::from_millis(200);
/// How long nobody in these cases may hang.
const HANG_LIMIT: Duration = Duration::from_secs(20);

/// Locks of one kind, as the cases ask for them.
#[derive(Clone)]
pub struct Subject {
    kind: Kind,
    make: Arc<Make>,
    short: Duration,
}

/// Makes the lock of a name.
type Make = dyn Fn(&str, Terms) -> Lock + Send + Sync;

/// One sentence of the contract.
pub struct Case {
    /// The function's name.
    pub name: &'static str,
    /// Runs the case.
    pub run: fn(Subject) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Lists cases by module and name.
macro_rules! list {
    ($($theme:ident: $($case:ident),+ $(,)?;)+) => {
        vec![$($(Case {
            name: concat!(stringify!($theme), "::", stringify!($case)),
            run: |subject| Box::pin($theme::$case(subject)),
        }),+),+]
    };
}

/// Every case.
#[must_use]
pub fn cases() -> Vec<Case> {
    list! {
        exclusion:
            thirty_two_tasks_are_never_inside_together,
            the_fence_grows_with_each_holder;
        waiting:
            a_taken_lock_is_refused_at_once_to_whoever_does_not_wait,
            a_wait_ends_in_time,
            whoever_waits_gets_the_lock_when_it_is_released,
            whoever_gives_up_waiting_leaves_nothing_behind;
        guard:
            a_released_lock_is_free,
            a_dropped_guard_frees_the_lock,
            a_lease_that_ran_out_is_lost_and_lets_the_next_one_in,
            a_stale_guard_neither_releases_nor_prolongs_a_later_one,
            a_prolonged_lease_lasts,
            work_under_the_lock_is_done_and_the_lock_is_free_again,
            work_is_left_when_the_lock_is_lost,
            a_renewing_lock_outlives_its_lease_but_not_its_bound;
        dropped:
            dropped_at_any_await_point_it_leaves_nothing_behind;
        kinds:
            a_reentrant_lock_lets_its_owner_in_and_nobody_else,
            a_fair_lock_is_granted_in_the_order_of_asking,
            readers_share_and_a_writer_is_alone,
            a_writer_that_waits_keeps_new_readers_out;
    }
}

impl Subject {
    /// Locks of `kind`, made by `make` from a name and terms.
    pub fn new(kind: Kind, make: impl Fn(&str, Terms) -> Lock + Send + Sync + 'static) -> Self {
        Self {
            kind,
            make: Arc::new(make),
            short: SHORT,
        }
    }

    /// The same, whose leases are no shorter than this: for a server that is slow, or counts in seconds.
    #[must_use]
    pub fn with_short_lease(self, short: Duration) -> Self {
        Self { short, ..self }
    }

    /// A lease that ends while a case runs.
    fn short(&self) -> Duration {
        self.short
    }

    fn can(&self) -> Capabilities {
        self.kind.capabilities()
    }

    /// A lock that nobody else uses.
    fn lock(&self, lease: Duration) -> Lock {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        let name = format!(
            "conformance-{}-{number}-{:08x}",
            self.kind,
            rand::random::<u32>()
        );
        self.lock_named(&name, lease)
    }

    fn lock_named(&self, name: &str, lease: Duration) -> Lock {
        // A renewing lock runs out too, when it may not be held any longer.
        self.lock_held_at_most(name, lease, Duration::ZERO)
    }

    fn lock_held_at_most(&self, name: &str, lease: Duration, hold_max: Duration) -> Lock {
        let terms = Terms {
            lease,
            hold_max,
            ..Terms::default()
        };
        (self.make)(name, terms)
    }
}

/// Takes a lock that is free.
async fn take(lock: &Lock) -> Guard {
    take_as(lock, OwnerId::random()).await
}

async fn take_as(lock: &Lock, owner: OwnerId) -> Guard {
    let guard = lock.try_acquire(owner).await;
    guard
        .expect("the server answers")
        .expect("the lock is free")
}

/// Takes a lock that gets free.
async fn wait_for(lock: &Lock) -> Guard {
    let guard = lock.acquire(OwnerId::random(), HANG_LIMIT).await;
    guard
        .expect("the server answers")
        .expect("the lock gets free")
}

async fn is_free(lock: &Lock) -> bool {
    let guard = lock.try_acquire(OwnerId::random()).await;
    let guard = guard.expect("the server answers");
    match guard {
        Some(guard) => {
            guard.release().await;
            true
        }
        None => false,
    }
}
