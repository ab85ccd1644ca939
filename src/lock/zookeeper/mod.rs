//! Locks in ZooKeeper: `zookeeper`, which one holds alone, and `zookeeper-read-write`. Feature `zookeeper`.
//!
//! The recipe is ZooKeeper's own (<https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks>), with the
//! node names of Apache Curator, so that both exclude each other.

mod contender;
mod ensemble;
mod queue;

use std::time::Duration;

use contender::Recipe;
use ensemble::Ensemble;

use super::{Error, Kind, Lock, Terms};
use crate::env::Env;

/// Where the locks are, unless something else is asked for.
const DEFAULT_ROOT: &str = "/locks";

/// The locks of one ZooKeeper ensemble, below one path.
///
/// All of them share one session, as Curator does it: a connection for each acquisition would soon be more than a
/// server takes from one address (60). A lock lives as long as that session, so its lease is the session's timeout.
/// While the connection is broken nobody knows whether the session still lives: the lock counts as lost from then on.
#[derive(Debug, Clone)]
pub struct ZookeeperLocks {
    ensemble: Ensemble,
    root: String,
    env: Env,
}

impl ZookeeperLocks {
    /// Locks on these servers: `host:port`, several separated by commas, and a path if they are not to be
    /// below `/locks`. The servers end the session, and its locks, of a process from which they hear
    /// nothing for `session_timeout`; a call that takes longer than `timeout` is given up.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if none of the servers answers.
    pub async fn connect(
        servers: &str,
        session_timeout: Duration,
        timeout: Duration,
        env: Env,
    ) -> Result<Self, Error> {
        let (servers, root) = match servers.find('/') {
            Some(at) => servers.split_at(at),
            None => (servers, DEFAULT_ROOT),
        };
        let locks = Self {
            ensemble: Ensemble::new(servers, session_timeout, timeout),
            root: root.trim_end_matches('/').to_owned(),
            env,
        };
        locks.ensemble.session().await?;
        Ok(locks)
    }

    /// The lock of this kind and name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind is not one of ZooKeeper, [`Error::Refused`] if the name cannot be a
    /// node's.
    pub fn lock(&self, kind: Kind, name: &str, terms: Terms) -> Result<Lock, Error> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            let refused = format!("{name:?} cannot be the name of a node");
            return Err(Error::Refused(refused));
        }
        let (alone, shared) = match kind {
            Kind::Zookeeper => (queue::MUTEX, None),
            Kind::ZookeeperReadWrite => (queue::WRITE, Some(queue::READ)),
            _ => return Err(Error::Unsupported(kind, "live in ZooKeeper")),
        };
        let protocol = Recipe {
            ensemble: self.ensemble.clone(),
            directory: format!("{}/{name}", self.root),
            alone,
            shared: shared.unwrap_or(alone),
            env: self.env.clone(),
        };
        Ok(Lock::new(kind, name, terms, self.env.clone(), protocol))
    }
}
