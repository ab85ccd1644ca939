//! Other people's locks in Redis on the same key as ours: processes of both contend, and none loses an addition.

use std::path::{Path, PathBuf};
use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer, neighbour};
use stockade::env::Env;
use stockade::lock::{Kind, Released};
use stockade::under_lock::lock;
use tokio::process::Command;

use super::holder::Wanted;
use super::processes::{Contender, ours};
use super::support::take;

/// Of each side.
const PROCESSES: usize = 3;
/// Critical sections of each process: a thousand in all.
const TURNS: u64 = 167;
/// How often ours ask: a neighbour frees the lock without a word.
const ASK_AGAIN_MS: &str = "3";

fn script(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/neighbours").join(file)
}

/// Three of ours and three of a neighbour's, all of which have asked before the first one gets it.
async fn contend(wanted: &Wanted, theirs: impl Fn(&Path) -> Command) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sum");
    std::fs::write(&file, "0").unwrap();
    let env = Env::default();
    let held = take(&lock(&wanted.config(), &env).await.unwrap()).await;
    let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
    for _ in 0..PROCESSES {
        let mut command = ours(wanted, &file, TURNS).await;
        command.args(["--poll-ms", ASK_AGAIN_MS]);
        of_ours.push(Contender::ready(command).await);
        let mut command = theirs(&file);
        command.arg(TURNS.to_string());
        of_theirs.push(Contender::ready(command).await);
    }
    assert_eq!(held.release().await, Released::Released);
    let (ours, theirs) = (span(of_ours).await, span(of_theirs).await);
    let all = 2 * PROCESSES as u64 * TURNS;
    let sum = std::fs::read_to_string(&file).unwrap();
    assert_eq!(sum, all.to_string(), "some are lost");
    // They were at it at the same time.
    println!("ours {ours:?}, theirs {theirs:?}");
    assert!(ours.0 < theirs.1 && theirs.0 < ours.1);
}

/// The first and the last number that any of them wrote.
async fn span(contenders: Vec<Contender>) -> (u64, u64) {
    let mut span = (u64::MAX, 0);
    for contender in contenders {
        let (first, last) = contender.ends().await;
        span = (span.0.min(first), span.1.max(last));
    }
    span
}

async fn masters(count: usize) -> (Vec<RedisServer>, String) {
    let mut masters = Vec::new();
    for _ in 0..count {
        let redis = RedisServer::start(&RedisOptions::default()).await;
        masters.push(redis.unwrap());
    }
    let urls: Vec<_> = masters.iter().map(RedisServer::url).collect();
    (masters, urls.join(","))
}

fn wanted(kind: Kind, server: String) -> Wanted {
    Wanted {
        kind,
        server,
        lease: Duration::from_secs(10),
        name: "goods".into(),
    }
}

#[tokio::test]
async fn ours_and_redis_pys_lock_exclude_each_other() {
    let (_redis, url) = masters(1).await;
    contend(&wanted(Kind::TokenLua, url.clone()), |file| {
        let mut python = Command::new(neighbour("venv/bin/python").unwrap());
        python
            .arg(script("redis_py_lock.py"))
            .args([&url, "goods"])
            .arg(file);
        python
    })
    .await;
}

#[tokio::test]
async fn ours_and_npms_redlock_exclude_each_other_on_three_masters() {
    let (_masters, urls) = masters(3).await;
    contend(&wanted(Kind::Redlock, urls.clone()), |file| {
        let mut node = Command::new("node");
        node.env("NODE_PATH", neighbour("node/node_modules").unwrap())
            .arg(script("redlock.js"))
            .args([&urls, "goods"])
            .arg(file);
        node
    })
    .await;
}
