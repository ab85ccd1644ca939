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
pub async fn eventually<T, F>(what: &str, probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Option<T>>,
{
    eventually_within(LIMIT, what, probe).await
}

/// The value of `probe` as soon as it has one.
///
/// # Errors
/// "gave up waiting for `what`" when the limit passes first.
pub async fn eventually_within<T, F>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Option<T>>,
{
    let deadline = Deadline::after(limit);
    loop {
        if let Some(value) = probe().await {
            return Ok(value);
        }
        deadline.pause(what).await?;
    }
}

/// The bound of a loop that looks and waits in turn.
#[derive(Debug)]
pub(super) struct Deadline {
    limit: Duration,
    at: Instant,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self {
            limit,
            at: Instant::now() + limit,
        }
    }

    /// Waits a moment; an error once the deadline has passed. Whoever looks before each pause has
    /// looked once more after a long suspension of this process.
    pub(super) async fn pause(&self, what: &str) -> Result<()> {
        if Instant::now() >= self.at {
            bail!("gave up waiting for {what} after {:?}", self.limit);
        }
        tokio::time::sleep(INTERVAL).await;
        Ok(())
    }
}
