//! Whose lock it is: of one acquisition, by its token, and of one owner, by its name; never of a thread.

use std::collections::HashSet;
use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer, eventually};
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use stockade::env::Env;
use stockade::lock::redis::RedisLocks;
use stockade::lock::{Extended, Kind, Lock, OwnerId, Released, Token};

use super::support::{
    LONG, OF_REDIS, gated, is_free, leased, locks, next, take, take_gated, try_as,
};

struct Scene {
    redis: RedisServer,
    locks: RedisLocks<ConnectionManager>,
}

impl Scene {
    async fn new() -> Self {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let locks = locks(&redis, &Env::default()).await;
        Self { redis, locks }
    }

    fn lock(&self, kind: Kind, lease: Duration) -> Lock {
        self.locks.lock(kind, kind.name(), leased(lease)).unwrap()
    }

    /// The holder's lease ends now.
    async fn lease_ends(&self, kind: Kind) {
        let mut connection = self.redis.connection().await.unwrap();
        let ended: bool = connection.pexpire(kind.name(), 0).await.unwrap();
        assert!(ended, "{kind}: no lease");
    }
}

#[test]
fn no_two_acquisitions_share_a_token() {
    // All at the same time, as far as a clock can tell.
    let tokens: HashSet<String> = (0..100_000).map(|_| Token::random().to_string()).collect();
    assert_eq!(tokens.len(), 100_000);
    assert!(
        tokens.iter().all(|token| token.len() == 32),
        "128 bits each"
    );
}

#[tokio::test]
async fn an_owner_does_not_get_a_lock_twice_that_is_not_reentrant() {
    let scene = Scene::new().await;
    let owner = OwnerId::random();
    for kind in OF_REDIS {
        let lock = scene.lock(kind, LONG);
        let (first, second) = tokio::join!(lock.try_acquire(owner), lock.try_acquire(owner));
        let both = first.unwrap().is_some() && second.unwrap().is_some();
        assert_eq!(both, kind == Kind::Reentrant, "{kind}");
    }
}

/// Both run on one thread, which is no identity.
#[tokio::test(flavor = "current_thread")]
async fn two_tasks_with_owners_of_their_own_exclude_each_other() {
    let scene = Scene::new().await;
    let lock = scene.lock(Kind::Reentrant, LONG);
    let inside = take(&lock).await;
    let other = tokio::spawn({
        let lock = lock.clone();
        async move { try_as(&lock, OwnerId::random()).await.is_none() }
    });
    assert!(other.await.unwrap(), "the other task was let in");
    inside.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_guard_may_be_released_and_prolonged_on_any_thread() {
    let scene = Scene::new().await;
    for kind in OF_REDIS {
        let lock = scene.lock(kind, LONG);
        let guard = take(&lock).await;
        let elsewhere = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.unwrap().block_on(async move {
                assert_eq!(guard.extend(LONG).await, Extended::Extended);
                guard.release().await
            })
        });
        let released = tokio::task::spawn_blocking(|| elsewhere.join().unwrap());
        assert_eq!(released.await.unwrap(), Released::Released, "{kind}");
        assert!(is_free(&lock).await, "{kind}");
    }
}

#[tokio::test]
async fn re_entry_after_the_lease_does_not_overwrite_the_next_ones_lock() {
    let scene = Scene::new().await;
    let lock = scene.lock(Kind::Reentrant, LONG);
    let owner = OwnerId::random();
    let late = try_as(&lock, owner).await.unwrap();
    scene.lease_ends(Kind::Reentrant).await;
    let working = take(&lock).await;
    assert!(
        try_as(&lock, owner).await.is_none(),
        "it has overwritten it"
    );
    assert_eq!(late.release().await, Released::NotMine);
    assert_eq!(working.extend(LONG).await, Extended::Extended);
    assert_eq!(working.release().await, Released::Released);
}

/// A release that was lost must not count for as long as the same owner comes again.
#[tokio::test]
async fn an_owner_whose_release_was_lost_does_not_starve_the_others() {
    let scene = Scene::new().await;
    let owner = OwnerId::random();
    let lease = Duration::from_millis(300);
    let lost = scene.lock(Kind::Reentrant, lease);
    // Never released, as if all three tries of its release had been lost.
    std::mem::forget(try_as(&lost, owner).await.unwrap());
    let lock = scene.lock(Kind::Reentrant, LONG);
    // Comes again and again, well within each lease, for longer than that lease.
    eventually("a turn for somebody else", async || {
        let again = try_as(&lock, owner).await?;
        assert_eq!(again.release().await, Released::Released);
        let other = try_as(&lock, OwnerId::random()).await?;
        assert_eq!(other.release().await, Released::Released);
        Some(())
    })
    .await
    .unwrap();
}

