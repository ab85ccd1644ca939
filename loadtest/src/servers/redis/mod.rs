//! A private redis-server.

mod data;
mod replica;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

pub use data::RedisCopy;

use super::wait::Deadline;
use super::{Address, Process, directory, free_port, programs};

/// How long a start may take, loading a large append-only file included.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How many ports are tried when others take them first.
const PORT_ATTEMPTS: usize = 5;
/// How long an administrator's command may take.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What Redis keeps when it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Append {
    /// Nothing: a restarted server is empty.
    Off,
    /// An append-only file that is synced once a second: SIGKILL loses nothing, unless a busy disk
    /// held back what was written last; a power failure loses a second or two.
    EverySecond,
    /// An append-only file that is synced before each answer.
    Always,
}

/// How to start a [`RedisServer`].
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Listen on a Unix socket.
    pub socket: bool,
    /// Listen on a free loopback TCP port.
    pub tcp: bool,
    /// What a restart finds again.
    pub append: Append,
    /// Memory bound in bytes; writes beyond it are refused.
    pub maxmemory_bytes: Option<u64>,
    /// Further arguments of redis-server, such as `["--maxclients", "100"]`.
    pub args: Vec<String>,
}

impl Default for RedisOptions {
    /// Both listeners, append-only file synced every second, no memory bound.
    fn default() -> Self {
        let append = Append::EverySecond;
        Self {
            socket: true,
            tcp: true,
            append,
            maxmemory_bytes: None,
            args: Vec::new(),
        }
    }
}

/// A redis-server of our own: its data directory and its addresses stay the same over restarts.
#[derive(Debug)]
pub struct RedisServer {
    // Declared before the directory it uses: dropped, and so ended, first.
    process: Process,
    directory: TempDir,
    socket: bool,
    port: Option<u16>,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When redis-server is not installed (the message says what to install) or does not start.
    pub async fn start(options: &RedisOptions) -> Result<Self> {
        let mut attempt = 1;
        loop {
            let mut server = Self::prepare(options)?;
            match server.run().await {
                Ok(()) => return Ok(server),
                Err(_) if attempt < PORT_ATTEMPTS && server.lost_its_port() => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn prepare(options: &RedisOptions) -> Result<Self> {
        let program = programs::redis_server()?;
        let directory = directory("stockade-redis-")?;
        let port = options.tcp.then(free_port).transpose()?;
        let mut command = Command::new(program);
        command
            .current_dir(directory.path())
            .args(arguments(options, port));
        let log = directory.path().join("redis.log");
        let process = Process::new("redis-server", command, &log, Signal::SIGKILL)?;
        Ok(Self {
            process,
            directory,
            socket: options.socket,
            port,
        })
    }

    async fn run(&mut self) -> Result<()> {
        self.process.start()?;
        let client = redis::Client::open(self.url())?;
        let deadline = Deadline::after(READY_LIMIT);
        while !answers(&client).await {
            self.process.wait_for_start(&deadline).await?;
        }
        Ok(())
    }

    fn lost_its_port(&self) -> bool {
        self.process.log_tail().contains("Address already in use")
    }

    /// The URL by which a client reaches it: of the socket if there is one, else of the TCP port.
    ///
    /// # Panics
    /// When it was started without any listener.
    #[must_use]
    pub fn url(&self) -> String {
        if self.socket {
            format!("redis+unix://{}", self.socket_path().display())
        } else {
            self.tcp_url()
        }
    }

    /// The URL of the TCP port.
    ///
    /// # Panics
    /// When it was started without TCP.
    #[must_use]
    pub fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.tcp_port())
    }

    /// The loopback TCP port.
    ///
    /// # Panics
    /// When it was started without TCP.
    #[must_use]
    pub fn tcp_port(&self) -> u16 {
        self.port
            .expect("this redis-server was started without TCP")
    }

    /// Where a [`Proxy`](super::Proxy) reaches it.
    #[must_use]
    pub fn address(&self) -> Address {
        if self.socket {
            Address::Unix(self.socket_path())
        } else {
            Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, self.tcp_port())))
        }
    }

    fn socket_path(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// The process id; it changes with each restart.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A new connection for an administrator's commands.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn connection(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ADMIN_TIMEOUT))
            .set_response_timeout(Some(ADMIN_TIMEOUT));
        let client = redis::Client::open(self.url())?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .context("cannot connect to the private redis-server")
    }

    /// Ends it by SIGKILL: what survives is what had reached the append-only file.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&mut self) -> Result<()> {
        self.process.kill9().await
    }

    /// Ends it by SIGTERM: with an append-only file, everything survives.
    ///
    /// # Errors
    /// When it is not running, or does not end.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.end(Signal::SIGTERM).await.map(drop)
    }

    /// Starts it again on its data and addresses, ending it by SIGKILL first if it runs.
    ///
    /// # Errors
    /// When it does not start again.
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.is_started() {
            self.kill9().await?;
        }
        self.run().await
    }

    /// Stops it in its tracks (SIGSTOP): connections stay open and are not served.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// Lets a paused one go on.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }
}

async fn answers(client: &redis::Client) -> bool {
    let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
        return false;
    };
    // While it loads its append-only file it answers with an error.
    redis::cmd("PING")
        .query_async::<String>(&mut connection)
        .await
        .is_ok()
}

fn arguments(options: &RedisOptions, port: Option<u16>) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut set = |name: &str, value: &str| args.extend([format!("--{name}"), value.to_owned()]);
    set("daemonize", "no");
    set("bind", "127.0.0.1");
    set("port", &port.unwrap_or(0).to_string());
    set("save", "");
    // A replica comes when a test starts it, and at once.
    set("repl-diskless-sync-delay", "0");
    set(
        "appendonly",
        if options.append == Append::Off {
            "no"
        } else {
            "yes"
        },
    );
    set(
        "appendfsync",
        if options.append == Append::Always {
            "always"
        } else {
            "everysec"
        },
    );
    if options.socket {
        // Relative to the data directory, its working directory.
        set("unixsocket", "redis.sock");
        set("unixsocketperm", "700");
    }
    if let Some(bytes) = options.maxmemory_bytes {
        set("maxmemory", &bytes.to_string());
    }
    args.extend(options.args.iter().cloned());
    args
}
