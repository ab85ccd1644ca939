//! A process that holds a lock until it is told what to do: this very program, which runs one ignored test.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::aio::ConnectionManager;
use stockade::config::Secret;
use stockade::env::Env;
use stockade::lock::redis::Server;
use stockade::lock::resource::RedisValue;
use stockade::lock::{Guard, Kind, OwnerId};
use stockade::under_lock::{LockConfig, lock};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::TIMEOUT;

/// What the process is told by its environment: kind, server, lease in ms, name, and the Redis of the value,
/// a line each.
const WHAT: &str = "STOCKADE_TEST_HOLD";
/// What it says begins so: the test harness may have begun the line.
const MARK: &str = "> ";
/// Its start takes a while beside many others.
const HANG_LIMIT: Duration = Duration::from_secs(30);

/// A lock as a process asks for it.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) kind: Kind,
    pub(super) server: String,
    pub(super) lease: Duration,
    pub(super) name: String,
}

impl Wanted {
    pub(super) fn config(&self) -> LockConfig {
        LockConfig {
            kind: self.kind,
            server: self.server.split(',').map(Secret::from).collect(),
            lease_ms: u64::try_from(self.lease.as_millis()).unwrap(),
            wait_ms: 0,
            hold_max_seconds: 3_600,
            poll_ms: None,
            shared: false,
            name: self.name.clone(),
            command: Vec::new(),
        }
    }
}

pub(super) struct Holder {
    child: Child,
    to: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    pid: Pid,
    pub(super) fence: Option<u64>,
}

impl Holder {
    /// Starts one, which holds the lock when this returns. The value in the Redis at `value` has the lock's
    /// name, and a colon and "value".
    pub(super) async fn start(wanted: &Wanted, value: &str) -> Self {
        let lease_ms = wanted.lease.as_millis().to_string();
        let what = [
            wanted.kind.name(),
            &wanted.server,
            &lease_ms,
            &wanted.name,
            value,
        ];
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = "locks::holder::a_process_that_holds_a_lock";
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        command.env(WHAT, what.join("\n"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
        let mut holder = Self {
            child,
            to,
            said: BufReader::new(from).lines(),
            pid,
            fence: None,
        };
        let said = holder.says().await;
        let fence = said.strip_prefix("held ").expect(&said);
        holder.fence = fence.parse().ok();
        holder
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    /// Dead at once, as after a power failure.
    pub(super) async fn kill9(&mut self) {
        self.child.kill().await.unwrap();
    }

    pub(super) async fn tell(&mut self, word: &str) {
        let line = format!("{word}\n");
        self.to.write_all(line.as_bytes()).await.unwrap();
    }

    pub(super) async fn says(&mut self) -> String {
        let saying = async {
            loop {
                let line = self.said.next_line().await.unwrap().expect("it ended");
                if let Some((_, said)) = line.split_once(MARK) {
                    return said.to_owned();
                }
            }
        };
        tokio::time::timeout(HANG_LIMIT, saying)
            .await
            .expect("a word")
    }
}

/// The other side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process that other tests start"]
async fn a_process_that_holds_a_lock() {
    let Ok(what) = std::env::var(WHAT) else {
        return;
    };
    let what: Vec<&str> = what.lines().collect();
    let wanted = Wanted {
        kind: what[0].parse().unwrap(),
        server: what[1].to_owned(),
        lease: Duration::from_millis(what[2].parse().unwrap()),
        name: what[3].to_owned(),
    };
    let env = Env::default();
    let lock = lock(&wanted.config(), &env).await.unwrap();
    let guard = lock.acquire(OwnerId::random(), TIMEOUT).await.unwrap();
    let guard = guard.expect("a free lock");
    let client = redis::Client::open(what[4]).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    let key = format!("{}:value", wanted.name);
    let value = RedisValue::new(Server::new(connection, TIMEOUT), &key);
    let fence = guard.fence().map_or("-".to_owned(), |it| it.to_string());
    println!("{MARK}held {fence}");
    obey(guard, &value).await;
    env.stop(TIMEOUT).await;
}

/// The next word from outside; nothing when there will be none.
async fn told() -> Option<String> {
    let reading = tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
    reading.await.unwrap().map(Result::unwrap)
}

async fn obey(guard: Guard, value: &RedisValue<ConnectionManager>) {
    while let Some(word) = told().await {
        match word.as_str() {
            "write" => {
                let fence = guard.fence().expect("a fence");
                match value.write(fence, "written").await.unwrap() {
                    Ok(()) => println!("{MARK}written"),
                    Err(stale) => println!("{MARK}stale {}", stale.seen),
                }
            }
            "lost" => {
                guard.lost().await;
                println!("{MARK}lost");
            }
            _ => {
                println!("{MARK}{:?}", guard.release().await);
                return;
            }
        }
    }
}
