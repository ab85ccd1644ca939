//! A private ZooKeeper server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::wait::Deadline;
use super::{Address, Process, directory, free_port, programs};

/// How long a start may take; a Java machine is slow to wake.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// A server that is starting may answer with half a sentence, and never close.
const STATUS_LIMIT: Duration = Duration::from_secs(1);
/// The shortest session is two ticks.
const TICK_MS: u32 = 200;

/// The server that a whole process shares.
static SHARED: OnceCell<ZookeeperServer> = OnceCell::const_new();

/// A ZooKeeper server of our own, standing alone; sessions may be as short as 400 ms.
///
/// Its data directory and its port stay the same over restarts.
#[derive(Debug)]
pub struct ZookeeperServer {
    // Declared before the directory it uses: dropped, and so ended, first.
    process: Process,
    _directory: TempDir,
    port: u16,
}

impl ZookeeperServer {
    /// Starts a server and waits until it takes connections.
    ///
    /// # Errors
    /// When ZooKeeper or Java is not installed (the message says what to install) or does not start.
    pub async fn start() -> Result<Self> {
        let directory = directory("stockade-zookeeper-")?;
        let port = free_port()?;
        let data = directory.path().join("data");
        let settings = format!(
            "tickTime={TICK_MS}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             maxClientCnxns=0\nadmin.enableServer=false\n",
            data.display()
        );
        let file = directory.path().join("zoo.cfg");
        fs::write(&file, settings)?;
        let mut command = Command::new(programs::java()?);
        command
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-cp")
            .arg(programs::zookeeper_jar()?)
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(file);
        let log = directory.path().join("zookeeper.log");
        let process = Process::new("zookeeper", command, &log, Signal::SIGKILL)?;
        let mut server = Self {
            process,
            _directory: directory,
            port,
        };
        server.run().await?;
        Ok(server)
    }

    /// The server that all callers in this process share, each below a path of its own. It ends with the
    /// process.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn shared() -> Result<&'static Self> {
        SHARED.get_or_try_init(Self::start).await
    }

    async fn run(&mut self) -> Result<()> {
        self.process.start()?;
        let deadline = Deadline::after(READY_LIMIT);
        while !matches!(timeout(STATUS_LIMIT, self.status()).await, Ok(Ok(()))) {
            self.process.wait_for_start(&deadline).await?;
        }
        Ok(())
    }

    /// What the server says of itself. It takes connections a moment before it serves.
    async fn status(&self) -> Result<()> {
        let mut connection = TcpStream::connect(self.socket_address()).await?;
        connection.write_all(b"srvr").await?;
        let mut said = String::new();
        connection.read_to_string(&mut said).await?;
        ensure!(said.contains("Mode: standalone"), "it says {said:?}");
        Ok(())
    }

    fn socket_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// `host:port`.
    #[must_use]
    pub fn servers(&self) -> String {
        self.socket_address().to_string()
    }

    /// Where a [`Proxy`](super::Proxy) reaches it.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp(self.socket_address())
    }

    /// Stops it from running, until [`resume`](Self::resume).
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// Lets it run on.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }

    /// Ends it as a power failure would, and starts it again on its data and port.
    ///
    /// # Errors
    /// When it does not start again.
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.is_started() {
            self.process.kill9().await?;
        }
        self.run().await
    }
}
