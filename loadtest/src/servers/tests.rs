//! The servers' own promises: they survive what they should, and leave nothing behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::AsyncCommands as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{
    Append, PostgresOptions, PostgresServer, Proxy, RedisOptions, RedisServer, Service,
    ServiceOptions, eventually, eventually_within,
};

fn is_alive(pid: u32) -> bool {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), None).is_ok()
}

async fn set(server: &RedisServer, value: &str) {
    let mut connection = server.connection().await.unwrap();
    connection.set::<_, _, ()>("key", value).await.unwrap();
}

async fn get(server: &RedisServer) -> Option<String> {
    let mut connection = server.connection().await.unwrap();
    connection.get("key").await.unwrap()
}

#[tokio::test]
async fn a_redis_with_an_append_only_file_finds_its_data_again_after_a_kill() {
    let options = RedisOptions {
        append: Append::Always,
        ..RedisOptions::default()
    };
    let mut server = RedisServer::start(&options).await.unwrap();
    set(&server, "kept").await;
    let (pid, url) = (server.pid(), server.url());
    server.kill9().await.unwrap();
    assert!(!is_alive(pid));
    server.restart().await.unwrap();
    assert_eq!(get(&server).await.as_deref(), Some("kept"));
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), pid);
}

#[tokio::test]
async fn a_redis_without_an_append_only_file_restarts_empty() {
    let options = RedisOptions {
        append: Append::Off,
        socket: false,
        ..RedisOptions::default()
    };
    let mut server = RedisServer::start(&options).await.unwrap();
    set(&server, "lost").await;
    server.stop().await.unwrap();
    server.restart().await.unwrap();
    assert_eq!(get(&server).await, None);
}

#[tokio::test]
async fn a_redis_listens_only_where_it_was_asked_to_and_obeys_its_memory_bound() {
    let maxmemory_bytes = Some(3_000_000);
    let options = RedisOptions {
        tcp: false,
        maxmemory_bytes,
        ..RedisOptions::default()
    };
    let server = RedisServer::start(&options).await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let config: Vec<String> = redis::cmd("CONFIG")
        .arg("GET")
        .arg("port")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(config, ["port", "0"]);
    let large = "x".repeat(4_000_000);
    let set = connection.set::<_, _, ()>("large", large).await;
    let error = set.expect_err("memory is full");
    assert!(error.to_string().contains("maxmemory"), "{error}");
}

#[tokio::test]
async fn a_paused_redis_answers_once_it_is_resumed() {
    let server = RedisServer::start(&RedisOptions::default()).await.unwrap();
    set(&server, "before").await;
    server.pause().unwrap();
    let paused = async || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).ok()?;
        stat.contains(") T ").then_some(())
    };
    eventually("redis-server to stand still", paused)
        .await
        .unwrap();
    let answer = tokio::join!(get(&server), async { server.resume().unwrap() }).0;
    assert_eq!(answer.as_deref(), Some("before"));
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log() {
    let args = vec!["--no-such-option".to_owned(), "1".to_owned()];
    let options = RedisOptions {
        args,
        ..RedisOptions::default()
    };
    let error = RedisServer::start(&options).await.unwrap_err().to_string();
    assert!(
        error.contains("redis-server ended") && error.contains("no-such-option"),
        "{error}"
    );
}

#[tokio::test]
async fn a_postgres_keeps_what_was_committed_over_a_kill_and_a_crash() {
    let mut server = PostgresServer::start(&PostgresOptions::default())
        .await
        .unwrap();
    let url = server.create_database("shop").await.unwrap();
    server
        .psql("shop", "create table t (n int); insert into t values (1)")
        .await
        .unwrap();
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    server
        .psql("shop", "insert into t values (2)")
        .await
        .unwrap();
    server.stop_immediate().await.unwrap();
    server.restart().await.unwrap();
    assert_eq!(
        server
            .psql("shop", "select n from t order by n")
            .await
            .unwrap(),
        "1\n2"
    );
    assert_eq!(server.url("shop"), url);
    server.create_database_from("copy", "shop").await.unwrap();
    assert_eq!(
        server.psql("copy", "select count(*) from t").await.unwrap(),
        "2"
    );
    let durable = "select setting from pg_settings where name in ('fsync', 'synchronous_commit')";
    assert_eq!(server.psql("shop", durable).await.unwrap(), "on\non");
    let directory = server.psql("shop", "show data_directory").await.unwrap();
    drop(server);
    assert!(!Path::new(&directory).exists());
}

