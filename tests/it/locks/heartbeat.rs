//! A holder whose lock is its connection asks every now and then whether that is still there: what is said while the
//! answer is on its way.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use loadtest::servers::{Address, Direction, MariadbServer, PostgresServer, Proxy, eventually};
use sqlx::{Connection as _, Executor as _, MySqlConnection};
use stockade::env::Env;
use stockade::lock::mysql::MysqlLocks;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::{Extended, Kind, Lock, Released, Terms};

use super::TIMEOUT;
use super::support::{is_free, take};

/// How long an answer is on its way.
const SLOW: Duration = Duration::from_millis(300);
const KINDS: [Kind; 2] = [Kind::RowLock, Kind::Advisory];

/// Another one's answer must not be taken for that of the release.
async fn releases_while_an_answer_is_on_its_way(lock: &Lock, way: &Proxy) {
    let kind = lock.kind();
    let guard = take(lock).await;
    let before = way.counts().delayed;
    way.delay(Direction::ToClient, SLOW);
    // The first answer may be to the pool, which has a look at the connection that drew the number.
    eventually("the answer to a heartbeat", async || {
        (way.counts().delayed >= before + 2).then_some(())
    })
    .await
    .unwrap();
    // Whatever else is to do does not wait for it, nor break it off.
    assert_eq!(guard.extend(SLOW).await, Extended::Extended, "{kind}");
    let released = guard.release().await;
    way.delay(Direction::ToClient, Duration::ZERO);
    assert_eq!(released, Released::Released, "{kind}");
    assert!(is_free(lock).await, "{kind}");
}

#[tokio::test]
async fn a_release_in_postgres_waits_for_the_answer_to_a_heartbeat() {
    let server = PostgresServer::shared().await.unwrap();
    server.create_database("locks_heartbeat").await.unwrap();
    let way = Proxy::start(server.address()).await.unwrap();
    let url = server.url_through(way.port(), "locks_heartbeat");
    let locks = PostgresLocks::connect(&url, TIMEOUT, Env::default());
    let locks = locks.await.unwrap();
    for kind in KINDS {
        let lock = locks.lock(kind, "goods", Terms::default()).unwrap();
        releases_while_an_answer_is_on_its_way(&lock, &way).await;
    }
}

#[tokio::test]
async fn a_release_in_mariadb_waits_for_the_answer_to_a_heartbeat() {
    let server = MariadbServer::shared().await.unwrap();
    let url = server.create_database("locks_heartbeat").await.unwrap();
    let rest = url.strip_prefix("mysql://root@127.0.0.1:").unwrap();
    let (port, database) = rest.split_once('/').unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()));
    let way = Proxy::start(Address::Tcp(address)).await.unwrap();
    let url = format!("mysql://root@127.0.0.1:{}/{database}", way.port());
    let locks = MysqlLocks::connect(&url, TIMEOUT, Env::default());
    let locks = locks.await.unwrap();
    for kind in KINDS {
        let lock = locks.lock(kind, "goods", Terms::default()).unwrap();
        releases_while_an_answer_is_on_its_way(&lock, &way).await;
    }
}

/// Such a session is ended without a word, and its lock with it.
#[tokio::test]
async fn a_holder_in_mariadb_outlives_the_time_that_a_session_may_be_silent() {
    let server = MariadbServer::start().await.unwrap();
    server.sql("", "set global wait_timeout = 1").await.unwrap();
    let url = server.create_database("locks_silent").await.unwrap();
    let locks = MysqlLocks::connect(&url, TIMEOUT, Env::default());
    let locks = locks.await.unwrap();
    let mut held = Vec::new();
    for kind in KINDS {
        let lock = locks.lock(kind, "goods", Terms::default()).unwrap();
        held.push((take(&lock).await, lock));
    }
    // One without a heartbeat, which is the younger one, and yet ends.
    let mut silent = MySqlConnection::connect(&url).await.unwrap();
    silent.execute("do get_lock('silent', 0)").await.unwrap();
    let holder = async || {
        server
            .sql("", "select is_used_lock('silent')")
            .await
            .unwrap()
    };
    assert_ne!(holder().await, "NULL");
    eventually("the end of the silent session", async || {
        (holder().await == "NULL").then_some(())
    })
    .await
    .unwrap();
    for (guard, lock) in held {
        let kind = lock.kind();
        assert!(!is_free(&lock).await, "{kind}");
        assert!(!guard.is_lost(), "{kind}");
        assert_eq!(guard.release().await, Released::Released, "{kind}");
    }
}
