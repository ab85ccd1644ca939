//! Locks on a real PostgreSQL.

use std::time::Duration;

use loadtest::servers::PostgresServer;
use stockade::env::Env;
use stockade::lock::conformance::Subject;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::{Kind, OwnerId, Released, Terms};

use super::{TIMEOUT, conforms};

async fn locks(name: &str, env: &Env) -> (PostgresLocks, &'static PostgresServer) {
    let server = PostgresServer::shared().await.unwrap();
    let url = server.create_database(name).await.unwrap();
    let locks = PostgresLocks::connect(&url, TIMEOUT, env.clone());
    (locks.await.unwrap(), server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_correct_lock_of_postgres_keeps_the_contract() {
    let env = Env::default();
    let (locks, server) = locks("locks_contract", &env).await;
    for kind in [Kind::LeaseRow, Kind::RowLock, Kind::Advisory] {
        let locks = locks.clone();
        let make = move |name: &str, terms| locks.lock(kind, name, terms).unwrap();
        conforms(Subject::new(kind, make)).await;
    }
    assert!(env.stop(TIMEOUT).await, "a task is left");
    let held = server.psql(
        "locks_contract",
        "select count(*) from pg_locks where locktype = 'advisory'
            and database = (select oid from pg_database where datname = current_database())",
    );
    assert_eq!(held.await.unwrap().trim(), "0", "advisory locks are left");
}

#[tokio::test]
async fn unique_row_never_recovers_from_a_dead_holder() {
    let env = Env::default();
    let (locks, _) = locks("locks_unique", &env).await;
    for run in 0..100 {
        let lock = locks
            .lock(Kind::UniqueRow, &run.to_string(), Terms::default())
            .unwrap();
        let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
        // Dead: it never says anything again.
        std::mem::forget(guard);
        assert!(lock.try_acquire(OwnerId::random()).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_holder_whose_connection_is_terminated_is_told_and_the_next_one_comes_in() {
    let env = Env::default();
    let (locks, server) = locks("locks_terminated", &env).await;
    for kind in [Kind::RowLock, Kind::Advisory] {
        let lock = locks.lock(kind, "goods", Terms::default()).unwrap();
        let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
        let of_the_holder = "select pg_terminate_backend(pid) from pg_stat_activity
            where datname = 'locks_terminated' and pid in (select pid from pg_locks
                where locktype = 'advisory' or relation = 'stockade_lock_row'::regclass)";
        server
            .psql("locks_terminated", of_the_holder)
            .await
            .unwrap();
        let lost = tokio::time::timeout(TIMEOUT, guard.lost()).await;
        lost.expect("the loss");
        let next = lock
            .acquire(OwnerId::random(), TIMEOUT)
            .await
            .unwrap()
            .unwrap();
        assert!(next.fence() > guard.fence(), "{kind}");
        assert_ne!(guard.release().await, Released::Released, "{kind}");
        assert_eq!(next.release().await, Released::Released, "{kind}");
    }
}

#[tokio::test]
async fn the_fence_of_a_row_outlives_its_lock() {
    let env = Env::default();
    let (locks, _) = locks("locks_fence", &env).await;
    let terms = Terms {
        lease: Duration::from_millis(50),
        ..Terms::default()
    };
    let mut latest = None;
    for _ in 0..5 {
        let lock = locks.lock(Kind::LeaseRow, "goods", terms).unwrap();
        let guard = lock
            .acquire(OwnerId::random(), TIMEOUT)
            .await
            .unwrap()
            .unwrap();
        assert!(guard.fence() > latest);
        latest = guard.fence();
        guard.lost().await;
    }
}
