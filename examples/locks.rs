//! What a lock costs: `cargo run --release --example locks`.
//!
//! Uncontended: acquire and release beside two bare round trips on the same connection, in turns, medians. Handed
//! over: so many tasks that take, hold and release one lock in a loop; grants per second, how long a free lock
//! waits for its next holder, how even the shares are (Jain's index), and Redis commands for each grant.

use std::time::Duration;

use anyhow::Result;
use loadtest::servers::{RedisOptions, RedisServer};
use redis::aio::ConnectionManager;
use stockade::env::Env;
use stockade::lock::redis::{Bell, RedisLocks, Server};
use stockade::lock::{Kind, Lock, OwnerId, Terms, Waiting};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

const ROUNDS: usize = 7;
const PER_ROUND: u32 = 2_000;
const CONTENDED_FOR: Duration = Duration::from_secs(3);
const KINDS: [Kind; 6] = [
    Kind::TokenLua,
    Kind::Watchdog,
    Kind::Fenced,
    Kind::Reentrant,
    Kind::Fair,
    Kind::ReadWrite,
];

#[tokio::main]
async fn main() -> Result<()> {
    let redis = RedisServer::start(&RedisOptions::default()).await?;
    let client = redis::Client::open(redis.url())?;
    let connection = ConnectionManager::new(client.clone()).await?;
    let env = Env::default();
    let server = Server::new(connection.clone(), Duration::from_secs(5));
    let locks = RedisLocks::new(server.with_bell(Bell::start(client, &env)), env);

    println!("uncontended: acquire and release, against two bare round trips (SET, DEL)");
    for kind in KINDS {
        let lock = locks.lock(kind, kind.name(), Terms::default())?;
        let (mut bare, mut locked) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(two_round_trips(&connection).await?);
            locked.push(acquire_and_release(&lock).await?);
        }
        let (bare, locked) = (median(&mut bare), median(&mut locked));
        let ratio = locked.as_secs_f64() / bare.as_secs_f64();
        println!("  {kind:<11} {locked:>8.1?}  bare {bare:>8.1?}  ratio {ratio:.2}");
    }

    println!(
        "handed over:   waiters  waiting        grants/s  median     p99        Jain  commands/grant"
    );
    for kind in [Kind::TokenLua, Kind::Fair] {
        for tasks in [2, 16, 64] {
            for waiting in [Waiting::Woken, Waiting::Polled(Duration::from_millis(50))] {
                let terms = Terms {
                    waiting,
                    ..Terms::default()
                };
                let name = format!("{kind}-{tasks}-{waiting:?}");
                let lock = locks.lock(kind, &name, terms)?;
                contend(&redis, &lock, tasks).await?;
            }
        }
    }
    Ok(())
}

fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    values[values.len() / 2]
}

async fn two_round_trips(connection: &ConnectionManager) -> Result<Duration> {
    let mut connection = connection.clone();
    let began = Instant::now();
    for _ in 0..PER_ROUND {
        let mut set = redis::cmd("SET");
        set.arg("bare")
            .arg("0123456789abcdef")
            .arg("PX")
            .arg(10_000);
        let () = set.query_async(&mut connection).await?;
        let () = redis::cmd("DEL")
            .arg("bare")
            .query_async(&mut connection)
            .await?;
    }
    Ok(began.elapsed() / PER_ROUND)
}

async fn acquire_and_release(lock: &Lock) -> Result<Duration> {
    let began = Instant::now();
    for _ in 0..PER_ROUND {
        let guard = lock.try_acquire(OwnerId::random()).await?;
        guard.expect("nobody else wants it").release().await;
    }
    Ok(began.elapsed() / PER_ROUND)
}

/// One task's grants, with the time from the lock's being free to its grant.
async fn take_turns(
    lock: Lock,
    until: Instant,
    freed: mpsc::UnboundedSender<(Instant, Instant)>,
) -> u32 {
    let mut grants = 0;
    while Instant::now() < until {
        let guard = lock.acquire(OwnerId::random(), CONTENDED_FOR).await;
        let Ok(Some(guard)) = guard else { break };
        let granted = Instant::now();
        grants += 1;
        tokio::task::yield_now().await;
        let free = Instant::now();
        guard.release().await;
        let _ = freed.send((granted, free));
    }
    grants
}

async fn contend(redis: &RedisServer, lock: &Lock, tasks: u32) -> Result<()> {
    let commands =
        async || -> Result<u64> { Ok(redis.info("total_commands_processed").await?.parse()?) };
    let before = commands().await?;
    let (began, until) = (Instant::now(), Instant::now() + CONTENDED_FOR);
    let (freed, mut turns) = mpsc::unbounded_channel();
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        running.spawn(take_turns(lock.clone(), until, freed.clone()));
    }
    drop(freed);
    let grants: Vec<f64> = running
        .join_all()
        .await
        .into_iter()
        .map(f64::from)
        .collect();
    let took = began.elapsed().as_secs_f64();
    let mut log = Vec::new();
    turns.recv_many(&mut log, usize::MAX).await;
    log.sort_by_key(|turn| turn.0);
    let pauses = log
        .windows(2)
        .map(|pair| pair[1].0.saturating_duration_since(pair[0].1));
    let mut pauses: Vec<Duration> = pauses.collect();
    pauses.sort_unstable();
    let total: f64 = grants.iter().sum();
    let squares: f64 = grants.iter().map(|n| n * n).sum();
    let jain = total * total / (f64::from(tasks) * squares);
    let per_grant = (commands().await? - before) as f64 / total;
    let at = |part: f64| pauses[((pauses.len() - 1) as f64 * part) as usize];
    let waiting = match lock.terms().waiting {
        Waiting::Woken => "woken".to_owned(),
        Waiting::Polled(pause) => format!("polled {pause:?}"),
    };
    println!(
        "  {:<12} {tasks:>7}  {waiting:<12} {:>9.0}  {:<9.1?}  {:<9.1?}  {jain:.3} {per_grant:>8.1}",
        lock.kind(),
        total / took,
        at(0.5),
        at(0.99),
    );
    Ok(())
}
