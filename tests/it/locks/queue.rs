//! Those who wait: the dead, the evicted, the many, and those whom nobody wakes.

use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer, eventually};
use redis::AsyncCommands as _;
use redis::aio::{ConnectionManager, MultiplexedConnection};
use stockade::env::Env;
use stockade::lock::gate::Gate;
use stockade::lock::redis::{RedisLocks, Server};
use stockade::lock::{Error, Guard, Kind, Lock, OwnerId, Released, Terms, Waiting};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::TIMEOUT;
use super::support::{LONG, locks, take};

/// Nobody may hang longer.
pub(super) const HANG_LIMIT: Duration = Duration::from_secs(20);
/// After which a waiter of a fair lock that says nothing is taken for dead.
pub(super) const WAITER_LEASE: Duration = Duration::from_secs(1);

pub(super) struct Scene {
    pub(super) redis: RedisServer,
    pub(super) connection: MultiplexedConnection,
    pub(super) locks: RedisLocks<ConnectionManager>,
}

pub(super) fn terms(lease: Duration, waiting: Waiting) -> Terms {
    Terms {
        lease,
        waiting,
        ..Terms::default()
    }
}

impl Scene {
    pub(super) async fn new() -> Self {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let locks = locks(&redis, &Env::default()).await;
        let connection = redis.connection().await.unwrap();
        Self {
            redis,
            connection,
            locks,
        }
    }

    pub(super) fn lock(&self, kind: Kind) -> Lock {
        let terms = terms(LONG, Waiting::Woken);
        self.locks.lock(kind, "goods", terms).unwrap()
    }

    /// Waits until so many are in the fair queue.
    async fn queued(&self, count: usize) {
        eventually("a queue", async || {
            let queued: usize = self.connection.clone().zcard("{goods}:queue").await.ok()?;
            (queued == count).then_some(())
        })
        .await
        .unwrap();
    }
}

async fn members(connection: &MultiplexedConnection, key: &str) -> Vec<(String, f64)> {
    let members = connection.clone().zrange_withscores(key, 0, -1).await;
    members.unwrap()
}

pub(super) fn waits(lock: &Lock) -> JoinHandle<Result<Option<Guard>, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire(OwnerId::random(), LONG).await })
}

pub(super) async fn granted(waiting: JoinHandle<Result<Option<Guard>, Error>>) -> Guard {
    let granted = tokio::time::timeout(HANG_LIMIT, waiting).await;
    granted
        .expect("a grant")
        .unwrap()
        .unwrap()
        .expect("a grant")
}

/// Deadlines of waiters do not add up: ten dead ones, or a hundred, cost what one costs.
#[tokio::test]
async fn dead_waiters_of_a_fair_lock_cost_one_waiters_lease_together() {
    let scene = Scene::new().await;
    let holder = take(&scene.lock(Kind::Fair)).await;
    for number in 1..=10 {
        let client = redis::Client::open(scene.redis.url()).unwrap();
        let connection = ConnectionManager::new(client).await.unwrap();
        let (gate, mut steps) = Gate::new(connection);
        let dying = RedisLocks::new(Server::new(gate, TIMEOUT), Env::default());
        let asks = terms(LONG, Waiting::Woken);
        let waiting = waits(&dying.lock(Kind::Fair, "goods", asks).unwrap());
        while scene
            .connection
            .clone()
            .zcard::<_, u32>("{goods}:queue")
            .await
            .unwrap()
            < number
        {
            steps.next().await.expect("a command").pass().await;
        }
        // Its gate is shut for ever: it says nothing any more, not even farewell.
        drop(steps);
        std::mem::forget(waiting);
    }
    let now: (u64, u64) = redis::cmd("TIME")
        .query_async(&mut scene.connection.clone())
        .await
        .unwrap();
    let until = now.0 * 1_000 + 1_000;
    for number in 0..100 {
        let (mut connection, dead) = (scene.connection.clone(), format!("dead-{number}"));
        let () = connection
            .zadd("{goods}:queue", &dead, 20 + number)
            .await
            .unwrap();
        let () = connection
            .zadd("{goods}:waiters", &dead, until)
            .await
            .unwrap();
    }
    let alive = waits(&scene.lock(Kind::Fair));
    scene.queued(111).await;
    let released = Instant::now();
    holder.release().await;
    granted(alive).await.release().await;
    let took = released.elapsed();
    assert!(took < WAITER_LEASE * 3, "{took:?}");
}

