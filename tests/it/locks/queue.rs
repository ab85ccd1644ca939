//! Those who wait: the dead, the evicted, the many, and those whom nobody wakes.

use std::time::Duration;

use loadtest::servers::{Direction, Proxy, RedisOptions, RedisServer, eventually};
use redis::AsyncCommands as _;
use redis::aio::{ConnectionManager, MultiplexedConnection};
use stockade::env::Env;
use stockade::lock::gate::Gate;
use stockade::lock::redis::{Bell, RedisLocks, Server};
use stockade::lock::{Error, Guard, Kind, Lock, OwnerId, Released, Terms, Waiting};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{TIMEOUT, server};

const LONG: Duration = Duration::from_secs(30);
/// Nobody may hang longer.
const HANG_LIMIT: Duration = Duration::from_secs(20);
/// After which a waiter of a fair lock that says nothing is taken for dead.
const WAITER_LEASE: Duration = Duration::from_secs(1);

struct Scene {
    redis: RedisServer,
    connection: MultiplexedConnection,
    locks: RedisLocks<ConnectionManager>,
}

fn terms(lease: Duration, waiting: Waiting) -> Terms {
    Terms {
        lease,
        waiting,
        ..Terms::default()
    }
}

impl Scene {
    async fn new() -> Self {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let env = Env::default();
        let locks = RedisLocks::new(server(&redis, &env).await, env.clone());
        let connection = redis.connection().await.unwrap();
        Self {
            redis,
            connection,
            locks,
        }
    }

    fn lock(&self, kind: Kind) -> Lock {
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

    /// How many commands the server has had so far, those in scripts too.
    async fn commands(&self) -> u64 {
        let commands = self.redis.info("total_commands_processed").await;
        commands.unwrap().trim().parse().unwrap()
    }

    /// Waits until somebody listens for a release.
    async fn listened_to(&self, channel: &str) {
        eventually("a subscription", async || {
            (listeners(&self.connection, channel).await > 0).then_some(())
        })
        .await
        .unwrap();
    }
}

async fn listeners(connection: &MultiplexedConnection, channel: &str) -> u32 {
    let mut ask = redis::cmd("PUBSUB");
    ask.arg("NUMSUB").arg(channel);
    let said: (String, u32) = ask.query_async(&mut connection.clone()).await.unwrap();
    said.1
}

async fn members(connection: &MultiplexedConnection, key: &str) -> Vec<(String, f64)> {
    let members = connection.clone().zrange_withscores(key, 0, -1).await;
    members.unwrap()
}

async fn take(lock: &Lock) -> Guard {
    let guard = lock.try_acquire(OwnerId::random()).await;
    guard.unwrap().expect("a free lock")
}

fn waits(lock: &Lock) -> JoinHandle<Result<Option<Guard>, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire(OwnerId::random(), LONG).await })
}

