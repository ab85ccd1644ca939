//! Configuration: every flag is also a variable `STOCKADE_<FLAG>` and documents itself.
//!
//! Bad values end the start with one line that names the flag, what is wrong and the mend. Secrets
//! are better given as variables: arguments can be read by every user of the machine.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::http::{Access, BuyerRate, Buyers, JwtVerifier, ServerLimits};
use crate::telemetry::LogFormat;
use crate::{ledger, service};

/// The shortest admin token, in characters.
pub const ADMIN_TOKEN_LENGTH_MIN: usize = 16;

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

/// What is wrong with the configuration: one line with the flag, the reason and the mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misconfigured(pub String);

/// Where the ledger is.
#[derive(Debug, Clone, Args)]
pub struct DatabaseConfig {
    /// The ledger: `sqlite:///path/to/file.db` or `postgres://user@host/database`.
    #[arg(
        long,
        env = "STOCKADE_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "sqlite://stockade.db"
    )]
    pub database_url: Secret,

    /// Connections to the database at the most.
    #[arg(long, env = "STOCKADE_DATABASE_CONNECTIONS", value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub database_connections: u32,

    /// How long one SQL statement may take, lock waits included, in milliseconds.
    #[arg(long, env = "STOCKADE_STATEMENT_TIMEOUT_MS", value_name = "MS", default_value_t = 5_000,
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub statement_timeout_ms: u64,

    /// How long the start may wait for Redis and the database, in seconds.
    #[arg(long, env = "STOCKADE_STARTUP_WAIT_SECONDS", value_name = "S", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(0..=3_600))]
    pub startup_wait_seconds: u64,
}

/// Where the stock is.
#[derive(Debug, Clone, Args)]
pub struct RedisConfig {
    /// Redis: `redis://host:port` or `redis+unix:///path/to/socket`.
    #[arg(
        long,
        env = "STOCKADE_REDIS_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "redis://127.0.0.1:6379"
    )]
    pub redis_url: Secret,

    /// Connections to Redis.
    #[arg(long, env = "STOCKADE_REDIS_CONNECTIONS", value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub redis_connections: u32,

    /// How long Redis may take to answer, in milliseconds. Then the outcome of a purchase is
    /// unknown, and it is sent again.
    #[arg(long, env = "STOCKADE_REDIS_TIMEOUT_MS", value_name = "MS", default_value_t = 1_000,
        value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub redis_timeout_ms: u64,
}

/// How logs are written.
#[derive(Debug, Clone, Args)]
pub struct LogConfig {
    /// Form of the log lines, which go to standard error.
    #[arg(
        long,
        env = "STOCKADE_LOG_FORMAT",
        value_name = "FORM",
        default_value = "text"
    )]
    pub log_format: LogFormat,

    /// What is logged: a level, or levels by target as in `info,http=debug`.
    #[arg(
        long,
        env = "STOCKADE_LOG",
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log: String,
}

/// Who may do what.
#[derive(Debug, Clone, Args)]
pub struct AccessConfig {
    /// The admin's bearer token, at least 16 characters. Required.
    #[arg(
        long,
        env = "STOCKADE_ADMIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub admin_token: Option<Secret>,

    /// Buyers come with JWTs signed by HS256 with this secret, at least 32 bytes.
    #[arg(
        long,
        env = "STOCKADE_BUYER_JWT_HS256_SECRET",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    pub buyer_jwt_hs256_secret: Option<Secret>,

    /// Buyers come with JWTs signed with an Ed25519 key; its public half is in this PEM file.
    #[arg(long, env = "STOCKADE_BUYER_JWT_EDDSA_PUBLIC_KEY", value_name = "FILE")]
    pub buyer_jwt_eddsa_public_key: Option<PathBuf>,

    /// The audience that buyers' tokens must name. Without it a token that names any is refused.
    #[arg(long, env = "STOCKADE_BUYER_JWT_AUDIENCE", value_name = "NAME")]
    pub buyer_jwt_audience: Option<String>,

    /// Believe the header X-Buyer-Id. Only behind a gateway that authenticates buyers and sets it.
    #[arg(long, env = "STOCKADE_TRUST_BUYER_HEADER", action = ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new())]
    pub trust_buyer_header: bool,

    /// Purchases a second that one buyer may send to this instance, and twice as many at once; 0:
    /// no limit.
    #[arg(long, env = "STOCKADE_BUYER_REQUESTS_PER_SECOND", value_name = "N",
        default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub buyer_requests_per_second: u32,
}

