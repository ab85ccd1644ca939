//! Renewal while something else is wrong.

use std::time::Duration;

use loadtest::servers::{Proxy, RedisOptions, RedisServer, eventually};
use redis::AsyncCommands as _;
use redis::aio::{ConnectionManager, MultiplexedConnection};
use stockade::env::Env;
use stockade::lock::redis::{RedisLocks, Server};
use stockade::lock::{Kind, Lock, Released, Terms};
use tokio::time::Instant;

use super::TIMEOUT;
use super::support::{is_free, leased, locks, take};

const LEASE: Duration = Duration::from_secs(3);

/// Waits until the lease has got longer again: so often.
async fn renewed(connection: &MultiplexedConnection, name: &str, times: u32) {
    let left = async || connection.clone().pttl::<_, i64>(name).await.ok();
    for _ in 0..times {
        let before = std::cell::Cell::new(left().await.unwrap());
        eventually("a renewal", async || {
            let (now, last) = (left().await?, before.get());
            before.set(now);
            (now > last).then_some(())
        })
        .await
        .unwrap();
    }
}

fn watchdog(locks: &RedisLocks<ConnectionManager>, name: &str) -> Lock {
    locks.lock(Kind::Watchdog, name, leased(LEASE)).unwrap()
}

#[tokio::test]
async fn renewal_goes_on_after_its_connection_breaks() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let client = redis::Client::open(format!("redis://{}", proxy.address())).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    let server = Server::new(connection, Duration::from_millis(300));
    let locks = RedisLocks::new(server, Env::default());
    let guard = take(&watchdog(&locks, "goods")).await;
    let direct = redis.connection().await.unwrap();
    for _ in 0..2 {
        proxy.cut().await;
        proxy.restore().await;
        renewed(&direct, "goods", 2).await;
        assert!(!guard.is_lost());
    }
    assert!(proxy.counts().resets >= 2, "it was not cut");
    assert_eq!(guard.release().await, Released::Released);
}

/// Each acquisition renews by itself: no batch in which one fails for all.
#[tokio::test]
async fn one_bad_key_does_not_stop_the_renewal_of_the_others() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let locks = locks(&redis, &Env::default()).await;
    let mut connection = redis.connection().await.unwrap();
    let mut good = Vec::new();
    for name in ["a", "b", "d", "e"] {
        good.push((name, take(&watchdog(&locks, name)).await));
    }
    let bad = take(&watchdog(&locks, "c")).await;
    let () = connection.del("c").await.unwrap();
    let () = connection.hset("c", "of", "another type").await.unwrap();
    let lost = tokio::time::timeout(LEASE * 3, bad.lost()).await;
    lost.expect("the loss of the bad one");
    for (name, guard) in good {
        renewed(&connection, name, 1).await;
        assert!(!guard.is_lost(), "{name}");
        assert_eq!(guard.release().await, Released::Released, "{name}");
    }
}

/// Renewal shares nothing with the work under the lock, which may keep all but one of the threads busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_keeps_a_thread_busy_does_not_stop_renewal() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let locks = locks(&redis, &Env::default()).await;
    let terms = Terms {
        renewing: true,
        ..leased(Duration::from_millis(600))
    };
    let lock = locks.lock(Kind::TokenLua, "goods", terms).unwrap();
    let guard = take(&lock).await;
    let until = Instant::now() + Duration::from_secs(2);
    let busy = tokio::spawn(async move {
        // Never lets anybody else have its thread.
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    });
    tokio::time::timeout(TIMEOUT, busy).await.unwrap().unwrap();
    assert!(!guard.is_lost(), "it was not renewed");
    assert!(!is_free(&lock).await);
    assert_eq!(guard.release().await, Released::Released);
}
