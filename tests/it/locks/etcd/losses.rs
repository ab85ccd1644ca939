//! Leases that are revoked, keys that are deleted, members that are cut off.

use std::time::Duration;

use etcd_client::{Txn, TxnOp};
use loadtest::servers::{Proxy, RedisOptions, RedisServer, eventually, eventually_within};
use stockade::lock::etcd::EtcdLocks;
use stockade::lock::resource::{RedisValue, Stale};
use stockade::lock::{Extended, Kind, OwnerId, Released, Terms};
use tokio::time::Instant;

use super::super::server;
use super::{LONG, NAME, PREFIX, SECOND, Scene, is_told, take, terms, wait};

/// Sooner than a waiter asks for its lease, and far sooner than it looks again without a reason.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_holder_whose_lease_is_revoked_is_told_and_the_next_one_comes_in() {
    let scene = Scene::new().await;
    let lock = scene.lock(LONG).await;
    let guard = take(&lock).await;
    let waiter = wait(&lock);
    let keys = scene.has_keys(2).await;
    scene.revoke(keys[0].lease).await;
    is_told(&guard).await;
    let next = waiter.await.unwrap();
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.extend(LONG).await, Extended::NotMine);
    assert_eq!(guard.release().await, Released::NotMine);
    assert!(!next.is_lost());
    assert_eq!(next.release().await, Released::Released);
    scene.nothing_is_left("revoked").await;
}

#[tokio::test]
async fn a_holder_whose_key_is_deleted_is_told_although_its_lease_lives() {
    let scene = Scene::new().await;
    let lock = scene.lock(LONG).await;
    let guard = take(&lock).await;
    let keys = scene.has_keys(1).await;
    scene.delete(&keys[0]).await;
    is_told(&guard).await;
    assert_eq!(scene.leases().await.len(), 1);
    assert_eq!(guard.release().await, Released::NotMine);
    scene.nothing_is_left("deleted").await;
}

/// <https://github.com/etcd-io/etcd/issues/19597>
#[tokio::test]
async fn a_waiter_whose_lease_is_revoked_does_not_wait_on_with_it() {
    let scene = Scene::new().await;
    let lock = scene.lock(LONG).await;
    let guard = take(&lock).await;
    let waiter = wait(&lock);
    let first = scene.has_keys(2).await;
    scene.revoke(first[1].lease).await;
    // It stands in the queue again, with another lease, while the holder still holds.
    let again = eventually_within(SOON, "a new place", async || {
        let keys = scene.keys().await;
        let again = keys.iter().find(|key| !first.contains(key));
        again.cloned()
    });
    let again = again.await.unwrap();
    assert!(!waiter.is_finished());
    assert_eq!(guard.release().await, Released::Released);
    let next = waiter.await.unwrap();
    assert_eq!(next.fence(), Some(again.created));
    assert_eq!(next.release().await, Released::Released);
    scene.nothing_is_left("revoked").await;
}

/// What etcd's own `Lock` call does not see: the place of a waiter went with the holder's, and somebody else came
/// (<https://github.com/etcd-io/etcd/issues/11456>).
#[tokio::test]
async fn a_waiter_whose_key_went_together_with_the_holders_is_not_granted_beside_the_next_one() {
    let scene = Scene::new().await;
    let lock = scene.lock(LONG).await;
    let guard = take(&lock).await;
    let waiter = wait(&lock);
    let keys = scene.has_keys(2).await;
    let another = format!("{PREFIX}another");
    let at_once = Txn::new().and_then([
        TxnOp::delete(keys[0].name.as_str(), None),
        TxnOp::delete(keys[1].name.as_str(), None),
        TxnOp::put(another.as_str(), "", None),
    ]);
    scene.admin.kv_client().txn(at_once).await.unwrap();
    is_told(&guard).await;
    // Behind the other one, who has nothing to do with us.
    let queue = scene.has_keys(2).await;
    assert_eq!(queue[0].name, another);
    assert!(!waiter.is_finished(), "two hold it");
    scene.delete(&queue[0]).await;
    let next = waiter.await.unwrap();
    assert_eq!(next.fence(), Some(queue[1].created));
    assert!(!next.is_lost());
    assert_eq!(next.release().await, Released::Released);
}