/// How the service listens, and what clients may take.
#[derive(Debug, Clone, Args)]
pub struct HttpConfig {
    /// Address to listen on; port 0 takes a free one.
    #[arg(
        long,
        env = "STOCKADE_LISTEN",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:8080"
    )]
    pub listen: SocketAddr,

    /// Connections at once; more wait.
    #[arg(long, env = "STOCKADE_CONNECTIONS_MAX", value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections_max: u32,

    /// How long a connection may take to send the next request's header, idle time included, in
    /// seconds. A load balancer in front must give up idle connections sooner.
    #[arg(long, env = "STOCKADE_HEADER_TIMEOUT_SECONDS", value_name = "S", default_value_t = 75,
        value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub header_timeout_seconds: u64,

    /// How long a body may take to arrive, in milliseconds.
    #[arg(long, env = "STOCKADE_BODY_TIMEOUT_MS", value_name = "MS", default_value_t = 5_000,
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub body_timeout_ms: u64,

    /// How long requests in flight may take to finish at the shutdown, in seconds.
    #[arg(long, env = "STOCKADE_DRAIN_SECONDS", value_name = "S", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(0..=600))]
    pub drain_seconds: u64,

    /// Add `POST /v1/null/{sale}/purchases` for benchmarks: the parsing, the authentication and the
    /// answer of a purchase, without its work. It sells nothing; not for production.
    #[arg(long, env = "STOCKADE_NULL_HANDLER", action = ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new())]
    pub null_handler: bool,
}

/// How long purchases wait, and how many.
#[derive(Debug, Clone, Args)]
pub struct PurchaseConfig {
    /// How long a buyer waits for Redis before 503, in milliseconds.
    #[arg(long, env = "STOCKADE_PURCHASE_WAIT_MS", value_name = "MS", default_value_t = 3_000,
        value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub purchase_wait_ms: u64,

    /// How long a buyer waits for the commit before 202, in milliseconds.
    #[arg(long, env = "STOCKADE_COMMIT_WAIT_MS", value_name = "MS", default_value_t = 2_000,
        value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub commit_wait_ms: u64,

    /// Purchases that may be admitted and not committed before new ones are refused with 503.
    #[arg(long, env = "STOCKADE_BACKLOG_MAX", value_name = "N", default_value_t = 20_000,
        value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub backlog_max: u32,

    /// Age at which another instance finishes a journal entry, in milliseconds.
    #[arg(long, env = "STOCKADE_JOURNAL_GRACE_MS", value_name = "MS", default_value_t = 2_000,
        value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub journal_grace_ms: u64,

    /// How long a closed sale's data stays in Redis, in seconds: as long as retries are recognised.
    #[arg(long, env = "STOCKADE_REDIS_RETENTION_SECONDS", value_name = "S",
        default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub redis_retention_seconds: u64,

    /// Longest pause between two rounds of the upkeep (openings, holds, returns, abandoned journal
    /// entries), in milliseconds.
    #[arg(long, env = "STOCKADE_UPKEEP_PAUSE_MS", value_name = "MS", default_value_t = 250,
        value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub upkeep_pause_ms: u64,
}

/// `serve`: sell.
#[derive(Debug, Clone, Args)]
pub struct ServeConfig {
    /// Listening.
    #[command(flatten)]
    pub http: HttpConfig,
    /// Access.
    #[command(flatten)]
    pub access: AccessConfig,
    /// Stock.
    #[command(flatten)]
    pub redis: RedisConfig,
    /// Ledger.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Purchases.
    #[command(flatten)]
    pub purchases: PurchaseConfig,
    /// Logs.
    #[command(flatten)]
    pub log: LogConfig,

    /// Bring the database's schema up to date before serving.
    #[arg(long, env = "STOCKADE_MIGRATE", action = ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new())]
    pub migrate: bool,

    /// Threads that serve; 0: one for each core.
    #[arg(long, env = "STOCKADE_WORKER_THREADS", value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=1_024))]
    pub worker_threads: u32,
}

/// `migrate`: bring the database's schema up to date.
#[derive(Debug, Clone, Args)]
pub struct MigrateConfig {
    /// Ledger.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Logs.
    #[command(flatten)]
    pub log: LogConfig,
}

/// `audit` and `recover`: sales to look at.
#[derive(Debug, Clone, Args)]
pub struct SalesConfig {
    /// Stock.
    #[command(flatten)]
    pub redis: RedisConfig,
    /// Ledger.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Logs.
    #[command(flatten)]
    pub log: LogConfig,

