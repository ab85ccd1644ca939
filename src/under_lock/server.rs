//! The lock that is asked for, on the server that its URL names.

use std::time::Duration;

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
use crate::lock::{Error, Kind, Lock, Terms};

/// The lock that is asked for.
pub(super) async fn lock(config: &LockConfig, env: &Env) -> Result<Lock, Error> {
    let terms = Terms {
        lease: Duration::from_millis(config.lease_ms),
        renewing: true,
        hold_max: Duration::from_secs(config.hold_max_seconds),
        ..Terms::default()
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
            let mut masters = Vec::new();
            for url in servers {
                // One that is down now is one that does not answer.
                if let Ok(master) = redis_server(url, env).await {
                    masters.push(master);
                }
            }
            if masters.len() <= servers.len() / 2 {
                return Err(Error::Unreachable(
                    "no majority of the masters answers".into(),
                ));
            }
            redlock(masters, name, terms, env.clone())
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
            let server = redis_server(url, env).await?;
            RedisLocks::new(server, env.clone()).lock(kind, name, terms)?
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

async fn redis_server(url: &Secret, env: &Env) -> Result<Server<ConnectionManager>, Error> {
    let malformed = |error: redis::RedisError| Error::Refused(error.to_string());
    let client = redis::Client::open(url.expose()).map_err(malformed)?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_connection_timeout(Some(CALL_TIMEOUT));
    let connection = ConnectionManager::new_with_config(client.clone(), config).await;
    let connection = connection.map_err(|error| Error::Unreachable(error.to_string()))?;
    Ok(Server::new(connection, CALL_TIMEOUT).with_bell(Bell::start(client, env)))
}