async fn granted(waiting: JoinHandle<Result<Option<Guard>, Error>>) -> Guard {
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

#[tokio::test]
async fn a_lease_that_runs_out_without_a_word_lets_the_waiter_in_in_time() {
    let scene = Scene::new().await;
    let lease = Duration::from_millis(400);
    for kind in [
        Kind::TokenLua,
        Kind::Fenced,
        Kind::Reentrant,
        Kind::Fair,
        Kind::ReadWrite,
        Kind::Multi,
    ] {
        let short = scene
            .locks
            .lock(kind, kind.name(), terms(lease, Waiting::Woken));
        let dead = take(&short.unwrap()).await;
        let long = scene
            .locks
            .lock(kind, kind.name(), terms(LONG, Waiting::Woken));
        let asked = Instant::now();
        let next = granted(waits(&long.unwrap())).await;
        let took = asked.elapsed();
        assert!(took < lease + WAITER_LEASE * 2, "{kind}: {took:?}");
        assert!(dead.is_lost(), "{kind}");
        next.release().await;
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

/// The word of the release goes to nobody, since the subscription is on its way: after it stands, the waiter
/// looks once more.
#[tokio::test]
async fn a_release_before_the_subscription_stands_is_not_missed() {
    let scene = Scene::new().await;
    let proxy = Proxy::start(scene.redis.address()).await.unwrap();
    let client = redis::Client::open(scene.redis.url()).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    let (gate, mut steps) = Gate::new(connection);
    let slow = redis::Client::open(format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    let env = Env::default();
    let server = Server::new(gate, HANG_LIMIT).with_bell(Bell::start(slow, &env));
    let lock =
        RedisLocks::new(server, env).lock(Kind::TokenLua, "goods", terms(LONG, Waiting::Woken));
    let holder = take(&scene.lock(Kind::TokenLua)).await;
    proxy.delay(Direction::ToServer, Duration::from_millis(200));
    let waiting = waits(&lock.unwrap());
    for _ in ["SET", "PTTL"] {
        steps.next().await.expect("a command").pass().await;
    }
    holder.release().await;
    assert_eq!(listeners(&scene.connection, "{goods}:released").await, 0);
    // It looks again by itself, with the subscription there, and finds the lock free.
    let again = tokio::time::timeout(HANG_LIMIT, steps.next())
        .await
        .unwrap();
    assert_eq!(listeners(&scene.connection, "{goods}:released").await, 1);
    let said = again.expect("a command").pass().await;
    assert!(said.contains("nil"), "{said}");
    drop(granted(waiting).await);
}

#[tokio::test]
async fn a_subscription_that_failed_is_tried_again() {
    let scene = Scene::new().await;
    let proxy = Proxy::start(scene.redis.address()).await.unwrap();
    proxy.cut().await;
    let client = redis::Client::open(scene.redis.url()).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    let behind = redis::Client::open(format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    let env = Env::default();
    let server = Server::new(connection, TIMEOUT).with_bell(Bell::start(behind, &env));
    let locks = RedisLocks::new(server, env);
    let lock = locks
        .lock(Kind::TokenLua, "goods", terms(LONG, Waiting::Woken))
        .unwrap();
    // Without a subscription it looks again every now and then.
    let holder = take(&scene.lock(Kind::TokenLua)).await;
    let waiting = waits(&lock);
    eventually("a failed subscription", async || {
        (proxy.counts().resets > 0 || proxy.counts().connections == 0).then_some(())
    })
    .await
    .unwrap();
    holder.release().await;
    granted(waiting).await.release().await;
    // The next one has one.
    proxy.restore().await;
    let holder = take(&scene.lock(Kind::TokenLua)).await;
    let waiting = waits(&lock);
    scene.listened_to("{goods}:released").await;
    holder.release().await;
    granted(waiting).await.release().await;
}

/// A neighbour deletes its key and publishes nothing; a message can be lost, too.
#[tokio::test]
async fn a_release_that_nobody_announces_is_noticed_long_before_the_lease_ends() {
    let scene = Scene::new().await;
    for (kind, channel) in [
        (Kind::TokenLua, "{goods}:released"),
        (Kind::Fenced, "{goods}:released"),
        (Kind::Reentrant, "redisson_lock__channel:{goods}"),
        (Kind::ReadWrite, "{goods}:released"),
    ] {
        let holder = take(&scene.lock(kind)).await;
        let waiting = waits(&scene.lock(kind));
        scene.listened_to(channel).await;
        let () = scene.connection.clone().del("goods").await.unwrap();
        let asked = Instant::now();
        granted(waiting).await.release().await;
        assert!(asked.elapsed() < LONG / 4, "{kind}: {:?}", asked.elapsed());
        drop(holder);
    }
}

/// Whoever waits sleeps: a few calls a second at the most, also for a key that never runs out, such as one of
/// redis-py without a timeout.
#[tokio::test]
async fn whoever_waits_does_not_ask_in_a_tight_loop() {
    let scene = Scene::new().await;
    for kind in [
        Kind::TokenLua,
        Kind::Fenced,
        Kind::Fair,
        Kind::ReadWrite,
        Kind::Multi,
    ] {
        for lease_ms in [Some(30_000), None] {
            let mut connection = scene.connection.clone();
            let () = connection.set("goods", "another:token").await.unwrap();
            if let Some(lease_ms) = lease_ms {
                let () = connection.pexpire("goods", lease_ms).await.unwrap();
            }
            let before = scene.commands().await;
            let wait = Duration::from_millis(1_200);
            let mut lock = scene.lock(kind);
            let refused = lock.acquire(OwnerId::random(), wait).await;
            assert!(refused.unwrap().is_none());
            if kind == Kind::ReadWrite {
                lock = lock.shared().unwrap();
                let refused = lock.acquire(OwnerId::random(), wait).await;
                assert!(refused.unwrap().is_none());
            }
            let asked = scene.commands().await - before;
            assert!(asked < 150, "{kind}, {lease_ms:?}: {asked} commands");
        }
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
