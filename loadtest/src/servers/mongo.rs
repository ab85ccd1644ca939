//! What stands in for MongoDB: `nx-27017`, which speaks its protocol over SQLite.
//!
//! No Debian package has a MongoDB server. The stand-in knows filters and the classic update operators, one
//! command of a database at a time; it knows no pipelines in updates, no elections and no change streams, and what
//! goes wrong in a `findAndModify` it answers as if nothing had been found.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::wait::Deadline;
use super::{Address, Process, directory, free_port, programs};

/// How long a start may take, that of Python included.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How many ports are tried when others take them first.
const PORT_ATTEMPTS: usize = 5;

/// A stand-in for MongoDB of our own; its data and its address stay the same over restarts.
#[derive(Debug)]
pub struct MongoStandIn {
    // Declared before the directory it uses: dropped, and so ended, first.
    process: Process,
    _directory: TempDir,
    port: u16,
}

impl MongoStandIn {
    /// Starts it and waits until it takes connections.
    ///
    /// # Errors
    /// When it is not installed (the message says what to run) or does not start.
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

    fn prepare() -> Result<Self> {
        let program = programs::neighbour("venv/bin/nx-27017")?;
        let directory = directory("stockade-mongo-")?;
        let port = free_port()?;
        let file = |name: &str| directory.path().join(name);
        let mut command = Command::new(program);
        command
            .current_dir(directory.path())
            .arg("--db")
            .arg(file("data.db"))
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .arg("--log-file")
            .arg(file("unused.log"))
            .arg("--pid-file")
            .arg(file("pid"));
        let log = file("mongo.log");
        let process = Process::new("nx-27017", command, &log, Signal::SIGKILL)?;
        Ok(Self {
            process,
            _directory: directory,
            port,
        })
    }

    async fn run(&mut self) -> Result<()> {
        self.process.start()?;
        let deadline = Deadline::after(READY_LIMIT);
        while TcpStream::connect(self.socket_address()).await.is_err() {
            self.process.wait_for_start(&deadline).await?;
        }
        Ok(())
    }

    fn lost_its_port(&self) -> bool {
        self.process.log_tail().contains("address already in use")
    }

    fn socket_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mongodb://{}/stockade", self.socket_address())
    }

    /// The URL by way of a [`Proxy`](super::Proxy) that listens on `port`.
    #[must_use]
    pub fn url_through(&self, port: u16) -> String {
        format!("mongodb://127.0.0.1:{port}/stockade")
    }

    /// Where a [`Proxy`](super::Proxy) reaches it.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp(self.socket_address())
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&mut self) -> Result<()> {
        self.process.kill9().await
    }

    /// Starts it again on its data and address, ending it by SIGKILL first if it runs.
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
