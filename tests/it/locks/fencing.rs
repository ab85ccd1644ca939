//! Holders that are late, and resources that notice.

use std::time::Duration;

use loadtest::servers::{PostgresServer, RedisOptions, RedisServer};
use stockade::env::Env;
use stockade::lock::postgres::PostgresLocks;
use stockade::lock::redis::RedisLocks;
use stockade::lock::resource::{RedisValue, Stale};
use stockade::lock::{Guard, Kind, Lock, OwnerId, Terms};

use super::{TIMEOUT, server};

const SHORT: Duration = Duration::from_millis(100);

fn short(renewing: bool) -> Terms {
    Terms {
        lease: SHORT,
        renewing,
        ..Terms::default()
    }
}

async fn next(lock: &Lock) -> (Guard, u64) {
    let guard = lock
        .acquire(OwnerId::random(), TIMEOUT)
        .await
        .unwrap()
        .unwrap();
    let fence = guard.fence().unwrap();
    (guard, fence)
}

/// A lease makes no mutual exclusion: a holder that is late works on beside the next one.
#[tokio::test]
async fn a_late_holder_is_refused_by_a_value_in_redis() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let env = Env::default();
    let server = server(&redis, &env).await;
    let locks = RedisLocks::new(server.clone(), env.clone());
    for kind in [Kind::Fenced, Kind::Fair, Kind::Reentrant, Kind::ReadWrite] {
        let value = RedisValue::new(server.clone(), &format!("{kind}-value"));
        let lock = locks.lock(kind, kind.name(), short(false)).unwrap();
        let (first, stale) = next(&lock).await;
        assert_eq!(value.read(stale).await.unwrap(), Ok(String::new()));
        // The first one is late; the second comes in, and has only read so far.
        let (second, fresh) = next(&lock).await;
        assert!(first.is_lost(), "{kind}");
        assert_eq!(value.read(fresh).await.unwrap(), Ok(String::new()));
        let refused = value.write(stale, "stale").await.unwrap();
        assert_eq!(
            refused,
            Err(Stale {
                fence: stale,
                seen: fresh
            }),
            "{kind}"
        );
        assert_eq!(value.write(fresh, "fresh").await.unwrap(), Ok(()));
        assert_eq!(
            value.read(fresh).await.unwrap(),
            Ok("fresh".into()),
            "{kind}"
        );
        assert!(value.read(stale).await.unwrap().is_err(), "{kind}");
        drop(second);
    }
}

#[tokio::test]
async fn a_late_holder_is_refused_by_a_value_in_postgres() {
    let server = PostgresServer::shared().await.unwrap();
    let url = server.create_database("locks_fenced").await.unwrap();
    let locks = PostgresLocks::connect(&url, TIMEOUT, Env::default())
        .await
        .unwrap();
    let value = locks.fenced_value("goods");
    let lock = locks.lock(Kind::LeaseRow, "goods", short(false)).unwrap();
    let (first, stale) = next(&lock).await;
    assert_eq!(value.write(stale, "early").await.unwrap(), Ok(()));
    let (_second, fresh) = next(&lock).await;
    assert!(first.is_lost());
    assert_eq!(value.read(fresh).await.unwrap(), Ok("early".into()));
    let refused = value.write(stale, "stale").await.unwrap();
    assert_eq!(
        refused,
        Err(Stale {
            fence: stale,
            seen: fresh
        })
    );
    assert_eq!(value.write(fresh, "fresh").await.unwrap(), Ok(()));
    assert_eq!(value.read(fresh).await.unwrap(), Ok("fresh".into()));
}
