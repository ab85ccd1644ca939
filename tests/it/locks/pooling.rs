//! Locks that belong to a connection: which one, for how long, and what becomes of it.

use std::time::Duration;

use loadtest::servers::{PostgresOptions, PostgresServer, Proxy, eventually};
use stockade::env::Env;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::{Error, Kind, OwnerId, Released, Terms};
use tokio::time::Instant;

use super::TIMEOUT;
use super::support::{LONG, leased, take};

const OF_A_CONNECTION: [Kind; 2] = [Kind::Advisory, Kind::RowLock];

async fn database(name: &str) -> (&'static PostgresServer, String) {
    let server = PostgresServer::shared().await.unwrap();
    (server, server.create_database(name).await.unwrap())
}

async fn locks(url: &str) -> PostgresLocks {
    let locks = PostgresLocks::connect(url, TIMEOUT, Env::default()).await;
    locks.unwrap()
}

/// Sessions that hold or await a lock, and all sessions.
async fn sessions(server: &PostgresServer, database: &str) -> (usize, usize) {
    let count = format!(
        "select (select count(distinct pid) from pg_locks
                  where pid <> pg_backend_pid() and database =
                        (select oid from pg_database where datname = current_database())
                    and (locktype = 'advisory' or relation = 'stockade_lock_row'::regclass)),
                (select count(*) from pg_stat_activity
                  where datname = '{database}' and pid <> pg_backend_pid())"
    );
    let said = server.psql(database, &count).await.unwrap();
    let (held, all) = said.split_once('|').unwrap();
    (held.parse().unwrap(), all.parse().unwrap())
}

