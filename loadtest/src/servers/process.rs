//! One child process: started, signalled, waited for, and never left behind.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::reaper;
use super::wait::Deadline;

/// How long a process may take to end after a polite signal.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How long a killed process may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How much of a log a failure shows.
const TAIL_BYTES: u64 = 4096;

/// A program that can be started, ended in several ways and started again, one run at a time.
///
/// Standard output and standard error go to one log file, run after run. The process is in a
/// process group of its own, so that a Ctrl-C on the terminal reaches only us. Dropping the value
/// ends it at once; if the thread is panicking, the end of its log is printed first.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    command: Command,
    log: PathBuf,
    farewell: Signal,
    child: Option<Child>,
}

impl Process {
    /// Prepares `command`, which is not started yet. `farewell` ends it when nobody needs it any
    /// more: SIGKILL unless the program would then leave something behind.
    ///
    /// # Errors
    /// When the log file cannot be opened.
    pub(super) fn new(
        name: &'static str,
        mut command: Command,
        log: &Path,
        farewell: Signal,
    ) -> Result<Self> {
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let output = open().with_context(|| format!("cannot write {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        Ok(Self {
            name,
            command,
            log: log.to_path_buf(),
            farewell,
            child: None,
        })
    }

    /// Starts a run.
    ///
    /// # Errors
    /// When the program cannot be started.
    ///
    /// # Panics
    /// When the previous run has not ended.
    pub(super) fn start(&mut self) -> Result<()> {
        assert!(self.child.is_none(), "{} is already running", self.name);
        let child = self.command.spawn().with_context(|| {
            format!(
                "cannot start {}",
                self.command.get_program().to_string_lossy()
            )
        })?;
        reaper::watch_process(child.id(), self.farewell)?;
        self.child = Some(child);
        Ok(())
    }

    /// The process id of the current run.
    ///
    /// # Panics
    /// When it is not running.
    pub(super) fn pid(&self) -> u32 {
        self.child
            .as_ref()
            .map_or_else(|| panic!("{} is not running", self.name), Child::id)
    }

    /// The file that holds everything the process has printed, in all runs.
    pub(super) fn log_path(&self) -> &Path {
        &self.log
    }

    /// Everything printed since byte `offset` of the log.
    pub(super) fn log_since(&self, offset: u64) -> Result<String> {
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The length of the log now, for [`log_since`](Self::log_since).
    pub(super) fn log_length(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |metadata| metadata.len())
    }

    /// The last few kilobytes of the log.
    pub(super) fn log_tail(&self) -> String {
        let start = self.log_length().saturating_sub(TAIL_BYTES);
        self.log_since(start)
            .unwrap_or_else(|error| format!("(no log: {error})"))
    }

    /// Sends a signal to the current run.
    ///
    /// # Errors
    /// When the process is not running.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref();
        let child = child.with_context(|| format!("{} is not running", self.name))?;
        let pid = Pid::from_raw(i32::try_from(child.id()).context("process id out of range")?);
        signal::kill(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// How the current run ended, if it has.
    pub(super) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        let Some(child) = self.child.as_mut() else {
            bail!("{} is not running", self.name);
        };
        let Some(status) = child.try_wait()? else {
            return Ok(None);
        };
        reaper::forget_process(child.id())?;
        self.child = None;
        Ok(Some(status))
    }

    /// Waits until the current run has ended by itself.
    ///
    /// # Errors
    /// When it has not within `limit`.
    pub(super) async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Deadline::after(limit);
        let what = format!("{} to end", self.name);
        loop {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            deadline.pause(&what).await?;
        }
    }

    /// Ends the current run politely, by `signal`, and waits for it.
    pub(super) async fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        self.wait(STOP_LIMIT).await
    }

    /// Ends the current run as a power failure would: nothing of its code runs any more.
    ///
    /// # Errors
    /// When it is not running.
    pub(super) async fn kill9(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.wait(KILL_LIMIT).await.map(drop)
    }

    /// Waits a moment for a start that is not complete yet. An error, with the end of the log, if
    /// the process has ended instead or the deadline has passed.
    pub(super) async fn wait_for_start(&mut self, deadline: &Deadline) -> Result<()> {
        let waited = match self.exited()? {
            Some(status) => Err(anyhow::anyhow!("{} ended: {status}", self.name)),
            None => deadline.pause(&format!("{} to be ready", self.name)).await,
        };
        waited
            .map_err(|error| anyhow::anyhow!("{error:#}; the end of its log:\n{}", self.log_tail()))
    }

    /// Whether a run was started and has not been found ended.
    pub(super) fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// Ends the current run, if any, at once and waits for it without the help of a runtime.
    pub(super) fn end_now(&mut self) -> Result<()> {
        if self.child.is_none() || self.exited()?.is_some() {
            return Ok(());
        }
        self.signal(self.farewell)?;
        // A stopped process would take no signal but SIGKILL.
        self.signal(Signal::SIGCONT)?;
        let mut child = self.child.take().expect("it was running a moment ago");
        child.wait()?;
        reaper::forget_process(child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- the end of the log of {} ---\n{}",
                self.name,
                self.log_tail()
            );
        }
        if let Err(error) = self.end_now() {
            eprintln!("{} may still be running: {error:#}", self.name);
        }
    }
}
