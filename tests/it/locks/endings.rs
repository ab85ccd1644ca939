//! How an acquisition ends when nothing goes well: under the paused clock.

use std::time::Duration;

use stockade::lock::{Error, Extended, OwnerId, Released, Terms};
use tokio::time::Instant;

use super::memory::{Answer, Call, Memory};
use super::renewal::{HOUR, LEASE, SECOND, pass, take, terms};

/// A lease may be prolonged to an earlier end. Without an answer the earlier one of the two ends counts.
#[tokio::test(start_paused = true)]
async fn a_shorter_lease_that_was_not_answered_counts_as_the_shorter_one() {
    for answer in [Answer::Lost, Answer::Never] {
        let server = Memory::default();
        let guard = take(&server.lock(terms(false))).await;
        server.answers(Call::Extend, answer);
        let asked = Instant::now();
        assert_eq!(guard.extend(SECOND).await, Extended::Unknown);
        guard.lost().await;
        assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
    }
}

/// Everything fails; what comes of it are values.
#[tokio::test(start_paused = true)]
async fn a_loss_is_a_value_and_no_panic() {
    let server = Memory::default();
    let lock = server.lock(terms(true));
    let guard = take(&lock).await;
    for call in [Call::Try, Call::Extend, Call::Release] {
        server.answers(call, Answer::Never);
    }
    guard.lost().await;
    assert_eq!(guard.extend(LEASE).await, Extended::NotMine);
    assert_eq!(guard.release().await, Released::Unknown);
    let ran = lock.run(OwnerId::random(), SECOND, async |_| ()).await;
    assert!(matches!(ran, Err(Error::Unreachable(_))), "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_and_a_hold_without_end_are_no_panic() {
    let server = Memory::default();
    let endless = Terms {
        hold_max: Duration::MAX,
        ..terms(true)
    };
    let first = take(&server.lock(endless)).await;
    let lock = server.lock(endless);
    let second = tokio::spawn(async move { lock.acquire(OwnerId::random(), Duration::MAX).await });
    pass(LEASE * 10).await;
    assert!(!first.is_lost());
    assert_eq!(first.release().await, Released::Released);
    let second = second.await.unwrap().unwrap().expect("its turn");
    assert_eq!(second.release().await, Released::Released);
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_lock_that_ran_out_ends_at_once() {
    let server = Memory::default();
    let guard = take(&server.lock(terms(false))).await;
    pass(LEASE * 2).await;
    assert_eq!(guard.release().await, Released::NotMine);
    assert_eq!(server.count(Call::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_its_waiter_has_gone_is_given_back_and_never_renewed() {
    let server = Memory::default();
    server.answers(Call::Try, Answer::After(SECOND));
    let lock = server.lock(terms(true));
    let asking = tokio::time::timeout(SECOND / 2, lock.try_acquire(OwnerId::random()));
    assert!(asking.await.is_err(), "it did not wait");
    assert!(server.is_held());
    pass(HOUR).await;
    assert_eq!(server.calls(), [Call::Try, Call::Release]);
}
