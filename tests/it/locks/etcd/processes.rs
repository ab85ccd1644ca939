//! Processes that fight for a lock in etcd: ours, and those of etcd's own client.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use loadtest::servers::{EtcdServer, eventually};
use tokio::process::{Child, Command};

use super::Scene;

const HANG_LIMIT: Duration = Duration::from_secs(60);
/// Commands that each process runs under the lock.
const TURNS: u32 = 10;

fn ours(server: &EtcdServer, lease_ms: u32, script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stockade"));
    command
        .args(["lock", "--kind", "etcd", "--server", &server.url()])
        .args(["--lease-ms", &lease_ms.to_string()])
        .args(["goods", "--", "sh", "-c", script]);
    command
}

/// `etcdctl lock`, which uses the `Mutex` of etcd's client library.
fn etcdctl(server: &EtcdServer, script: &str) -> Command {
    let mut command = Command::new("etcdctl");
    command
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints={}", server.socket_address()))
        .args(["lock", "stockade/lock/goods", "--", "sh", "-c", script]);
    command
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.spawn().expect("scripts/install has installed it")
}

async fn succeeds(mut child: Child) {
    let ended = tokio::time::timeout(HANG_LIMIT, child.wait()).await;
    let status = ended.expect("an end").unwrap();
    assert!(status.success(), "{status}");
}

async fn says(file: &Path, word: &str) {
    eventually("a word", async || {
        let said = tokio::fs::read_to_string(file).await.ok()?;
        said.contains(word).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_lock_of_a_killed_process_in_etcd_is_free_after_its_lease() {
    let scene = Scene::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("said");
    let script = format!("echo began >> {}; exec sleep 5", file.display());
    let mut holder = start(ours(&scene.server, 1_000, &script));
    says(&file, "began").await;
    let fence = scene.keys().await[0].created;
    holder.kill().await.unwrap();
    assert_eq!(
        scene.keys().await.len(),
        1,
        "a dead process releases nothing"
    );
    let next = format!("echo fence $STOCKADE_LOCK_FENCE. >> {}", file.display());
    succeeds(start(ours(&scene.server, 1_000, &next))).await;
    let said = std::fs::read_to_string(&file).unwrap();
    let next: u64 = said.split(['.', ' ']).nth(1).unwrap().parse().unwrap();
    assert!(next > fence, "{next} after {fence}");
    scene.nothing_is_left("killed").await;
}

/// Read, added to and written in three steps by processes of both kinds: none is lost, so both wait for each
/// other's keys.
#[tokio::test]
async fn three_processes_of_ours_and_three_of_etcdctl_never_run_together() {
    let scene = Scene::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sum");
    std::fs::write(&file, "0").unwrap();
    let add = format!("n=$(cat {0}); echo $((n + 1)) > {0}", file.display());
    let of_ours = async || {
        for _ in 0..TURNS {
            succeeds(start(ours(&scene.server, 10_000, &add))).await;
        }
    };
    let of_etcd = async || {
        for _ in 0..TURNS {
            succeeds(start(etcdctl(&scene.server, &add))).await;
        }
    };
    tokio::join!(
        of_ours(),
        of_ours(),
        of_ours(),
        of_etcd(),
        of_etcd(),
        of_etcd()
    );
    let sum = std::fs::read_to_string(&file).unwrap();
    assert_eq!(sum.trim(), (6 * TURNS).to_string());
    // etcdctl leaves its lease to time; what is on it goes at once.
    assert_eq!(scene.keys().await, []);
}
