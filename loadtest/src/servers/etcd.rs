//! A private etcd, one member that is its own majority.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use super::wait::Deadline;
use super::{Address, Process, directory, free_port, programs};

/// How long a start may take, recovery after a crash included.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How many pairs of ports are tried when others take them first.
const PORT_ATTEMPTS: usize = 5;
/// The shortest lease is one and a half elections, in whole seconds: with this, one second.
const ELECTION_MS: u32 = 500;
/// Ten of them for each election, as etcd has it by default.
const HEARTBEAT_MS: u32 = 50;

/// The server that a whole process shares.
static SHARED: OnceCell<EtcdServer> = OnceCell::const_new();

/// An etcd of our own, as durable as a real one. Its shortest lease is one second.
///
/// Its data directory and its addresses stay the same over restarts.
#[derive(Debug)]
pub struct EtcdServer {
    // Declared before the directory it uses: dropped, and so ended, first.
    process: Process,
    _directory: TempDir,
    port: u16,
}

impl EtcdServer {
    /// Starts a server and waits until it has elected itself.
    ///
    /// # Errors
    /// When etcd is not installed (the message says what to install) or does not start.
    pub async fn start() -> Result<Self> {
        let mut attempt = 1;
        loop {
            let mut server = Self::prepare()?;
            match server.run().await {
                Ok(()) => return Ok(server),
                Err(_) if attempt < PORT_ATTEMPTS && server.lost_its_port() => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The server that all callers in this process share, each with names of its own. It ends with the process.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn shared() -> Result<&'static Self> {
        SHARED.get_or_try_init(Self::start).await
    }

    fn prepare() -> Result<Self> {
        let program = programs::etcd()?;
        let directory = directory("stockade-etcd-")?;
        let (port, peer) = (free_port()?, free_port()?);
        let clients = format!("http://127.0.0.1:{port}");
        let peers = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(program);
        command
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(["--name", "only"])
            .args(["--listen-client-urls", &clients])
            .args(["--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("only={peers}")])
            .args(["--election-timeout", &ELECTION_MS.to_string()])
            .args(["--heartbeat-interval", &HEARTBEAT_MS.to_string()])
            .args(["--logger", "zap", "--log-level", "warn"]);
        let log = directory.path().join("etcd.log");
        let process = Process::new("etcd", command, &log, Signal::SIGKILL)?;
        Ok(Self {
            process,
            _directory: directory,
            port,
        })
    }

    async fn run(&mut self) -> Result<()> {
        self.process.start()?;
        let deadline = Deadline::after(READY_LIMIT);
        while !self.is_healthy().await {
            self.process.wait_for_start(&deadline).await?;
        }
        Ok(())
    }

    /// Whether it has a leader and can commit: `GET /health` asks that.
    async fn is_healthy(&self) -> bool {
        let ask = async {
            let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
            connection
                .write_all(b"GET /health HTTP/1.0\r\n\r\n")
                .await?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = tokio::time::timeout(Duration::from_secs(1), ask).await;
        matches!(answer, Ok(Ok(answer)) if answer.contains(r#""health":"true""#))
    }

    fn lost_its_port(&self) -> bool {
        self.process.log_tail().contains("address already in use")
    }

    /// The URL by which `stockade` reaches it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    /// Where etcd's own tools and a [`Proxy`](super::Proxy) reach it.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp(self.socket_address())
    }

    /// The loopback address of its clients' port.
    #[must_use]
    pub fn socket_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Ends it by SIGKILL. What survives is what was committed.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&mut self) -> Result<()> {
        self.process.kill9().await
    }

    /// Ends it by SIGTERM.
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
}
