//! Keys of one lock and their hash slot, on a Redis that is a cluster of its own, and minds.

use loadtest::servers::{RedisOptions, RedisServer, eventually};
use stockade::env::Env;
use stockade::lock::{Error, Extended, Kind, OwnerId, Released};

use super::support::{LONG, OF_REDIS, leased, locks, take, try_as};

/// A cluster of one, which has all slots.
async fn cluster() -> RedisServer {
    let options = RedisOptions {
        args: vec!["--cluster-enabled".to_owned(), "yes".to_owned()],
        ..RedisOptions::default()
    };
    let redis = RedisServer::start(&options).await.unwrap();
    let mut connection = redis.connection().await.unwrap();
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16_383);
    let () = slots.query_async(&mut connection).await.unwrap();
    eventually("a cluster", async || {
        let mut ask = redis::cmd("CLUSTER");
        let said: String = ask
            .arg("INFO")
            .query_async(&mut connection.clone())
            .await
            .ok()?;
        said.contains("cluster_state:ok").then_some(())
    })
    .await
    .unwrap();
    redis
}

#[tokio::test]
async fn each_lock_keeps_its_keys_in_one_slot() {
    let redis = cluster().await;
    let locks = locks(&redis, &Env::default()).await;
    // A tag of its own, and braces that are none.
    for name in [
        "goods",
        "{shop}:goods",
        "goods{",
        "go{ods",
        "{shop}:{goods}",
    ] {
        for kind in OF_REDIS {
            let lock = locks.lock(kind, name, leased(LONG)).unwrap();
            let guard = take(&lock).await;
            assert!(
                try_as(&lock, OwnerId::random()).await.is_none(),
                "{kind} {name}"
            );
            assert_eq!(
                guard.extend(LONG).await,
                Extended::Extended,
                "{kind} {name}"
            );
            assert_eq!(guard.release().await, Released::Released, "{kind} {name}");
            if kind == Kind::ReadWrite {
                let reading = take(&lock.shared().unwrap()).await;
                assert_eq!(reading.extend(LONG).await, Extended::Extended, "{name}");
                assert_eq!(reading.release().await, Released::Released, "{name}");
            }
        }
    }
}

/// A refusal is final: nobody asks again until the wait ends.
#[tokio::test]
async fn names_in_two_slots_are_refused_at_once_and_those_in_one_are_taken() {
    let redis = cluster().await;
    let locks = locks(&redis, &Env::default()).await;
    let lock = |names: &str| locks.lock(Kind::Multi, names, leased(LONG)).unwrap();
    let apart = lock("goods,money").acquire(OwnerId::random(), LONG).await;
    assert!(matches!(apart, Err(Error::Refused(_))), "{apart:?}");
    let together = take(&lock("{shop}:goods,{shop}:money")).await;
    assert_eq!(together.release().await, Released::Released);
}
