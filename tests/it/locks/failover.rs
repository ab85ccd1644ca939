//! A replica that lags takes the place of its master: what was locked last is free.

use std::net::{Ipv4Addr, SocketAddr};

use loadtest::servers::{
    Address, Append, PostgresServer, Proxy, RedisOptions, RedisServer, eventually,
};
use redis::aio::ConnectionManager;
use stockade::env::Env;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::redis::{RedisLocks, Server};
use stockade::lock::resource::{RedisValue, Stale};
use stockade::lock::{Extended, Kind, Lock, Released};

use super::support::{LONG, OF_REDIS, leased, locks, take};
use super::{TIMEOUT, server};

struct Pair {
    master: RedisServer,
    replica: RedisServer,
    /// Between the two.
    link: Proxy,
    /// Between the clients and whichever is the master.
    way: Proxy,
}

impl Pair {
    async fn new() -> Self {
        let options = RedisOptions::default();
        let master = RedisServer::start(&options).await.unwrap();
        let port = SocketAddr::from((Ipv4Addr::LOCALHOST, master.tcp_port()));
        let link = Proxy::start(Address::Tcp(port)).await.unwrap();
        let replica = RedisServer::start_replica(&options, link.address()).await;
        let way = Proxy::start(master.address()).await.unwrap();
        Self {
            master,
            replica: replica.unwrap(),
            link,
            way,
        }
    }

    async fn locks(&self) -> RedisLocks<ConnectionManager> {
        let client = redis::Client::open(format!("redis://{}", self.way.address())).unwrap();
        let connection = ConnectionManager::new(client).await.unwrap();
        RedisLocks::new(Server::new(connection, TIMEOUT), Env::default())
    }

    /// What the master does from now on never reaches the replica.
    async fn lag(&self) {
        eventually("the replica to be level", async || {
            let master = self.master.replication_offset().await.ok()?;
            let replica = self.replica.replication_offset().await.ok()?;
            (master == replica).then_some(())
        })
        .await
        .unwrap();
        self.replica.pause().unwrap();
        self.link.blackhole().await;
    }

    async fn fail_over(&mut self) {
        let ahead = self.master.replication_offset().await.unwrap();
        self.master.kill9().await.unwrap();
        self.replica.resume().unwrap();
        let behind = self.replica.replication_offset().await.unwrap();
        assert!(behind < ahead, "it did not lag: {behind}, {ahead}");
        self.replica.promote().await.unwrap();
        self.way.redirect(self.replica.address());
    }
}

#[tokio::test]
async fn a_failover_to_a_lagging_replica_loses_the_lock_and_a_second_one_comes_in() {
    let mut pair = Pair::new().await;
    let locks = pair.locks().await;
    let lock = |kind: Kind| locks.lock(kind, kind.name(), leased(LONG)).unwrap();
    // The scripts have reached the replica's data, not its cache.
    for kind in OF_REDIS {
        take(&lock(kind)).await.release().await;
    }
    pair.lag().await;
    let mut first = Vec::new();
    for kind in OF_REDIS {
        first.push((kind, take(&lock(kind)).await));
    }
    pair.fail_over().await;
    for (kind, first) in first {
        let second = take(&lock(kind)).await;
        assert!(!second.is_lost());
        // Its lease goes on here: two holders.
        if kind != Kind::Watchdog {
            assert!(!first.is_lost(), "{kind}");
        }
        // At its next word it hears of it, and does the second one no harm.
        assert_eq!(first.extend(LONG).await, Extended::NotMine, "{kind}");
        assert!(first.is_lost(), "{kind}");
        assert_eq!(first.release().await, Released::NotMine, "{kind}");
        assert_eq!(second.release().await, Released::Released, "{kind}");
    }
}

/// Both holders of one lock in Redis, before and after the failover, and the numbers that `number` gives them.
async fn two_holders(number: impl AsyncFn(&stockade::lock::Guard) -> u64) -> (u64, u64) {
    let mut pair = Pair::new().await;
    let locks = pair.locks().await;
    let lock: Lock = locks.lock(Kind::Fenced, "goods", leased(LONG)).unwrap();
    for _ in 0..3 {
        take(&lock).await.release().await;
    }
    pair.lag().await;
    take(&lock).await.release().await;
    let first = take(&lock).await;
    let of_the_first = number(&first).await;
    pair.fail_over().await;
    let second = take(&lock).await;
    let of_the_second = number(&second).await;
    assert!(!first.is_lost() && !second.is_lost());
    (of_the_first, of_the_second)
}

/// The counter was on the master too.
#[tokio::test]
async fn a_failover_may_set_the_fence_in_redis_back_and_a_stale_writer_is_let_in() {
    let (stale, fresh) = two_holders(async |guard| guard.fence().unwrap()).await;
    assert!(fresh < stale, "{fresh} after {stale}: it has not gone back");
    // Whatever the resource is, it cannot tell them apart.
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let resource = server(&redis, &Env::default()).await;
    let value = RedisValue::new(resource, "value");
    assert_eq!(value.read(fresh).await.unwrap(), Ok(String::new()));
    assert_eq!(value.write(stale, "stale").await.unwrap(), Ok(()));
    assert!(value.write(fresh, "fresh").await.unwrap().is_err());
}

/// The lock is lost all the same; the number of a row outlives every Redis.
#[tokio::test]
async fn a_fence_from_a_durable_database_refuses_the_stale_holder_after_a_failover() {
    let server = PostgresServer::shared().await.unwrap();
    let url = server.create_database("locks_failover").await.unwrap();
    let rows = PostgresLocks::connect(&url, TIMEOUT, Env::default())
        .await
        .unwrap();
    let row = rows.lock(Kind::LeaseRow, "goods", leased(LONG)).unwrap();
    let (stale, fresh) = two_holders(async |_| {
        let turn = take(&row).await;
        let number = turn.fence().unwrap();
        assert_eq!(turn.release().await, Released::Released);
        number
    })
    .await;
    assert!(fresh > stale, "{fresh} after {stale}");
    let value = rows.fenced_value("goods");
    assert_eq!(value.read(fresh).await.unwrap(), Ok(String::new()));
    let refused = value.write(stale, "stale").await.unwrap();
    let seen = fresh;
    assert_eq!(refused, Err(Stale { fence: stale, seen }));
    assert_eq!(value.write(fresh, "fresh").await.unwrap(), Ok(()));
}

/// The other way to lose it: a server that comes back without its data.
#[tokio::test]
async fn after_the_loss_of_all_data_the_scripts_are_told_again_and_the_lock_works() {
    let options = RedisOptions {
        append: Append::Off,
        ..RedisOptions::default()
    };
    let mut redis = RedisServer::start(&options).await.unwrap();
    let env = Env::default();
    let locks = locks(&redis, &env).await;
    for kind in OF_REDIS {
        let lock = locks.lock(kind, kind.name(), leased(LONG)).unwrap();
        take(&lock).await.release().await;
        let first = take(&lock).await;
        redis.restart().await.unwrap();
        let second = take(&lock).await;
        assert_eq!(first.release().await, Released::NotMine, "{kind}");
        assert_eq!(second.release().await, Released::Released, "{kind}");
    }
}
