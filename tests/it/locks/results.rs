//! What extend and release say, and what they leave: asked of real servers behind the holder's back, since a holder
//! that knows of its loss asks nobody.

use std::time::Duration;

use loadtest::servers::{Direction, PostgresServer, Proxy, RedisOptions, RedisServer};
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use stockade::env::Env;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::redis::{RedisLocks, Server, redlock};
use stockade::lock::{Extended, Kind, OwnerId, Released, Terms};
use tokio::time::Instant;

use super::support::{LONG, OF_REDIS, gated, is_free, leased, locks, next, take, take_gated};
use super::{TIMEOUT, server};

#[tokio::test]
async fn extend_and_release_say_not_mine_of_a_lock_that_ran_out_and_bring_nothing_back() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let locks = locks(&redis, &Env::default()).await;
    let mut connection = redis.connection().await.unwrap();
    for kind in OF_REDIS {
        let lock = locks.lock(kind, "goods", leased(LONG)).unwrap();
        for asks_for_more in [true, false] {
            let guard = take(&lock).await;
            let () = connection.pexpire("goods", 0).await.unwrap();
            assert!(!guard.is_lost(), "{kind}: it must ask");
            if asks_for_more {
                assert_eq!(guard.extend(LONG).await, Extended::NotMine, "{kind}");
                assert!(guard.is_lost(), "{kind}");
            }
            assert_eq!(guard.release().await, Released::NotMine, "{kind}");
            let back: bool = connection.exists("goods").await.unwrap();
            assert!(!back, "{kind}: it came back");
        }
    }
}

#[tokio::test]
async fn a_reader_whose_lease_ended_is_told_so_and_not_brought_back() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let locks = locks(&redis, &Env::default()).await;
    let lock = locks.lock(Kind::ReadWrite, "goods", leased(LONG)).unwrap();
    let guard = take(&lock.shared().unwrap()).await;
    let mut connection = redis.connection().await.unwrap();
    let () = connection.del("{goods}:readers").await.unwrap();
    assert_eq!(guard.extend(LONG).await, Extended::NotMine);
    assert_eq!(guard.release().await, Released::NotMine);
    assert!(is_free(&lock).await);
}

#[tokio::test]
async fn a_row_whose_lease_ended_is_neither_prolonged_nor_released_by_who_had_it() {
    let server = PostgresServer::shared().await.unwrap();
    let url = server.create_database("locks_results").await.unwrap();
    let locks = PostgresLocks::connect(&url, TIMEOUT, Env::default()).await;
    let lock = locks
        .unwrap()
        .lock(Kind::LeaseRow, "goods", leased(LONG))
        .unwrap();
    for asks_for_more in [true, false] {
        let guard = take(&lock).await;
        let ended = "update stockade_lock set expires_at = clock_timestamp()";
        server.psql("locks_results", ended).await.unwrap();
        if asks_for_more {
            assert_eq!(guard.extend(LONG).await, Extended::NotMine);
        }
        assert_eq!(guard.release().await, Released::NotMine);
        assert!(is_free(&lock).await, "it was brought back");
    }
}

/// Masters behind proxies, so that each may take its time.
async fn masters() -> (Vec<RedisServer>, Vec<Proxy>, Vec<Server<ConnectionManager>>) {
    let (mut masters, mut proxies, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let proxy = Proxy::start(redis.address()).await.unwrap();
        let client = redis::Client::open(format!("redis://{}", proxy.address())).unwrap();
        let connection = ConnectionManager::new(client).await.unwrap();
        servers.push(Server::new(connection, Duration::from_millis(400)));
        masters.push(redis);
        proxies.push(proxy);
    }
    (masters, proxies, servers)
}

#[tokio::test]
async fn an_extension_of_redlock_needs_a_majority_and_must_come_within_its_lease() {
    let (masters, proxies, servers) = masters().await;
    let lock = redlock(servers, "goods", leased(LONG), Env::default());
    let guard = take(&lock).await;
    assert_eq!(guard.extend(LONG).await, Extended::Extended);
    // All say yes, and too late.
    for proxy in &proxies {
        proxy.delay(Direction::ToClient, Duration::from_millis(150));
    }
    assert_eq!(
        guard.extend(Duration::from_millis(100)).await,
        Extended::Unknown
    );
    for proxy in &proxies {
        proxy.delay(Direction::ToClient, Duration::ZERO);
    }
    guard.release().await;
    let guard = take(&lock).await;
    for master in &masters[..2] {
        let () = master
            .connection()
            .await
            .unwrap()
            .del("goods")
            .await
            .unwrap();
    }
    assert_eq!(guard.extend(LONG).await, Extended::NotMine);
    assert_eq!(guard.release().await, Released::NotMine);
}

