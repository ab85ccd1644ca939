//! Waiting for a condition with a deadline, in place of sleeping for a guess.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// How long [`eventually`] waits: long for a busy machine, short for a person.
const LIMIT: Duration = Duration::from_secs(20);
/// How often a condition is looked at again.
const INTERVAL: Duration = Duration::from_millis(5);

/// The value of `probe` as soon as it has one, within 20 seconds.
///
/// # Errors
/// As [`eventually_within`].
pub async fn eventually<T>(what: &str, probe: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    eventually_within(LIMIT, what, probe).await
}

/// The value of `probe` as soon as it has one.
///
/// The probe runs at least once, and once more after the limit has passed, so that a condition
/// that came true during a long pause of this process counts.
///
/// # Errors
/// "gave up waiting for `what`" when the limit passes first.
pub async fn eventually_within<T>(
    limit: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let last = Instant::now() >= deadline;
        if let Some(value) = probe().await {
            return Ok(value);
        }
        if last {
            bail!("gave up waiting for {what} after {limit:?}");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
