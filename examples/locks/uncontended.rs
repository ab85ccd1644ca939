//! Acquire and release, while nobody else wants the lock.

use std::time::Duration;

use anyhow::Result;
use stockade::lock::{Lock, OwnerId, Terms};
use tokio::time::Instant;

use crate::backends::{Backend, Bare};
use crate::median;

const ROUNDS: usize = 7;
/// How long one round may take, more or less.
const ROUND: Duration = Duration::from_millis(300);

pub(crate) async fn measure(backend: &Backend) -> Result<()> {
    let lock = backend.lock("uncontended", Terms::default())?;
    let (mut bare, mut locked) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(two_round_trips(&backend.bare).await?);
        locked.push(acquire_and_release(&lock).await?);
    }
    print(&backend.label, median(&mut locked), median(&mut bare));
    Ok(())
}

pub(crate) fn print(label: &str, locked: Duration, bare: Duration) {
    let ratio = locked.as_secs_f64() / bare.as_secs_f64();
    println!("  {label:<24} {locked:>9.1?}  bare {bare:>9.1?}  ratio {ratio:.2}");
}

async fn two_round_trips(bare: &Bare) -> Result<Duration> {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < ROUND {
        bare().await?;
        bare().await?;
        count += 1;
    }
    Ok(began.elapsed() / count)
}

async fn acquire_and_release(lock: &Lock) -> Result<Duration> {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < ROUND {
        let guard = lock.try_acquire(OwnerId::random()).await?;
        guard.expect("nobody else wants it").release().await;
        count += 1;
    }
    Ok(began.elapsed() / count)
}