#[tokio::test]
async fn a_killed_postgres_leaves_no_shared_memory_behind() {
    let mut server = PostgresServer::start(&PostgresOptions::default())
        .await
        .unwrap();
    let directory = server
        .psql("postgres", "show data_directory")
        .await
        .unwrap();
    let status = std::fs::read_to_string(PathBuf::from(directory).join("postmaster.pid")).unwrap();
    let block = status
        .lines()
        .nth(6)
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .to_owned();
    let blocks = || std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let exists = |list: &str| {
        list.lines()
            .any(|l| l.split_whitespace().nth(1) == Some(&block))
    };
    assert!(exists(&blocks()));
    server.kill9().await.unwrap();
    drop(server);
    let gone = async || (!exists(&blocks())).then_some(());
    eventually("the block to be freed", gone).await.unwrap();
}

/// A stand-in for the service: prints what `script` prints.
fn script(script: &str) -> ServiceOptions {
    let args = vec!["-c".to_owned(), script.to_owned()];
    let env = vec![("GREETING".to_owned(), "hello".to_owned())];
    ServiceOptions {
        binary: PathBuf::from("sh"),
        args,
        env,
    }
}

#[tokio::test]
async fn a_service_is_ready_when_it_has_said_where_it_listens() {
    let forever = "echo $GREETING; echo listening on http://127.0.0.1:4711; \
                   trap 'exit 7' TERM; while :; do sleep 0.05; done";
    let mut service = Service::start(&script(forever)).await.unwrap();
    assert_eq!(service.url(), "http://127.0.0.1:4711");
    assert!(
        service.log_tail().contains("hello"),
        "{}",
        service.log_tail()
    );
    assert_eq!(service.terminate().await.unwrap().code(), Some(7));
    let flag = tempfile::NamedTempFile::new().unwrap();
    let other = format!(
        "echo listening on http://127.0.0.1:4712; while [ -e {} ]; do sleep 0.02; done; exit 3",
        flag.path().display()
    );
    service.restart_with(&script(&other)).await.unwrap();
    assert_eq!(service.url(), "http://127.0.0.1:4712");
    drop(flag);
    let status = service.wait(Duration::from_secs(10)).await.unwrap();
    assert_eq!(status.code(), Some(3));
    let log = service.log_path().to_path_buf();
    drop(service);
    assert!(!log.exists());
}

#[tokio::test]
async fn a_service_that_ends_before_it_listens_is_an_error_with_its_log() {
    let error = Service::start(&script("echo no database >&2; exit 64"))
        .await
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("exit status: 64") && error.contains("no database"),
        "{error}"
    );
}

/// Set in the environment of the victim.
const VICTIM: &str = "LOADTEST_VICTIM";

/// Does something only when the next test runs it, as a process of its own.
#[tokio::test]
async fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let server = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let directory: Vec<String> = redis::cmd("CONFIG")
        .arg("GET")
        .arg("dir")
        .query_async(&mut connection)
        .await
        .unwrap();
    server.pause().unwrap();
    println!("\nstarted {} {}", server.pid(), directory[1]);
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_process_that_is_killed_leaves_neither_servers_nor_directories_behind() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "servers::tests::victim", "--nocapture"]);
    command.env(VICTIM, "1");
    let mut command = tokio::process::Command::from(command);
    let mut victim = command
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let started = loop {
        let line = lines
            .next_line()
            .await
            .unwrap()
            .expect("the victim starts a server");
        if let Some(rest) = line.strip_prefix("started ") {
            break rest.to_owned();
        }
    };
    let (pid, directory) = started.split_once(' ').unwrap();
    let pid: u32 = pid.parse().unwrap();
    assert!(is_alive(pid) && Path::new(directory).exists());
    kill(
        Pid::from_raw(i32::try_from(victim.id().unwrap()).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    victim.wait().await.unwrap();
    let gone = async || (!is_running(pid) && !Path::new(directory).exists()).then_some(());
    eventually_within(Duration::from_secs(20), "the reaper", gone)
        .await
        .unwrap();
}

/// Alive, and not a zombie that its new parent has yet to wait for.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    is_alive(pid) && !stat.contains(") Z ")
}

fn spawnable<T: Send>(_: T) {}

#[expect(
    dead_code,
    reason = "it is enough that it compiles: tests spawn these futures"
)]
fn futures_are_spawnable(
    redis: &mut RedisServer,
    postgres: &mut PostgresServer,
    service: &mut Service,
    options: &ServiceOptions,
) {
    spawnable(RedisServer::start(&RedisOptions::default()));
    spawnable(redis.restart());
    spawnable(PostgresServer::start(&PostgresOptions::default()));
    spawnable(PostgresServer::shared());
    spawnable(postgres.create_database("name"));
    spawnable(postgres.restart());
    spawnable(Service::start(options));
    spawnable(service.restart_with(options));
    spawnable(service.terminate());
    spawnable(Proxy::start(redis.address()));
}
