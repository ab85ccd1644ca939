//! The load tool's command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use loadtest::bench::Database;
use loadtest::bench::loads::{self, LoadOptions};
use loadtest::bench::shares::{self, ShareOptions};
use loadtest::demo::{self, DemoOptions};
use loadtest::judge::Verdict;
use tokio::signal::unix::{SignalKind, signal};

/// Exit code for a command line that cannot be understood (`EX_USAGE`).
const EXIT_USAGE: u8 = 64;

/// Load for Stockade, judged: truth before speed.
///
/// Exit codes: 0 the sale was exact, 1 it was not, 2 that could not be found out, 64 wrong usage.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a real flash sale on a private redis-server and SQLite, and judge it
    ///
    /// Everything is started on free ports in temporary directories and gone afterwards.
    Demo(DemoArgs),
    /// Measure committed purchases as a share of the null handler, with wrk
    ///
    /// Prints medians of alternating pairs, and the CPU time that a purchase costs each process.
    Bench(BenchArgs),
    /// Measure how long a load of stock takes, by the number of orders, and what a buyer feels of it
    BenchLoads(BenchLoadsArgs),
}

#[derive(Debug, Args)]
struct BenchArgs {
    /// Where the orders go
    #[arg(long, value_enum, default_value = "postgres")]
    database: DatabaseArg,
    /// Connections of the load, one measurement each
    #[arg(long, value_delimiter = ',', default_values_t = [128, 512], value_parser = up_to(4_096))]
    connections: Vec<u32>,
    /// Segments of the sales that are compared
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64], value_parser = up_to(256))]
    segments: Vec<u32>,
    /// Rounds: each runs the null handler and every sale once
    #[arg(long, default_value_t = 5, value_parser = up_to(100))]
    rounds: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 8, value_parser = up_to(60))]
    seconds: u32,
    /// The service's program [default: beside this one]
    #[arg(long, value_name = "PATH")]
    stockade_binary: Option<PathBuf>,
    /// The script that wrk runs
    #[arg(
        long,
        value_name = "PATH",
        default_value = "scripts/bench/purchase.lua"
    )]
    script: PathBuf,
}

#[derive(Debug, Args)]
struct BenchLoadsArgs {
    /// Where the orders are
    #[arg(long, value_enum, default_value = "postgres")]
    database: DatabaseArg,
    /// Numbers of orders, growing
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000], value_parser = up_to(2_000_000))]
    orders: Vec<u32>,
    /// The service's program [default: beside this one]
    #[arg(long, value_name = "PATH")]
    stockade_binary: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DatabaseArg {
    Sqlite,
    Postgres,
}

impl From<DatabaseArg> for Database {
    fn from(database: DatabaseArg) -> Self {
        match database {
            DatabaseArg::Sqlite => Self::Sqlite,
            DatabaseArg::Postgres => Self::Postgres,
        }
    }
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// End after the sale, instead of leaving the service up to be tried
    #[arg(long)]
    once: bool,
    /// Buyers, who come all at once
    #[arg(long, default_value_t = 2_000, value_parser = up_to(1_000_000))]
    buyers: u32,
    /// Units on sale
    #[arg(long, default_value_t = 100, value_parser = up_to(10_000_000))]
    stock: u32,
    /// Seconds for which an order waits for its payment; 0 confirms at once
    #[arg(long, default_value_t = 0)]
    hold_seconds: u32,
    /// Let buyers be known by the header X-Buyer-Id instead of a signed token
    #[arg(long)]
    trust_buyer_header: bool,
    /// The service's program [default: beside this one]
    #[arg(long, value_name = "PATH")]
    stockade_binary: Option<PathBuf>,
}

fn up_to(limit: u32) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=u64::from(limit))
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, too, but not to us.
            let usage = error.use_stderr();
            drop(error.print());
            return if usage {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match run(cli) {
        Ok(verdict) => ExitCode::from(verdict.exit_code()),
        Err(error) => {
            eprintln!("loadtest: {error:#}");
            ExitCode::from(Verdict::Unknown.exit_code())
        }
    }
}

#[tokio::main]
async fn run(cli: Cli) -> Result<Verdict> {
    match cli.command {
        Command::Demo(args) => run_demo(args).await,
        Command::Bench(args) => {
            let options = ShareOptions {
                database: args.database.into(),
                connections: args.connections,
                segments: args.segments,
                rounds: args.rounds,
                duration: Duration::from_secs(args.seconds.into()),
                stockade_binary: args.stockade_binary.map_or_else(demo::beside_us, Ok)?,
                script: args.script,
            };
            measured(shares::run(&options)).await
        }
        Command::BenchLoads(args) => {
            let options = LoadOptions {
                database: args.database.into(),
                orders: args.orders,
                stockade_binary: args.stockade_binary.map_or_else(demo::beside_us, Ok)?,
            };
            measured(loads::run(&options)).await
        }
    }
}

/// A benchmark's verdict: it counts only if the books balance afterwards.
async fn measured(bench: impl Future<Output = Result<bool>>) -> Result<Verdict> {
    let balanced = tokio::select! {
        balanced = bench => balanced?,
        signal = tokio::signal::ctrl_c() => {
            signal.context("cannot watch for Ctrl-C")?;
            anyhow::bail!("told to end before there was a figure")
        }
    };
    Ok(if balanced {
        Verdict::Valid
    } else {
        Verdict::Violated
    })
}

async fn run_demo(args: DemoArgs) -> Result<Verdict> {
    // Before anything is started, so that no signal finds us with children and no plan.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let told_to_end = async {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    };
    let mut told_to_end = std::pin::pin!(told_to_end);
    let options = DemoOptions {
        buyers: args.buyers,
        stock: args.stock,
        hold_seconds: args.hold_seconds,
        trust_buyer_header: args.trust_buyer_header,
        stockade_binary: args.stockade_binary,
    };
    // Whatever has been started ends when the future that holds it is dropped.
    let demo = tokio::select! {
        demo = demo::run(&options) => demo?,
        () = &mut told_to_end => anyhow::bail!("told to end before there was a verdict"),
    };
    let verdict = demo.verdict();
    if !args.once {
        println!(
            "{}\nThe service stays up until Ctrl-C.",
            demo.things_to_try()?
        );
        told_to_end.await;
    }
    demo.end().await?;
    Ok(verdict)
}
