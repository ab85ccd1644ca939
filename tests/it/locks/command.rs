//! `stockade lock`: processes that run commands under a lock.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use loadtest::servers::{Proxy, RedisOptions, RedisServer, eventually, free_port};
use redis::AsyncCommands as _;
use tokio::process::{Child, Command};

const HANG_LIMIT: Duration = Duration::from_secs(30);

fn stockade(server: &str, flags: &[&str], name: &str, command: &[&str]) -> Command {
    let mut stockade = Command::new(env!("CARGO_BIN_EXE_stockade"));
    stockade.arg("lock").arg("--server").arg(server).args(flags);
    stockade.arg(name).arg("--").args(command);
    stockade
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    stockade
}

async fn ended(mut child: Child) -> Option<i32> {
    let status: ExitStatus = tokio::time::timeout(HANG_LIMIT, child.wait())
        .await
        .expect("an end")
        .unwrap();
    status.code()
}

/// Lines that a command appends to a file, so that its progress is seen.
async fn says(file: &std::path::Path, word: &str) {
    eventually("a word", async || {
        let said = tokio::fs::read_to_string(file).await.ok()?;
        said.contains(word).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_status_is_the_commands_or_says_why_there_is_none() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let url = redis.url();
    let run = async |flags: &[&str], command: &[&str]| {
        ended(stockade(&url, flags, "goods", command).spawn().unwrap()).await
    };
    assert_eq!(run(&[], &["true"]).await, Some(0));
    assert_eq!(run(&[], &["sh", "-c", "exit 7"]).await, Some(7));
    assert_eq!(run(&[], &["sh", "-c", "kill -9 $$"]).await, Some(137));
    assert_eq!(run(&[], &["/no/such/command"]).await, Some(127));
    assert_eq!(run(&["--kind", "mutex"], &["true"]).await, Some(64));
    assert_eq!(run(&["--kind", "no-such-kind"], &["true"]).await, Some(64));
    assert_eq!(
        run(&["--kind", "fair", "--shared"], &["true"]).await,
        Some(64)
    );
    let fenced = [
        "sh",
        "-c",
        "test \"$STOCKADE_LOCK_NAME $STOCKADE_LOCK_FENCE\" = \"goods 1\"",
    ];
    assert_eq!(run(&["--kind", "fenced"], &fenced).await, Some(0));
    let mut connection = redis.connection().await.unwrap();
    let () = connection.set("goods", "somebody else").await.unwrap();
    assert_eq!(run(&["--wait-ms", "50"], &["true"]).await, Some(75));
    let nobody = format!("redis://127.0.0.1:{}", free_port().unwrap());
    let unreachable = stockade(&nobody, &["--wait-ms", "0"], "goods", &["true"]).spawn();
    assert_eq!(ended(unreachable.unwrap()).await, Some(69));
}

#[tokio::test]
async fn a_lost_lock_ends_the_command_and_all_its_children() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("said");
    let script = format!(
        "(trap 'echo child >> {0}; exit' TERM; echo began >> {0}; for n in $(seq 999); do sleep 0.05; done) & wait",
        file.display()
    );
    let flags = ["--lease-ms", "3000"];
    let child = stockade(&redis.url(), &flags, "goods", &["sh", "-c", &script])
        .spawn()
        .unwrap();
    says(&file, "began").await;
    let mut connection = redis.connection().await.unwrap();
    let () = connection.set("goods", "somebody else").await.unwrap();
    assert_eq!(ended(child).await, Some(76));
    says(&file, "child").await;
    let holder: String = connection.get("goods").await.unwrap();
    assert_eq!(holder, "somebody else");
}

/// Nobody can tell it: the server is as if it hung.
#[tokio::test]
async fn a_holder_that_is_cut_off_ends_its_command_when_its_lease_has_run_out() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let way = Proxy::start(redis.address()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("said");
    let script = format!(
        "(trap 'echo child >> {0}; exit' TERM; echo began >> {0}; for n in $(seq 999); do sleep 0.05; done) & wait",
        file.display()
    );
    let url = format!("redis://{}", way.address());
    let child = stockade(
        &url,
        &["--lease-ms", "2000"],
        "goods",
        &["sh", "-c", &script],
    )
    .spawn()
    .unwrap();
    says(&file, "began").await;
    way.blackhole().await;
    let cut = tokio::time::Instant::now();
    says(&file, "child").await;
    let worked_on = cut.elapsed();
    assert!(worked_on < Duration::from_secs(3), "{worked_on:?}");
    assert_eq!(ended(child).await, Some(76));
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_free_after_its_lease() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("said");
    let script = format!("echo began >> {}; exec sleep 3", file.display());
    let flags = ["--lease-ms", "500"];
    let url = redis.url();
    let mut holder = stockade(&url, &flags, "goods", &["sh", "-c", &script])
        .spawn()
        .unwrap();
    says(&file, "began").await;
    holder.kill().await.unwrap();
    assert_eq!(
        ended(stockade(&url, &flags, "goods", &["true"]).spawn().unwrap()).await,
        Some(0)
    );
}

/// Read, added to and written in three steps by commands of several processes: none is lost.
#[tokio::test]
async fn commands_of_several_processes_never_run_together() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    for kind in [
        "watchdog",
        "fenced",
        "fair",
        "reentrant",
        "read-write",
        "multi",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sum");
        std::fs::write(&file, "0").unwrap();
        let add = format!("n=$(cat {0}); echo $((n + 1)) > {0}", file.display());
        let url = redis.url();
        let process = async || {
            for _ in 0..5 {
                let one = stockade(&url, &["--kind", kind], kind, &["sh", "-c", &add]).spawn();
                assert_eq!(ended(one.unwrap()).await, Some(0));
            }
        };
        tokio::join!(process(), process(), process(), process());
        assert_eq!(
            std::fs::read_to_string(&file).unwrap().trim(),
            "20",
            "{kind}"
        );
    }
}

/// A master that is down counts: of five, each of the two has three, and they share only one.
#[tokio::test]
async fn redlock_needs_a_majority_of_all_masters_and_not_of_those_that_are_up() {
    let mut masters = Vec::new();
    for _ in 0..5 {
        masters.push(RedisServer::start(&RedisOptions::default()).await.unwrap());
    }
    let nobody = format!("redis://127.0.0.1:{}", free_port().unwrap());
    let seen = |numbers: [usize; 3]| {
        let url = |number| match numbers.contains(&number) {
            true => masters[number].url(),
            false => nobody.clone(),
        };
        (0..5).map(url).collect::<Vec<_>>().join(",")
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("said");
    let script = format!(
        "echo began >> {0}; read end; echo ended >> {0}",
        file.display()
    );
    let flags = ["--kind", "redlock", "--wait-ms", "300"];
    let mut first = stockade(&seen([0, 1, 2]), &flags, "goods", &["sh", "-c", &script]);
    let mut first = first.stdin(Stdio::piped()).spawn().unwrap();
    says(&file, "began").await;
    let second = stockade(&seen([2, 3, 4]), &flags, "goods", &["true"]).spawn();
    assert_eq!(ended(second.unwrap()).await, Some(75), "beside the first");
    drop(first.stdin.take());
    says(&file, "ended").await;
    ended(first).await;
    let second = stockade(&seen([2, 3, 4]), &flags, "goods", &["true"]).spawn();
    assert_eq!(ended(second.unwrap()).await, Some(0));
}
