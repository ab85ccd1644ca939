//! Locks on a real ZooKeeper.

use std::time::Duration;

use loadtest::servers::{Proxy, ZookeeperServer, eventually_within};
use stockade::env::Env;
use stockade::lock::conformance::Subject;
use stockade::lock::zookeeper::ZookeeperLocks;
use stockade::lock::{Error, Guard, Kind, Lock, OwnerId, Released, Terms};
use zookeeper_client::Client;

use super::{TIMEOUT, conforms};

const SESSION: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(20);

async fn locks(servers: &str, path: &str, env: &Env) -> ZookeeperLocks {
    let url = format!("{servers}/{path}");
    let locks = ZookeeperLocks::connect(&url, SESSION, TIMEOUT, env.clone());
    locks.await.unwrap()
}

async fn take(lock: &Lock) -> Guard {
    let guard = lock.acquire(OwnerId::random(), LIMIT).await;
    guard.unwrap().expect("the lock gets free")
}

async fn lost(guard: &Guard) {
    let lost = tokio::time::timeout(LIMIT, guard.lost()).await;
    lost.expect("the loss");
}

/// The nodes below a path, or none if it is gone.
async fn nodes(client: &Client, path: &str) -> Vec<String> {
    client.list_children(path).await.unwrap_or_default()
}

/// Waits until so many contend.
async fn contenders(client: &Client, path: &str, count: usize) {
    let what = format!("{count} nodes below {path}");
    let seen = eventually_within(LIMIT, &what, async || {
        (nodes(client, path).await.len() == count).then_some(())
    });
    seen.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_locks_of_zookeeper_keep_the_contract() {
    let server = ZookeeperServer::shared().await.unwrap();
    let env = Env::default();
    for kind in [Kind::Zookeeper, Kind::ZookeeperReadWrite] {
        let locks = locks(&server.servers(), kind.name(), &env).await;
        let make = move |name: &str, terms| locks.lock(kind, name, terms).unwrap();
        conforms(Subject::new(kind, make)).await;
        let client = Client::connect(&server.servers()).await.unwrap();
        let root = format!("/{kind}");
        for name in nodes(&client, &root).await {
            contenders(&client, &format!("{root}/{name}"), 0).await;
        }
    }
    assert!(env.stop(TIMEOUT).await, "a task is left");
}

#[tokio::test]
async fn a_node_that_somebody_takes_away_is_a_lost_lock_and_a_lost_place() {
    let server = ZookeeperServer::shared().await.unwrap();
    let env = Env::default();
    let lock = locks(&server.servers(), "deleted", &env).await;
    let lock = lock
        .lock(Kind::Zookeeper, "goods", Terms::default())
        .unwrap();
    let client = Client::connect(&server.servers()).await.unwrap();
    let guard = take(&lock).await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { take(&lock).await }
    });
    contenders(&client, "/deleted/goods", 2).await;
    let mut all = nodes(&client, "/deleted/goods").await;
    all.sort_by_key(|name| name.rsplit('-').next().unwrap().to_owned());
    // The waiter's: it queues again.
    client
        .delete(&format!("/deleted/goods/{}", all[1]), None)
        .await
        .unwrap();
    contenders(&client, "/deleted/goods", 2).await;
    // The holder's: it is told, and the waiter comes in.
    client
        .delete(&format!("/deleted/goods/{}", all[0]), None)
        .await
        .unwrap();
    lost(&guard).await;
    let next = tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap();
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await, Released::NotMine);
    assert_eq!(next.release().await, Released::Released);
}

