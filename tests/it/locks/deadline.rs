//! The deadline of a lease, to the millisecond: a lock in memory whose calls take as long as the test says, under
//! a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stockade::env::Env;
use stockade::lock::{Ask, Error, Extended, Guard, Kind, Lock, OwnerId, Protocol, Terms, Tried};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_millis(1_000);
/// What is left of it here: less one part in a hundred, and 2 ms.
const CERTAIN: Duration = Duration::from_millis(988);
const MS: Duration = Duration::from_millis(1);

/// How long its calls take, and what comes of them.
#[derive(Debug, Clone, Copy)]
struct Plan {
    acquire_takes: Duration,
    /// So many answers to the first tries are lost, though the lock was granted.
    answers_lost: u32,
    extend_takes: Duration,
    extended: Option<bool>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            acquire_takes: MS * 100,
            answers_lost: 0,
            extend_takes: MS * 100,
            extended: Some(true),
        }
    }
}

#[derive(Debug, Default, Clone)]
struct Calls {
    acquires: Arc<AtomicU32>,
    extends: Arc<AtomicU32>,
    releases: Arc<AtomicU32>,
}

struct Imagined {
    plan: Plan,
    calls: Calls,
}

impl Protocol for Imagined {
    type Session = ();

    fn session(&self, _ask: Ask) {}

    async fn try_acquire(&self, (): &mut ()) -> Result<Tried, Error> {
        let before = self.calls.acquires.fetch_add(1, Ordering::SeqCst);
        sleep(self.plan.acquire_takes).await;
        match before < self.plan.answers_lost {
            true => Err(Error::Unreachable("lost".into())),
            false => Ok(Tried::Granted { fence: None }),
        }
    }

    async fn wait(&self, (): &mut (), at_most: Duration) {
        sleep(at_most).await;
    }

    async fn extend(&self, (): &mut (), _lease: Duration) -> Result<bool, Error> {
        self.calls.extends.fetch_add(1, Ordering::SeqCst);
        sleep(self.plan.extend_takes).await;
        let lost = || Error::Unreachable("lost".into());
        self.plan.extended.ok_or_else(lost)
    }

    async fn release(&self, (): &mut ()) -> Result<bool, Error> {
        self.calls.releases.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }
}

fn lock(plan: Plan, terms: Terms) -> (Lock, Calls) {
    let calls = Calls::default();
    let protocol = Imagined {
        plan,
        calls: calls.clone(),
    };
    let terms = Terms {
        lease: LEASE,
        ..terms
    };
    let lock = Lock::new(Kind::TokenLua, "goods", terms, Env::default(), protocol);
    (lock, calls)
}

async fn take(lock: &Lock) -> Guard {
    let guard = lock.acquire(OwnerId::random(), LEASE * 10).await;
    guard.unwrap().expect("a free lock")
}

/// Told at that very moment, and not a millisecond before.
async fn is_lost_at(guard: &Guard, deadline: Instant) {
    let before = timeout(deadline - MS - Instant::now(), guard.lost()).await;
    assert!(before.is_err(), "{:?} too early", deadline - Instant::now());
    assert!(!guard.is_lost());
    let lost = guard.lost().await;
    assert_eq!(lost.since, deadline);
    // A timer of Tokio's has the grain of a millisecond.
    let late = deadline.elapsed();
    assert!(late <= MS, "{late:?} too late");
    assert!(guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn the_loss_is_told_exactly_at_the_deadline_which_counts_from_before_the_request() {
    let (lock, _) = lock(Plan::default(), Terms::default());
    let asked = Instant::now();
    let guard = take(&lock).await;
    assert_eq!(asked.elapsed(), MS * 100);
    is_lost_at(&guard, asked + CERTAIN).await;
}

#[tokio::test(start_paused = true)]
async fn a_prolonged_lease_counts_from_before_the_request_too() {
    let (lock, _) = lock(Plan::default(), Terms::default());
    let guard = take(&lock).await;
    let asked = Instant::now();
    assert_eq!(guard.extend(LEASE).await, Extended::Extended);
    is_lost_at(&guard, asked + CERTAIN).await;
}

/// The server may have granted the first try, and its lease runs from then on.
#[tokio::test(start_paused = true)]
async fn after_lost_answers_the_deadline_counts_from_the_first_try_that_may_have_been_granted() {
    let plan = Plan {
        answers_lost: 2,
        ..Plan::default()
    };
    let (lock, calls) = lock(plan, Terms::default());
    let asked = Instant::now();
    let guard = take(&lock).await;
    assert_eq!(calls.acquires.load(Ordering::SeqCst), 3);
    is_lost_at(&guard, asked + CERTAIN).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_longer_than_its_lease_grants_nothing_and_the_wait_ends() {
    let plan = Plan {
        acquire_takes: LEASE,
        ..Plan::default()
    };
    let (lock, calls) = lock(plan, Terms::default());
    let asked = Instant::now();
    let acquiring = lock.acquire(OwnerId::random(), LEASE * 2);
    let acquired = timeout(LEASE * 10, acquiring).await;
    assert!(acquired.expect("an end").unwrap().is_none());
    assert!(asked.elapsed() <= LEASE * 4, "{:?}", asked.elapsed());
    // Each grant that came too late was given back.
    let acquires = calls.acquires.load(Ordering::SeqCst);
    assert_eq!(calls.releases.load(Ordering::SeqCst), acquires);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_never_answered_ends_at_the_deadline() {
    let plan = Plan {
        extend_takes: LEASE * 100,
        ..Plan::default()
    };
    let terms = Terms {
        renewing: true,
        ..Terms::default()
    };
    let (lock, _) = lock(plan, terms);
    let asked = Instant::now();
    let guard = take(&lock).await;
    is_lost_at(&guard, asked + CERTAIN).await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_leaves_the_lease_as_it_was() {
    let plan = Plan {
        extended: None,
        ..Plan::default()
    };
    let terms = Terms {
        renewing: true,
        ..Terms::default()
    };
    let (lock, calls) = lock(plan, terms);
    let asked = Instant::now();
    let guard = take(&lock).await;
    is_lost_at(&guard, asked + CERTAIN).await;
    assert!(calls.extends.load(Ordering::SeqCst) >= 2, "it gave up");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_renewal_is_a_loss_at_once() {
    let plan = Plan {
        extended: Some(false),
        ..Plan::default()
    };
    let (lock, calls) = lock(plan, Terms::default());
    let guard = take(&lock).await;
    assert_eq!(guard.extend(LEASE).await, Extended::NotMine);
    assert!(guard.is_lost());
    assert_eq!(guard.lost().await.since, Instant::now());
    // What is lost is not asked for again.
    assert_eq!(guard.extend(LEASE).await, Extended::NotMine);
    assert_eq!(calls.extends.load(Ordering::SeqCst), 1);
}

/// A hung task renews no longer than it was allowed to hold.
#[tokio::test(start_paused = true)]
async fn renewals_end_when_the_lock_has_been_held_for_as_long_as_it_may() {
    let terms = Terms {
        renewing: true,
        hold_max: LEASE * 20,
        ..Terms::default()
    };
    let (lock, calls) = lock(Plan::default(), terms);
    let asked = Instant::now();
    let guard = take(&lock).await;
    let lost = guard.lost().await;
    let held = lost.since - asked;
    assert!(held > LEASE * 20 && held < LEASE * 21, "{held:?}");
    let extends = calls.extends.load(Ordering::SeqCst);
    sleep(LEASE * 10).await;
    assert_eq!(calls.extends.load(Ordering::SeqCst), extends);
}
