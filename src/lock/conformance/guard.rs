//! What a guard can do, and what it cannot do any more when it is stale.

use std::time::Duration;

use super::{HANG_LIMIT, Subject, is_free, take, take_as, wait_for};
use crate::lock::{Extended, Lost, OwnerId, Ran, Released};

const LONG: Duration = Duration::from_secs(30);

pub(super) async fn a_released_lock_is_free(subject: Subject) {
    let lock = subject.lock(LONG);
    assert_eq!(take(&lock).await.release().await, Released::Released);
    assert!(is_free(&lock).await);
}

pub(super) async fn a_dropped_guard_frees_the_lock(subject: Subject) {
    let lock = subject.lock(LONG);
    drop(take(&lock).await);
    wait_for(&lock).await.release().await;
}

pub(super) async fn a_lease_that_ran_out_is_lost_and_lets_the_next_one_in(subject: Subject) {
    if !subject.can().recovers {
        return;
    }
    let short = subject.short();
    let lock = subject.lock(short);
    let began = tokio::time::Instant::now();
    let guard = take(&lock).await;
    let Lost { since } = tokio::time::timeout(HANG_LIMIT, guard.lost())
        .await
        .expect("the loss");
    // From before the request was sent, and a little earlier than on the server.
    assert!(
        since <= began + short + Duration::from_millis(100),
        "{:?}",
        since - began
    );
    assert!(guard.is_lost());
    wait_for(&lock).await.release().await;
}

pub(super) async fn a_stale_guard_neither_releases_nor_prolongs_a_later_one(subject: Subject) {
    if !subject.can().recovers {
        return;
    }
    let lock = subject.lock(subject.short());
    let stale = take(&lock).await;
    let long = subject.lock_named(lock.name(), LONG);
    let later = wait_for(&long).await;
    stale.lost().await;
    assert_eq!(stale.extend(LONG).await, Extended::NotMine);
    assert_eq!(stale.release().await, Released::NotMine);
    assert!(
        !is_free(&long).await,
        "the stale guard has freed another's lock"
    );
    assert!(!later.is_lost());
    assert_eq!(later.release().await, Released::Released);
}

pub(super) async fn a_prolonged_lease_lasts(subject: Subject) {
    if !subject.can().extends {
        let guard = take(&subject.lock(LONG)).await;
        assert_ne!(guard.extend(LONG).await, Extended::Extended, "not declared");
        return;
    }
    // Time for the question on a busy machine.
    let short = subject.short().max(Duration::from_secs(1));
    let lock = subject.lock(short);
    let guard = take_as(&lock, OwnerId::random()).await;
    assert_eq!(guard.extend(LONG).await, Extended::Extended);
    tokio::time::sleep(short * 2).await;
    assert!(!guard.is_lost());
    assert!(!is_free(&lock).await);
    assert_eq!(guard.release().await, Released::Released);
}

pub(super) async fn work_under_the_lock_is_done_and_the_lock_is_free_again(subject: Subject) {
    let lock = subject.lock(LONG);
    let inside = lock.clone();
    let work = async move |_| is_free(&inside).await;
    let ran = lock
        .run(OwnerId::random(), HANG_LIMIT, work)
        .await
        .expect("the server answers");
    assert_eq!(ran, Ran::Completed(false));
    assert!(is_free(&lock).await);
}

pub(super) async fn work_is_left_when_the_lock_is_lost(subject: Subject) {
    if !subject.can().recovers {
        return;
    }
    let lock = subject.lock(subject.short());
    let work = async |_| tokio::time::sleep(HANG_LIMIT).await;
    let ran = lock
        .run(OwnerId::random(), HANG_LIMIT, work)
        .await
        .expect("the server answers");
    assert!(matches!(ran, Ran::LostDuring { .. }), "{ran:?}");
}

pub(super) async fn a_renewing_lock_outlives_its_lease_but_not_its_bound(subject: Subject) {
    let short = subject.short();
    let name = subject.lock(short).name().to_owned();
    let lock = subject.lock_held_at_most(&name, short, short * 4);
    if !lock.terms().renewing {
        return;
    }
    let guard = take(&lock).await;
    tokio::time::sleep(short * 3).await;
    assert!(!guard.is_lost(), "it was not renewed");
    assert!(!is_free(&lock).await);
    let lost = tokio::time::timeout(HANG_LIMIT, guard.lost()).await;
    lost.expect("an end of the renewals");
    wait_for(&lock).await.release().await;
}
