//! A private Redis that follows another one, and takes its place.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{RedisOptions, RedisServer};
use crate::servers::eventually_within;

/// How long the first copy of the master's data may take.
const COPY_LIMIT: Duration = Duration::from_secs(30);

impl RedisServer {
    /// Starts a server that follows the one at `master`; it has all of that one's data.
    ///
    /// # Errors
    /// As [`start`](Self::start), or when the copy is not complete in time.
    pub async fn start_replica(options: &RedisOptions, master: SocketAddr) -> Result<Self> {
        let mut options = options.clone();
        let (host, port) = (master.ip().to_string(), master.port().to_string());
        options.args.extend(["--replicaof".to_owned(), host, port]);
        let replica = Self::start(&options).await?;
        eventually_within(COPY_LIMIT, "the replica to be complete", async || {
            let link = replica.info("master_link_status").await.ok()?;
            (link == "up").then_some(())
        })
        .await?;
        Ok(replica)
    }

    /// Makes it a master of its own.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn promote(&self) -> Result<()> {
        let mut connection = self.connection().await?;
        let mut promote = redis::cmd("REPLICAOF");
        promote.arg("NO").arg("ONE");
        promote.query_async::<()>(&mut connection).await?;
        Ok(())
    }

    /// How far the data is, in bytes written by the master: a replica that lags is behind.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn replication_offset(&self) -> Result<u64> {
        // A replica counts what it has applied under the same name.
        let offset = self.info("master_repl_offset").await?;
        offset.parse().context("an offset is a number")
    }

    /// One value of `INFO`, such as `used_memory`.
    ///
    /// # Errors
    /// When it does not answer, or says nothing of that.
    pub async fn info(&self, field: &str) -> Result<String> {
        let mut connection = self.connection().await?;
        let mut info = redis::cmd("INFO");
        let text: String = info.arg("everything").query_async(&mut connection).await?;
        let values = text.lines().filter_map(|line| line.split_once(':'));
        let mut value = values.filter(|(name, _)| *name == field).map(|(_, v)| v);
        let value = value
            .next_back()
            .with_context(|| format!("INFO has no {field}"))?;
        Ok(value.to_owned())
    }
}
