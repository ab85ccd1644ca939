//! Locks on what stands in for MongoDB.

mod answers;
mod late;

use std::time::Duration;

use loadtest::servers::{MongoStandIn, eventually};
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use stockade::env::Env;
use stockade::lock::conformance::Subject;
use stockade::lock::mongodb::MongodbLocks;
use stockade::lock::{Extended, Guard, Kind, Lock, OwnerId, Released, Terms};
use tokio::process::Command;

use super::{TIMEOUT, conforms};

/// The name of the lock that these tests fight for.
const NAME: &str = "goods";
/// A lease that does not end while a test runs, and one that does.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);
/// The same, with room for a server in Python that many ask at a time.
const SECOND: Duration = Duration::from_secs(1);

fn terms(lease: Duration) -> Terms {
    Terms {
        lease,
        ..Terms::default()
    }
}

/// A private server, and a client that looks at the documents of the locks.
struct Scene {
    server: MongoStandIn,
    documents: Collection<Document>,
    env: Env,
}

impl Scene {
    async fn new() -> Self {
        let server = MongoStandIn::start().await.unwrap();
        let client = Client::with_uri_str(server.url()).await.unwrap();
        Self {
            documents: client.database("stockade").collection("lock"),
            server,
            env: Env::default(),
        }
    }

    async fn locks(&self) -> MongodbLocks {
        self.locks_at(&self.server.url()).await
    }

    async fn locks_at(&self, url: &str) -> MongodbLocks {
        let locks = MongodbLocks::connect(url, TIMEOUT, self.env.clone()).await;
        locks.unwrap()
    }

    async fn lock(&self, lease: Duration) -> Lock {
        let locks = self.locks().await;
        locks.lock(Kind::FindAndModify, NAME, terms(lease)).unwrap()
    }

    async fn document(&self) -> Document {
        let found = self.documents.find_one(doc! { "_id": NAME }).await;
        found.unwrap().expect("a document")
    }

    async fn ends_at_ms(&self) -> i64 {
        self.document().await.get_i64("expiresAtMs").unwrap()
    }

    async fn token(&self) -> String {
        self.document().await.get_str("token").unwrap().to_owned()
    }
}

async fn take(lock: &Lock) -> Guard {
    let guard = lock.acquire(OwnerId::random(), TIMEOUT).await;
    guard.unwrap().expect("the lock gets free")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_mongodb_keeps_the_contract() {
    let scene = Scene::new().await;
    let locks = scene.locks().await;
    for renewing in [false, true] {
        let locks = locks.clone();
        let make = move |name: &str, terms| {
            let terms = Terms { renewing, ..terms };
            locks.lock(Kind::FindAndModify, name, terms).unwrap()
        };
        let subject = Subject::new(Kind::FindAndModify, make);
        conforms(subject.with_short_lease(SECOND)).await;
    }
    assert!(scene.env.stop(TIMEOUT).await, "a task is left");
}

#[tokio::test]
async fn the_fence_outlives_release_lease_and_restart() {
    let mut scene = Scene::new().await;
    let mut latest = 0;
    for _ in 0..2 {
        let lock = scene.lock(SHORT).await;
        for released in [true, false] {
            let guard = take(&lock).await;
            assert_eq!(guard.fence(), Some(latest + 1));
            latest += 1;
            match released {
                true => assert_eq!(guard.release().await, Released::Released),
                false => drop(guard.lost().await),
            }
        }
        scene.server.restart().await.unwrap();
    }
}

/// Nothing sweeps: whoever wants the lock sees that the lease has ended, and the document keeps its number.
#[tokio::test]
async fn a_lease_that_ended_is_taken_over_at_once_and_its_document_stays() {
    let scene = Scene::new().await;
    let lock = scene.lock(SHORT).await;
    let dead = take(&lock).await;
    std::mem::forget(dead);
    let token = scene.token().await;
    let began = tokio::time::Instant::now();
    let next = take(&lock).await;
    let waited = began.elapsed();
    assert!(waited < SHORT + Duration::from_secs(1), "{waited:?}");
    assert_eq!(next.fence(), Some(2));
    assert_ne!(scene.token().await, token);
    assert_eq!(next.release().await, Released::Released);
    // The stand-in keeps small numbers in 32 bits.
    assert_eq!(scene.document().await.get_i32("fence").unwrap(), 2);
}

#[tokio::test]
async fn a_stale_holder_neither_prolongs_nor_releases_the_next_ones_lock() {
    let scene = Scene::new().await;
    let stale = take(&scene.lock(SHORT).await).await;
    let next = take(&scene.lock(LONG).await).await;
    let document = scene.document().await;
    stale.lost().await;
    assert_eq!(stale.extend(LONG).await, Extended::NotMine);
    assert_eq!(stale.release().await, Released::NotMine);
    assert_eq!(scene.document().await, document);
    assert_eq!(next.release().await, Released::Released);
}

/// Somebody has put the document right by hand: the holder hears of it at its next renewal.
#[tokio::test]
async fn a_renewing_holder_whose_document_was_changed_is_told() {
    let scene = Scene::new().await;
    let renewing = Terms {
        renewing: true,
        ..terms(Duration::from_secs(3))
    };
    let locks = scene.locks().await;
    let lock = locks.lock(Kind::FindAndModify, NAME, renewing).unwrap();
    let guard = take(&lock).await;
    let free = doc! { "$set": { "token": "" } };
    let changing = scene.documents.update_one(doc! { "_id": NAME }, free);
    assert_eq!(changing.await.unwrap().modified_count, 1);
    let lost = tokio::time::timeout(TIMEOUT, guard.lost()).await;
    lost.expect("the loss");
    assert_eq!(guard.release().await, Released::NotMine);
}

fn stockade(scene: &Scene, lease_ms: u32, script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stockade"));
    command
        .args(["lock", "--kind", "find-and-modify"])
        .args(["--server", &scene.server.url()])
        .args(["--lease-ms", &lease_ms.to_string()])
        .args([NAME, "--", "sh", "-c", script]);
    command.kill_on_drop(true);
    command
}

#[tokio::test]
async fn the_lock_of_a_killed_process_in_mongodb_is_free_after_its_lease() {
    let scene = Scene::new().await;
    let mut holder = stockade(&scene, 1_000, "exec sleep 5").spawn().unwrap();
    eventually("a holder", async || {
        let found = scene.documents.find_one(doc! { "_id": NAME }).await;
        found.unwrap()
    })
    .await
    .unwrap();
    holder.kill().await.unwrap();
    assert_ne!(scene.token().await, "", "a dead process releases nothing");
    let fenced = "test \"$STOCKADE_LOCK_FENCE\" = 2";
    let next = stockade(&scene, 1_000, fenced).status();
    let next = tokio::time::timeout(TIMEOUT * 4, next)
        .await
        .expect("an end");
    assert!(next.unwrap().success());
    assert_eq!(scene.token().await, "");
}
