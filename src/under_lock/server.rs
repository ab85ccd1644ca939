//! The lock that is asked for, on the server that its URL names.

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use super::{CALL_TIMEOUT, LockConfig};
use crate::config::Secret;
use crate::env::Env;
#[cfg(feature = "etcd")]
use crate::lock::etcd::EtcdLocks;
#[cfg(feature = "mongodb")]
use crate::lock::mongodb::MongodbLocks;
#[cfg(feature = "mysql")]
use crate::lock::mysql::MysqlLocks;
use crate::lock::postgres::PostgresLocks;
use crate::lock::redis::{Bell, RedisLocks, Server, redlock};
#[cfg(feature = "zookeeper")]
use crate::lock::zookeeper::ZookeeperLocks;
use crate::lock::{Error, Kind, Lock, Terms, Waiting};

/// The lock that is asked for.
///
/// # Errors
/// [`Error::Unreachable`] if its server does not answer; other errors if the kind and the server do not fit.
pub async fn lock(config: &LockConfig, env: &Env) -> Result<Lock, Error> {
    let terms = Terms {
        lease: Duration::from_millis(config.lease_ms),
        renewing: true,
        hold_max: Duration::from_secs(config.hold_max_seconds),
        waiting: match config.poll_ms {
            Some(pause_ms) => Waiting::Polled(Duration::from_millis(pause_ms)),
            None => Waiting::Woken,
        },
    };
    let (kind, name) = (config.kind, config.name.as_str());
    let lock = match config.server.as_slice() {
        #[cfg(feature = "etcd")]
        servers @ [first, ..] if is_etcd(first.expose()) => {
            let url = joined(servers);
            let locks = EtcdLocks::connect(&url, CALL_TIMEOUT, env.clone()).await?;
            locks.lock(kind, name, terms)?
        }
        #[cfg(feature = "mongodb")]
        servers @ [first, ..] if is_mongodb(first.expose()) => {
            let url = joined(servers);
            let locks = MongodbLocks::connect(&url, CALL_TIMEOUT, env.clone()).await?;
            locks.lock(kind, name, terms)?
        }
        #[cfg(not(feature = "mongodb"))]
        [first, ..] if is_mongodb(first.expose()) => return Err(not_built("mongodb")),
        #[cfg(not(feature = "etcd"))]
        [first, ..] if is_etcd(first.expose()) => return Err(not_built("etcd")),
        #[cfg(feature = "zookeeper")]
        servers @ [first, ..] if is_zookeeper(first.expose()) => {
            let url = joined(servers);
            let servers = url.trim_start_matches("zookeeper://");
            let session = terms.lease;
            let locks =
                ZookeeperLocks::connect(servers, session, CALL_TIMEOUT, env.clone()).await?;
            locks.lock(kind, name, terms)?
        }
        #[cfg(not(feature = "zookeeper"))]
        [first, ..] if is_zookeeper(first.expose()) => return Err(not_built("zookeeper")),
        servers if kind == Kind::Redlock => {
            let connections = servers.iter().map(redis).collect::<Result<Vec<_>, _>>()?;
            let answers = join_all(connections.iter().map(|(_, connection)| ping(connection)));
            let answers = answers.await.into_iter().filter(Result::is_ok).count();
            if answers <= servers.len() / 2 {
                let none = "no majority of the masters answers";
                return Err(Error::Unreachable(none.into()));
            }
            // All of them count, those that are down now too: a majority of the others is none.
            let masters = connections
                .into_iter()
                .map(|redis| redis_server(redis, env));
            redlock(masters.collect(), name, terms, env.clone())
        }
        [url] if url.expose().starts_with("postgres") => {
            let locks = PostgresLocks::connect(url.expose(), CALL_TIMEOUT, env.clone()).await?;
            locks.lock(kind, name, terms)?
        }
        #[cfg(feature = "mysql")]
        [url] if is_mysql(url.expose()) => {
            let locks = MysqlLocks::connect(url.expose(), CALL_TIMEOUT, env.clone()).await?;
            locks.lock(kind, name, terms)?
        }
        #[cfg(not(feature = "mysql"))]
        [url] if is_mysql(url.expose()) => return Err(not_built("mysql")),
        [url] => {
            let redis = redis(url)?;
            ping(&redis.1).await?;
            RedisLocks::new(redis_server(redis, env), env.clone()).lock(kind, name, terms)?
        }
        _ => return Err(Error::Unsupported(kind, "live on several servers")),
    };
    match config.shared {
        true => lock.shared(),
        false => Ok(lock),
    }
}

fn is_etcd(url: &str) -> bool {
    url.starts_with("etcd:")
}

fn is_mongodb(url: &str) -> bool {
    url.starts_with("mongodb:") || url.starts_with("mongodb+srv:")
}

fn is_zookeeper(url: &str) -> bool {
    url.starts_with("zookeeper:")
}

/// One URL that names several members; the command line took it apart at its commas.
#[cfg(any(feature = "etcd", feature = "mongodb", feature = "zookeeper"))]
fn joined(servers: &[Secret]) -> String {
    let servers: Vec<_> = servers.iter().map(Secret::expose).collect();
    servers.join(",")
}

fn is_mysql(url: &str) -> bool {
    url.starts_with("mysql:") || url.starts_with("mariadb:")
}

#[cfg(not(all(
    feature = "mysql",
    feature = "etcd",
    feature = "mongodb",
    feature = "zookeeper"
)))]
fn not_built(feature: &str) -> Error {
    Error::Refused(format!(
        "built without it: `cargo build --features {feature}`"
    ))
}

type Redis = (redis::Client, ConnectionManager);

/// A Redis to which a connection is made with the first call.
fn redis(url: &Secret) -> Result<Redis, Error> {
    let malformed = |error: redis::RedisError| Error::Refused(error.to_string());
    let client = redis::Client::open(url.expose()).map_err(malformed)?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_connection_timeout(Some(CALL_TIMEOUT));
    let connection = ConnectionManager::new_lazy_with_config(client.clone(), config);
    Ok((client, connection.map_err(malformed)?))
}

async fn ping(connection: &ConnectionManager) -> Result<(), Error> {
    let ping = redis::cmd("PING");
    let answer = ping.query_async(&mut connection.clone()).await;
    answer.map_err(|error| Error::Unreachable(error.to_string()))
}

fn redis_server((client, connection): Redis, env: &Env) -> Server<ConnectionManager> {
    Server::new(connection, CALL_TIMEOUT).with_bell(Bell::start(client, env))
}