async fn soon(server: &PostgresServer, database: &str, expected: (usize, usize)) {
    eventually("sessions", async || {
        (sessions(server, database).await == expected).then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: not {expected:?}"));
}

/// Neither the release nor the next statement can reach another session.
#[tokio::test]
async fn each_acquisition_has_a_connection_of_its_own_which_is_closed_and_never_pooled() {
    let (server, url) = database("locks_pooling").await;
    let locks = locks(&url).await;
    let (_, before) = sessions(server, "locks_pooling").await;
    for kind in OF_A_CONNECTION {
        let lock = |name: &str| locks.lock(kind, name, leased(LONG)).unwrap();
        let (a, b, c) = (
            take(&lock("a")).await,
            take(&lock("b")).await,
            take(&lock("c")).await,
        );
        let (held, all) = sessions(server, "locks_pooling").await;
        assert_eq!(held, 3, "{kind}");
        assert!(all >= before + 3, "{kind}: {all}");
        assert_eq!(b.release().await, Released::Released);
        drop(a);
        assert_eq!(c.release().await, Released::Released);
        // The pool's own are there, and one more that drew numbers; none of them holds anything.
        eventually("the end of the connections", async || {
            let (held, all) = sessions(server, "locks_pooling").await;
            (held == 0 && all <= before + 1).then_some(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn a_try_that_fails_leaves_no_connection() {
    let (server, url) = database("locks_failed_try").await;
    let locks = locks(&url).await;
    for kind in OF_A_CONNECTION {
        let lock = locks.lock(kind, "goods", leased(LONG)).unwrap();
        let holder = take(&lock).await;
        let (_, all) = sessions(server, "locks_failed_try").await;
        for wait in [Duration::ZERO, Duration::from_millis(30)] {
            for _ in 0..3 {
                let refused = lock.acquire(OwnerId::random(), wait).await;
                assert!(refused.unwrap().is_none());
            }
        }
        soon(server, "locks_failed_try", (1, all)).await;
        holder.release().await;
    }
}

/// No connection is left for one more: an error, no hang, and nothing is lost of those who hold.
#[tokio::test]
async fn whoever_finds_no_free_connection_is_told_so_within_its_time() {
    let options = PostgresOptions {
        connections_max: 8,
        ..PostgresOptions::default()
    };
    let server = PostgresServer::start(&options).await.unwrap();
    let url = server.create_database("few").await.unwrap();
    let locks = locks(&url).await;
    let mut held = Vec::new();
    let refused = loop {
        let name = held.len().to_string();
        let lock = locks.lock(Kind::Advisory, &name, leased(LONG)).unwrap();
        match lock.try_acquire(OwnerId::random()).await {
            Ok(guard) => held.push(guard.unwrap()),
            Err(error) => break error,
        }
        assert!(held.len() <= 8, "no limit");
    };
    assert!(matches!(refused, Error::Unreachable(_)), "{refused:?}");
    assert!(held.len() >= 2, "{}", held.len());
    for guard in held {
        assert!(!guard.is_lost());
        assert_eq!(guard.release().await, Released::Released);
    }
}

/// The network swallows everything: no error, no end of the connection.
#[tokio::test]
async fn a_holder_whose_connection_hangs_is_told() {
    let (server, _) = database("locks_hang").await;
    let proxy = Proxy::start(server.address()).await.unwrap();
    let url = server.url_through(proxy.port(), "locks_hang");
    let patience = Duration::from_secs(1);
    let locks = PostgresLocks::connect(&url, patience, Env::default())
        .await
        .unwrap();
    for kind in OF_A_CONNECTION {
        let lock = locks.lock(kind, "goods", leased(LONG)).unwrap();
        let guard = take(&lock).await;
        proxy.blackhole().await;
        let lost = tokio::time::timeout(patience * 4, guard.lost()).await;
        lost.unwrap_or_else(|_| panic!("{kind}: it was not told"));
        assert_ne!(guard.release().await, Released::Released, "{kind}");
        proxy.restore().await;
    }
}

/// Its keeper is busy: it renews, or is asked to, more often than it looks after its connection.
#[tokio::test]
async fn a_holder_that_renews_often_is_told_of_the_end_of_its_connection() {
    let (server, url) = database("locks_busy").await;
    let locks = locks(&url).await;
    for kind in OF_A_CONNECTION {
        let terms = Terms {
            renewing: true,
            ..leased(Duration::from_millis(300))
        };
        let guard = take(&locks.lock(kind, "goods", terms).unwrap()).await;
        let end = "select pg_terminate_backend(pid) from pg_locks where pid <> pg_backend_pid()
            and (locktype = 'advisory' or relation = 'stockade_lock_row'::regclass)
            and database = (select oid from pg_database where datname = current_database())";
        let ended = Instant::now();
        server.psql("locks_busy", end).await.unwrap();
        let lost = tokio::time::timeout(TIMEOUT, guard.lost()).await;
        lost.unwrap_or_else(|_| panic!("{kind}: it was not told"));
        assert!(
            ended.elapsed() < TIMEOUT / 2,
            "{kind}: {:?}",
            ended.elapsed()
        );
    }
}

/// Nobody's clock but the database's: a statement that was held up counts from when it runs there, and what it
/// grants counts here from before it was sent.
#[tokio::test]
async fn a_pause_before_a_statement_neither_shortens_the_lease_nor_lengthens_it_here() {
    let (_, url) = database("locks_late").await;
    let locks = locks(&url).await;
    let lease = Duration::from_millis(300);
    let (gated, mut steps) = locks.gated();
    let late = gated.lock(Kind::LeaseRow, "goods", leased(lease)).unwrap();
    let asking = tokio::spawn(async move { late.try_acquire(OwnerId::random()).await });
    let step = steps.next().await.expect("a statement");
    let asked = Instant::now();
    eventually("a pause", async || (asked.elapsed() > lease).then_some(()))
        .await
        .unwrap();
    step.pass().await;
    // The row is taken on the server; here the grant came too late, and is given back.
    let direct = locks.lock(Kind::LeaseRow, "goods", leased(LONG)).unwrap();
    assert!(
        direct
            .try_acquire(OwnerId::random())
            .await
            .unwrap()
            .is_none()
    );
    steps.next().await.expect("its release").pass().await;
    assert!(asking.await.unwrap().unwrap().is_none());
    let next = direct.try_acquire(OwnerId::random()).await.unwrap();
    assert_eq!(
        next.expect("given back").release().await,
        Released::Released
    );
}