#[tokio::test]
async fn whoever_gives_up_waiting_leaves_no_key_and_no_lease() {
    let scene = Scene::new().await;
    let lock = scene.lock(LONG).await;
    let guard = take(&lock).await;
    // Out of time, not waiting at all, and cancelled.
    let late = lock.acquire(OwnerId::random(), SECOND / 5).await;
    assert!(late.unwrap().is_none());
    assert!(lock.try_acquire(OwnerId::random()).await.unwrap().is_none());
    let waiter = wait(&lock);
    scene.has_keys(2).await;
    waiter.abort();
    scene.has_keys(1).await;
    assert_eq!(scene.leases().await.len(), 1);
    assert_eq!(guard.release().await, Released::Released);
    scene.nothing_is_left("given up").await;
}

/// A waiter outlives its own lease many times: it is kept as long as somebody waits, and no longer.
#[tokio::test]
async fn a_waiter_keeps_its_place_for_longer_than_its_lease() {
    let scene = Scene::new().await;
    let holder = take(&scene.lock(LONG).await).await;
    let waiter = wait(&scene.lock(SECOND).await);
    let place = scene.has_keys(2).await;
    // One that nobody keeps has ended by then, and it was longer.
    let mut leases = scene.admin.lease_client();
    let witness = leases.grant(3, None).await.unwrap().id();
    let ended = eventually("the end of a lease", async || {
        (!scene.leases().await.contains(&witness)).then_some(())
    });
    ended.await.unwrap();
    assert_eq!(scene.keys().await, place);
    holder.release().await;
    assert_eq!(waiter.await.unwrap().fence(), Some(place[1].created));
}

/// <https://github.com/etcd-io/etcd/issues/17470>
#[tokio::test]
async fn a_forgotten_holder_is_not_kept_alive_beyond_its_bound() {
    let scene = Scene::new().await;
    let locks = scene.locks().await;
    let terms = Terms {
        renewing: true,
        hold_max: SECOND * 2,
        ..terms(SECOND)
    };
    let lock = locks.lock(Kind::Etcd, NAME, terms).unwrap();
    let guard = take(&lock).await;
    let began = Instant::now();
    let fence = guard.fence();
    std::mem::forget(guard);
    let next = take(&lock).await;
    assert!(next.fence() > fence);
    assert!(began.elapsed() >= SECOND * 2, "it was not renewed");
}

/// Nobody can tell a holder that is cut off; its own clock does, and what it writes is refused
/// (<https://github.com/etcd-io/etcd/issues/11457>). The fence is compared by order, not for equality
/// (<https://github.com/etcd-io/etcd/issues/11788>).
#[tokio::test]
async fn a_holder_that_is_cut_off_is_told_by_its_own_clock_and_its_late_write_is_refused() {
    let scene = Scene::new().await;
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let value = RedisValue::new(server(&redis, &scene.env).await, "value");
    let proxy = Proxy::start(scene.server.address()).await.unwrap();
    let url = format!("etcd://{}", proxy.address());
    let locks = EtcdLocks::connect(&url, SECOND, scene.env.clone())
        .await
        .unwrap();
    let renewing = Terms {
        renewing: true,
        ..terms(SECOND * 2)
    };
    let cut_off = take(&locks.lock(Kind::Etcd, NAME, renewing).unwrap()).await;
    let stale = cut_off.fence().unwrap();
    assert_eq!(value.write(stale, "early").await.unwrap(), Ok(()));
    proxy.blackhole().await;
    let cut = Instant::now();
    cut_off.lost().await;
    assert!(cut.elapsed() <= SECOND * 2, "{:?}", cut.elapsed());
    let next = take(&scene.lock(LONG).await).await;
    let fresh = next.fence().unwrap();
    assert_eq!(value.read(fresh).await.unwrap(), Ok("early".into()));
    let refused = value.write(stale, "late").await.unwrap();
    assert_eq!(
        refused,
        Err(Stale {
            fence: stale,
            seen: fresh
        })
    );
    proxy.restore().await;
    assert_eq!(cut_off.release().await, Released::NotMine);
    assert!(!next.is_lost());
}
