//! Locks on a real etcd.

mod answers;
mod late;
mod losses;
mod processes;
mod schedules;

use std::time::Duration;

use etcd_client::{Client, GetOptions};
use loadtest::servers::{EtcdServer, eventually};
use stockade::env::Env;
use stockade::lock::conformance::Subject;
use stockade::lock::etcd::EtcdLocks;
use stockade::lock::{Guard, Kind, Lock, OwnerId, Released, Terms};

use super::{TIMEOUT, conforms};

/// The name of the lock that these tests fight for, and what its keys begin with.
const NAME: &str = "goods";
const PREFIX: &str = "stockade/lock/goods/";

/// The shortest lease of this etcd.
const SECOND: Duration = Duration::from_secs(1);
/// A lease that does not end while a test runs.
const LONG: Duration = Duration::from_secs(30);

fn terms(lease: Duration) -> Terms {
    Terms {
        lease,
        ..Terms::default()
    }
}

/// A private etcd with one lock's keys and leases in it, looked at by a client of its own.
struct Scene {
    server: EtcdServer,
    admin: Client,
    env: Env,
}

/// A key of the lock, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    name: String,
    created: u64,
    lease: i64,
}

impl Scene {
    async fn new() -> Self {
        let server = EtcdServer::start().await.unwrap();
        let address = server.socket_address().to_string();
        Self {
            admin: Client::connect([address], None).await.unwrap(),
            env: Env::default(),
            server,
        }
    }

    async fn locks(&self) -> EtcdLocks {
        let url = self.server.url();
        let locks = EtcdLocks::connect(&url, TIMEOUT, self.env.clone()).await;
        locks.unwrap()
    }

    async fn lock(&self, lease: Duration) -> Lock {
        let locks = self.locks().await;
        locks.lock(Kind::Etcd, NAME, terms(lease)).unwrap()
    }

    async fn keys(&self) -> Vec<Key> {
        let all = GetOptions::new().with_prefix();
        let got = self.admin.kv_client().get(PREFIX, Some(all)).await.unwrap();
        let key = |key: &etcd_client::KeyValue| Key {
            name: key.key_str().unwrap().to_owned(),
            created: key.create_revision().unsigned_abs(),
            lease: key.lease(),
        };
        let mut keys: Vec<_> = got.kvs().iter().map(key).collect();
        keys.sort_by_key(|key| key.created);
        keys
    }

    /// Waits until the lock has so many keys.
    async fn has_keys(&self, number: usize) -> Vec<Key> {
        let keys = eventually("keys", async || {
            let keys = self.keys().await;
            (keys.len() == number).then_some(keys)
        });
        keys.await.unwrap()
    }

    async fn leases(&self) -> Vec<i64> {
        let leases = self.admin.lease_client().leases().await.unwrap();
        leases
            .leases()
            .iter()
            .map(etcd_client::LeaseStatus::id)
            .collect()
    }

    async fn nothing_is_left(&self, what: &str) {
        assert_eq!(self.keys().await, [], "{what}: a key is left");
        assert!(self.leases().await.is_empty(), "{what}: a lease is left");
    }

    async fn revoke(&self, lease: i64) {
        self.admin.lease_client().revoke(lease).await.unwrap();
    }

    async fn delete(&self, key: &Key) {
        let deleting = self.admin.kv_client().delete(key.name.as_str(), None).await;
        assert_eq!(deleting.unwrap().deleted(), 1);
    }
}

async fn take(lock: &Lock) -> Guard {
    let guard = lock.acquire(OwnerId::random(), TIMEOUT * 2).await;
    guard.unwrap().expect("the lock gets free")
}

type Waiter = tokio::task::JoinHandle<Guard>;

fn wait(lock: &Lock) -> Waiter {
    let lock = lock.clone();
    tokio::spawn(async move { take(&lock).await })
}

/// The loss, long before any lease ends.
async fn is_told(guard: &Guard) {
    let lost = tokio::time::timeout(TIMEOUT, guard.lost()).await;
    lost.expect("the loss");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_etcd_keeps_the_contract() {
    let scene = Scene::new().await;
    let locks = scene.locks().await;
    for renewing in [false, true] {
        let locks = locks.clone();
        let make = move |name: &str, terms| {
            let terms = Terms { renewing, ..terms };
            locks.lock(Kind::Etcd, name, terms).unwrap()
        };
        let subject = Subject::new(Kind::Etcd, make);
        conforms(subject.with_short_lease(SECOND)).await;
    }
    assert!(scene.env.stop(TIMEOUT).await, "a task is left");
    let (mut keys, all) = (scene.admin.kv_client(), GetOptions::new().with_all_keys());
    let left = keys.get("", Some(all)).await;
    assert_eq!(left.unwrap().count(), 0, "a key is left");
    assert!(scene.leases().await.is_empty(), "a lease is left");
}

#[tokio::test]
async fn the_fence_is_the_revision_that_created_the_key_and_grows_over_release_and_restart() {
    let mut scene = Scene::new().await;
    let lock = scene.lock(LONG).await;
    let mut latest = 0;
    for _ in 0..3 {
        for _ in 0..2 {
            let guard = take(&lock).await;
            let fence = guard.fence().unwrap();
            assert_eq!(scene.keys().await[0].created, fence);
            assert!(fence > latest, "{fence} after {latest}");
            latest = fence;
            // A renewal is no new turn.
            guard.extend(LONG * 2).await;
            assert_eq!(scene.keys().await[0].created, fence);
            assert_eq!(guard.release().await, Released::Released);
        }
        scene.server.restart().await.unwrap();
    }
}

#[tokio::test]
async fn a_held_lock_outlives_a_restart_of_the_server_and_its_holder_is_still_told_of_its_end() {
    let mut scene = Scene::new().await;
    let lock = scene.lock(LONG).await;
    let guard = take(&lock).await;
    let waiter = wait(&lock);
    scene.has_keys(2).await;
    scene.server.restart().await.unwrap();
    assert!(!guard.is_lost());
    let keys = scene.has_keys(2).await;
    assert!(!waiter.is_finished(), "granted beside its holder");
    scene.delete(&keys[0]).await;
    is_told(&guard).await;
    assert_eq!(guard.release().await, Released::NotMine);
    let next = waiter.await.unwrap();
    assert_eq!(next.release().await, Released::Released);
    scene.nothing_is_left("restart").await;
}

/// With prefixes alone the lock `a` would queue behind those who want `a/b`.
#[tokio::test]
async fn a_lock_is_free_when_those_are_held_whose_names_begin_with_its_own() {
    let scene = Scene::new().await;
    let locks = scene.locks().await;
    let mut guards = Vec::new();
    for name in ["a/b", "a/", "a%2Fb", "ab", "", "a"] {
        let lock = locks.lock(Kind::Etcd, name, terms(LONG)).unwrap();
        let guard = lock.try_acquire(OwnerId::random()).await.unwrap();
        guards.push(guard.expect(name));
        assert!(lock.try_acquire(OwnerId::random()).await.unwrap().is_none());
    }
    for guard in guards {
        assert_eq!(guard.release().await, Released::Released);
    }
}
