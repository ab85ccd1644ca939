//! The one handle through which time, sleep, randomness and spawned tasks pass.
//!
//! Code that takes its time from here can be run under Tokio's paused clock, and every task it starts is
//! known and can be waited for.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// As good as never: 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// Time, chance and tasks of one running service. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Env {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Env {
    /// The monotonic clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// The instant `time` from now; one that is too far away to be named is as good as never.
    #[must_use]
    pub fn after(&self, time: Duration) -> Instant {
        Instant::now() + time.min(FAR)
    }

    /// This machine's wall clock, in milliseconds since 1970. Nothing that must be right rests on it.
    #[must_use]
    pub fn wall_clock_ms(&self) -> i64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// Waits.
    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits for `time` or until the service stops; true if it stops.
    pub async fn sleep_or_stop(&self, time: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => true,
            () = tokio::time::sleep(time) => false,
        }
    }

    /// A duration between half of `time` and `time`, so that several instances do not march in step.
    #[must_use]
    pub fn jittered(&self, time: Duration) -> Duration {
        time.mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Starts a task that [`Env::stop`] waits for.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Whether the service is stopping.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Returns when the service stops.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Asks all tasks to end, and waits for them at most `limit`; true if all have ended.
    pub async fn stop(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(limit, self.tasks.wait()).await.is_ok()
    }
}
