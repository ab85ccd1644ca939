//! Renewals, under the paused clock.

use std::time::Duration;

use stockade::lock::{Guard, Lock, OwnerId, Ran, Released, Terms};
use tokio::time::{Instant, advance};

use super::memory::{Answer, CALL_TIMEOUT, Call, Memory};

pub(crate) const LEASE: Duration = Duration::from_secs(10);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn terms(renewing: bool) -> Terms {
    Terms {
        lease: LEASE,
        renewing,
        ..Terms::default()
    }
}

pub(crate) async fn take(lock: &Lock) -> Guard {
    let guard = lock.try_acquire(OwnerId::random()).await;
    guard.unwrap().expect("a free lock")
}

/// Lets time pass as it does, timer by timer.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_is_tried_again_until_the_lease_has_run_out() {
    let server = Memory::default();
    let guard = take(&server.lock(terms(true))).await;
    server.answers(Call::Extend, Answer::Never);
    pass(LEASE / 2).await;
    assert!(server.count(Call::Extend) >= 1 && !guard.is_lost());
    server.answers(Call::Extend, Answer::After(Duration::ZERO));
    pass(LEASE * 10).await;
    assert!(!guard.is_lost(), "it was not tried again");
    server.answers(Call::Extend, Answer::Never);
    pass(LEASE).await;
    assert!(guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_release_while_a_renewal_is_in_flight_ends_renewing_for_good() {
    let server = Memory::default();
    let guard = take(&server.lock(terms(true))).await;
    server.answers(Call::Extend, Answer::After(SECOND));
    while server.count(Call::Extend) == 0 {
        advance(Duration::from_millis(50)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(guard.release().await, Released::Released);
    pass(HOUR).await;
    // First the renewal's answer, then the release, and nothing after it.
    assert_eq!(server.calls(), [Call::Try, Call::Extend, Call::Release]);
    assert!(!server.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_ends_renewing_and_is_tried_a_few_times() {
    for answer in [Answer::Lost, Answer::Never] {
        let server = Memory::default();
        let guard = take(&server.lock(terms(true))).await;
        pass(LEASE).await;
        let renewed = server.count(Call::Extend);
        assert!(renewed > 0, "it does not renew");
        server.answers(Call::Release, answer);
        let asked = Instant::now();
        assert_eq!(guard.release().await, Released::Unknown);
        assert!(asked.elapsed() < CALL_TIMEOUT * 4, "{:?}", asked.elapsed());
        pass(HOUR).await;
        assert_eq!(server.count(Call::Extend), renewed, "{answer:?}");
        assert_eq!(server.count(Call::Release), 3, "{answer:?}");
        assert!(!server.is_held(), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_is_not_renewed_any_more() {
    let server = Memory::default();
    server.answers(Call::Release, Answer::Never);
    drop(take(&server.lock(terms(true))).await);
    pass(HOUR).await;
    assert_eq!(server.count(Call::Extend), 0);
    assert!(!server.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_taken_again_at_once_is_renewed_again() {
    let server = Memory::default();
    let lock = server.lock(terms(true));
    for _ in 0..3 {
        let guard = take(&lock).await;
        let before = server.count(Call::Extend);
        pass(LEASE * 3).await;
        assert!(server.count(Call::Extend) > before && !guard.is_lost());
        assert_eq!(guard.release().await, Released::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_definite_loss_ends_renewing_and_the_work() {
    let server = Memory::default();
    let lock = server.lock(terms(true));
    let thief = server.clone();
    let asked = Instant::now();
    let work = async move |_| {
        thief.give_to_another(HOUR);
        pass(HOUR).await;
    };
    let ran = lock.run(OwnerId::random(), SECOND, work).await.unwrap();
    assert!(matches!(ran, Ran::LostDuring { .. }), "{ran:?}");
    assert!(asked.elapsed() < LEASE / 2, "{:?}", asked.elapsed());
    pass(HOUR / 2).await;
    assert_eq!(server.count(Call::Extend), 1, "it asked on");
    assert!(server.is_held(), "another's lock was released");
}
