//! Callers who go while their request is on its way.

use std::time::Duration;

use loadtest::servers::{PostgresServer, RedisOptions, RedisServer, eventually};
use redis::AsyncCommands as _;
use stockade::env::Env;
use stockade::lock::gate::Steps;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::{Kind, Lock, OwnerId, Released, Terms};
use tokio::task::JoinHandle;

use super::TIMEOUT;
use super::support::{LONG, OF_REDIS, gated, leased, next, says_no_more, take};

/// Locks in this database: other tests have theirs on the same server.
const HELD: &str = "select count(*) from pg_locks
    where database = (select oid from pg_database where datname = current_database())
      and (locktype = 'advisory' or relation = 'stockade_lock_row'::regclass)";

async fn all_ended(server: &PostgresServer, database: &str) {
    eventually("the end of all locks", async || {
        let held = server.psql(database, HELD).await.ok()?;
        (held == "0").then_some(())
    })
    .await
    .unwrap();
}

fn asks(lock: &Lock) -> JoinHandle<()> {
    let lock = lock.clone();
    tokio::spawn(async move {
        drop(lock.acquire(OwnerId::random(), LONG).await);
    })
}

async fn goes(caller: JoinHandle<()>) {
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled(), "it was answered");
}

#[tokio::test]
async fn a_grant_of_redis_that_comes_after_its_waiter_has_gone_is_given_back() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let mut connection = redis.connection().await.unwrap();
    for kind in OF_REDIS {
        let renewing = Terms {
            renewing: true,
            ..leased(Duration::from_secs(1))
        };
        let (lock, mut steps) = gated(&redis, kind, renewing, TIMEOUT).await;
        let caller = asks(&lock);
        let acquire = next(&mut steps).await;
        goes(caller).await;
        acquire.pass().await;
        assert!(
            connection.exists::<_, bool>("goods").await.unwrap(),
            "{kind}"
        );
        next(&mut steps).await.pass().await;
        assert!(
            !connection.exists::<_, bool>("goods").await.unwrap(),
            "{kind}"
        );
        // It is not renewed, and not even asked for.
        says_no_more(lock, steps).await;
    }
}

async fn locks(name: &str) -> (PostgresLocks, &'static PostgresServer) {
    let server = PostgresServer::shared().await.unwrap();
    let url = server.create_database(name).await.unwrap();
    let locks = PostgresLocks::connect(&url, TIMEOUT, Env::default()).await;
    (locks.unwrap(), server)
}

/// Lets everything pass that is still to come of a client.
async fn the_rest(mut steps: Steps) {
    while let Ok(Some(step)) = tokio::time::timeout(TIMEOUT, steps.next()).await {
        step.pass().await;
    }
}

#[tokio::test]
async fn a_lock_of_a_connection_whose_waiter_has_gone_at_any_statement_is_free() {
    let (locks, server) = locks("locks_cancelled").await;
    for (kind, statements) in [(Kind::Advisory, 3), (Kind::RowLock, 5)] {
        for passed in 0..statements {
            let (gated, mut steps) = locks.gated();
            let lock = gated.lock(kind, "goods", leased(LONG)).unwrap();
            let caller = asks(&lock);
            for _ in 0..passed {
                next(&mut steps).await.pass().await;
            }
            let last = next(&mut steps).await;
            goes(caller).await;
            last.pass().await;
            drop((gated, lock));
            the_rest(steps).await;
            let direct = locks.lock(kind, "goods", leased(LONG)).unwrap();
            let next = direct.try_acquire(OwnerId::random()).await.unwrap();
            let next = next.unwrap_or_else(|| panic!("{kind}: left after statement {passed}"));
            assert_eq!(next.release().await, Released::Released);
        }
    }
    all_ended(server, "locks_cancelled").await;
}

/// It waits in the server's own queue, and is granted the lock there when nobody is left who wants it.
#[tokio::test]
async fn a_waiter_that_goes_from_the_servers_queue_leaves_no_lock_behind() {
    let (locks, server) = locks("locks_left_queue").await;
    for kind in [Kind::Advisory, Kind::RowLock] {
        let lock = locks.lock(kind, "goods", leased(LONG)).unwrap();
        let holder = take(&lock).await;
        let caller = asks(&lock);
        let waits = "select count(*) from pg_stat_activity
            where datname = 'locks_left_queue' and wait_event_type = 'Lock'";
        eventually("a place in the queue", async || {
            let waiting = server.psql("locks_left_queue", waits).await.ok()?;
            (waiting == "1").then_some(())
        })
        .await
        .unwrap();
        goes(caller).await;
        assert_eq!(holder.release().await, Released::Released);
        let next = take(&lock).await;
        assert_eq!(next.release().await, Released::Released, "{kind}");
        all_ended(server, "locks_left_queue").await;
    }
}
