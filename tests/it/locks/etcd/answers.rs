//! Answers of etcd that get lost: it has happened, and the client does not know.

use std::time::Duration;

use stockade::lock::etcd::EtcdLocks;
use stockade::lock::{Extended, Kind, Lock, OwnerId, Released};

use super::super::loss::Loss;
use super::{LONG, NAME, Scene, terms};

/// When a call is given up.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

async fn lossy(scene: &Scene) -> (Lock, Loss) {
    let (url, env) = (scene.server.url(), scene.env.clone());
    let connecting = EtcdLocks::connect(&url, CALL_TIMEOUT, env);
    let (locks, steps) = connecting.await.unwrap().gated();
    let loss = Loss::default();
    tokio::spawn(loss.clone().stand_at(steps));
    (locks.lock(Kind::Etcd, NAME, terms(LONG)).unwrap(), loss)
}

#[tokio::test]
async fn a_grant_or_a_place_whose_answer_was_lost_is_had_once() {
    let scene = Scene::new().await;
    for call in ["lease grant", "enter"] {
        let (lock, loss) = lossy(&scene).await;
        loss.next(call);
        let guard = lock.acquire(OwnerId::random(), LONG).await.unwrap();
        let guard = guard.expect("its own lock");
        assert!(loss.has_happened(), "{call}");
        let keys = scene.keys().await;
        assert_eq!(keys.len(), 1, "{call}");
        assert_eq!(Some(keys[0].created), guard.fence(), "{call}");
        assert_eq!(scene.leases().await, [keys[0].lease], "{call}");
        assert_eq!(guard.release().await, Released::Released, "{call}");
        scene.nothing_is_left(call).await;
    }
}

#[tokio::test]
async fn when_nobody_wants_it_any_more_what_a_lost_answer_granted_is_revoked() {
    let scene = Scene::new().await;
    for call in ["lease grant", "enter"] {
        let (lock, loss) = lossy(&scene).await;
        loss.next(call);
        let tried = lock.try_acquire(OwnerId::random()).await;
        assert!(tried.is_err(), "{call}: {tried:?}");
        assert!(loss.has_happened(), "{call}");
        scene.has_keys(0).await;
        let revoked = loadtest::servers::eventually("an end of its lease", async || {
            scene.leases().await.is_empty().then_some(())
        });
        revoked.await.unwrap();
    }
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_is_known_to_have_happened() {
    let scene = Scene::new().await;
    for call in ["leave", "lease revoke"] {
        let (lock, loss) = lossy(&scene).await;
        let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
        loss.next(call);
        assert_eq!(guard.release().await, Released::Released, "{call}");
        assert!(loss.has_happened(), "{call}");
        scene.nothing_is_left(call).await;
    }
}

#[tokio::test]
async fn when_the_answer_of_a_prolongation_is_lost_the_old_lease_counts_and_the_next_one_works() {
    let scene = Scene::new().await;
    for call in ["lease keep-alive", "look"] {
        let (lock, loss) = lossy(&scene).await;
        let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
        loss.next(call);
        assert_eq!(guard.extend(LONG).await, Extended::Unknown, "{call}");
        assert!(loss.has_happened(), "{call}");
        assert!(!guard.is_lost(), "{call}");
        assert_eq!(guard.extend(LONG).await, Extended::Extended, "{call}");
        assert_eq!(guard.release().await, Released::Released, "{call}");
        scene.nothing_is_left(call).await;
    }
}

/// A lease of etcd has one length for life: whoever wants more moves to another, and must know where it stands.
#[tokio::test]
async fn a_move_to_a_longer_lease_whose_answer_was_lost_leaves_the_lock_held_and_no_lease_behind() {
    let scene = Scene::new().await;
    for call in ["lease grant", "carry", "lease revoke"] {
        for then in [LONG, LONG * 2] {
            let (lock, loss) = lossy(&scene).await;
            let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
            loss.next(call);
            let moved = guard.extend(LONG * 2).await;
            assert!(loss.has_happened(), "{call}");
            // The old lease is empty by then: its end is nobody's concern.
            let known = call == "lease revoke";
            assert_eq!(moved == Extended::Extended, known, "{call}: {moved:?}");
            assert_eq!(guard.extend(then).await, Extended::Extended, "{call}");
            let keys = scene.keys().await;
            assert_eq!(Some(keys[0].created), guard.fence(), "{call}");
            let mut leases = scene.admin.lease_client();
            let time = leases.time_to_live(keys[0].lease, None).await.unwrap();
            let granted = time.granted_ttl();
            assert!(
                granted >= then.as_secs().cast_signed(),
                "{call}: {granted} s"
            );
            assert!(!guard.is_lost(), "{call}");
            assert_eq!(guard.release().await, Released::Released, "{call}");
            scene.nothing_is_left(call).await;
        }
    }
}
