//! A private PostgreSQL server.

mod cluster;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::wait::Deadline;
use super::{Address, Process, free_port, programs};

/// How long a start may take, recovery after a crash included.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How many ports are tried when others take them first.
const PORT_ATTEMPTS: usize = 5;
/// The superuser of every server started here; nobody needs a password.
const SUPERUSER: &str = "stockade";

/// The server that a whole process shares.
static SHARED: OnceCell<PostgresServer> = OnceCell::const_new();

/// How to start a [`PostgresServer`].
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Upper bound of connections.
    pub connections_max: u32,
    /// Further settings, such as `("lock_timeout", "5s")`.
    pub settings: Vec<(String, String)>,
}

impl Default for PostgresOptions {
    /// 200 connections, nothing else.
    fn default() -> Self {
        Self {
            connections_max: 200,
            settings: Vec::new(),
        }
    }
}

/// A PostgreSQL server of our own, as durable as a real one: `fsync` and `synchronous_commit` on.
///
/// Its data directory and its addresses stay the same over restarts. PostgreSQL refuses to run as
/// root; then it runs as user `postgres`, or `nobody` if there is no such user.
#[derive(Debug)]
pub struct PostgresServer {
    // Declared before the directory it uses: dropped, and so ended, first.
    process: Process,
    directory: TempDir,
    programs: PathBuf,
    port: u16,
}

impl PostgresServer {
    /// Starts a server and waits until it takes connections. The first start of a process takes a
    /// second or two longer: it makes the cluster that all later ones copy.
    ///
    /// # Errors
    /// When PostgreSQL is not installed (the message says what to install) or does not start.
    pub async fn start(options: &PostgresOptions) -> Result<Self> {
        let programs = programs::postgres_directory()?;
        let mut attempt = 1;
        loop {
            let mut server = Self::prepare(options, &programs).await?;
            match server.run().await {
                Ok(()) => return Ok(server),
                Err(_) if attempt < PORT_ATTEMPTS && server.lost_its_port() => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The server that all callers in this process share, each with databases of its own. It ends
    /// with the process.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn shared() -> Result<&'static Self> {
        SHARED
            .get_or_try_init(async || Self::start(&PostgresOptions::default()).await)
            .await
    }

    async fn prepare(options: &PostgresOptions, programs: &Path) -> Result<Self> {
        let directory = cluster::private_directory()?;
        let data = directory.path().join("data");
        cluster::create(programs, &data).await?;
        let port = free_port()?;
        let mut command = cluster::unprivileged(&programs.join("postgres"), directory.path())?;
        command
            .arg("-D")
            .arg(&data)
            .args(settings(options, port, directory.path()));
        let log = directory.path().join("postgres.log");
        // SIGQUIT is its immediate shutdown: like a crash, but it removes its shared memory.
        let process = Process::new("postgres", command, &log, Signal::SIGQUIT)?;
        Ok(Self {
            process,
            directory,
            programs: programs.to_path_buf(),
            port,
        })
    }

    async fn run(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            match self.run_once().await {
                // After a SIGKILL, backends of the previous run may live a moment longer.
                Err(_) if self.is_occupied() && Instant::now() < deadline => {}
                ended => return ended,
            }
        }
    }

    async fn run_once(&mut self) -> Result<()> {
        self.process.start()?;
        let deadline = Deadline::after(READY_LIMIT);
        while !self.is_ready() {
            self.process.wait_for_start(&deadline).await?;
        }
        Ok(())
    }

    /// Reads the server's status file, from which `pg_ctl`, too, learns the state.
    fn is_ready(&self) -> bool {
        let status = fs::read_to_string(self.status_file()).unwrap_or_default();
        let mut lines = status.lines();
        // The file of a killed run is still there at first. The first line is the process id.
        let ours = lines.next() == Some(&self.pid().to_string());
        ours && lines
            .nth(6)
            .is_some_and(|state| state.trim_end() == "ready")
    }

    fn is_occupied(&self) -> bool {
        let tail = self.process.log_tail();
        tail.lines()
            .rev()
            .take(3)
            .any(|line| line.contains("is still in use"))
    }

    fn status_file(&self) -> PathBuf {
        self.directory.path().join("data/postmaster.pid")
    }

    fn lost_its_port(&self) -> bool {
        self.process.log_tail().contains("Address already in use")
    }

    /// A new database, empty, and its URL.
    ///
    /// # Errors
    /// When there is one of that name.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        self.create_database_from(name, "template0").await
    }

