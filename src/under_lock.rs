//! `stockade locks` and `stockade lock`: the catalogue, and a command that runs under a lock, as flock(1) does
//! it on one machine.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::{Args, ValueEnum};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Misconfigured, Secret};
use crate::env::Env;
use crate::lock::postgres::PostgresLocks;
use crate::lock::redis::{Bell, RedisLocks, Server, redlock};
use crate::lock::{Error, Fencing, Guard, Kind, Lock, OwnerId, Released, Terms};

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

    /// The lock's server: `redis://host:port`, `redis+unix:///path` or `postgres://user@host/database`.
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

/// A language of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// English.
    En,
    /// 中文.
    Zh,
}

/// What `stockade locks` is told.
#[derive(Debug, Clone, Args)]
pub struct CatalogueConfig {
    /// Language of the sentences.
    #[arg(long, value_enum, default_value_t = Language::En)]
    pub language: Language,
}

/// The catalogue of locks, as text.
#[must_use]
pub fn catalogue(config: &CatalogueConfig) -> String {
    let english = config.language == Language::En;
    let mut text = String::new();
    for kind in Kind::ALL {
        let entry = kind.entry();
        let (promise, breaks) = match english {
            true => (entry.promise.en, entry.breaks.en),
            false => (entry.promise.zh, entry.breaks.zh),
        };
        let (promises, broken_by) = match english {
            true => ("promises", "broken by"),
            false => ("承诺", "弱点"),
        };
        let naive = match (entry.naive, english) {
            (true, true) => " (naive on purpose)",
            (true, false) => "（故意写错的示例）",
            (false, _) => "",
        };
        text += &format!("{kind}{naive}\n");
        text += &format!("  {promises}: {promise}\n  {broken_by}: {breaks}\n");
        text += &format!("  {}\n  {}\n\n", abilities(*kind), entry.source);
    }
    text
}

fn abilities(kind: Kind) -> String {
    let can = kind.capabilities();
    let fenced = match can.fencing {
        Fencing::None => "",
        Fencing::WhileDataLives => "fenced while the data lives",
        Fencing::Durable => "fenced for good",
    };
    let all = [
        (can.reentrant, "reentrant"),
        (can.fair, "fair"),
        (can.shared, "shared"),
        (!fenced.is_empty(), fenced),
        (can.extends, "prolongs"),
        (can.recovers, "lease"),
        (can.survives_pause, "survives a pause"),
    ];
    let all: Vec<&str> = all.iter().filter(|one| one.0).map(|one| one.1).collect();
    format!("[{}]", all.join(", "))
}

/// Runs the command under the lock: its exit status, or one that says why there is none.
///
/// # Errors
/// [`Misconfigured`] if the kind and the server do not fit.
pub async fn run(config: &LockConfig) -> Result<ExitCode, Misconfigured> {
    let env = Env::default();
    let acquired = match lock(config, &env).await {
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

/// The lock that is asked for.
async fn lock(config: &LockConfig, env: &Env) -> Result<Lock, Error> {
    let terms = Terms {
        lease: Duration::from_millis(config.lease_ms),
        renewing: true,
        hold_max: Duration::from_secs(config.hold_max_seconds),
        ..Terms::default()
    };
    let (kind, name) = (config.kind, config.name.as_str());
    let lock = match config.server.as_slice() {
        servers if kind == Kind::Redlock => {
            let mut masters = Vec::new();
            for url in servers {
                // One that is down now is one that does not answer.
                if let Ok(master) = redis_server(url, env).await {
                    masters.push(master);
                }
            }
            if masters.len() <= servers.len() / 2 {
                return Err(Error::Unreachable(
                    "no majority of the masters answers".into(),
                ));
            }
            redlock(masters, name, terms, env.clone())
        }
        [url] if url.expose().starts_with("postgres") => {
            let locks = PostgresLocks::connect(url.expose(), CALL_TIMEOUT, env.clone()).await?;
            locks.lock(kind, name, terms)?
        }
        [url] => {
            let server = redis_server(url, env).await?;
            RedisLocks::new(server, env.clone()).lock(kind, name, terms)?
        }
        _ => return Err(Error::Unsupported(kind, "live on several servers")),
    };
    match config.shared {
        true => lock.shared(),
        false => Ok(lock),
    }
}

async fn redis_server(url: &Secret, env: &Env) -> Result<Server<ConnectionManager>, Error> {
    let malformed = |error: redis::RedisError| Error::Refused(error.to_string());
    let client = redis::Client::open(url.expose()).map_err(malformed)?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_connection_timeout(Some(CALL_TIMEOUT));
    let connection = ConnectionManager::new_with_config(client.clone(), config).await;
    let connection = connection.map_err(|error| Error::Unreachable(error.to_string()))?;
    Ok(Server::new(connection, CALL_TIMEOUT).with_bell(Bell::start(client, env)))
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
