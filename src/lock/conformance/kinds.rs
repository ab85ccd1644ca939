//! What only some kinds can do.

use std::time::Duration;

use tokio::sync::mpsc;

use super::{HANG_LIMIT, Subject, is_free, take_as, wait_for};
use crate::lock::{Lock, OwnerId, Released};

const LEASE: Duration = Duration::from_secs(30);

pub(super) async fn a_reentrant_lock_lets_its_owner_in_and_nobody_else(subject: Subject) {
    let lock = subject.lock(LEASE);
    let owner = OwnerId::random();
    let outer = take_as(&lock, owner).await;
    let inner = lock.try_acquire(owner).await.expect("the server answers");
    if !subject.can().reentrant {
        assert!(inner.is_none(), "re-entry that is not declared");
        return;
    }
    let inner = inner.expect("re-entry");
    assert_eq!(inner.fence(), outer.fence(), "re-entry is no new turn");
    assert!(!is_free(&lock).await);
    assert_eq!(inner.release().await, Released::Released);
    assert!(
        !is_free(&lock).await,
        "the inner release has freed the lock"
    );
    assert_eq!(outer.release().await, Released::Released);
    assert!(is_free(&lock).await);
}

pub(super) async fn a_fair_lock_is_granted_in_the_order_of_asking(subject: Subject) {
    if !subject.can().fair {
        return;
    }
    let lock = subject.lock(LEASE);
    let holder = take_as(&lock, OwnerId::random()).await;
    let (granted, mut order) = mpsc::unbounded_channel();
    for number in 0..8 {
        let (lock, granted) = (lock.clone(), granted.clone());
        tokio::spawn(async move {
            let guard = wait_for(&lock).await;
            let _ = granted.send(number);
            guard.release().await;
        });
        // Each has asked before the next one does.
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    holder.release().await;
    for expected in 0..8 {
        let next = tokio::time::timeout(HANG_LIMIT, order.recv()).await;
        assert_eq!(next.expect("a grant"), Some(expected));
    }
}

fn shared(lock: &Lock) -> Lock {
    lock.shared().expect("declared")
}

pub(super) async fn readers_share_and_a_writer_is_alone(subject: Subject) {
    let lock = subject.lock(LEASE);
    if !subject.can().shared {
        assert!(lock.shared().is_err(), "sharing that is not declared");
        return;
    }
    let first = take_as(&shared(&lock), OwnerId::random()).await;
    let second = take_as(&shared(&lock), OwnerId::random()).await;
    assert!(!is_free(&lock).await, "a writer beside readers");
    assert_eq!(first.release().await, Released::Released);
    assert!(!is_free(&lock).await, "a writer beside a reader");
    assert_eq!(second.release().await, Released::Released);
    let owner = OwnerId::random();
    let writer = take_as(&lock, owner).await;
    assert!(!is_free(&shared(&lock)).await, "a reader beside a writer");
    let reader = take_as(&shared(&lock), owner).await;
    assert_eq!(writer.release().await, Released::Released);
    assert!(!is_free(&lock).await, "who stopped writing still reads");
    assert!(
        is_free(&shared(&lock)).await,
        "readers share with who stopped writing"
    );
    assert_eq!(reader.release().await, Released::Released);
    assert!(is_free(&lock).await);
}

pub(super) async fn a_writer_that_waits_keeps_new_readers_out(subject: Subject) {
    if !subject.can().shared {
        return;
    }
    let lock = subject.lock(LEASE);
    let reader = take_as(&shared(&lock), OwnerId::random()).await;
    let writer = tokio::spawn({
        let lock = lock.clone();
        async move { wait_for(&lock).await }
    });
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(
        !is_free(&shared(&lock)).await,
        "a reader has overtaken a writer"
    );
    reader.release().await;
    writer.await.expect("the writer").release().await;
    assert!(is_free(&shared(&lock)).await);
}