    /// A new database that is a copy of `template`, to which nobody may be connected just then.
    ///
    /// # Errors
    /// When there is one of that name, or somebody is connected to the template.
    pub async fn create_database_from(&self, name: &str, template: &str) -> Result<String> {
        let statement = format!(r#"create database "{name}" template "{template}""#);
        self.psql("postgres", &statement).await?;
        Ok(self.url(name))
    }

    /// Runs SQL by way of `psql`: rows as lines, columns separated by `|`.
    ///
    /// # Errors
    /// What the server said.
    pub async fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let mut command = Command::new(self.programs.join("psql"));
        command.args([
            "-XqAt",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            SUPERUSER,
            "-d",
            database,
        ]);
        command
            .arg("-h")
            .arg(self.directory.path())
            .args(["-p", &self.port.to_string()]);
        let output = cluster::execute(command.args(["-c", sql])).await?;
        Ok(output.trim_end().to_owned())
    }

    /// The URL of a database over TCP.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a database over TCP by way of a [`Proxy`](super::Proxy) that listens on `port`.
    #[must_use]
    pub fn url_through(&self, port: u16, database: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{port}/{database}")
    }

    /// The URL of a database over the Unix socket.
    #[must_use]
    pub fn socket_url(&self, database: &str) -> String {
        let directory = self.directory.path().display();
        format!(
            "postgres://{SUPERUSER}@localhost:{}/{database}?host={directory}",
            self.port
        )
    }

    /// Where a [`Proxy`](super::Proxy) reaches it.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
    }

    /// The process id of the postmaster; it changes with each restart.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends the postmaster by SIGKILL; its backends notice and end too. What survives is what was
    /// committed.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&mut self) -> Result<()> {
        self.process.kill9().await
    }

    /// Ends it and all connections at once, as a crash would (`pg_ctl stop -m immediate`). What
    /// survives is what was committed.
    ///
    /// # Errors
    /// When it is not running, or does not end.
    pub async fn stop_immediate(&mut self) -> Result<()> {
        self.process.end(Signal::SIGQUIT).await.map(drop)
    }

    /// Starts it again on its data and addresses, ending it as by
    /// [`stop_immediate`](Self::stop_immediate) first if it runs.
    ///
    /// # Errors
    /// When it does not start again.
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.is_started() {
            self.stop_immediate().await?;
        }
        self.run().await
    }
}

impl Drop for PostgresServer {
    /// Frees the small block of shared memory that a SIGKILL left behind.
    fn drop(&mut self) {
        if self.process.is_started() {
            return;
        }
        let lines = fs::read_to_string(self.status_file()).unwrap_or_default();
        let block = lines
            .lines()
            .nth(6)
            .and_then(|line| line.split_whitespace().nth(1));
        if let Some(id) = block {
            // The system limits such blocks in number, so it is worth a try, and no more.
            let removed = Command::new("ipcrm")
                .args(["-m", id])
                .stderr(Stdio::null())
                .status();
            drop(removed);
        }
    }
}

fn settings(options: &PostgresOptions, port: u16, sockets: &Path) -> Vec<String> {
    let fixed = [
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("unix_socket_directories", sockets.display().to_string()),
        ("max_connections", options.connections_max.to_string()),
        ("fsync", "on".to_owned()),
        ("synchronous_commit", "on".to_owned()),
        // Files in the data directory, which go away with it, also after SIGKILL.
        ("dynamic_shared_memory_type", "mmap".to_owned()),
    ];
    let further = options
        .settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    let all = fixed.into_iter().chain(further);
    all.flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")])
        .collect()
}
