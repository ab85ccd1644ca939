//! Those who want a lock that somebody has.

use std::time::Duration;

use tokio::time::Instant;

use super::{Subject, is_free, take, wait_for};
use crate::lock::OwnerId;

const LEASE: Duration = Duration::from_secs(30);

pub(super) async fn a_taken_lock_is_refused_at_once_to_whoever_does_not_wait(subject: Subject) {
    let lock = subject.lock(LEASE);
    let guard = take(&lock).await;
    assert!(!is_free(&lock).await);
    guard.release().await;
}

pub(super) async fn a_wait_ends_in_time(subject: Subject) {
    let lock = subject.lock(LEASE);
    let guard = take(&lock).await;
    let (began, wait) = (Instant::now(), Duration::from_millis(150));
    let second = lock.acquire(OwnerId::random(), wait).await;
    assert!(second.expect("the server answers").is_none());
    let waited = began.elapsed();
    assert!(waited >= wait, "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    guard.release().await;
}

pub(super) async fn whoever_waits_gets_the_lock_when_it_is_released(subject: Subject) {
    let lock = subject.lock(LEASE);
    let guard = take(&lock).await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { wait_for(&lock).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiter.is_finished());
    guard.release().await;
    let second = waiter.await.expect("the waiter");
    second.release().await;
}

pub(super) async fn whoever_gives_up_waiting_leaves_nothing_behind(subject: Subject) {
    let lock = subject.lock(LEASE);
    for after_ms in [0, 1, 3, 10, 60] {
        // Granted to somebody who has gone, it is given back in a moment.
        let guard = wait_for(&lock).await;
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { wait_for(&lock).await }
        });
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        waiter.abort();
        let _ = waiter.await;
        guard.release().await;
        // The place in a queue goes with its waiter, in a moment.
        wait_for(&lock).await.release().await;
    }
}
