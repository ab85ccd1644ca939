//! Locks on real servers.

mod cancelled;
mod command;
mod deadline;
mod endings;
mod etcd;
mod failover;
mod faults;
mod fencing;
mod heartbeat;
mod holder;
mod identity;
mod loss;
mod memory;
mod mongodb;
mod mysql;
mod naive;
mod neighbours;
mod outages;
mod pooling;
mod postgres;
mod processes;
mod queue;
mod redis_neighbours;
mod redlock;
mod renewal;
mod reports;
mod restarts;
mod results;
mod sessions;
mod slots;
mod support;
mod waking;
mod zookeeper;
mod zookeeper_neighbours;

use std::sync::Arc;
use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer};
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use stockade::env::Env;
use stockade::lock::conformance::{Subject, cases};
use stockade::lock::redis::{Bell, RedisLocks, Server, redlock as redlock_on};
use stockade::lock::{InProcess, Kind};
use tokio::task::JoinSet;

const TIMEOUT: Duration = Duration::from_secs(5);

async fn server(redis: &RedisServer, env: &Env) -> Server<ConnectionManager> {
    let client = redis::Client::open(redis.url()).unwrap();
    let connection = ConnectionManager::new(client.clone()).await.unwrap();
    Server::new(connection, TIMEOUT).with_bell(Bell::start(client, env))
}

/// Runs all cases beside each other; names those that failed.
async fn conforms(subject: Subject) {
    let only = std::env::var("CASE").unwrap_or_default();
    let mut running = JoinSet::new();
    for case in cases() {
        if case.name.contains(&only) {
            let subject = subject.clone();
            running.spawn(async move {
                let outcome = tokio::spawn((case.run)(subject)).await;
                (case.name, outcome)
            });
        }
    }
    let mut failed = Vec::new();
    while let Some(done) = running.join_next().await {
        let (name, outcome) = done.unwrap();
        if outcome.is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{subject:?}: {failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_keeps_the_contract() {
    let (locks, env) = (InProcess::default(), Env::default());
    let make = move |name: &str, terms| locks.lock(name, terms, env.clone());
    conforms(Subject::new(Kind::Mutex, make)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_correct_lock_of_one_redis_keeps_the_contract() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let env = Env::default();
    let locks = Arc::new(RedisLocks::new(server(&redis, &env).await, env.clone()));
    for kind in [
        Kind::TokenLua,
        Kind::Watchdog,
        Kind::Fenced,
        Kind::Reentrant,
        Kind::Fair,
        Kind::ReadWrite,
        Kind::Multi,
    ] {
        let locks = Arc::clone(&locks);
        let make = move |name: &str, terms| locks.lock(kind, name, terms).unwrap();
        conforms(Subject::new(kind, make)).await;
    }
    // Nothing is left: no task, no key but the counters that must outlive every lock.
    assert!(env.stop(TIMEOUT).await, "a task is left");
    let keys: Vec<String> = redis.connection().await.unwrap().keys("*").await.unwrap();
    let counter = |key: &&String| !key.ends_with(":fence") && !key.ends_with(":numbers");
    let left: Vec<_> = keys.iter().filter(counter).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_keeps_the_contract() {
    let env = Env::default();
    let mut masters = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..5 {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        servers.push(server(&redis, &env).await);
        masters.push(redis);
    }
    let make = move |name: &str, terms| redlock_on(servers.clone(), name, terms, env.clone());
    conforms(Subject::new(Kind::Redlock, make)).await;
}