    /// Numbers of the sales; all when none is given.
    #[arg(value_name = "SALE")]
    pub sales: Vec<crate::domain::SaleId>,
}

impl DatabaseConfig {
    /// Limits of the ledger's connections.
    #[must_use]
    pub const fn limits(&self) -> ledger::Limits {
        let timeout = Duration::from_millis(self.statement_timeout_ms);
        ledger::Limits {
            connections_max: self.database_connections,
            connect_timeout: timeout,
            statement_timeout: timeout,
        }
    }

    /// How long the start may wait.
    #[must_use]
    pub const fn startup_wait(&self) -> Duration {
        Duration::from_secs(self.startup_wait_seconds)
    }
}

impl HttpConfig {
    /// What clients may take.
    #[must_use]
    pub const fn limits(&self) -> ServerLimits {
        ServerLimits {
            connections_max: self.connections_max as usize,
            header_timeout: Duration::from_secs(self.header_timeout_seconds),
            drain_timeout: Duration::from_secs(self.drain_seconds),
        }
    }
}

impl PurchaseConfig {
    /// Limits of the purchase path.
    #[must_use]
    pub const fn limits(&self) -> service::Limits {
        service::Limits {
            purchase_wait: Duration::from_millis(self.purchase_wait_ms),
            commit_wait: Duration::from_millis(self.commit_wait_ms),
            backlog_max: self.backlog_max as usize,
            journal_grace: Duration::from_millis(self.journal_grace_ms),
            redis_retention: Duration::from_secs(self.redis_retention_seconds),
            upkeep_pause: Duration::from_millis(self.upkeep_pause_ms),
        }
    }
}

impl AccessConfig {
    /// Who may do what. There is no default: the service does not start before someone has decided.
    ///
    /// # Errors
    /// [`Misconfigured`] when a decision is missing, ambiguous or not usable.
    pub fn access(&self) -> Result<Access, Misconfigured> {
        let admin_token = self.admin_token()?;
        let buyers = self.buyers()?;
        let rate = NonZeroU32::new(self.buyer_requests_per_second).map(BuyerRate::new);
        Ok(Access::new(admin_token, buyers, rate))
    }

    fn admin_token(&self) -> Result<&str, Misconfigured> {
        let mend = format!(
            "set STOCKADE_ADMIN_TOKEN (or --admin-token) to at least {ADMIN_TOKEN_LENGTH_MIN} \
             visible ASCII characters, for instance from `openssl rand -hex 24`"
        );
        let Some(token) = &self.admin_token else {
            return Err(Misconfigured(format!("no admin token is given: {mend}")));
        };
        let token = token.expose();
        let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
        if token.len() < ADMIN_TOKEN_LENGTH_MIN || !visible {
            let why = "the admin token is too short or not visible ASCII";
            return Err(Misconfigured(format!("{why}: {mend}")));
        }
        Ok(token)
    }

    fn buyers(&self) -> Result<Buyers, Misconfigured> {
        let audience = self.buyer_jwt_audience.as_deref();
        let secret = self.buyer_jwt_hs256_secret.as_ref();
        let key = self.buyer_jwt_eddsa_public_key.as_ref();
        match (secret, key, self.trust_buyer_header) {
            (Some(secret), None, false) => JwtVerifier::hs256(secret.expose(), audience)
                .map(Buyers::Jwt)
                .map_err(|why| Misconfigured(format!("--buyer-jwt-hs256-secret: {why}"))),
            (None, Some(path), false) => {
                let flag = format!("--buyer-jwt-eddsa-public-key {}", path.display());
                let pem = std::fs::read(path)
                    .map_err(|error| Misconfigured(format!("{flag}: cannot be read: {error}")))?;
                JwtVerifier::eddsa(&pem, audience)
                    .map(Buyers::Jwt)
                    .map_err(|why| Misconfigured(format!("{flag}: {why}")))
            }
            (None, None, true) => Ok(Buyers::TrustedHeader),
            (None, None, false) => Err(Misconfigured(
                "nothing says how buyers prove who they are: give one of \
                 --buyer-jwt-hs256-secret, --buyer-jwt-eddsa-public-key, --trust-buyer-header"
                    .to_owned(),
            )),
            _ => Err(Misconfigured(
                "buyers can prove who they are in one way only: give just one of \
                 --buyer-jwt-hs256-secret, --buyer-jwt-eddsa-public-key, --trust-buyer-header"
                    .to_owned(),
            )),
        }
    }
}
