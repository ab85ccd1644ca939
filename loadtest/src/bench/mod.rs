//! The service's speed, as a share of a ceiling measured in the same minutes.
//!
//! The ceiling is the null handler: the same route with the same parsing and the same authentication,
//! and no work. Runs alternate (null, real, real, null, …), so that a machine that slows down slows both;
//! medians are compared. Everything shares the machine's cores: wrk, the service, Redis and the database.

mod cpu;
mod wrk;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::api::{AuditVerdict, NewSale};
use crate::client::{Client, SaleAction};
use crate::run::read_books;
use crate::servers::{
    PostgresOptions, PostgresServer, RedisOptions, RedisServer, Service, ServiceOptions, directory,
};
use crate::target::{BuyerAuth, Target};
use cpu::Cpu;
use wrk::Wrk;

/// More than any run can sell: the accepting path is measured, not the refusing one.
const QUANTITY: u32 = 1_000_000_000;
const ADMIN_TOKEN: &str = "bench-admin-token";
const WARM_UP: Duration = Duration::from_secs(3);
/// How long the last purchases may take to settle before the books are read.
const SETTLE: Duration = Duration::from_secs(60);

/// Where the orders go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// A file.
    Sqlite,
    /// A server.
    Postgres,
}

impl fmt::Display for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Where the orders go.
    pub database: Database,
    /// Connections of the load, one measurement each.
    pub connections: Vec<u32>,
    /// Alternating pairs of runs.
    pub pairs: u32,
    /// How long each run lasts.
    pub duration: Duration,
    /// The service's program.
    pub stockade_binary: PathBuf,
    /// The script that wrk runs.
    pub script: PathBuf,
}

/// The servers of one benchmark; all end when it is dropped.
struct Bench {
    service: Service,
    redis: RedisServer,
    postgres: Option<PostgresServer>,
    target: Target,
    sale: u32,
    _folder: TempDir,
}

/// Measures and prints; true if the books balance at the end.
///
/// # Errors
/// When something does not start, or wrk is missing.
pub async fn run(options: &BenchOptions) -> Result<bool> {
    ensure!(
        options.stockade_binary.is_file(),
        "{} is not there; build it with `cargo build --release --workspace`",
        options.stockade_binary.display()
    );
    let bench = Bench::start(options).await?;
    println!(
        "committed in {} before the answer, against the null handler; {} pairs of {} s, medians",
        options.database,
        options.pairs,
        options.duration.as_secs()
    );
    for connections in &options.connections {
        bench.measure(options, *connections).await?;
    }
    let books = read_books(&bench.target, bench.sale, SETTLE).await;
    let books = books.context("the books cannot be read")?;
    let balanced = books.audit.verdict == AuditVerdict::Balanced;
    let (sold, verdict) = (
        books.audit.terms.confirmed,
        if balanced { "balanced" } else { "NOT balanced" },
    );
    println!("{sold} units sold, books {verdict}");
    Ok(balanced)
}

impl Bench {
    async fn start(options: &BenchOptions) -> Result<Self> {
        let folder = directory("stockade-bench-")?;
        let redis = RedisServer::start(&RedisOptions {
            tcp: false,
            ..RedisOptions::default()
        })
        .await?;
        let postgres = match options.database {
            Database::Sqlite => None,
            Database::Postgres => Some(PostgresServer::start(&PostgresOptions::default()).await?),
        };
        let database_url = match &postgres {
            Some(postgres) => {
                postgres.create_database("bench").await?;
                postgres.socket_url("bench")
            }
            None => format!("sqlite://{}", folder.path().join("bench.db").display()),
        };
        let redis_url = redis.url();
        let args = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--migrate",
            "--trust-buyer-header",
            "--null-handler",
            "--buyer-requests-per-second",
            "0",
            "--redis-url",
            &redis_url,
            "--database-url",
            &database_url,
        ];
        let service = Service::start(&ServiceOptions {
            binary: options.stockade_binary.clone(),
            args: args.map(str::to_owned).to_vec(),
            env: vec![("STOCKADE_ADMIN_TOKEN".to_owned(), ADMIN_TOKEN.to_owned())],
        })
        .await?;
        let target = Target::new(&[service.url()], ADMIN_TOKEN, BuyerAuth::TrustedHeader)?;
        let mut client = Client::new(&target, 0);
        let sale = NewSale {
            quantity: QUANTITY,
            per_buyer_limit: QUANTITY,
            ..NewSale::default()
        };
        let sale = client.create_sale(&sale).await?.id;
        client.change_sale(sale, SaleAction::Open).await?;
        Ok(Self {
            service,
            redis,
            postgres,
            target,
            sale,
            _folder: folder,
        })
    }

    async fn measure(&self, options: &BenchOptions, connections: u32) -> Result<()> {
        let wrk = |kind: &str| Wrk {
            url: self.service.url(),
            path: format!("/v1/{kind}/{}/purchases", self.sale),
            script: options.script.clone(),
            connections,
        };
        let (null, real) = (wrk("null"), wrk("sales"));
        null.run(WARM_UP).await?;
        real.run(WARM_UP).await?;
        let (mut ceilings, mut rates, mut p99s, mut cpus) = (vec![], vec![], vec![], vec![]);
        for pair in 0..options.pairs {
            // Null first, then real first: what comes second must not always be the same.
            for step in [pair % 2, 1 - pair % 2] {
                if step == 0 {
                    ceilings.push(null.run(options.duration).await?.per_second);
                    continue;
                }
                let before = self.cpu()?;
                let load = real.run(options.duration).await?;
                ensure!(load.refused == 0, "{} purchases were refused", load.refused);
                let purchases = load.per_second * options.duration.as_secs_f64();
                cpus.push(self.cpu()?.since(&before).per_thousand(purchases));
                rates.push(load.per_second);
                p99s.push(load.p99_ms);
            }
        }
        let (ceiling, rate) = (median(&mut ceilings), median(&mut rates));
        let shares = rates.iter().map(|rate| rate / ceiling);
        let (low, high) = shares.fold((f64::MAX, 0.0_f64), |(low, high), one| {
            (low.min(one), high.max(one))
        });
        println!(
            "{connections:>4} connections: null {ceiling:>7.0}/s  committed {rate:>7.0}/s  \
             share {:.2} ({low:.2} to {high:.2})  p99 {:.1} ms",
            rate / ceiling,
            median(&mut p99s)
        );
        println!(
            "                  CPU per 1,000 purchases: {}",
            Cpu::median(&cpus)
        );
        Ok(())
    }

    fn cpu(&self) -> Result<Cpu> {
        let database = self.postgres.as_ref().map(PostgresServer::pid);
        Cpu::read(self.service.pid(), self.redis.pid(), database)
    }
}

/// The middle value; the values are sorted on the way.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