#[tokio::test]
async fn a_holder_without_a_connection_is_told_before_its_session_ends_and_the_next_one_comes_in_after()
 {
    let server = ZookeeperServer::shared().await.unwrap();
    let env = Env::default();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let (far, near) = (format!("127.0.0.1:{}", proxy.port()), server.servers());
    let lock = |servers: String| {
        let env = env.clone();
        async move {
            let locks = locks(&servers, "cut", &env).await;
            locks
                .lock(Kind::Zookeeper, "goods", Terms::default())
                .unwrap()
        }
    };
    let (cut_off, other) = (lock(far).await, lock(near).await);
    let guard = take(&cut_off).await;
    proxy.blackhole().await;
    lost(&guard).await;
    let early = other.try_acquire(OwnerId::random()).await.unwrap();
    assert!(
        early.is_none(),
        "the session still lived when its holder was told"
    );
    let next = take(&other).await;
    assert!(next.fence() > guard.fence());
    proxy.restore().await;
    assert_ne!(guard.release().await, Released::Released);
    assert_eq!(next.release().await, Released::Released);
    // The old session is over; the next acquisition has a new one and no node of the old one's.
    assert_eq!(take(&cut_off).await.release().await, Released::Released);
}

#[tokio::test]
async fn when_the_answer_to_the_creation_of_a_node_is_lost_the_node_is_found_again_by_its_name() {
    let server = ZookeeperServer::shared().await.unwrap();
    let env = Env::default();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let locks = locks(&format!("127.0.0.1:{}", proxy.port()), "lost", &env).await;
    let client = Client::connect(&server.servers()).await.unwrap();
    for run in 0..10 {
        let name = run.to_string();
        let lock = locks
            .lock(Kind::Zookeeper, &name, Terms::default())
            .unwrap();
        // The directory is there beforehand, so that the first request with a mark is the one that counts.
        assert_eq!(take(&lock).await.release().await, Released::Released);
        // The name, then the length of the data: no other request has that.
        proxy.drop_next_reply(b"-lock-\0\0\0\x20");
        let guard = take(&lock).await;
        assert_eq!(proxy.counts().resets, run + 1, "the trap did not spring");
        contenders(&client, &format!("/lost/{name}"), 1).await;
        assert_eq!(guard.release().await, Released::Released);
        contenders(&client, &format!("/lost/{name}"), 0).await;
    }
}

#[tokio::test]
async fn a_server_that_restarts_takes_every_lock_with_it_and_its_fences_grow() {
    let mut server = ZookeeperServer::start().await.unwrap();
    let env = Env::default();
    let locks = locks(&server.servers(), "restart", &env).await;
    let lock = locks
        .lock(Kind::Zookeeper, "goods", Terms::default())
        .unwrap();
    let mut latest = None;
    for _ in 0..3 {
        let guard = take(&lock).await;
        assert!(guard.fence() > latest);
        latest = guard.fence();
        server.restart().await.unwrap();
        lost(&guard).await;
        drop(guard);
    }
}

#[tokio::test]
async fn a_server_that_stands_still_is_unreachable_and_nothing_is_left_of_who_asked() {
    let server = ZookeeperServer::start().await.unwrap();
    let env = Env::default();
    let quick = Duration::from_secs(1);
    let servers = server.servers();
    let locks = ZookeeperLocks::connect(&servers, SESSION, quick, env.clone());
    let locks = locks.await.unwrap();
    let lock = locks
        .lock(Kind::Zookeeper, "goods", Terms::default())
        .unwrap();
    server.pause().unwrap();
    // The node may be created all the same: it was asked for.
    let asked = lock.try_acquire(OwnerId::random()).await;
    assert!(matches!(asked, Err(Error::Unreachable(_))), "{asked:?}");
    server.resume().unwrap();
    let client = Client::connect(&server.servers()).await.unwrap();
    contenders(&client, "/locks/goods", 0).await;
    assert_eq!(take(&lock).await.release().await, Released::Released);
}

#[tokio::test]
async fn a_name_that_cannot_be_a_nodes_is_refused() {
    let server = ZookeeperServer::shared().await.unwrap();
    let locks = locks(&server.servers(), "names", &Env::default()).await;
    for name in ["", ".", "..", "a/b", "a\0b"] {
        let refused = locks.lock(Kind::Zookeeper, name, Terms::default());
        assert!(matches!(refused, Err(Error::Refused(_))), "{name:?}");
    }
}
