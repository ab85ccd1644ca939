//! Other people's locks in Redis on the same key as ours: processes of both contend, and none loses an addition.

use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer, neighbour};
use stockade::lock::Kind;
use tokio::process::Command;

use super::holder::Wanted;
use super::neighbours::{contend, script};

/// How often ours ask: a neighbour frees the lock without a word.
const ASK_AGAIN: [&str; 2] = ["--poll-ms", "3"];

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
    contend(&wanted(Kind::TokenLua, url.clone()), &ASK_AGAIN, |file| {
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
    contend(&wanted(Kind::Redlock, urls.clone()), &ASK_AGAIN, |file| {
        let mut node = Command::new("node");
        node.env("NODE_PATH", neighbour("node/node_modules").unwrap())
            .arg(script("redlock.js"))
            .args([&urls, "goods"])
            .arg(file);
        node
    })
    .await;
}
