//! The service's speed: shares of a ceiling, and how long a load of stock takes.
//!
//! Everything is started here, on private servers, and shares the machine's cores: the load, the service,
//! Redis and the database.

mod cpu;
pub mod loads;
pub mod shares;
mod wrk;

use std::fmt;
use std::path::Path;
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

/// More than any run can sell: the accepting path is measured, not the refusing one.
const QUANTITY: u32 = 1_000_000_000;
const ADMIN_TOKEN: &str = "bench-admin-token";
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

/// The servers of one benchmark; all end when it is dropped.
struct Bench {
    service: Service,
    redis: RedisServer,
    postgres: Option<PostgresServer>,
    target: Target,
    _folder: TempDir,
}

impl Bench {
    async fn start(database: Database, stockade_binary: &Path) -> Result<Self> {
        ensure!(
            stockade_binary.is_file(),
            "{} is not there; build it with `cargo build --release --workspace`",
            stockade_binary.display()
        );
        let folder = directory("stockade-bench-")?;
        let redis = RedisServer::start(&RedisOptions {
            tcp: false,
            ..RedisOptions::default()
        })
        .await?;
        let postgres = match database {
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
            binary: stockade_binary.to_owned(),
            args: args.map(str::to_owned).to_vec(),
            env: vec![("STOCKADE_ADMIN_TOKEN".to_owned(), ADMIN_TOKEN.to_owned())],
        })
        .await?;
        let target = Target::new(&[service.url()], ADMIN_TOKEN, BuyerAuth::TrustedHeader)?;
        Ok(Self {
            service,
            redis,
            postgres,
            target,
            _folder: folder,
        })
    }

    /// Opens a sale that no run can sell out, in this many segments; its number.
    async fn open_sale(&self, segments: u32) -> Result<u32> {
        let mut client = Client::new(&self.target, 0);
        let sale = NewSale {
            quantity: QUANTITY,
            segments,
            per_buyer_limit: QUANTITY,
            ..NewSale::default()
        };
        let sale = client.create_sale(&sale).await?.id;
        client.change_sale(sale, SaleAction::Open).await?;
        Ok(sale)
    }

    /// Reads a sale's books when it is quiet, prints how they are; true if they balance.
    async fn books_balance(&self, sale: u32) -> Result<bool> {
        let books = read_books(&self.target, sale, SETTLE).await;
        let books = books.context("the books cannot be read")?;
        let balanced = books.audit.verdict == AuditVerdict::Balanced;
        let (sold, verdict) = (
            books.audit.terms.confirmed,
            if balanced { "balanced" } else { "NOT balanced" },
        );
        println!("sale {sale}: {sold} units sold, books {verdict}");
        Ok(balanced)
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
