//! Real servers for one test or one demo: private, on loopback, gone afterwards.
//!
//! Everything started here lives in its own temporary directory and listens only on a Unix socket
//! or a free loopback port. It ends when its value is dropped, also while a test panics; and when
//! this whole process dies without running a destructor, the reaper ends it.

mod etcd;
mod mariadb;
mod mongo;
mod port;
mod postgres;
mod process;
mod programs;
mod proxy;
mod reaper;
mod redis;
mod service;
mod wait;
mod zookeeper;

use anyhow::Result;
use tempfile::TempDir;

pub use etcd::EtcdServer;
pub use mariadb::MariadbServer;
pub use mongo::MongoStandIn;
pub use port::free_port;
pub use postgres::{PostgresOptions, PostgresServer};
use process::Process;
pub use programs::neighbour;
pub use proxy::{Address, Counts, Direction, HeldRequest, Proxy};
pub use redis::{Append, RedisCopy, RedisOptions, RedisServer};
pub use service::{Service, ServiceOptions};
pub use wait::{eventually, eventually_within};
pub use zookeeper::ZookeeperServer;

/// A temporary directory that is removed when dropped, and also when this process dies.
///
/// # Errors
/// When it cannot be made.
pub fn directory(prefix: &str) -> Result<TempDir> {
    let directory = tempfile::Builder::new().prefix(prefix).tempdir()?;
    reaper::watch_directory(directory.path())?;
    Ok(directory)
}

#[cfg(test)]
mod tests;
