//! How those who wait come to know that a lock is free: told, or by themselves when nobody says a word.

use std::time::Duration;

use loadtest::servers::{Direction, Proxy, eventually};
use redis::AsyncCommands as _;
use redis::aio::{ConnectionManager, MultiplexedConnection};
use stockade::env::Env;
use stockade::lock::gate::Gate;
use stockade::lock::redis::{Bell, RedisLocks, Server};
use stockade::lock::{Kind, OwnerId, Waiting};
use tokio::time::Instant;

use super::queue::{HANG_LIMIT, Scene, WAITER_LEASE, granted, terms, waits};
use super::support::{LONG, take};

async fn listeners(connection: &MultiplexedConnection, channel: &str) -> u32 {
    let mut ask = redis::cmd("PUBSUB");
    ask.arg("NUMSUB").arg(channel);
    let said: (String, u32) = ask.query_async(&mut connection.clone()).await.unwrap();
    said.1
}

/// Waits until somebody listens for a release.
async fn listened_to(scene: &Scene, channel: &str) {
    eventually("a subscription", async || {
        (listeners(&scene.connection, channel).await > 0).then_some(())
    })
    .await
    .unwrap();
}

/// How many commands the server has had so far, those in scripts too.
async fn commands(scene: &Scene) -> u64 {
    let commands = scene.redis.info("total_commands_processed").await;
    commands.unwrap().trim().parse().unwrap()
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
    let (gate, mut steps) = Gate::new(connection);
    let server = Server::new(gate, HANG_LIMIT).with_bell(Bell::start(behind, &env));
    let locks = RedisLocks::new(server, env);
    let lock = locks
        .lock(Kind::TokenLua, "goods", terms(LONG, Waiting::Woken))
        .unwrap();
    let holder = take(&scene.lock(Kind::TokenLua)).await;
    let waiting = waits(&lock);
    // Without a subscription it looks again every now and then, however long the lease in the way is.
    for word in ["SET", "PTTL", "SET", "PTTL"] {
        let step = tokio::time::timeout(HANG_LIMIT, steps.next()).await;
        let step = step.expect("a look").expect("a client");
        assert!(step.command().starts_with(word), "{}", step.command());
        step.pass().await;
    }
    let freely = async move {
        while let Some(step) = steps.next().await {
            step.pass().await;
        }
    };
    tokio::spawn(freely);
    holder.release().await;
    granted(waiting).await.release().await;
    // The next one has one.
    proxy.restore().await;
    let holder = take(&scene.lock(Kind::TokenLua)).await;
    let waiting = waits(&lock);
    listened_to(&scene, "{goods}:released").await;
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
        listened_to(&scene, channel).await;
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
            let before = commands(&scene).await;
            let wait = Duration::from_millis(1_200);
            let mut lock = scene.lock(kind);
            let refused = lock.acquire(OwnerId::random(), wait).await;
            assert!(refused.unwrap().is_none());
            if kind == Kind::ReadWrite {
                lock = lock.shared().unwrap();
                let refused = lock.acquire(OwnerId::random(), wait).await;
                assert!(refused.unwrap().is_none());
            }
            let asked = commands(&scene).await - before;
            assert!(asked < 150, "{kind}, {lease_ms:?}: {asked} commands");
        }
    }
}
