//! Holders that are processes: several at once, one that is killed, one that is stopped.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use loadtest::servers::{MariadbServer, PostgresServer, RedisOptions, RedisServer};
use nix::sys::signal::Signal;
use stockade::env::Env;
use stockade::lock::resource::RedisValue;
use stockade::lock::{Fencing, Kind, Lock, OwnerId, Released};
use stockade::under_lock::lock;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::holder::{Holder, Wanted};
use super::support::{OF_REDIS, take, try_as};
use super::{TIMEOUT, server};

const PROCESSES: u64 = 4;
/// Critical sections of each process.
const TURNS: u64 = 25;
const HANG_LIMIT: Duration = Duration::from_secs(90);
const IN_DATABASES: [Kind; 3] = [Kind::LeaseRow, Kind::RowLock, Kind::Advisory];

/// `examples/contend.rs`, built from the sources that are tested: `cargo test --test it` builds no examples.
pub(super) async fn contend() -> &'static Path {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let build = async || {
        let tests = std::env::current_exe().unwrap();
        let profile = tests.parent().and_then(Path::parent).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["build", "--locked", "--quiet", "--all-features"])
            .args(["--package", "stockade", "--example", "contend"])
            .arg("--target-dir")
            .arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().await.unwrap().success(), "it does not build");
        profile.join("examples/contend")
    };
    PROGRAM.get_or_init(build).await
}

/// A process that contends; it has said that it is ready.
pub(super) struct Contender {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Contender {
    pub(super) async fn ready(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let waiting = tokio::time::timeout(HANG_LIMIT, said.read_line(&mut line));
        waiting.await.expect("it is not ready").unwrap();
        assert_eq!(line.trim(), "ready");
        Self { child, said }
    }

    /// The first and the last number that it wrote.
    pub(super) async fn ends(mut self) -> (u64, u64) {
        let mut rest = String::new();
        let ending = async {
            self.said.read_to_string(&mut rest).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = tokio::time::timeout(HANG_LIMIT, ending).await;
        let status = status.expect("it does not end");
        assert!(status.success(), "{status}");
        let numbers = rest.trim().split_once(' ').expect("two numbers");
        (numbers.0.parse().unwrap(), numbers.1.parse().unwrap())
    }
}

pub(super) async fn ours(wanted: &Wanted, file: &Path, turns: u64) -> Command {
    let mut command = Command::new(contend().await);
    command
        .args(["--kind", wanted.kind.name(), "--server", &wanted.server])
        .args(["--lease-ms", &wanted.lease.as_millis().to_string()])
        .arg(&wanted.name)
        .arg(file)
        .arg(turns.to_string());
    command
}

/// Real servers, and which kinds live where.
struct Servers {
    masters: Vec<RedisServer>,
    postgres: String,
    mariadb: String,
}

impl Servers {
    async fn new(database: &str) -> Self {
        let mut masters = Vec::new();
        for _ in 0..3 {
            let redis = RedisServer::start(&RedisOptions::default()).await;
            masters.push(redis.unwrap());
        }
        let postgres = PostgresServer::shared().await.unwrap();
        let mariadb = MariadbServer::shared().await.unwrap();
        Self {
            masters,
            postgres: postgres.create_database(database).await.unwrap(),
            mariadb: mariadb.create_database(database).await.unwrap(),
        }
    }

