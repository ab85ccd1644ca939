//! Sessions of a database that end, or that PostgreSQL would end for their silence, while they hold a lock.

use std::time::Duration;

use loadtest::servers::{MariadbServer, PostgresServer};
use stockade::env::Env;
use stockade::lock::mysql::MysqlLocks;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::{Extended, Kind, Lock, Released};

use super::TIMEOUT;
use super::support::{LONG, leased, take};

const OF_A_CONNECTION: [Kind; 2] = [Kind::Advisory, Kind::RowLock];
/// After this long without a word the server ends a session.
const SILENCE: Duration = Duration::from_secs(1);

/// Who asks is answered by the server, not from memory: the session has ended a moment ago, and no heartbeat has
/// noticed yet.
async fn is_told_when_it_asks(lock: &Lock, end: impl AsyncFnOnce()) {
    let guard = take(lock).await;
    assert_eq!(guard.extend(LONG).await, Extended::Extended);
    end().await;
    assert_eq!(guard.extend(LONG).await, Extended::NotMine, "{lock:?}");
    assert!(guard.is_lost(), "{lock:?}");
    let next = take(lock).await;
    assert_ne!(guard.release().await, Released::Released, "{lock:?}");
    assert_eq!(next.release().await, Released::Released, "{lock:?}");
}

/// Nobody says anything for longer than the server bears, and the lock is still there.
async fn outlasts_the_silence(lock: &Lock) {
    let guard = take(lock).await;
    let lost = tokio::time::timeout(SILENCE * 3, guard.lost()).await;
    assert!(lost.is_err(), "{lock:?} was lost");
    assert_eq!(guard.release().await, Released::Released, "{lock:?}");
}

async fn postgres(database: &str) -> (&'static PostgresServer, PostgresLocks) {
    let server = PostgresServer::shared().await.unwrap();
    let url = server.create_database(database).await.unwrap();
    for limit in [
        "idle_session_timeout",
        "idle_in_transaction_session_timeout",
    ] {
        let limit = format!(
            "alter database {database} set {limit} = {}",
            SILENCE.as_millis()
        );
        server.psql("postgres", &limit).await.unwrap();
    }
    let locks = PostgresLocks::connect(&url, TIMEOUT, Env::default()).await;
    (server, locks.unwrap())
}

async fn mariadb() -> (MariadbServer, MysqlLocks) {
    let server = MariadbServer::start().await.unwrap();
    let url = server.create_database("locks_sessions").await.unwrap();
    let locks = MysqlLocks::connect(&url, TIMEOUT, Env::default()).await;
    (server, locks.unwrap())
}

#[tokio::test]
async fn a_session_of_postgres_that_has_ended_is_not_said_to_be_prolonged() {
    let (server, locks) = postgres("locks_session_ended").await;
    for kind in OF_A_CONNECTION {
        let lock = locks.lock(kind, "goods", leased(LONG)).unwrap();
        is_told_when_it_asks(&lock, async || {
            let holders = "select pg_terminate_backend(pid, 5000) from pg_locks
                where pid <> pg_backend_pid()
                  and database = (select oid from pg_database where datname = current_database())
                  and (locktype = 'advisory' or relation = 'stockade_lock_row'::regclass)";
            let ended = server.psql("locks_session_ended", holders).await.unwrap();
            assert!(ended.contains('t'), "nobody was there: {ended}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_session_of_mariadb_that_has_ended_is_not_said_to_be_prolonged() {
    let (server, locks) = mariadb().await;
    for kind in OF_A_CONNECTION {
        let lock = locks.lock(kind, "goods", leased(LONG)).unwrap();
        is_told_when_it_asks(&lock, async || {
            let holder = match kind {
                Kind::RowLock => "select trx_mysql_thread_id from information_schema.innodb_trx",
                _ => "select is_used_lock(concat('stockade-', left(sha2('goods', 256), 48)))",
            };
            let session = server.sql("", holder).await.unwrap();
            server.sql("", &format!("kill {session}")).await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn a_lock_of_a_connection_outlasts_the_silence_that_postgres_bears() {
    let (_, locks) = postgres("locks_silent").await;
    let [advisory, row] =
        OF_A_CONNECTION.map(|kind| locks.lock(kind, "goods", leased(LONG)).unwrap());
    tokio::join!(outlasts_the_silence(&advisory), outlasts_the_silence(&row));
}
