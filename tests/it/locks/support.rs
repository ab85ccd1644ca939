//! What the themes share: locks on real servers, with and without a gate in front.

use std::time::Duration;

use loadtest::servers::RedisServer;
use redis::aio::ConnectionManager;
use stockade::env::Env;
use stockade::lock::gate::{Gate, Step, Steps};
use stockade::lock::redis::{RedisLocks, Server};
use stockade::lock::{Guard, Kind, Lock, OwnerId, Released, Terms};

use super::{TIMEOUT, server};

/// Those of one Redis that are correct as far as a lease can be.
pub(super) const OF_REDIS: [Kind; 7] = [
    Kind::TokenLua,
    Kind::Watchdog,
    Kind::Fenced,
    Kind::Reentrant,
    Kind::Fair,
    Kind::ReadWrite,
    Kind::Multi,
];

/// Longer than any test.
pub(super) const LONG: Duration = Duration::from_secs(30);

pub(super) fn leased(lease: Duration) -> Terms {
    Terms {
        lease,
        ..Terms::default()
    }
}

/// Takes a lock that is free, or gets free soon.
pub(super) async fn take(lock: &Lock) -> Guard {
    let guard = lock.acquire(OwnerId::random(), TIMEOUT).await;
    guard.unwrap().expect("the lock gets free")
}

pub(super) async fn try_as(lock: &Lock, owner: OwnerId) -> Option<Guard> {
    lock.try_acquire(owner).await.unwrap()
}

pub(super) async fn is_free(lock: &Lock) -> bool {
    let Some(guard) = try_as(lock, OwnerId::random()).await else {
        return false;
    };
    assert_eq!(guard.release().await, Released::Released);
    true
}

/// Locks whose waiters are woken.
pub(super) async fn locks(redis: &RedisServer, env: &Env) -> RedisLocks<ConnectionManager> {
    RedisLocks::new(server(redis, env).await, env.clone())
}

/// A lock each command of which waits for a permit, on a server that knows the scripts already. A call is given
/// up after `timeout`.
pub(super) async fn gated(
    redis: &RedisServer,
    kind: Kind,
    terms: Terms,
    timeout: Duration,
) -> (Lock, Steps) {
    let client = redis::Client::open(redis.url()).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    let plain = RedisLocks::new(Server::new(connection.clone(), TIMEOUT), Env::default());
    let guard = take(&plain.lock(kind, "warm", leased(LONG)).unwrap()).await;
    guard.extend(LONG).await;
    guard.release().await;
    let (gate, steps) = Gate::new(connection);
    let locks = RedisLocks::new(Server::new(gate, timeout), Env::default());
    (locks.lock(kind, "goods", terms).unwrap(), steps)
}

/// The client's next command.
pub(super) async fn next(steps: &mut Steps) -> Step {
    let step = tokio::time::timeout(TIMEOUT, steps.next()).await;
    step.expect("a command").expect("a client")
}

/// The lock is given up here; nobody sends a command for it any more, now or later.
pub(super) async fn says_no_more(lock: Lock, mut steps: Steps) {
    drop(lock);
    let step = tokio::time::timeout(TIMEOUT, steps.next()).await;
    let step = step.expect("its task has not ended");
    assert!(step.is_none(), "{step:?}");
}

/// Takes a lock that is free, by letting its one command pass.
pub(super) async fn take_gated(lock: &Lock, steps: &mut Steps) -> Guard {
    let trying = tokio::spawn({
        let lock = lock.clone();
        async move { lock.try_acquire(OwnerId::random()).await }
    });
    next(steps).await.pass().await;
    trying.await.unwrap().unwrap().expect("a free lock")
}
