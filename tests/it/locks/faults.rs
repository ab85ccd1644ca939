//! Answers that get lost, servers that forget, and connections that break.

use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer};
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use stockade::env::Env;
use stockade::lock::gate::{Gate, Step, Steps};
use stockade::lock::redis::{RedisLocks, Server};
use stockade::lock::{Extended, Kind, Lock, OwnerId, Released, Terms};

use super::{TIMEOUT, server};

const KINDS: [Kind; 6] = [
    Kind::TokenLua,
    Kind::Fenced,
    Kind::Reentrant,
    Kind::Fair,
    Kind::ReadWrite,
    Kind::Multi,
];
/// When a call is given up.
const CALL_TIMEOUT: Duration = Duration::from_millis(300);

fn terms() -> Terms {
    Terms {
        lease: Duration::from_secs(30),
        ..Terms::default()
    }
}

/// A lock behind a gate, with a server that knows the scripts already.
async fn gated(redis: &RedisServer, kind: Kind) -> (Lock, Steps) {
    let client = redis::Client::open(redis.url()).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    let plain = RedisLocks::new(Server::new(connection.clone(), TIMEOUT), Env::default());
    let warm = plain.lock(kind, "warm", terms()).unwrap();
    let guard = warm.try_acquire(OwnerId::random()).await.unwrap().unwrap();
    guard.extend(TIMEOUT).await;
    guard.release().await;
    let (gate, steps) = Gate::new(connection);
    let locks = RedisLocks::new(Server::new(gate, CALL_TIMEOUT), Env::default());
    (locks.lock(kind, "goods", terms()).unwrap(), steps)
}

/// The client's next command.
async fn next(steps: &mut Steps) -> Step {
    let step = tokio::time::timeout(TIMEOUT, steps.next()).await;
    step.expect("a command").expect("a client")
}

#[tokio::test]
async fn when_the_answer_of_an_acquire_is_lost_it_asks_again_and_has_it_once() {
    for kind in KINDS {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let (lock, mut steps) = gated(&redis, kind).await;
        let acquiring = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire(OwnerId::random(), TIMEOUT).await }
        });
        next(&mut steps).await.lose_answer().await;
        // It did happen, and the same acquisition is granted what it has.
        next(&mut steps).await.pass().await;
        let guard = acquiring.await.unwrap().unwrap().expect("its own lock");
        let releasing = tokio::spawn(guard.release());
        next(&mut steps).await.pass().await;
        assert_eq!(releasing.await.unwrap(), Released::Released, "{kind}");
        let mut connection = redis.connection().await.unwrap();
        let left: bool = connection.exists("goods").await.unwrap();
        assert!(!left, "{kind}");
    }
}

#[tokio::test]
async fn when_nobody_wants_it_any_more_what_a_lost_answer_granted_is_given_back() {
    for kind in KINDS {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let (lock, mut steps) = gated(&redis, kind).await;
        let trying = tokio::spawn({
            let lock = lock.clone();
            async move { lock.try_acquire(OwnerId::random()).await }
        });
        next(&mut steps).await.lose_answer().await;
        assert!(trying.await.unwrap().is_err(), "{kind}");
        next(&mut steps).await.pass().await;
        let mut connection = redis.connection().await.unwrap();
        let left: bool = connection.exists("goods").await.unwrap();
        assert!(!left, "{kind}");
    }
}

#[tokio::test]
async fn when_the_answer_of_a_release_is_lost_it_is_sent_again() {
    for kind in KINDS {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let (lock, mut steps) = gated(&redis, kind).await;
        let trying = tokio::spawn(async move { lock.try_acquire(OwnerId::random()).await });
        next(&mut steps).await.pass().await;
        let guard = trying.await.unwrap().unwrap().expect("a free lock");
        let releasing = tokio::spawn(guard.release());
        next(&mut steps).await.lose_answer().await;
        next(&mut steps).await.pass().await;
        assert_eq!(releasing.await.unwrap(), Released::Released, "{kind}");
    }
}

#[tokio::test]
async fn when_the_answer_of_a_prolongation_is_lost_the_old_lease_counts() {
    for kind in KINDS {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let (lock, mut steps) = gated(&redis, kind).await;
        let trying = tokio::spawn(async move { lock.try_acquire(OwnerId::random()).await });
        next(&mut steps).await.pass().await;
        let guard = trying.await.unwrap().unwrap().expect("a free lock");
        let (extended, ()) = tokio::join!(guard.extend(TIMEOUT), async {
            next(&mut steps).await.lose_answer().await;
        });
        assert_eq!(extended, Extended::Unknown, "{kind}");
        assert!(!guard.is_lost(), "{kind}");
    }
}