/// An acquisition whose own lease has ended counts no more, though one around or in it goes on.
#[tokio::test]
async fn a_shorter_acquisition_ends_nothing_of_a_longer_one() {
    let scene = Scene::new().await;
    let owner = OwnerId::random();
    let long = scene.lock(Kind::Reentrant, LONG);
    let short = scene.lock(Kind::Reentrant, Duration::from_millis(50));
    let outer = try_as(&long, owner).await.unwrap();
    let inner = try_as(&short, owner).await.unwrap();
    inner.lost().await;
    std::mem::forget(inner);
    let connection = scene.redis.connection().await.unwrap();
    let owner = owner.to_string();
    eventually("the end of the shorter one", async || {
        assert!(!is_free(&long).await, "the outer one's lock was freed");
        let inside: u32 = connection.clone().hget("reentrant", &owner).await.ok()?;
        (inside == 1).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(outer.extend(LONG).await, Extended::Extended);
    assert_eq!(outer.release().await, Released::Released);
    assert!(is_free(&long).await);
}

#[tokio::test]
async fn the_end_of_a_writers_reading_leaves_its_writing_alone() {
    let scene = Scene::new().await;
    let lock = scene.lock(Kind::ReadWrite, LONG);
    let owner = OwnerId::random();
    let writing = try_as(&lock, owner).await.unwrap();
    let reading = try_as(&lock.shared().unwrap(), owner).await.unwrap();
    assert_eq!(reading.release().await, Released::Released);
    assert!(
        !is_free(&lock.shared().unwrap()).await,
        "the writing was ended too"
    );
    assert_eq!(writing.extend(LONG).await, Extended::Extended);
    assert_eq!(writing.release().await, Released::Released);
    assert!(is_free(&lock).await);
}

#[tokio::test]
async fn each_reading_of_one_owner_ends_by_itself_and_leaves_nothing() {
    let scene = Scene::new().await;
    let lock = scene.lock(Kind::ReadWrite, LONG);
    let (owner, shared) = (OwnerId::random(), lock.shared().unwrap());
    let mut readings = Vec::new();
    for _ in 0..3 {
        readings.push(try_as(&shared, owner).await.unwrap());
    }
    for reading in readings {
        assert!(!is_free(&lock).await, "a writer beside a reader");
        assert_eq!(reading.release().await, Released::Released);
    }
    let mut connection = scene.redis.connection().await.unwrap();
    let left: bool = connection.exists("{read-write}:readers").await.unwrap();
    assert!(!left && is_free(&lock).await);
}

/// Neither does a short lease end a longer one, nor does a long one keep a dead reader.
#[tokio::test]
async fn each_reader_has_a_lease_of_its_own_and_a_dead_one_does_not_block_for_ever() {
    let scene = Scene::new().await;
    let lock = scene.lock(Kind::ReadWrite, LONG);
    let dead = scene.lock(Kind::ReadWrite, Duration::from_millis(200));
    let long = try_as(&lock.shared().unwrap(), OwnerId::random())
        .await
        .unwrap();
    let dead = try_as(&dead.shared().unwrap(), OwnerId::random())
        .await
        .unwrap();
    dead.lost().await;
    // It never says anything again.
    std::mem::forget(dead);
    assert!(
        !is_free(&lock).await,
        "the short lease has ended the long one"
    );
    assert_eq!(long.extend(LONG).await, Extended::Extended);
    assert_eq!(long.release().await, Released::Released);
    let written = tokio::time::timeout(LONG, take(&lock)).await;
    written.expect("a turn").release().await;
}

/// Nothing is kept beside the server: what has run out there can be taken again by the same client.
#[tokio::test]
async fn a_lock_that_ran_out_can_be_taken_again_by_the_same_client() {
    let scene = Scene::new().await;
    let owner = OwnerId::random();
    for kind in OF_REDIS {
        let lock = scene.lock(kind, LONG);
        let first = try_as(&lock, owner).await.unwrap();
        scene.lease_ends(kind).await;
        assert_eq!(first.release().await, Released::NotMine, "{kind}");
        let again = try_as(&lock, owner).await.expect("nothing is left of it");
        assert_eq!(again.release().await, Released::Released, "{kind}");
    }
}

/// Told by the server that a copy of its release has done it before, a holder is not told that it held nothing.
#[tokio::test]
async fn a_holder_whose_release_is_repeated_is_not_told_that_it_held_nothing() {
    let scene = Scene::new().await;
    for kind in OF_REDIS {
        let timeout = Duration::from_millis(300);
        let (lock, mut steps) = gated(&scene.redis, kind, leased(LONG), timeout).await;
        let guard = take_gated(&lock, &mut steps).await;
        let releasing = tokio::spawn(guard.release());
        next(&mut steps).await.lose_answer().await;
        next(&mut steps).await.pass().await;
        assert_eq!(releasing.await.unwrap(), Released::Released, "{kind}");
        let mut connection = scene.redis.connection().await.unwrap();
        let () = redis::cmd("FLUSHALL")
            .query_async(&mut connection)
            .await
            .unwrap();
    }
}
