//! Nobody beside the holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Subject, take, wait_for};
use crate::lock::{Fencing, Released};

const TASKS: u64 = 32;
const TURNS: u64 = 3;

pub(super) async fn thirty_two_tasks_are_never_inside_together(subject: Subject) {
    let lock = subject.lock(Duration::from_secs(60));
    // Read and written in two steps: whoever is inside together with somebody else loses an addition.
    let sum = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, sum) = (lock.clone(), Arc::clone(&sum));
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = wait_for(&lock).await;
                let before = sum.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                sum.store(before + 1, Ordering::SeqCst);
                assert_eq!(guard.release().await, Released::Released);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("a task");
    }
    assert_eq!(sum.load(Ordering::SeqCst), TASKS * TURNS);
}

pub(super) async fn the_fence_grows_with_each_holder(subject: Subject) {
    if subject.can().fencing == Fencing::None {
        let guard = take(&subject.lock(Duration::from_secs(10))).await;
        assert_eq!(guard.fence(), None, "a fence that is not declared");
        return;
    }
    let lock = subject.lock(subject.short());
    let (mut latest, mut stale) = (0, Vec::new());
    for turn in 0..4 {
        let guard = wait_for(&lock).await;
        let fence = guard.fence().expect("a fence");
        assert!(fence > latest, "{fence} after {latest}");
        latest = fence;
        if turn % 2 == 0 || !subject.can().recovers {
            guard.release().await;
        } else {
            // The next one comes after the lease.
            stale.push(guard);
        }
    }
}
