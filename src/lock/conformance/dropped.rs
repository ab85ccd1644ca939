//! Futures that are dropped half-way.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Subject, wait_for};
use crate::lock::{Lock, OwnerId};

/// More than a whole life of a lock needs.
const POLLS_MAX: u32 = 40;

/// Polls a future so many times at the most; none if that was not enough.
struct Polled<F> {
    inner: F,
    polls_left: u32,
}

impl<F: Future + Unpin> Future for Polled<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(left) = self.polls_left.checked_sub(1) else {
            return Poll::Ready(None);
        };
        self.polls_left = left;
        match Pin::new(&mut self.inner).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Everything that one does with a lock.
async fn whole_life(lock: &Lock) {
    let guard = lock
        .acquire(OwnerId::random(), Duration::from_secs(5))
        .await;
    if let Ok(Some(guard)) = guard {
        guard.extend(Duration::from_secs(30)).await;
        guard.release().await;
    }
    let work = async |_| tokio::task::yield_now().await;
    let _ = lock
        .run(OwnerId::random(), Duration::from_secs(5), work)
        .await;
}

pub(super) async fn dropped_at_any_await_point_it_leaves_nothing_behind(subject: Subject) {
    let lock = subject.lock(Duration::from_secs(30));
    for taken in [false, true] {
        for polls in 0..POLLS_MAX {
            let holder = match taken {
                true => Some(wait_for(&lock).await),
                false => None,
            };
            let life = Polled {
                inner: Box::pin(whole_life(&lock)),
                polls_left: polls,
            };
            let lived = match holder {
                // It waits in vain, until it is dropped.
                Some(_) => tokio::time::timeout(Duration::from_millis(5), life)
                    .await
                    .ok()
                    .flatten(),
                None => life.await,
            };
            drop(holder);
            // Long before the lease ends.
            wait_for(&lock).await.release().await;
            if lived.is_some() {
                break;
            }
        }
    }
}
