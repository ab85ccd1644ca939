//! Servers that die, and come back with what they had.

use std::time::Duration;

use loadtest::servers::{Append, PostgresOptions, PostgresServer, RedisOptions, RedisServer};
use stockade::env::Env;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::{Kind, Released};

use super::TIMEOUT;
use super::support::{leased, locks, take};

const ROUNDS: u32 = 3;
const SHORT: Duration = Duration::from_millis(400);

/// Killed, not shut down, while somebody holds the lock. Synced before each answer: synced once a second, Redis holds
/// back what it writes while the disk is busy, and may lose that.
#[tokio::test]
async fn the_fence_of_each_lock_in_redis_grows_over_a_crash_with_an_append_only_file() {
    let options = RedisOptions {
        append: Append::Always,
        ..RedisOptions::default()
    };
    let mut redis = RedisServer::start(&options).await.unwrap();
    let env = Env::default();
    let locks = locks(&redis, &env).await;
    let kinds = [Kind::Fenced, Kind::Fair, Kind::Reentrant, Kind::ReadWrite];
    let mut latest = [None; 4];
    for _ in 0..ROUNDS {
        for (kind, latest) in kinds.into_iter().zip(&mut latest) {
            let lock = locks.lock(kind, kind.name(), leased(SHORT)).unwrap();
            let released = take(&lock).await;
            let fence = released.fence();
            assert!(fence > *latest, "{kind}: {fence:?} after {latest:?}");
            assert_eq!(released.release().await, Released::Released);
            let held = take(&lock).await;
            *latest = held.fence();
            std::mem::forget(held);
        }
        redis.restart().await.unwrap();
    }
}

/// The holder's transaction has not ended when the server dies: what it has drawn must stay drawn.
#[tokio::test]
async fn the_fence_of_each_lock_in_postgres_grows_over_a_crash_under_its_holder() {
    let mut server = PostgresServer::start(&PostgresOptions::default())
        .await
        .unwrap();
    let url = server.create_database("locks_crash").await.unwrap();
    let kinds = [Kind::LeaseRow, Kind::RowLock, Kind::Advisory];
    for kind in kinds {
        let mut latest = None;
        for _ in 0..ROUNDS {
            let locks = PostgresLocks::connect(&url, TIMEOUT, Env::default());
            let lock = locks.await.unwrap().lock(kind, "goods", leased(SHORT));
            let held = take(&lock.unwrap()).await;
            assert!(
                held.fence() > latest,
                "{kind}: {:?} after {latest:?}",
                held.fence()
            );
            latest = held.fence();
            server.kill9().await.unwrap();
            server.restart().await.unwrap();
            drop(held);
        }
    }
}