    /// One name for each correct kind.
    fn all(&self, lease: Duration) -> Vec<Wanted> {
        let masters: Vec<_> = self.masters.iter().map(RedisServer::url).collect();
        let mut all: Vec<(Kind, &str, String)> = Vec::new();
        all.extend(OF_REDIS.map(|kind| (kind, "redis", masters[0].clone())));
        all.push((Kind::Redlock, "redis", masters.join(",")));
        all.extend(IN_DATABASES.map(|kind| (kind, "postgres", self.postgres.clone())));
        all.extend(IN_DATABASES.map(|kind| (kind, "mariadb", self.mariadb.clone())));
        let wanted = |(kind, on, server): (Kind, &str, String)| Wanted {
            kind,
            server,
            lease,
            name: format!("{kind}-on-{on}"),
        };
        all.into_iter().map(wanted).collect()
    }
}

/// Runs a schedule with each correct kind, all at the same time.
async fn each<F: Future<Output = ()> + Send + 'static>(
    all: Vec<Wanted>,
    schedule: impl Fn(Wanted, Lock) -> F,
) {
    let mut running = JoinSet::new();
    let env = Env::default();
    for wanted in all {
        let lock = lock(&wanted.config(), &env).await.unwrap();
        running.spawn(schedule(wanted, lock));
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// All have asked before the first one gets it.
async fn contend_for(wanted: Wanted) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sum");
    std::fs::write(&file, "0").unwrap();
    let env = Env::default();
    let held = take(&lock(&wanted.config(), &env).await.unwrap()).await;
    let mut contenders = Vec::new();
    for _ in 0..PROCESSES {
        let command = ours(&wanted, &file, TURNS).await;
        contenders.push(Contender::ready(command).await);
    }
    held.release().await;
    let mut last = 0;
    for contender in contenders {
        last = last.max(contender.ends().await.1);
    }
    assert_eq!(last, PROCESSES * TURNS, "{wanted:?} has lost some");
    let sum = std::fs::read_to_string(&file).unwrap();
    assert_eq!(sum, last.to_string(), "{wanted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_under_each_correct_lock_lose_no_addition() {
    let servers = Servers::new("processes_contend").await;
    for wanted in servers.all(Duration::from_secs(10)) {
        contend_for(wanted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_process_that_is_killed_is_free_after_its_lease_and_not_before() {
    let servers = Servers::new("processes_killed").await;
    let value = servers.masters[0].url();
    let lease = Duration::from_secs(3);
    each(servers.all(lease), |wanted, lock| {
        let value = value.clone();
        async move {
            let mut holder = Holder::start(&wanted, &value).await;
            assert!(try_as(&lock, OwnerId::random()).await.is_none());
            let killed = Instant::now();
            holder.kill9().await;
            if wanted.kind.capabilities().recovers {
                let early = try_as(&lock, OwnerId::random()).await;
                assert!(early.is_none(), "{wanted:?}: within its lease");
            }
            let next = take(&lock).await;
            let after = killed.elapsed();
            assert!(
                after < lease + Duration::from_secs(2),
                "{wanted:?}: {after:?}"
            );
            assert!(next.fence() > holder.fence || next.fence().is_none());
            assert_eq!(next.release().await, Released::Released, "{wanted:?}");
        }
    })
    .await;
}

/// A pause in the middle of the work: of the whole process, with its renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_stopped_beyond_its_lease_is_one_of_two_holders_and_the_fence_refuses_it() {
    let servers = Servers::new("processes_stopped").await;
    let redis = &servers.masters[0];
    let (url, env) = (redis.url(), Env::default());
    let resources = server(redis, &env).await;
    let lease = Duration::from_millis(800);
    let mut all = servers.all(lease);
    all.retain(|wanted| wanted.kind.capabilities().recovers);
    assert!(all.len() > 8);
    each(all, |wanted, lock| {
        let (url, resources) = (url.clone(), resources.clone());
        async move {
            let mut first = Holder::start(&wanted, &url).await;
            first.signal(Signal::SIGSTOP);
            // It has not ended, and has heard of nothing: two holders.
            let second = take(&lock).await;
            let fenced = wanted.kind.capabilities().fencing != Fencing::None;
            if fenced {
                let fence = second.fence().expect("a fence");
                let value = RedisValue::new(resources, &format!("{}:value", wanted.name));
                assert_eq!(value.read(fence).await.unwrap(), Ok(String::new()));
                // What it does first when it wakes.
                first.tell("write").await;
                first.signal(Signal::SIGCONT);
                assert_eq!(first.says().await, format!("stale {fence}"), "{wanted:?}");
                assert_eq!(value.write(fence, "next").await.unwrap(), Ok(()));
            } else {
                first.signal(Signal::SIGCONT);
            }
            first.tell("lost").await;
            assert_eq!(first.says().await, "lost", "{wanted:?}");
            first.tell("release").await;
            assert_eq!(first.says().await, "NotMine", "{wanted:?}");
            assert!(!second.is_lost(), "{wanted:?}");
            assert_eq!(second.release().await, Released::Released, "{wanted:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_stopped_with_a_lock_of_its_connection_keeps_the_next_one_out() {
    let servers = Servers::new("processes_paused").await;
    let url = servers.masters[0].url();
    let lease = Duration::from_millis(500);
    let mut all = servers.all(lease);
    all.retain(|wanted| wanted.kind.capabilities().survives_pause);
    assert_eq!(all.len(), 4);
    each(all, |wanted, lock| {
        let url = url.clone();
        async move {
            let mut first = Holder::start(&wanted, &url).await;
            first.signal(Signal::SIGSTOP);
            let beyond = lock.acquire(OwnerId::random(), lease * 3).await;
            assert!(beyond.unwrap().is_none(), "{wanted:?}: beside the first");
            first.tell("write").await;
            first.signal(Signal::SIGCONT);
            assert_eq!(first.says().await, "written", "{wanted:?}");
            first.tell("release").await;
            assert_eq!(first.says().await, "Released", "{wanted:?}");
            let second = lock.acquire(OwnerId::random(), TIMEOUT).await.unwrap();
            let second = second.expect("a lock that was released");
            assert!(second.fence() > first.fence, "{wanted:?}");
            second.release().await;
        }
    })
    .await;
}