/// A server that hangs: the holder's own clock goes on.
#[tokio::test]
async fn a_holder_is_told_at_its_deadline_while_a_renewal_has_no_answer() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    let (gate, mut steps) = Gate::new(connection);
    // A call may take many times as long as the lease.
    let locks = RedisLocks::new(Server::new(gate, TIMEOUT), Env::default());
    let lease = TIMEOUT / 10;
    let terms = Terms { lease, ..terms() };
    let lock = locks.lock(Kind::Watchdog, "goods", terms).unwrap();
    let trying = tokio::spawn(async move { lock.try_acquire(OwnerId::random()).await });
    next(&mut steps).await.pass().await;
    let guard = trying.await.unwrap().unwrap().expect("a free lock");
    let held = tokio::time::Instant::now();
    let renewal = next(&mut steps).await;
    guard.lost().await;
    assert!(held.elapsed() <= lease, "{:?}", held.elapsed());
    // An answer that comes after all finds nobody who believes in it.
    renewal.pass().await;
    assert_eq!(guard.extend(lease).await, Extended::NotMine);
    assert!(guard.is_lost());
}

#[tokio::test]
async fn a_server_that_forgets_its_scripts_is_told_them_again() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let env = Env::default();
    let locks = RedisLocks::new(server(&redis, &env).await, env.clone());
    let mut connection = redis.connection().await.unwrap();
    for kind in KINDS {
        let lock = locks.lock(kind, kind.name(), terms()).unwrap();
        for _ in 0..3 {
            let mut flush = redis::cmd("SCRIPT");
            let () = flush
                .arg("FLUSH")
                .query_async(&mut connection)
                .await
                .unwrap();
            let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
            let () = flush.query_async(&mut connection).await.unwrap();
            assert_eq!(guard.release().await, Released::Released, "{kind}");
        }
    }
}

#[tokio::test]
async fn those_who_wait_come_through_when_all_connections_break() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let env = Env::default();
    let locks = RedisLocks::new(server(&redis, &env).await, env.clone());
    let mut connection = redis.connection().await.unwrap();
    for kind in KINDS {
        let lock = locks.lock(kind, kind.name(), terms()).unwrap();
        let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire(OwnerId::random(), TIMEOUT * 4).await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        for of in ["normal", "pubsub"] {
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL")
                .arg("TYPE")
                .arg(of)
                .arg("SKIPME")
                .arg("yes");
            let _: i64 = kill.query_async(&mut connection).await.unwrap();
        }
        let released = guard.release().await;
        assert_eq!(released, Released::Released, "{kind}");
        let next = waiting.await.unwrap().unwrap();
        assert!(next.is_some(), "{kind}");
    }
}

#[tokio::test]
async fn a_server_that_restarts_empty_has_forgotten_the_lock_and_the_holder_is_told() {
    let mut redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let env = Env::default();
    let locks = RedisLocks::new(server(&redis, &env).await, env.clone());
    let lock = locks.lock(Kind::Watchdog, "goods", terms()).unwrap();
    let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
    let mut connection = redis.connection().await.unwrap();
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut connection)
        .await
        .unwrap();
    redis.stop().await.unwrap();
    redis.restart().await.unwrap();
    let second = lock.acquire(OwnerId::random(), TIMEOUT).await.unwrap();
    assert!(second.is_some(), "the lock has outlived its server's data");
    // At its next word the first one hears of it.
    assert_eq!(guard.extend(TIMEOUT).await, Extended::NotMine);
    assert!(guard.is_lost());
}

/// One of those who wait is woken. If just that one gives up, the next one is.
#[tokio::test]
async fn a_wake_up_is_not_lost_with_the_waiter_who_got_it() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let env = Env::default();
    let locks = RedisLocks::new(server(&redis, &env).await, env.clone());
    // Long before the second after which everybody looks again.
    let soon = Duration::from_millis(600);
    for kind in [Kind::TokenLua, Kind::Reentrant, Kind::Fair] {
        let lock = locks.lock(kind, kind.name(), terms()).unwrap();
        for _ in 0..20 {
            let guard = lock
                .acquire(OwnerId::random(), TIMEOUT)
                .await
                .unwrap()
                .unwrap();
            let wait = || {
                let lock = lock.clone();
                tokio::spawn(async move { lock.acquire(OwnerId::random(), TIMEOUT).await })
            };
            let gives_up = wait();
            tokio::time::sleep(Duration::from_millis(5)).await;
            let stays = wait();
            tokio::time::sleep(Duration::from_millis(5)).await;
            gives_up.abort();
            guard.release().await;
            let next = tokio::time::timeout(soon, stays).await;
            assert!(next.is_ok(), "{kind}: nobody was woken");
        }
    }
}

/// The lock is free, and nobody has told the one who is first in the queue: it is still the first.
#[tokio::test]
async fn a_newcomer_does_not_pass_those_who_wait_for_a_fair_lock() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let env = Env::default();
    let locks = RedisLocks::new(server(&redis, &env).await, env.clone());
    let lock = locks.lock(Kind::Fair, "goods", terms()).unwrap();
    let mut connection = redis.connection().await.unwrap();
    let holder = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire(OwnerId::random(), TIMEOUT).await }
    });
    loadtest::servers::eventually("a place in the queue", async || {
        let queued: u32 = connection.clone().zcard("{goods}:queue").await.ok()?;
        (queued == 1).then_some(())
    })
    .await
    .unwrap();
    let () = connection.del("goods").await.unwrap();
    let newcomer = lock.try_acquire(OwnerId::random()).await.unwrap();
    assert!(newcomer.is_none(), "it has jumped the queue");
    assert!(waiting.await.unwrap().unwrap().is_some());
    drop(holder);
}
