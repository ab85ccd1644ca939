//! Schedules written down step by step: what happens between two calls of a client.

use stockade::lock::gate::{Step, Steps};
use stockade::lock::{Kind, Lock, Released};

use super::{LONG, NAME, Scene, TIMEOUT, is_told, take, terms, wait};

/// A lock whose calls wait for a permit.
async fn gated(scene: &Scene) -> (Lock, Steps) {
    let (locks, steps) = scene.locks().await.gated();
    (locks.lock(Kind::Etcd, NAME, terms(LONG)).unwrap(), steps)
}

/// Lets the client's calls pass up to the one that begins with `call`, which waits.
async fn up_to(steps: &mut Steps, call: &str) -> Step {
    loop {
        let step = tokio::time::timeout(TIMEOUT, steps.next()).await;
        let step = step.expect("a call").expect("a client");
        if step.command().starts_with(call) {
            return step;
        }
        step.pass().await;
    }
}

#[tokio::test]
async fn a_key_that_goes_before_the_watch_over_it_is_open_is_not_missed_by_its_waiter() {
    let scene = Scene::new().await;
    let holder = take(&scene.lock(LONG).await).await;
    let (lock, mut steps) = gated(&scene).await;
    let waiter = wait(&lock);
    let watch = up_to(&mut steps, "watch").await;
    assert_eq!(holder.release().await, Released::Released);
    scene.has_keys(1).await;
    watch.pass().await;
    // Told what it has missed, it tries again at once.
    up_to(&mut steps, "enter").await.pass().await;
    drop(waiter.await.unwrap());
}

#[tokio::test]
async fn a_key_that_goes_before_the_watch_over_it_is_open_is_not_missed_by_its_holder() {
    let scene = Scene::new().await;
    let (lock, mut steps) = gated(&scene).await;
    let taking = wait(&lock);
    let watch = up_to(&mut steps, "watch").await;
    let holder = taking.await.unwrap();
    let keys = scene.has_keys(1).await;
    scene.delete(&keys[0]).await;
    assert!(!holder.is_lost(), "nobody has told it yet");
    watch.pass().await;
    is_told(&holder).await;
}
