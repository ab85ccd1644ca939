//! The service put together: build it from a configuration, ask its address, run it until told to
//! stop. `main` and the tests do the same.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::config::{DatabaseConfig, Misconfigured, RedisConfig, ServeConfig};
use crate::http::{Api, Context, Edge, Server, ServerLimits};
use crate::ledger::{self, Ledger};
use crate::metrics::Metrics;
use crate::service::Service;
use crate::stock::{self, Persistence, Redis};

/// Pause between two attempts to reach a server at the start.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Misconfigured(#[from] Misconfigured),
    /// The address to listen on cannot be taken.
    #[error("cannot listen on {0}: {1}; name another address with --listen")]
    Listen(SocketAddr, io::Error),
    /// Redis cannot be reached.
    #[error("Redis at {0} cannot be used: {1}; start it, or name another with --redis-url")]
    Redis(String, stock::Error),
    /// The ledger cannot be reached or used.
    #[error("the database {0} cannot be used: {1}")]
    Ledger(String, ledger::Error),
    /// Redis would throw away stock when its memory is full.
    #[error(
        "Redis evicts keys when its memory is full (maxmemory-policy {0}), and stock with them: \
         set maxmemory-policy to noeviction"
    )]
    Evicts(String),
}

/// A service that is connected to its servers and bound to its address.
#[derive(Debug)]
pub struct App {
    server: Server,
    limits: ServerLimits,
    edge: Edge,
    api: Api,
}

impl App {
    /// Takes the address, waits for Redis and the ledger, and starts the service's work.
    ///
    /// # Errors
    /// [`StartError`] when something is wrong that waiting does not mend, or did not in time.
    pub async fn build(config: &ServeConfig) -> Result<Self, StartError> {
        let access = config.access.access()?;
        let listen = config.http.listen;
        let server = Server::bind(listen).map_err(|error| StartError::Listen(listen, error))?;
        let ledger = open_ledger(&config.database, config.migrate).await?;
        let redis = open_redis(&config.redis, config.database.startup_wait()).await?;
        let metrics = Arc::new(Metrics::new());
        let service = Service::start(ledger, redis, config.purchases.limits(), metrics);
        let api = Arc::new(Context::new(
            service,
            access,
            Duration::from_millis(config.http.body_timeout_ms),
            config.http.null_handler,
        ));
        Ok(Self {
            server,
            limits: config.http.limits(),
            edge: Edge::new(Arc::clone(&api)),
            api,
        })
    }

    /// The address that clients reach it at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// From request to response without a connection, for tests.
    #[must_use]
    pub fn edge(&self) -> Edge {
        self.edge.clone()
    }

    /// Serves until `shutdown` completes, then finishes what is in flight, within limits: first
    /// requests, then what the service has admitted and not committed.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) {
        let draining = self.api.draining.clone();
        let shutdown = async move {
            shutdown.await;
            info!("shutting down: finishing the requests in flight");
            draining.cancel();
        };
        let cut = self.server.run(self.edge, self.limits, shutdown).await;
        if cut > 0 {
            warn!(
                connections = cut,
                "cut {cut} connections that did not finish in time"
            );
        }
        if self.api.service.shutdown(self.limits.drain_timeout).await {
            info!("shut down");
        } else {
            warn!("shut down with work left; the journal keeps it for another instance");
        }
    }
}

/// Opens the ledger, waiting for its server if need be.
///
/// # Errors
/// What the last attempt ran into.
pub async fn open_ledger(config: &DatabaseConfig, migrate: bool) -> Result<Ledger, StartError> {
    let (url, limits) = (config.database_url.expose(), config.limits());
    let open = async || {
        let ledger = Ledger::connect(url, limits).await?;
        if migrate {
            ledger.migrate().await?;
        }
        ledger.ping().await?;
        Ok(ledger)
    };
    let broken = |error| StartError::Ledger(without_password(url).to_owned(), error);
    if !migrate && let Some(file) = missing_file(url) {
        let why = format!("there is no file {file}; `stockade migrate` makes it");
        return Err(broken(ledger::Error::Unusable(why)));
    }
    let passes = |error: &ledger::Error| matches!(error, ledger::Error::Transient(_));
    let opened = patiently("the ledger", config.startup_wait(), open, passes).await;
    opened.map_err(broken)
}

/// The file of an SQLite database that is not there: only a migration makes one.
fn missing_file(url: &str) -> Option<&str> {
    let file = url.strip_prefix("sqlite:")?;
    let file = file.strip_prefix("//").unwrap_or(file);
    let file = file.split('?').next().unwrap_or(file);
    (!Path::new(file).exists()).then_some(file)
}

/// A URL as it may be shown.
fn without_password(url: &str) -> &str {
    url.rsplit('@').next().unwrap_or(url)
}

/// Connects to Redis, waiting for it if need be, and looks at how it is configured.
///
/// # Errors
/// What the last attempt ran into, or [`StartError::Evicts`].
pub async fn open_redis(config: &RedisConfig, wait: Duration) -> Result<Redis, StartError> {
    let timeout = Duration::from_millis(config.redis_timeout_ms);
    let connections = config.redis_connections as usize;
    let open = async || {
        let redis = Redis::connect(config.redis_url.expose(), connections, timeout).await?;
        redis.ping().await?;
        Ok(redis)
    };
    let passes = |error: &stock::Error| !matches!(error, stock::Error::Unusable(_));
    let redis = patiently("Redis", wait, open, passes).await;
    let address = without_password(config.redis_url.expose()).to_owned();
    let redis = redis.map_err(|error| StartError::Redis(address, error))?;
    match redis.check().await {
        Ok(persistence) => examine(&persistence)?,
        // Hosted ones often forbid CONFIG, and a user who may not read it is a good idea elsewhere.
        Err(cause) => warn!(
            %cause,
            "cannot read the configuration of Redis: make sure that its maxmemory-policy is \
             noeviction and that it keeps an append-only file"
        ),
    }
    Ok(redis)
}

/// Tries to open a server until it works, the wait is over, or the error is one that waiting does
/// not mend.
async fn patiently<T, E: std::fmt::Display>(
    what: &str,
    wait: Duration,
    open: impl AsyncFn() -> Result<T, E>,
    passes: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let deadline = Instant::now() + wait;
    let mut said = false;
    loop {
        match open().await {
            Err(cause) if passes(&cause) && Instant::now() < deadline => {
                if !said {
                    warn!(%cause, "waiting for {what}");
                    said = true;
                }
                sleep(RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Refuses what would lose stock, and says what an answer of 202 is worth.
fn examine(persistence: &Persistence) -> Result<(), StartError> {
    if persistence.policy != "noeviction" {
        return Err(StartError::Evicts(persistence.policy.clone()));
    }
    let mend = "set appendonly yes (and appendfsync always to survive a power failure)";
    match (&*persistence.appendonly, &*persistence.appendfsync) {
        ("yes", "always") => {}
        ("yes", "everysec") => info!(
            "Redis syncs every second: its power failure may lose the last two seconds of \
             purchases that were answered with 202"
        ),
        ("yes", fsync) => warn!(
            "Redis leaves syncing to the system (appendfsync {fsync}): its power failure may lose \
             half a minute of purchases that were answered with 202; {mend}"
        ),
        _ if persistence.save.is_empty() => warn!(
            "Redis keeps nothing on disk: its end loses the purchases that were answered with 202 \
             and are not committed; {mend}"
        ),
        _ => warn!(
            "Redis keeps snapshots only: its end loses the purchases since the last one that were \
             answered with 202 and are not committed; {mend}"
        ),
    }
    Ok(())
}
