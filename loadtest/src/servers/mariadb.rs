//! A private MariaDB server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::wait::Deadline;
use super::{Process, directory, free_port, programs};

/// How long a start may take, recovery after a crash included.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The server that a whole process shares.
static SHARED: OnceCell<MariadbServer> = OnceCell::const_new();

/// A MariaDB server of our own, as durable as a real one; user `root` needs no password.
///
/// Its data directory and its addresses stay the same over restarts.
#[derive(Debug)]
pub struct MariadbServer {
    // Declared before the directory it uses: dropped, and so ended, first.
    process: Process,
    directory: TempDir,
    client: PathBuf,
    port: u16,
}

impl MariadbServer {
    /// Starts a server and waits until it takes connections.
    ///
    /// # Errors
    /// When MariaDB is not installed (the message says what to install) or does not start.
    pub async fn start() -> Result<Self> {
        let directory = directory("stockade-mariadb-")?;
        let data = directory.path().join("data");
        let install = programs::mariadb("mariadb-install-db")?;
        let mut command = unprivileged(&install, &data);
        command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        run(command).await?;
        let port = free_port()?;
        let mut command = unprivileged(&programs::mariadb("mariadbd")?, &data);
        command
            .arg(format!("--socket={}", socket(directory.path()).display()))
            .arg(format!("--port={port}"))
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve"])
            .args([
                "--innodb-buffer-pool-size=32M",
                "--innodb-log-file-size=16M",
            ]);
        let log = directory.path().join("mariadb.log");
        let process = Process::new("mariadbd", command, &log, Signal::SIGKILL)?;
        let client = programs::mariadb("mariadb")?;
        let mut server = Self {
            process,
            directory,
            client,
            port,
        };
        server.run().await?;
        Ok(server)
    }

    /// The server that all callers in this process share, each with databases of its own. It ends with the
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
        while self.sql("", "select 1").await.is_err() {
            self.process.wait_for_start(&deadline).await?;
        }
        Ok(())
    }

    /// A new database, empty, and its URL.
    ///
    /// # Errors
    /// When there is one of that name.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        self.sql("", &format!("create database `{name}`")).await?;
        Ok(format!("mysql://root@127.0.0.1:{}/{name}", self.port))
    }

    /// Runs SQL by way of the `mariadb` client: rows as lines, columns separated by tabs.
    ///
    /// # Errors
    /// What the server said.
    pub async fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let mut command = Command::new(&self.client);
        command
            .args([
                "--no-defaults",
                "--user=root",
                "--batch",
                "--skip-column-names",
            ])
            .arg(format!(
                "--socket={}",
                socket(self.directory.path()).display()
            ))
            .arg(format!("--database={database}"))
            .args(["--execute", sql]);
        run(command).await
    }

    /// Ends it as a power failure would. What survives is what was committed.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&mut self) -> Result<()> {
        self.process.kill9().await
    }

    /// Starts it again on its data and addresses, ending it as by [`kill9`](Self::kill9) first if it runs.
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

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// MariaDB runs as root only if it is told to.
fn unprivileged(program: &Path, data: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()));
    if Uid::effective().is_root() {
        command.arg("--user=root");
    }
    command
}

/// Runs a command to its end and gives what it printed.
async fn run(command: Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {errors}",
        program.display()
    );
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}
