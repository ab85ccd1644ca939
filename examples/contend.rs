//! Contends for a lock from a process of its own:
//! `contend --kind KIND --server URL[,URL…] [--lease-ms MS] [--poll-ms MS] NAME FILE COUNT`.
//!
//! COUNT critical sections, each of which reads the number in FILE and writes it back, one larger. Beside
//! others that do the same, whoever is ever inside together with one of them loses an addition. Prints
//! `ready` before the first section, and the first and the last number that it wrote after the last.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use stockade::config::Secret;
use stockade::env::Env;
use stockade::lock::{Kind, Lock, OwnerId, Released};
use stockade::under_lock::{LockConfig, lock};

/// How long one section waits for its turn.
const WAIT: Duration = Duration::from_secs(60);
/// How long what is done behind somebody's back may take at the end.
const FAREWELL: Duration = Duration::from_secs(5);

#[derive(Debug, Parser)]
struct Arguments {
    /// Kind of lock.
    #[arg(long)]
    kind: Kind,
    /// Its server, as `stockade lock` takes it.
    #[arg(long, value_delimiter = ',')]
    server: Vec<Secret>,
    /// How long the server keeps the lock if this process dies, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    lease_ms: u64,
    /// Ask again every so many milliseconds instead of being woken.
    #[arg(long)]
    poll_ms: Option<u64>,
    /// Name of the lock.
    name: String,
    /// The file with the number.
    file: PathBuf,
    /// How many sections.
    count: u64,
}

impl Arguments {
    fn config(self) -> LockConfig {
        LockConfig {
            kind: self.kind,
            server: self.server,
            lease_ms: self.lease_ms,
            wait_ms: 0,
            hold_max_seconds: 3_600,
            poll_ms: self.poll_ms,
            shared: false,
            name: self.name,
            command: Vec::new(),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let (file, count) = (arguments.file.clone(), arguments.count);
    let env = Env::default();
    let lock = lock(&arguments.config(), &env).await?;
    println!("ready");
    let mut written = Vec::new();
    for _ in 0..count {
        written.push(section(&lock, &file).await?);
    }
    if let (Some(first), Some(last)) = (written.first(), written.last()) {
        println!("{first} {last}");
    }
    env.stop(FAREWELL).await;
    Ok(())
}

/// One critical section; the number that it wrote.
async fn section(lock: &Lock, file: &Path) -> Result<u64> {
    let guard = lock.acquire(OwnerId::random(), WAIT).await?;
    let guard = guard.context("the lock was not free in time")?;
    let text = std::fs::read_to_string(file)?;
    let before: u64 = text.trim().parse().context("half a number")?;
    // Others go on here, in this process and beside it.
    tokio::task::yield_now().await;
    std::fs::write(file, (before + 1).to_string())?;
    let released = guard.release().await;
    ensure!(released == Released::Released, "{released:?}");
    Ok(before + 1)
}