#[tokio::test]
async fn a_live_waiter_that_was_evicted_queues_again_and_is_granted() {
    let scene = Scene::new().await;
    let holder = take(&scene.lock(Kind::Fair)).await;
    let waiting = waits(&scene.lock(Kind::Fair));
    scene.queued(1).await;
    let mut connection = scene.connection.clone();
    let () = connection
        .del(&["{goods}:queue", "{goods}:waiters"])
        .await
        .unwrap();
    scene.queued(1).await;
    holder.release().await;
    granted(waiting).await.release().await;
}

/// A pause longer than its own lease would make a waiter dead each time it sleeps.
#[tokio::test]
async fn a_waiter_that_asks_rarely_keeps_its_place() {
    let scene = Scene::new().await;
    let rarely = terms(LONG, Waiting::Polled(HANG_LIMIT));
    for kind in [Kind::Fair, Kind::ReadWrite] {
        let lock = scene.locks.lock(kind, "goods", rarely).unwrap();
        let holder = take(&lock).await;
        let waiting = waits(&lock);
        let (queue, times) = match kind {
            Kind::Fair => ("{goods}:queue", "{goods}:waiters"),
            _ => ("{goods}:writers", "{goods}:writers"),
        };
        let all = async |key: &str| members(&scene.connection, key).await;
        eventually("a waiter", async || {
            let waits = !all(queue).await.is_empty();
            waits.then_some(())
        })
        .await
        .unwrap();
        let (place, until) = (all(queue).await, all(times).await);
        eventually("another word of it", async || {
            let now = all(times).await;
            assert!(!now.is_empty(), "{kind}: taken for dead");
            (now != until).then_some(())
        })
        .await
        .unwrap();
        if kind == Kind::Fair {
            assert_eq!(all(queue).await, place, "it lost its place");
        }
        holder.release().await;
        granted(waiting).await.release().await;
    }
}

async fn contend(kind: Kind, contenders: usize) {
    let scene = Scene::new().await;
    let lock = scene.lock(kind);
    let holder = take(&lock).await;
    let mut running = JoinSet::new();
    for _ in 0..contenders {
        let lock = lock.clone();
        running.spawn(async move {
            let guard = lock.acquire(OwnerId::random(), LONG).await;
            let guard = guard.unwrap().expect("progress");
            assert_eq!(guard.release().await, Released::Released);
        });
    }
    holder.release().await;
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_contenders_make_progress() {
    for kind in [Kind::TokenLua, Kind::Reentrant, Kind::Fair, Kind::ReadWrite] {
        contend(kind, 100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_contenders_make_progress() {
    for kind in [Kind::TokenLua, Kind::Fair] {
        contend(kind, 500).await;
    }
}

/// Each takes the names in the other's order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_multi_locks_in_opposite_orders_do_not_deadlock() {
    let scene = Scene::new().await;
    let lock = |names: &str| {
        scene
            .locks
            .lock(Kind::Multi, names, terms(LONG, Waiting::Woken))
            .unwrap()
    };
    let take_turns = async |lock: Lock| {
        for _ in 0..50 {
            granted(waits(&lock)).await.release().await;
        }
    };
    tokio::join!(
        take_turns(lock("a,b,c")),
        take_turns(lock("c,b,a")),
        take_turns(lock("b,a"))
    );
}