#[tokio::test]
async fn a_release_of_redlock_waits_for_a_hung_master_no_longer_than_its_timeout() {
    let (masters, _proxies, servers) = masters().await;
    let lock = redlock(servers, "goods", leased(LONG), Env::default());
    let guard = take(&lock).await;
    masters[1].pause().unwrap();
    let asked = Instant::now();
    assert_eq!(guard.release().await, Released::Released);
    assert!(asked.elapsed() < TIMEOUT / 2, "{:?}", asked.elapsed());
    masters[1].resume().unwrap();
}

#[tokio::test]
async fn a_wait_longer_than_the_lease_lets_nobody_in_beside_the_holder_of_redlock() {
    let (_masters, _proxies, servers) = masters().await;
    let terms = Terms {
        renewing: true,
        ..leased(Duration::from_millis(300))
    };
    let lock = redlock(servers, "goods", terms, Env::default());
    let guard = take(&lock).await;
    let beside = lock
        .acquire(OwnerId::random(), Duration::from_millis(1_500))
        .await;
    assert!(beside.unwrap().is_none());
    assert!(!guard.is_lost());
    assert_eq!(guard.release().await, Released::Released);
}

/// What the caller asked for is what the server was told, at the start and later.
#[tokio::test]
async fn the_lease_on_the_server_is_the_one_that_was_asked_for() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let locks = locks(&redis, &Env::default()).await;
    let mut connection = redis.connection().await.unwrap();
    for kind in OF_REDIS {
        let lock = locks.lock(kind, "goods", leased(LONG)).unwrap();
        let guard = take(&lock).await;
        let left: u128 = connection.pttl("goods").await.unwrap();
        let all = LONG.as_millis();
        assert!(left <= all && left > all - 5_000, "{kind}: {left}");
        assert_eq!(guard.extend(LONG * 2).await, Extended::Extended);
        let left: u128 = connection.pttl("goods").await.unwrap();
        assert!(left <= all * 2 && left > all * 2 - 5_000, "{kind}: {left}");
        guard.release().await;
    }
}

#[tokio::test]
async fn prolonging_a_multi_lock_of_which_one_part_is_anothers_prolongs_none() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let locks = locks(&redis, &Env::default()).await;
    let lock = locks.lock(Kind::Multi, "a,b,c", leased(LONG)).unwrap();
    let guard = take(&lock).await;
    let mut connection = redis.connection().await.unwrap();
    let () = connection.pset_ex("b", "another", 5_000).await.unwrap();
    assert_eq!(guard.extend(LONG * 10).await, Extended::NotMine);
    for part in ["a", "b", "c"] {
        let left: u128 = connection.pttl(part).await.unwrap();
        assert!(left <= LONG.as_millis(), "{part}: {left}");
    }
    assert_eq!(guard.release().await, Released::NotMine);
    // Its own parts went, another's stayed.
    let left: Vec<String> = connection.keys("*").await.unwrap();
    assert_eq!(left, ["b"]);
}

#[tokio::test]
async fn a_release_that_could_not_be_sent_costs_the_next_one_the_lease_at_most() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let client = redis::Client::open(format!("redis://{}", proxy.address())).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    let behind = Server::new(connection, Duration::from_millis(200));
    let behind = RedisLocks::new(behind, Env::default());
    let direct = RedisLocks::new(server(&redis, &Env::default()).await, Env::default());
    for kind in OF_REDIS {
        let name = kind.name();
        let lock = behind
            .lock(kind, name, leased(Duration::from_secs(2)))
            .unwrap();
        let guard = take(&lock).await;
        proxy.cut().await;
        assert_eq!(guard.release().await, Released::Unknown, "{kind}");
        proxy.restore().await;
        let next = take(&direct.lock(kind, name, leased(LONG)).unwrap()).await;
        assert_eq!(next.release().await, Released::Released, "{kind}");
    }
}

/// A future that is dropped after its first step, which has sent the wish.
#[tokio::test]
async fn a_release_that_is_cancelled_is_sent_all_the_same() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    for kind in OF_REDIS {
        let (lock, mut steps) = gated(&redis, kind, leased(LONG), TIMEOUT).await;
        let guard = take_gated(&lock, &mut steps).await;
        let once = tokio::time::timeout(Duration::ZERO, guard.release()).await;
        assert!(once.is_err(), "{kind}: it was answered");
        next(&mut steps).await.pass().await;
        let left: bool = redis
            .connection()
            .await
            .unwrap()
            .exists("goods")
            .await
            .unwrap();
        assert!(!left, "{kind}");
    }
}
