//! Redlock when masters are down, hang, or forget.

use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer};
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use stockade::env::Env;
use stockade::lock::redis::{Server, redlock};
use stockade::lock::{Error, Lock, OwnerId, Released, Terms};
use tokio::time::Instant;

/// One call to one master.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);

struct Masters {
    masters: Vec<RedisServer>,
    servers: Vec<Server<ConnectionManager>>,
}

impl Masters {
    async fn new() -> Self {
        let (mut masters, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let options = RedisOptions::default();
            let redis = RedisServer::start(&options).await.unwrap();
            let client = redis::Client::open(redis.url()).unwrap();
            let connection = ConnectionManager::new(client).await.unwrap();
            servers.push(Server::new(connection, NODE_TIMEOUT));
            masters.push(redis);
        }
        Self { masters, servers }
    }

    fn lock(&self) -> Lock {
        let terms = Terms {
            lease: Duration::from_secs(30),
            ..Terms::default()
        };
        redlock(self.servers.clone(), "goods", terms, Env::default())
    }

    async fn holders(&self, of: &[usize]) -> usize {
        let mut holders = 0;
        for number in of {
            let mut redis = self.masters[*number].connection().await.unwrap();
            holders += redis.exists::<_, usize>("goods").await.unwrap();
        }
        holders
    }
}

fn somebody() -> OwnerId {
    OwnerId::random()
}

#[tokio::test]
async fn two_of_five_masters_may_be_down() {
    let mut all = Masters::new().await;
    for master in &mut all.masters[..2] {
        master.kill9().await.unwrap();
    }
    let lock = all.lock();
    let guard = lock.try_acquire(somebody()).await.unwrap().unwrap();
    assert!(lock.try_acquire(somebody()).await.unwrap().is_none());
    assert_eq!(guard.release().await, Released::Released);
    assert_eq!(all.holders(&[2, 3, 4]).await, 0);
}

#[tokio::test]
async fn with_three_of_five_masters_down_nobody_gets_it_and_nothing_is_left() {
    let mut all = Masters::new().await;
    for master in &mut all.masters[..3] {
        master.kill9().await.unwrap();
    }
    let refused = all.lock().try_acquire(somebody()).await;
    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    assert_eq!(all.holders(&[3, 4]).await, 0);
}

#[tokio::test]
async fn a_master_that_hangs_costs_no_more_than_its_timeout() {
    let all = Masters::new().await;
    all.masters[0].pause().unwrap();
    let began = Instant::now();
    let guard = all.lock().try_acquire(somebody()).await.unwrap().unwrap();
    let took = began.elapsed();
    assert!(took >= NODE_TIMEOUT / 2, "it did not hang: {took:?}");
    assert!(took < NODE_TIMEOUT * 3, "{took:?}");
    all.masters[0].resume().unwrap();
    assert_eq!(guard.release().await, Released::Released);
}

/// The documented violation: after an exact majority, one master that comes back empty is enough for a second
/// holder.
#[tokio::test]
async fn a_master_that_restarts_empty_after_an_exact_majority_lets_a_second_one_in() {
    let all = Masters::new().await;
    // Two masters have a foreign key at the time: an exact majority grants.
    for number in [3, 4] {
        let mut redis = all.masters[number].connection().await.unwrap();
        let () = redis.set("goods", "somebody else").await.unwrap();
    }
    let first = all.lock().try_acquire(somebody()).await.unwrap().unwrap();
    for number in [3, 4] {
        let mut redis = all.masters[number].connection().await.unwrap();
        let () = redis.del("goods").await.unwrap();
    }
    assert!(all.lock().try_acquire(somebody()).await.unwrap().is_none());
    let mut forgetful = all.masters[0].connection().await.unwrap();
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut forgetful)
        .await
        .unwrap();
    let second = all.lock().try_acquire(somebody()).await.unwrap();
    assert!(second.is_some(), "the violation is not there");
    assert!(!first.is_lost(), "and the first one knows of nothing");
}
