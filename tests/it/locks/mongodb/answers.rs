//! Answers of MongoDB that get lost.

use std::time::Duration;

use loadtest::servers::eventually;
use stockade::lock::mongodb::MongodbLocks;
use stockade::lock::{Extended, Kind, Lock, OwnerId, Released};

use super::super::loss::Loss;
use super::{LONG, NAME, Scene, TIMEOUT, terms};

/// When a call is given up.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// What each step does after it has asked for the time.
const STEP: &str = "findAndModify";

async fn lossy(scene: &Scene) -> (Lock, Loss) {
    let url = scene.server.url();
    let locks = MongodbLocks::connect(&url, CALL_TIMEOUT, scene.env.clone()).await;
    let (locks, steps) = locks.unwrap().gated();
    let loss = Loss::default();
    tokio::spawn(loss.clone().stand_at(steps));
    let lock = locks.lock(Kind::FindAndModify, NAME, terms(LONG));
    (lock.unwrap(), loss)
}

#[tokio::test]
async fn an_acquire_whose_answer_was_lost_asks_again_and_has_it_once() {
    let scene = Scene::new().await;
    let (lock, loss) = lossy(&scene).await;
    loss.next(STEP);
    let guard = lock.acquire(OwnerId::random(), TIMEOUT).await.unwrap();
    let guard = guard.expect("its own lock");
    assert!(loss.has_happened());
    assert_eq!(guard.fence(), Some(1), "it is a second turn");
    assert_eq!(guard.release().await, Released::Released);
    assert_eq!(scene.token().await, "");
}

#[tokio::test]
async fn when_nobody_wants_it_any_more_what_mongodb_granted_unheard_is_given_back() {
    let scene = Scene::new().await;
    let (lock, loss) = lossy(&scene).await;
    loss.next(STEP);
    let tried = lock.try_acquire(OwnerId::random()).await;
    assert!(tried.is_err(), "{tried:?}");
    assert!(loss.has_happened());
    let free = eventually("a free lock", async || {
        scene.token().await.is_empty().then_some(())
    });
    free.await.unwrap();
}

#[tokio::test]
async fn a_release_and_a_prolongation_whose_answer_was_lost_have_happened_once() {
    let scene = Scene::new().await;
    let (lock, loss) = lossy(&scene).await;
    let guard = lock.try_acquire(OwnerId::random()).await.unwrap().unwrap();
    loss.next(STEP);
    assert_eq!(guard.extend(LONG).await, Extended::Unknown);
    assert!(loss.has_happened() && !guard.is_lost());
    assert_eq!(guard.extend(LONG).await, Extended::Extended);
    loss.next(STEP);
    assert_eq!(guard.release().await, Released::Released);
    assert!(loss.has_happened());
    assert_eq!(scene.token().await, "");
}
