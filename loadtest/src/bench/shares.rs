//! Committed purchases as a share of a ceiling that is measured in the same minutes.
//!
//! The ceiling is the null handler: the same route with the same parsing and the same authentication,
//! and no work. Runs alternate and the order turns from round to round, so that a machine that slows down
//! slows all; medians are compared.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::cpu::Cpu;
use super::wrk::Wrk;
use super::{Bench, Database, median};

const WARM_UP: Duration = Duration::from_secs(3);

/// What to measure.
#[derive(Debug, Clone)]
pub struct ShareOptions {
    /// Where the orders go.
    pub database: Database,
    /// Connections of the load, one measurement each.
    pub connections: Vec<u32>,
    /// Segments of the sales that are compared.
    pub segments: Vec<u32>,
    /// Rounds: each runs the null handler and every sale once.
    pub rounds: u32,
    /// How long each run lasts.
    pub duration: Duration,
    /// The service's program.
    pub stockade_binary: PathBuf,
    /// The script that wrk runs.
    pub script: PathBuf,
}

/// Measures and prints; true if the books balance at the end.
///
/// # Errors
/// When something does not start, or wrk is missing.
pub async fn run(options: &ShareOptions) -> Result<bool> {
    let bench = Bench::start(options.database, &options.stockade_binary).await?;
    println!(
        "committed in {} before the answer, against the null handler; {} rounds of {} s, medians",
        options.database,
        options.rounds,
        options.duration.as_secs()
    );
    let mut sales = Vec::new();
    for segments in &options.segments {
        sales.push(bench.open_sale(*segments).await?);
    }
    for connections in &options.connections {
        measure(&bench, options, &sales, *connections).await?;
    }
    let mut balanced = true;
    for sale in sales {
        balanced &= bench.books_balance(sale).await?;
    }
    Ok(balanced)
}

/// What the runs of one sale showed.
#[derive(Default)]
struct Runs {
    rates: Vec<f64>,
    p99s: Vec<f64>,
    cpus: Vec<Cpu>,
}

async fn measure(
    bench: &Bench,
    options: &ShareOptions,
    sales: &[u32],
    connections: u32,
) -> Result<()> {
    let wrk = |kind: &str, sale: u32| Wrk {
        url: bench.service.url(),
        path: format!("/v1/{kind}/{sale}/purchases"),
        script: options.script.clone(),
        connections,
    };
    let null = wrk("null", sales[0]);
    let reals: Vec<Wrk> = sales.iter().map(|sale| wrk("sales", *sale)).collect();
    null.run(WARM_UP).await?;
    for real in &reals {
        real.run(WARM_UP).await?;
    }
    let mut ceilings = Vec::new();
    let mut runs: Vec<Runs> = reals.iter().map(|_| Runs::default()).collect();
    let steps = reals.len() + 1;
    for round in 0..options.rounds as usize {
        // What comes first must not always be the same.
        for step in (0..steps).map(|step| (step + round) % steps) {
            let Some(real) = step.checked_sub(1).map(|n| &reals[n]) else {
                ceilings.push(null.run(options.duration).await?.per_second);
                continue;
            };
            let before = bench.cpu()?;
            let load = real.run(options.duration).await?;
            ensure!(load.refused == 0, "{} purchases were refused", load.refused);
            let purchases = load.per_second * options.duration.as_secs_f64();
            let one = &mut runs[step - 1];
            one.cpus
                .push(bench.cpu()?.since(&before).per_thousand(purchases));
            one.rates.push(load.per_second);
            one.p99s.push(load.p99_ms);
        }
    }
    let ceiling = median(&mut ceilings);
    println!("{connections} connections: null {ceiling:.0}/s");
    for (segments, mut one) in options.segments.iter().zip(runs) {
        let rate = median(&mut one.rates);
        let (low, high) = (one.rates.first(), one.rates.last());
        let share = |rate: Option<&f64>| rate.copied().unwrap_or_default() / ceiling;
        println!(
            "  {segments:>3} segments: committed {rate:>7.0}/s  share {:.2} ({:.2} to {:.2})  p99 {:.1} ms",
            rate / ceiling,
            share(low),
            share(high),
            median(&mut one.p99s)
        );
        println!(
            "                CPU per 1,000 purchases: {}",
            Cpu::median(&one.cpus)
        );
    }
    Ok(())
}
