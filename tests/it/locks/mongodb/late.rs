//! Copies of a step that reach the server when their sender has long gone on.

use std::time::Duration;

use loadtest::servers::Proxy;
use stockade::lock::{Extended, Kind, Lock, OwnerId, Released};

use super::{LONG, NAME, Scene, take, terms};

async fn through_a_proxy(scene: &Scene) -> (Lock, Proxy) {
    let proxy = Proxy::start(scene.server.address()).await.unwrap();
    let locks = scene
        .locks_at(&scene.server.url_through(proxy.port()))
        .await;
    let lock = locks.lock(Kind::FindAndModify, NAME, terms(LONG));
    (lock.unwrap(), proxy)
}

#[tokio::test]
async fn a_late_prolongation_shortens_no_lease() {
    let scene = Scene::new().await;
    let (lock, proxy) = through_a_proxy(&scene).await;
    let guard = take(&lock).await;
    let mut late = proxy.hold_next_request(b"$max");
    assert_eq!(
        guard.extend(LONG + Duration::from_secs(1)).await,
        Extended::Unknown
    );
    late.caught().await.unwrap();
    assert_eq!(guard.extend(LONG * 2).await, Extended::Extended);
    let ends_at_ms = scene.ends_at_ms().await;
    late.deliver().await.unwrap();
    assert_eq!(scene.ends_at_ms().await, ends_at_ms);
    assert_eq!(guard.release().await, Released::Released);
}

#[tokio::test]
async fn a_late_prolongation_does_not_take_a_released_lock_back() {
    let scene = Scene::new().await;
    let (lock, proxy) = through_a_proxy(&scene).await;
    let guard = take(&lock).await;
    let mut late = proxy.hold_next_request(b"$max");
    assert_eq!(guard.extend(LONG).await, Extended::Unknown);
    late.caught().await.unwrap();
    assert_eq!(guard.release().await, Released::Released);
    let document = scene.document().await;
    late.deliver().await.unwrap();
    assert_eq!(scene.document().await, document);
}

#[tokio::test]
async fn a_late_acquire_takes_nothing_once_somebody_has_been_there() {
    let scene = Scene::new().await;
    let (lock, proxy) = through_a_proxy(&scene).await;
    // So that there is a document.
    assert_eq!(take(&lock).await.release().await, Released::Released);
    let mut late = proxy.hold_next_request(b"$inc");
    let guard = lock.acquire(OwnerId::random(), LONG).await.unwrap();
    let guard = guard.expect("a second try");
    late.caught().await.unwrap();
    assert_eq!(guard.release().await, Released::Released);
    let document = scene.document().await;
    late.deliver().await.unwrap();
    assert_eq!(scene.document().await, document);
}
