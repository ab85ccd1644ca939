//! The service under test, as its own process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::wait::Deadline;
use super::{Process, directory};

/// How long a start may take: it may have to wait for its servers and to migrate.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// What the service prints before its address, once it listens.
const ANNOUNCEMENT: &str = "listening on http://";
/// Variables of the caller's environment that begin so are kept from the service.
const ENVIRONMENT_PREFIX: &str = "STOCKADE_";

/// How to start a [`Service`].
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// The program.
    pub binary: PathBuf,
    /// Its arguments, such as `["serve", "--listen", "127.0.0.1:0"]`.
    pub args: Vec<String>,
    /// Variables to set. Secrets belong here: arguments are visible to every user of the machine.
    pub env: Vec<(String, String)>,
}

/// One process of the service.
///
/// The `STOCKADE_` variables of our own environment are kept from it, so that a test does the
/// same in every shell.
#[derive(Debug)]
pub struct Service {
    // Declared before the directory it uses: dropped, and so ended, first.
    process: Process,
    _directory: TempDir,
    address: SocketAddr,
}

impl Service {
    /// Starts the service and waits until it says where it listens.
    ///
    /// # Errors
    /// When it ends first, or says nothing for 30 seconds; the error carries the end of its log.
    pub async fn start(options: &ServiceOptions) -> Result<Self> {
        let directory = directory("stockade-service-")?;
        let log = directory.path().join("service.log");
        let mut process = process(options, &log)?;
        let address = run(&mut process).await?;
        Ok(Self {
            process,
            _directory: directory,
            address,
        })
    }

    /// The URL of its root, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id; it changes with each restart.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The file that holds what all its runs have printed. It goes away with this value.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        self.process.log_path()
    }

    /// The last few kilobytes of the log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Asks it to finish what is in flight and to end (SIGTERM), and waits for that.
    ///
    /// # Errors
    /// When it is not running, or has not ended within 30 seconds.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.process.end(Signal::SIGTERM).await
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&mut self) -> Result<()> {
        self.process.kill9().await
    }

    /// Waits until it has ended by itself, for instance at a crash point.
    ///
    /// # Errors
    /// When it has not within `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.process.wait(limit).await
    }

    /// Starts it again with the same arguments, ending it by SIGKILL first if it runs. Its address
    /// stays the same if its `--listen` names a port (see [`free_port`](super::free_port)).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.is_started() {
            self.kill9().await?;
        }
        self.address = run(&mut self.process).await?;
        Ok(())
    }

    /// As [`restart`](Self::restart), with other options; the log goes on in the same file.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn restart_with(&mut self, options: &ServiceOptions) -> Result<()> {
        if self.process.is_started() {
            self.kill9().await?;
        }
        self.process = process(options, self.process.log_path())?;
        self.restart().await
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

fn process(options: &ServiceOptions, log: &Path) -> Result<Process> {
    let mut command = Command::new(&options.binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(ENVIRONMENT_PREFIX) {
            command.env_remove(name);
        }
    }
    command
        .args(&options.args)
        .envs(options.env.iter().map(|(name, value)| (name, value)));
    Process::new("stockade", command, log, Signal::SIGKILL)
}

async fn run(process: &mut Process) -> Result<SocketAddr> {
    let offset = process.log_length();
    process.start()?;
    let deadline = Deadline::after(READY_LIMIT);
    loop {
        if let Some(address) = announced(process, offset) {
            return address
                .parse()
                .with_context(|| format!("the service listens on `{address}`"));
        }
        process.wait_for_start(&deadline).await?;
    }
}

fn announced(process: &Process, offset: u64) -> Option<String> {
    let log = process.log_since(offset).ok()?;
    let (_, rest) = log.split_once(ANNOUNCEMENT)?;
    // Only a whole line is the whole address.
    let (address, _) = rest.split_once('\n')?;
    Some(address.trim_end().trim_end_matches('/').to_owned())
}
