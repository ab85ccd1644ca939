//! Locks on a real MariaDB.

use std::time::Duration;

use loadtest::servers::{MariadbServer, eventually};
use stockade::env::Env;
use stockade::lock::conformance::Subject;
use stockade::lock::gate::Steps;
use stockade::lock::mysql::MysqlLocks;
use stockade::lock::{Error, Extended, Guard, Kind, Lock, OwnerId, Released, Terms};

use super::{TIMEOUT, conforms};

async fn locks(name: &str, env: &Env) -> (MysqlLocks, &'static MariadbServer) {
    let server = MariadbServer::shared().await.unwrap();
    let url = server.create_database(name).await.unwrap();
    let locks = MysqlLocks::connect(&url, TIMEOUT, env.clone());
    (locks.await.unwrap(), server)
}

async fn take(lock: &Lock) -> Guard {
    let guard = lock.acquire(OwnerId::random(), TIMEOUT).await;
    guard.unwrap().expect("the lock gets free")
}

async fn is_free(lock: &Lock) -> bool {
    let guard = lock.try_acquire(OwnerId::random()).await.unwrap();
    let Some(guard) = guard else { return false };
    guard.release().await == Released::Released
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_correct_lock_of_mariadb_keeps_the_contract() {
    let env = Env::default();
    let (locks, server) = locks("locks_contract", &env).await;
    for kind in [Kind::LeaseRow, Kind::RowLock, Kind::Advisory] {
        let locks = locks.clone();
        let make = move |name: &str, terms| locks.lock(kind, name, terms).unwrap();
        conforms(Subject::new(kind, make)).await;
    }
    assert!(env.stop(TIMEOUT).await, "a task is left");
    // The server notices a connection that has gone when it next looks up from what it waits for.
    let open = "select count(*) from information_schema.innodb_trx
        join information_schema.processlist on id = trx_mysql_thread_id
        where db = 'locks_contract'";
    let none = async || (server.sql("", open).await.unwrap() == "0").then_some(());
    eventually("no transaction to be left", none).await.unwrap();
}

#[tokio::test]
async fn unique_row_in_mariadb_never_recovers_from_a_dead_holder() {
    let env = Env::default();
    let (locks, _) = locks("locks_unique", &env).await;
    for run in 0..100 {
        let lock = locks.lock(Kind::UniqueRow, &run.to_string(), Terms::default());
        let lock = lock.unwrap();
        // Dead: it never says anything again.
        std::mem::forget(take(&lock).await);
        assert!(!is_free(&lock).await);
    }
}

#[tokio::test]
async fn a_session_that_the_server_ends_is_a_lost_lock_and_the_next_one_comes_in() {
    let env = Env::default();
    let (locks, server) = locks("locks_killed", &env).await;
    // No other test's: GET_LOCK's names are those of the whole server.
    for kind in [Kind::RowLock, Kind::Advisory] {
        let lock = locks.lock(kind, "killed", Terms::default()).unwrap();
        let guard = take(&lock).await;
        let holder = match kind {
            Kind::RowLock => {
                "select id from information_schema.innodb_trx
                   join information_schema.processlist on id = trx_mysql_thread_id
                  where db = 'locks_killed'"
            }
            _ => "select is_used_lock(concat('stockade-', left(sha2('killed', 256), 48)))",
        };
        let session = server.sql("", holder).await.unwrap();
        server.sql("", &format!("kill {session}")).await.unwrap();
        let lost = tokio::time::timeout(TIMEOUT, guard.lost()).await;
        lost.expect("the loss");
        let next = take(&lock).await;
        assert!(next.fence() > guard.fence(), "{kind}");
        assert_ne!(guard.release().await, Released::Released, "{kind}");
        assert_eq!(next.release().await, Released::Released, "{kind}");
    }
}

#[tokio::test]
async fn a_row_whose_lease_ended_is_neither_prolonged_nor_released_by_who_had_it() {
    let (locks, server) = locks("locks_ended", &Env::default()).await;
    let lock = locks.lock(Kind::LeaseRow, "goods", Terms::default());
    let lock = lock.unwrap();
    for asks_for_more in [true, false] {
        let guard = take(&lock).await;
        let ended = "update stockade_lock set expires_at = utc_timestamp(6)";
        server.sql("locks_ended", ended).await.unwrap();
        assert!(!guard.is_lost(), "it must ask");
        if asks_for_more {
            let extended = guard.extend(Duration::from_secs(60)).await;
            assert_eq!(extended, Extended::NotMine);
        }
        assert_eq!(guard.release().await, Released::NotMine);
        assert!(is_free(&lock).await, "it was brought back");
    }
}

#[tokio::test]
async fn the_fence_of_each_lock_in_mariadb_outlives_a_power_failure() {
    let env = Env::default();
    let mut server = MariadbServer::start().await.unwrap();
    let url = server.create_database("locks_power").await.unwrap();
    let mut latest = [None; 3];
    for _ in 0..3 {
        let locks = MysqlLocks::connect(&url, TIMEOUT, env.clone())
            .await
            .unwrap();
        for (kind, latest) in [Kind::LeaseRow, Kind::RowLock, Kind::Advisory]
            .into_iter()
            .zip(&mut latest)
        {
            let guard = take(&locks.lock(kind, "goods", Terms::default()).unwrap()).await;
            assert!(
                guard.fence() > *latest,
                "{kind}: {:?} after {latest:?}",
                guard.fence()
            );
            *latest = guard.fence();
            guard.release().await;
        }
        server.restart().await.unwrap();
    }
}

#[tokio::test]
async fn names_that_differ_in_case_or_in_a_space_are_different_locks() {
    let env = Env::default();
    let (locks, _) = locks("locks_names", &env).await;
    for kind in [
        Kind::LeaseRow,
        Kind::RowLock,
        Kind::Advisory,
        Kind::UniqueRow,
    ] {
        let long = "x".repeat(255);
        let mut guards = Vec::new();
        for name in ["goods", "Goods", "goods ", "", &long] {
            let lock = locks.lock(kind, name, Terms::default()).unwrap();
            guards.push(
                lock.try_acquire(OwnerId::random())
                    .await
                    .unwrap()
                    .expect(name),
            );
        }
        let too_long = locks.lock(kind, &"x".repeat(256), Terms::default());
        assert!(matches!(too_long, Err(Error::Refused(_))), "{too_long:?}");
        for guard in guards {
            guard.release().await;
        }
    }
}

/// Lets a client take the lock; its statements pass up to the one that begins with `last`, whose answer is
/// lost, and with it the client.
async fn dies_at(lock: &Lock, steps: &mut Steps, last: &str) {
    let acquiring = lock.try_acquire(OwnerId::random());
    tokio::pin!(acquiring);
    loop {
        let step = tokio::select! {
            step = steps.next() => step.expect("the client lives"),
            taken = &mut acquiring => panic!("{taken:?} before {last}"),
        };
        if step.command().starts_with(last) {
            step.lose_answer().await;
            return;
        }
        step.pass().await;
    }
}

#[tokio::test]
async fn a_client_that_dies_at_any_statement_of_a_row_with_a_lease_blocks_nobody_for_longer() {
    let env = Env::default();
    let (locks, _) = locks("locks_lease", &env).await;
    let terms = Terms {
        lease: Duration::from_millis(200),
        ..Terms::default()
    };
    for (run, statement) in ["insert into stockade_lock", "select fence"]
        .into_iter()
        .cycle()
        .take(20)
        .enumerate()
    {
        let (gated, mut steps) = locks.gated();
        let name = run.to_string();
        dies_at(
            &gated.lock(Kind::LeaseRow, &name, terms).unwrap(),
            &mut steps,
            statement,
        )
        .await;
        drop(steps);
        let next = take(&locks.lock(Kind::LeaseRow, &name, terms).unwrap()).await;
        assert!(next.fence() > Some(1), "the dead one had fence 1");
        next.release().await;
    }
}
