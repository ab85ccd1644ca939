//! Requests that reach etcd when their sender has long gone on.

use std::time::Duration;

use loadtest::servers::eventually;
use stockade::lock::etcd::EtcdLocks;
use stockade::lock::gate::{Step, Steps};
use stockade::lock::{Extended, Guard, Kind, Lock, OwnerId, Released};
use tokio::sync::{mpsc, oneshot};

use super::{LONG, NAME, Scene, TIMEOUT, terms};

/// When a call is given up.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);
/// More than the lease has that the lock is taken with.
const LONGER: Duration = Duration::from_secs(60);

/// Lets everything pass at once, but keeps the next call that begins with a word.
struct Keeper {
    wanted: mpsc::Sender<(&'static str, oneshot::Sender<Step>)>,
}

impl Keeper {
    fn stand_at(mut steps: Steps) -> Self {
        let (wanted, mut wishes) = mpsc::channel::<(_, oneshot::Sender<Step>)>(1);
        tokio::spawn(async move {
            let mut wish = None;
            while let Some(step) = steps.next().await {
                wish = wish.or_else(|| wishes.try_recv().ok());
                match wish.take_if(|(call, _)| step.command().starts_with(*call)) {
                    Some((_, kept)) => drop(kept.send(step)),
                    None => drop(tokio::spawn(step.pass())),
                }
            }
        });
        Self { wanted }
    }

    async fn keep(&self, call: &'static str) -> Kept {
        let (sender, kept) = oneshot::channel();
        self.wanted.send((call, sender)).await.unwrap();
        Kept(kept)
    }
}

/// A call that is kept back, or will be.
struct Kept(oneshot::Receiver<Step>);

impl Kept {
    async fn step(self) -> Step {
        let step = tokio::time::timeout(TIMEOUT, self.0).await;
        step.expect("it was kept").expect("a client")
    }

    /// Delivers it, and gives what etcd answers to nobody.
    async fn deliver(self) -> String {
        self.step().await.pass().await
    }
}

async fn kept(scene: &Scene) -> (Lock, Keeper) {
    let (url, env) = (scene.server.url(), scene.env.clone());
    let locks = EtcdLocks::connect(&url, CALL_TIMEOUT, env).await;
    let (locks, steps) = locks.unwrap().gated();
    let lock = locks.lock(Kind::Etcd, NAME, terms(LONG)).unwrap();
    (lock, Keeper::stand_at(steps))
}

async fn take(lock: &Lock) -> Guard {
    let tried = lock.try_acquire(OwnerId::random()).await;
    tried.unwrap().expect("a free lock")
}

async fn left_seconds(scene: &Scene, lease: i64) -> i64 {
    let mut leases = scene.admin.lease_client();
    leases.time_to_live(lease, None).await.unwrap().ttl()
}

fn seconds(time: Duration) -> i64 {
    time.as_secs().cast_signed()
}

#[tokio::test]
async fn a_move_that_comes_late_does_not_take_the_key_from_the_lease_that_its_holder_counts_on() {
    let scene = Scene::new().await;
    let (lock, keeper) = kept(&scene).await;
    let guard = take(&lock).await;
    let late = keeper.keep("carry").await;
    assert_eq!(guard.extend(LONGER).await, Extended::Unknown);
    // Before the lease is revoked that it would bring the key to.
    let revoke = keeper.keep("lease revoke").await;
    let meanwhile = async {
        let revoke = revoke.step().await;
        let before = scene.keys().await;
        late.deliver().await;
        assert_eq!(scene.keys().await, before);
        revoke.pass().await;
        before
    };
    let (extended, before) = tokio::join!(guard.extend(LONGER * 2), meanwhile);
    assert_eq!(extended, Extended::Extended);
    let left = left_seconds(&scene, before[0].lease).await;
    assert!(left > seconds(LONGER), "{left} s");
    assert!(!guard.is_lost());
    assert_eq!(guard.release().await, Released::Released);
    scene.nothing_is_left("late").await;
}

/// The key goes where it is moved to, and finds that lease kept for it.
#[tokio::test]
async fn a_move_that_comes_after_a_prolongation_brings_the_key_to_a_lease_with_its_full_time() {
    let scene = Scene::new().await;
    let (lock, keeper) = kept(&scene).await;
    let guard = take(&lock).await;
    let late = keeper.keep("carry").await;
    assert_eq!(guard.extend(LONGER).await, Extended::Unknown);
    let first = scene.keys().await;
    // Nobody has asked for the other lease for a while.
    let mut others = scene.leases().await.into_iter();
    let other = others.find(|id| *id != first[0].lease).unwrap();
    let spent = eventually("time of the other lease", async || {
        let left = left_seconds(&scene, other).await;
        (left <= seconds(LONGER) - 4).then_some(())
    });
    spent.await.unwrap();
    assert_eq!(guard.extend(LONG).await, Extended::Extended);
    late.deliver().await;
    assert_eq!(scene.keys().await[0].lease, other);
    let left = left_seconds(&scene, other).await;
    assert!(left >= seconds(LONGER) - 2, "{left} s");
    assert!(!guard.is_lost());
    assert_eq!(guard.extend(LONG).await, Extended::Extended);
    assert_eq!(guard.release().await, Released::Released);
    scene.nothing_is_left("late").await;
}

#[tokio::test]
async fn a_place_that_is_asked_for_late_is_not_had_when_its_client_has_withdrawn() {
    let scene = Scene::new().await;
    let (lock, keeper) = kept(&scene).await;
    let late = keeper.keep("enter").await;
    assert!(lock.try_acquire(OwnerId::random()).await.is_err());
    // Its lease is revoked by then.
    let revoked = eventually("an end of its lease", async || {
        scene.leases().await.is_empty().then_some(())
    });
    revoked.await.unwrap();
    late.deliver().await;
    scene.nothing_is_left("late").await;
}
