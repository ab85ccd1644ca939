//! One lock, passed from task to task.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use stockade::lock::{Lock, OwnerId, Terms, Waiting};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backends::Backend;
use crate::median;

/// How long the tasks contend.
pub(crate) const CONTENDED_FOR: Duration = Duration::from_secs(2);

/// One turn of a task, counted from a common beginning.
pub(crate) struct Turn {
    pub(crate) asked: Duration,
    pub(crate) granted: Duration,
    pub(crate) freed: Duration,
}

pub(crate) fn header() {
    println!(
        "handed over:               waiters  waiting          grants/s    median       p99   Jain  longest/median  calls/grant"
    );
}

pub(crate) async fn measure(
    backend: &Backend,
    waiting: Waiting,
    words: &str,
    tasks: usize,
) -> Result<()> {
    let terms = Terms {
        waiting,
        ..Terms::default()
    };
    let lock = backend.lock(&format!("contended-{tasks}-{words}"), terms)?;
    let calls = || {
        backend
            .calls
            .as_ref()
            .map(|calls| calls.load(Ordering::Relaxed))
    };
    let before = calls();
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        running.spawn(take_turns(lock.clone(), began));
    }
    let shares = running.join_all().await;
    let made = calls().zip(before).map(|(after, before)| after - before);
    print(&backend.label, words, shares, made);
    Ok(())
}

/// One line; `shares` are the turns of each task.
pub(crate) fn print(label: &str, words: &str, shares: Vec<Vec<Turn>>, calls: Option<u64>) {
    let tasks = shares.len();
    let grants: Vec<usize> = shares.iter().map(Vec::len).collect();
    let mut turns: Vec<Turn> = shares.into_iter().flatten().collect();
    if turns.len() < 2 {
        println!("  {label:<24} {tasks:>7}  {words:<14} nobody was granted it twice");
        return;
    }
    turns.sort_by_key(|turn| turn.granted);
    let mut waits: Vec<_> = turns.iter().map(|turn| turn.granted - turn.asked).collect();
    let handed = turns.windows(2);
    let mut pauses: Vec<_> = handed
        .map(|pair| pair[1].granted.saturating_sub(pair[0].freed))
        .collect();
    pauses.sort_unstable();
    let typical = median(&mut waits).max(Duration::from_micros(1));
    let longest = waits[waits.len() - 1].as_secs_f64() / typical.as_secs_f64();
    let per_grant = calls.map_or("-".to_owned(), |calls| {
        format!("{:.1}", calls as f64 / turns.len() as f64)
    });
    println!(
        "  {label:<24} {tasks:>7}  {words:<14} {:>10.0} {:>9.1?} {:>9.1?}  {:.3} {longest:>15.1} {per_grant:>12}",
        turns.len() as f64 / turns[turns.len() - 1].freed.as_secs_f64(),
        pauses[pauses.len() / 2],
        pauses[pauses.len() * 99 / 100],
        jain(&grants),
    );
}

/// 1 if all have the same, 1/n if one has all.
fn jain(grants: &[usize]) -> f64 {
    let total: f64 = grants.iter().map(|n| *n as f64).sum();
    let squares: f64 = grants.iter().map(|n| (*n as f64).powi(2)).sum();
    total * total / (grants.len() as f64 * squares)
}

async fn take_turns(lock: Lock, began: Instant) -> Vec<Turn> {
    let mut turns = Vec::new();
    loop {
        let asked = began.elapsed();
        let left = CONTENDED_FOR.saturating_sub(asked);
        if left.is_zero() {
            return turns;
        }
        let Ok(Some(guard)) = lock.acquire(OwnerId::random(), left).await else {
            return turns;
        };
        let granted = began.elapsed();
        tokio::task::yield_now().await;
        let freed = began.elapsed();
        guard.release().await;
        turns.push(Turn {
            asked,
            granted,
            freed,
        });
    }
}
