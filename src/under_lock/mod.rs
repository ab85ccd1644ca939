//! `stockade locks` and `stockade lock`: the catalogue, and a command that runs under a lock, as flock(1) does
//! it on one machine.

mod catalogue;
mod server;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::Args;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Misconfigured, Secret};
use crate::env::Env;
use crate::lock::{Error, Guard, Kind, OwnerId, Released};

pub use catalogue::{CatalogueConfig, Language, catalogue};
pub use server::lock;

/// The server of the lock does not answer (sysexits.h: `EX_UNAVAILABLE`).
const EXIT_UNREACHABLE: u8 = 69;
/// The lock was not free in time (`EX_TEMPFAIL`).
const EXIT_NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran (`EX_PROTOCOL`).
const EXIT_LOST: u8 = 76;
/// The command cannot be run, or was not found, as a shell says it.
const EXIT_CANNOT_RUN: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;
/// A command that a signal ended: this and the signal's number.
const EXIT_SIGNALLED: i32 = 128;

/// How long one call to the server may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// A command that must end has this long after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// What `stockade lock` is told.
#[derive(Debug, Clone, Args)]
pub struct LockConfig {
    /// Kind of lock; `stockade locks` lists them.
    #[arg(
        long,
        visible_alias = "backend",
        value_name = "KIND",
        default_value = "watchdog"
    )]
    pub kind: Kind,

    /// The lock's server: `redis://host:port`, `redis+unix:///path`, `postgres://user@host/database`,
    /// `mysql://user@host/database`, `etcd://host:port,…`, `mongodb://host:port,…/database` or
    /// `zookeeper://host:port,…/path`.
    /// Redlock takes several.
    #[arg(
        long,
        env = "STOCKADE_LOCK_SERVER",
        hide_env_values = true,
        value_name = "URL",
        value_delimiter = ',',
        default_value = "redis://127.0.0.1:6379"
    )]
    pub server: Vec<Secret>,

    /// How long the server keeps the lock if this process dies, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10_000,
        value_parser = clap::value_parser!(u64).range(100..=86_400_000))]
    pub lease_ms: u64,

    /// How long to wait for the lock, in milliseconds; 0: not at all.
    #[arg(long, value_name = "MS", default_value_t = 60_000,
        value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
    pub wait_ms: u64,

    /// How long the lock is held at the most, in seconds: its lease is renewed no longer than that.
    #[arg(long, value_name = "S", default_value_t = 3_600,
        value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub hold_max_seconds: u64,

    /// Ask again every so many milliseconds instead of being woken: for a lock that others release without a
    /// word, as redis-py does.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub poll_ms: Option<u64>,

    /// Hold the lock together with others that share it.
    #[arg(long)]
    pub shared: bool,

    /// Name of the lock; of a `multi` lock the names, separated by commas.
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The command, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Runs the command under the lock: its exit status, or one that says why there is none.
///
/// # Errors
/// [`Misconfigured`] if the kind and the server do not fit.
pub async fn run(config: &LockConfig) -> Result<ExitCode, Misconfigured> {
    let env = Env::default();
    let acquired = match server::lock(config, &env).await {
        Ok(lock) => {
            let wait = Duration::from_millis(config.wait_ms);
            lock.acquire(OwnerId::random(), wait).await
        }
        Err(error) => Err(error),
    };
    let status = match acquired {
        Ok(Some(guard)) => work(guard, config).await,
        Ok(None) => {
            let (name, waited) = (&config.name, config.wait_ms);
            eprintln!("stockade: the lock {name} was not free within {waited} ms; try --wait-ms");
            EXIT_NOT_ACQUIRED.into()
        }
        Err(error @ (Error::Unreachable(_) | Error::Stopped)) => {
            eprintln!("stockade: {error}; is --server right?");
            EXIT_UNREACHABLE.into()
        }
        Err(error) => return Err(Misconfigured(format!("--kind {}: {error}", config.kind))),
    };
    // A release that is on its way behind somebody's back.
    env.stop(CALL_TIMEOUT * 2).await;
    Ok(status)
}

/// Runs the command, and ends it if the lock is lost meanwhile.
async fn work(guard: Guard, config: &LockConfig) -> ExitCode {
    let (program, arguments) = config
        .command
        .split_first()
        .expect("clap requires a command");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("STOCKADE_LOCK_NAME", &config.name);
    if let Some(fence) = guard.fence() {
        command.env("STOCKADE_LOCK_FENCE", fence.to_string());
    }
    // With its children it is one group, which can be ended as a whole; but from a terminal only the group in
    // front may read.
    let group = !std::io::stdin().is_terminal();
    if group {
        command.process_group(0);
    }
    let mut child = match command.kill_on_drop(true).spawn() {
        Ok(child) => child,
        Err(error) => {
            guard.release().await;
            eprintln!("stockade: {} cannot be run: {error}", program.display());
            let not_found = error.kind() == std::io::ErrorKind::NotFound;
            return if not_found {
                EXIT_NOT_FOUND
            } else {
                EXIT_CANNOT_RUN
            }
            .into();
        }
    };
    let status = tokio::select! {
        status = outlast(&mut child, group) => status,
        lost = guard.lost() => {
            let ago = lost.since.elapsed().as_millis();
            eprintln!("stockade: the lock {} is lost since {ago} ms; ending the command", config.name);
            end(&mut child, group).await;
            return EXIT_LOST.into();
        }
    };
    match guard.release().await {
        Released::Released => exit_code(status),
        Released::NotMine => {
            eprintln!(
                "stockade: the lock {} was lost before the command ended",
                config.name
            );
            EXIT_LOST.into()
        }
        Released::Unknown => {
            eprintln!(
                "stockade: the lock's server does not answer; the lease frees {}",
                config.name
            );
            exit_code(status)
        }
    }
}

/// Waits for the command, which gets the signals that come meanwhile.
async fn outlast(child: &mut Child, group: bool) -> Option<ExitStatus> {
    let mut terminate = signal(SignalKind::terminate()).ok()?;
    let mut interrupt = signal(SignalKind::interrupt()).ok()?;
    loop {
        let pid = child.id();
        tokio::select! {
            status = child.wait() => return status.ok(),
            _ = terminate.recv() => tell(pid, group, Signal::SIGTERM),
            _ = interrupt.recv() => tell(pid, group, Signal::SIGINT),
        }
    }
}

/// Ends the command: asks first, and does not wait long.
async fn end(child: &mut Child, group: bool) {
    let pid = child.id();
    tell(pid, group, Signal::SIGTERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        tell(pid, group, Signal::SIGKILL);
        let _ = child.wait().await;
    }
}

fn tell(pid: Option<u32>, group: bool, what: Signal) {
    let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) else {
        return;
    };
    // It may have ended by itself meanwhile.
    let _ = match group {
        true => killpg(Pid::from_raw(pid), what),
        false => kill(Pid::from_raw(pid), what),
    };
}

/// As a shell says it.
fn exit_code(status: Option<ExitStatus>) -> ExitCode {
    let code = status.and_then(|status| {
        let signalled = status.signal().map(|signal| EXIT_SIGNALLED + signal);
        status.code().or(signalled)
    });
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
