//! How long a load of stock takes, by the number of orders, and what a buyer feels of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Bench, Database};
use crate::client::{Client, PurchaseRequest};
use crate::outcome::Outcome;

/// Buyers at once while orders are made.
const LANES: u32 = 64;
/// Buyers at once whose waits are measured.
const PROBES: u32 = 8;
/// How long the probes go on after the load.
const AFTERWARDS: Duration = Duration::from_millis(300);
/// A load that takes longer than this is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to measure.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the orders go.
    pub database: Database,
    /// Numbers of orders, growing.
    pub orders: Vec<u32>,
    /// The service's program.
    pub stockade_binary: PathBuf,
}

/// Measures and prints; true if the books balance at the end.
///
/// # Errors
/// When something does not start, or does not come back.
pub async fn run(options: &LoadOptions) -> Result<bool> {
    let bench = Bench::start(options.database, &options.stockade_binary).await?;
    let sale = bench.open_sale(8).await?;
    let database = options.database;
    println!(
        "loads of a sale with its orders in {database}; {PROBES} buyers at once, without a pause"
    );
    println!(
        "    orders   Redis emptied: sells again   segments changed: answered   a purchase meanwhile, at most"
    );
    let sold = Arc::new(AtomicU32::new(0));
    let mut segments = 8;
    for orders in &options.orders {
        make_orders(&bench, sale, &sold, *orders).await?;
        let lost = emptied(&bench, sale, &sold).await?;
        segments = if segments == 8 { 16 } else { 8 };
        let (answered, longest) = changed(&bench, sale, &sold, segments).await?;
        println!(
            "{:>10}   {:>23.0} ms   {:>23.0} ms   {:>26.0} ms",
            sold.load(Ordering::SeqCst),
            lost.as_secs_f64() * 1e3,
            answered.as_secs_f64() * 1e3,
            longest.as_secs_f64() * 1e3
        );
    }
    bench.books_balance(sale).await
}

/// Buys one unit under a number that nobody else takes.
async fn buy(client: &mut Client, sale: u32, number: u32) -> Outcome {
    let (buyer, key) = (format!("b{number}"), format!("k{number}"));
    let request = PurchaseRequest {
        sale,
        buyer: &buyer,
        key: &key,
        quantity: 1,
        respond_async: false,
    };
    client.purchase(&request).await
}

async fn make_orders(bench: &Bench, sale: u32, sold: &Arc<AtomicU32>, orders: u32) -> Result<()> {
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let (mut client, sold) = (Client::new(&bench.target, lane as usize), Arc::clone(sold));
        lanes.spawn(async move {
            loop {
                let number = sold.fetch_add(1, Ordering::SeqCst);
                if number >= orders {
                    sold.fetch_sub(1, Ordering::SeqCst);
                    return Ok(());
                }
                let outcome = buy(&mut client, sale, number).await;
                ensure!(
                    matches!(outcome, Outcome::Committed { .. }),
                    "not sold: {outcome}"
                );
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    Ok(())
}

/// Empties Redis; how long until a purchase is accepted again.
async fn emptied(bench: &Bench, sale: u32, sold: &AtomicU32) -> Result<Duration> {
    let mut redis = bench.redis.connection().await?;
    let started = Instant::now();
    redis::cmd("FLUSHALL").query_async::<()>(&mut redis).await?;
    let mut client = Client::new(&bench.target, 0);
    let number = sold.fetch_add(1, Ordering::SeqCst);
    loop {
        match buy(&mut client, sale, number).await {
            Outcome::Committed { .. } => return Ok(started.elapsed()),
            other => ensure!(started.elapsed() < PATIENCE, "still not selling: {other}"),
        }
    }
}

/// Changes the number of segments under purchases; how long that took, and the longest that a buyer waited
/// for an accepted purchase, retries included.
async fn changed(
    bench: &Bench,
    sale: u32,
    sold: &Arc<AtomicU32>,
    segments: u32,
) -> Result<(Duration, Duration)> {
    let over = Arc::new(AtomicBool::new(false));
    let mut probes = JoinSet::new();
    for probe in 0..PROBES {
        let (mut client, sold, over) = (
            Client::new(&bench.target, probe as usize),
            Arc::clone(sold),
            Arc::clone(&over),
        );
        probes.spawn(async move {
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::SeqCst) {
                let (number, started) = (sold.fetch_add(1, Ordering::SeqCst), Instant::now());
                while !matches!(
                    buy(&mut client, sale, number).await,
                    Outcome::Committed { .. }
                ) {}
                longest = longest.max(started.elapsed());
            }
            longest
        });
    }
    tokio::time::sleep(AFTERWARDS).await;
    let started = Instant::now();
    let mut client = Client::with_timeout(&bench.target, 0, PATIENCE);
    let changed = client.change_segments(sale, segments).await;
    changed.context("the segments were not changed")?;
    let answered = started.elapsed();
    tokio::time::sleep(AFTERWARDS).await;
    over.store(true, Ordering::SeqCst);
    let longest = probes.join_all().await.into_iter().max();
    Ok((answered, longest.unwrap_or_default()))
}
