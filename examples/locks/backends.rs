//! Every kind of lock on a server of its own, and a bare call to that server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use loadtest::servers::{MariadbServer, PostgresServer, RedisOptions, RedisServer};
use redis::aio::ConnectionManager;
use sqlx::{Executor as _, MySqlPool, PgPool};
use stockade::env::Env;
use stockade::lock::mysql::MysqlLocks;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::redis::{Bell, RedisLocks, Server, redlock};
use stockade::lock::{Error, Kind, Lock, Terms, Waiting};

use crate::counted::Counted;

const TIMEOUT: Duration = Duration::from_secs(5);
const POLLED: Waiting = Waiting::Polled(Duration::from_millis(50));
const MASTERS: usize = 3;

/// One bare call to the server.
pub(crate) type Bare = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<()>>>>>;
type Make = Box<dyn Fn(&str, Terms) -> Result<Lock, Error>>;

pub(crate) struct Backend {
    pub(crate) label: String,
    pub(crate) waitings: Vec<(Waiting, &'static str)>,
    pub(crate) bare: Bare,
    /// Calls to Redis so far.
    pub(crate) calls: Option<Arc<AtomicU64>>,
    make: Make,
}

impl Backend {
    pub(crate) fn lock(&self, name: &str, terms: Terms) -> Result<Lock, Error> {
        (self.make)(name, terms)
    }
}

/// All of them, and the servers that they need.
pub(crate) async fn start() -> Result<(Vec<Backend>, Vec<RedisServer>)> {
    let mut masters = Vec::new();
    for _ in 0..MASTERS {
        masters.push(RedisServer::start(&RedisOptions::default()).await?);
    }
    let mut all = redis(&masters).await?;
    all.extend(postgres().await?);
    all.extend(mysql().await?);
    Ok((all, masters))
}

fn woken_or_polled() -> Vec<(Waiting, &'static str)> {
    vec![(Waiting::Woken, "woken"), (POLLED, "polled 50 ms")]
}

/// How those who wait for a lock in a database come to know.
fn its_way(kind: Kind) -> &'static str {
    match kind {
        Kind::RowLock | Kind::Advisory => "server's queue",
        _ => "polled 20 ms",
    }
}

async fn redis(masters: &[RedisServer]) -> Result<Vec<Backend>> {
    let env = Env::default();
    let calls = Arc::new(AtomicU64::new(0));
    let mut servers = Vec::new();
    let mut bare = None;
    for master in masters {
        let client = ::redis::Client::open(master.url())?;
        let inner = ConnectionManager::new(client.clone()).await?;
        bare.get_or_insert(inner.clone());
        let calls = Arc::clone(&calls);
        let server = Server::new(Counted { inner, calls }, TIMEOUT);
        servers.push(server.with_bell(Bell::start(client, &env)));
    }
    let bare = bare.expect("a master");
    let locks = RedisLocks::new(servers[0].clone(), env.clone());
    let mut all = Vec::new();
    let kinds = [
        Kind::TokenLua,
        Kind::Watchdog,
        Kind::Fenced,
        Kind::Reentrant,
        Kind::Fair,
        Kind::ReadWrite,
        Kind::Multi,
        Kind::Redlock,
    ];
    for kind in kinds {
        let (locks, servers, env) = (locks.clone(), servers.clone(), env.clone());
        let bare = bare.clone();
        all.push(Backend {
            label: kind.name().to_owned(),
            waitings: match kind {
                Kind::Redlock => vec![(Waiting::Woken, "its own pause")],
                _ => woken_or_polled(),
            },
            bare: Box::new(move || {
                let mut bare = bare.clone();
                Box::pin(async move {
                    let mut set = ::redis::cmd("SET");
                    set.arg("bare")
                        .arg("0123456789abcdef")
                        .arg("PX")
                        .arg(10_000);
                    Ok(set.query_async(&mut bare).await?)
                })
            }),
            calls: Some(Arc::clone(&calls)),
            make: Box::new(move |name, terms| match kind {
                Kind::Redlock => Ok(redlock(servers.clone(), name, terms, env.clone())),
                _ => locks.lock(kind, &format!("{kind}-{name}"), terms),
            }),
        });
    }
    Ok(all)
}

async fn postgres() -> Result<Vec<Backend>> {
    let url = PostgresServer::shared()
        .await?
        .create_database("bench")
        .await?;
    let locks = PostgresLocks::connect(&url, TIMEOUT, Env::default()).await?;
    let pool = PgPool::connect(&url).await?;
    let kinds = [
        Kind::UniqueRow,
        Kind::LeaseRow,
        Kind::RowLock,
        Kind::Advisory,
    ];
    let backend = |kind: Kind| {
        let (locks, pool) = (locks.clone(), pool.clone());
        Backend {
            label: format!("{kind} PostgreSQL"),
            waitings: vec![(Waiting::Woken, its_way(kind))],
            bare: Box::new(move || {
                let pool = pool.clone();
                Box::pin(async move { Ok(pool.execute("select 1").await.map(drop)?) })
            }),
            calls: None,
            make: Box::new(move |name, terms| locks.lock(kind, name, terms)),
        }
    };
    Ok(kinds.map(backend).into())
}

async fn mysql() -> Result<Vec<Backend>> {
    let url = MariadbServer::shared()
        .await?
        .create_database("bench")
        .await?;
    let locks = MysqlLocks::connect(&url, TIMEOUT, Env::default()).await?;
    let pool = MySqlPool::connect(&url).await?;
    let kinds = [
        Kind::UniqueRow,
        Kind::LeaseRow,
        Kind::RowLock,
        Kind::Advisory,
    ];
    let backend = |kind: Kind| {
        let (locks, pool) = (locks.clone(), pool.clone());
        Backend {
            label: format!("{kind} MariaDB"),
            waitings: vec![(Waiting::Woken, its_way(kind))],
            bare: Box::new(move || {
                let pool = pool.clone();
                Box::pin(async move { Ok(pool.execute("select 1").await.map(drop)?) })
            }),
            calls: None,
            make: Box::new(move |name, terms| locks.lock(kind, name, terms)),
        }
    };
    Ok(kinds.map(backend).into())
}
