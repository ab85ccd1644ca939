//! Each naive lock is broken in its documented way, by a schedule that says which command of whom goes when;
//! the correct lock survives the same schedule. No step waits for time: a lease ends when the test says so.

use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer};
use redis::AsyncCommands as _;
use redis::aio::{ConnectionManager, MultiplexedConnection};
use stockade::env::Env;
use stockade::lock::gate::{Gate, Step, Steps};
use stockade::lock::redis::{RedisLocks, Server};
use stockade::lock::{Error, Guard, Kind, Lock, OwnerId, Released, Terms};
use tokio::task::JoinHandle;

/// Each schedule is run this often.
const RUNS: u32 = 100;
/// Never waited for: the schedules decide.
const LONG: Duration = Duration::from_secs(3_600);
const HANG_LIMIT: Duration = Duration::from_secs(20);

/// Two clients of one lock, each behind a gate, and the test's own connection.
struct Scene {
    alice: Client,
    bob: Client,
    carol: Client,
    redis: MultiplexedConnection,
    name: String,
    _server: RedisServer,
}

struct Client {
    lock: Lock,
    steps: Steps,
}

impl Client {
    async fn new(server: &RedisServer, kind: Kind, clock_ahead_ms: i64) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let connection = ConnectionManager::new(client).await.unwrap();
        let (gate, steps) = Gate::new(connection);
        let server = Server::new(gate, LONG).with_clock_ahead(clock_ahead_ms);
        let terms = Terms {
            lease: LONG,
            ..Terms::default()
        };
        let lock = RedisLocks::new(server, Env::default())
            .lock(kind, "goods", terms)
            .unwrap();
        Self { lock, steps }
    }

    /// Begins to take the lock, without waiting.
    fn tries(&self) -> JoinHandle<Result<Option<Guard>, Error>> {
        let lock = self.lock.clone();
        tokio::spawn(async move { lock.try_acquire(OwnerId::random()).await })
    }

    /// The client's next command, which must begin with this word.
    async fn at(&mut self, word: &str) -> Step {
        let step = tokio::time::timeout(HANG_LIMIT, self.steps.next()).await;
        let step = step.expect("a command").expect("a client");
        assert!(step.command().starts_with(word), "{}", step.command());
        step
    }

    /// Lets all commands through from now on, until `done` is done.
    async fn freely<T>(&mut self, done: impl Future<Output = T>) -> T {
        tokio::pin!(done);
        loop {
            tokio::select! {
                biased;
                done = &mut done => return done,
                step = self.steps.next() => {
                    step.expect("a client").pass().await;
                }
            }
        }
    }

    /// Takes the lock at once, if it is free.
    async fn takes(&mut self) -> Option<Guard> {
        let trying = self.tries();
        self.freely(trying).await.unwrap().unwrap()
    }
}

impl Scene {
    async fn new(kind: Kind) -> Self {
        Self::with_bobs_clock_ahead(kind, 0).await
    }

    async fn with_bobs_clock_ahead(kind: Kind, by_ms: i64) -> Self {
        let server = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let redis = server.connection().await.unwrap();
        Self {
            alice: Client::new(&server, kind, 0).await,
            bob: Client::new(&server, kind, by_ms).await,
            carol: Client::new(&server, kind, 0).await,
            redis,
            name: "goods".into(),
            _server: server,
        }
    }

    /// The holder's lease ends now; whether there was one.
    async fn lease_ends(&mut self) -> bool {
        let has_lease = self.redis.pttl::<_, i64>(&self.name).await.unwrap() > 0;
        if has_lease {
            let _: bool = self.redis.pexpire(&self.name, 0).await.unwrap();
        }
        has_lease
    }

    async fn start_over(&mut self) {
        let _: () = redis::cmd("FLUSHALL")
            .query_async(&mut self.redis)
            .await
            .unwrap();
    }
}

/// A holder dies. Whether the next one gets the lock when every lease has ended.
async fn recovers_from_a_dead_holder(scene: &mut Scene) -> bool {
    let guard = scene.alice.takes().await.expect("a free lock");
    // Dead: it never says anything again.
    std::mem::forget(guard);
    scene.lease_ends().await;
    scene.bob.takes().await.is_some()
}

#[tokio::test]
async fn setnx_never_recovers_from_a_dead_holder() {
    let mut scene = Scene::new(Kind::Setnx).await;
    for _ in 0..RUNS {
        scene.start_over().await;
        assert!(!recovers_from_a_dead_holder(&mut scene).await);
    }
}

#[tokio::test]
async fn a_lock_with_a_lease_recovers_from_a_dead_holder() {
    for kind in [
        Kind::SetPxDel,
        Kind::TokenGetDel,
        Kind::TokenLua,
        Kind::Fenced,
        Kind::Reentrant,
    ] {
        let mut scene = Scene::new(kind).await;
        for _ in 0..RUNS {
            scene.start_over().await;
            assert!(recovers_from_a_dead_holder(&mut scene).await, "{kind}");
        }
    }
}

#[tokio::test]
async fn setnx_expire_never_recovers_from_a_holder_that_dies_between_its_two_steps() {
    let mut scene = Scene::new(Kind::SetnxExpire).await;
    for _ in 0..RUNS {
        scene.start_over().await;
        let dying = scene.alice.tries();
        scene.alice.at("SETNX").await.pass().await;
        // Dead before its second step.
        drop(scene.alice.at("PEXPIRE").await);
        dying.abort();
        assert!(!scene.lease_ends().await, "the key has a lease");
        assert!(scene.bob.takes().await.is_none());
    }
}

/// A holder overruns its lease, the next one takes the lock, and the first releases. Whether a third one
/// gets in while the second works.
async fn lets_a_third_one_in_after_an_overrun(scene: &mut Scene) -> bool {
    let late = scene.alice.takes().await.expect("a free lock");
    assert!(scene.lease_ends().await);
    let working = scene.bob.takes().await.expect("a lease that has ended");
    let released = scene.alice.freely(late.release()).await;
    let third = scene.carol.takes().await;
    let beside = third.is_some();
    assert_eq!(released == Released::Released, beside);
    scene.bob.freely(working.release()).await;
    if let Some(third) = third {
        // The cascade: the second one's release frees the third one's lock.
        let fourth = scene.alice.takes().await;
        assert!(fourth.is_some(), "no cascade");
        std::mem::forget((third, fourth));
    }
    beside
}

#[tokio::test]
async fn set_px_del_deletes_the_lock_of_the_next_one_and_so_on() {
    let mut scene = Scene::new(Kind::SetPxDel).await;
    for _ in 0..RUNS {
        scene.start_over().await;
        assert!(lets_a_third_one_in_after_an_overrun(&mut scene).await);
    }
}

#[tokio::test]
async fn a_token_keeps_a_late_holder_from_releasing_the_next_ones_lock() {
    for kind in [Kind::TokenLua, Kind::Fenced, Kind::Reentrant, Kind::Multi] {
        let mut scene = Scene::new(kind).await;
        for _ in 0..RUNS {
            scene.start_over().await;
            assert!(
                !lets_a_third_one_in_after_an_overrun(&mut scene).await,
                "{kind}"
            );
        }
    }
}

#[tokio::test]
async fn token_get_del_deletes_the_next_ones_lock_when_its_lease_ends_between_get_and_del() {
    let mut scene = Scene::new(Kind::TokenGetDel).await;
    for _ in 0..RUNS {
        scene.start_over().await;
        let guard = scene.alice.takes().await.expect("a free lock");
        let releasing = tokio::spawn(guard.release());
        scene.alice.at("GET").await.pass().await;
        assert!(scene.lease_ends().await);
        let working = scene.bob.takes().await.expect("a lease that has ended");
        scene.alice.at("DEL").await.pass().await;
        assert_eq!(
            releasing.await.unwrap(),
            Released::Released,
            "of another's lock"
        );
        let third = scene.carol.takes().await;
        assert!(third.is_some(), "the second one's lock is still there");
        std::mem::forget((working, third));
    }
}

/// The whole release of the correct lock is one command: there is no between.
#[tokio::test]
async fn token_lua_releases_in_one_command() {
    let mut scene = Scene::new(Kind::TokenLua).await;
    // The server learns the script.
    let guard = scene.alice.takes().await.expect("a free lock");
    scene.alice.freely(guard.release()).await;
    for _ in 0..RUNS {
        let guard = scene.alice.takes().await.expect("a free lock");
        let releasing = tokio::spawn(guard.release());
        scene.alice.at("EVALSHA").await.pass().await;
        assert_eq!(releasing.await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn setnx_getset_gives_a_live_lock_to_a_client_whose_clock_is_ahead() {
    let ahead_ms = 2 * 3_600 * 1_000;
    let mut scene = Scene::with_bobs_clock_ahead(Kind::SetnxGetset, ahead_ms).await;
    for _ in 0..RUNS {
        scene.start_over().await;
        let first = scene.alice.takes().await.expect("a free lock");
        let second = scene.bob.takes().await;
        assert!(second.is_some(), "the clock was not trusted");
        assert!(!first.is_lost(), "the first one knows of nothing");
        std::mem::forget((first, second));
    }
}

#[tokio::test]
async fn setnx_getsets_loser_overwrites_the_winners_time() {
    let mut scene = Scene::with_bobs_clock_ahead(Kind::SetnxGetset, 1_000).await;
    for _ in 0..RUNS {
        scene.start_over().await;
        let () = scene.redis.set("goods", "1").await.unwrap();
        let (winning, losing) = (scene.alice.tries(), scene.bob.tries());
        for client in [&mut scene.alice, &mut scene.bob] {
            client.at("SETNX").await.pass().await;
            client.at("GET ").await.pass().await;
        }
        scene.alice.at("GETSET").await.pass().await;
        let of_the_winner: String = scene.redis.get("goods").await.unwrap();
        // The loser reads the winner's time, and has replaced it already.
        let step = scene.bob.at("GETSET").await;
        let of_the_loser = step.command().rsplit(' ').next().unwrap().to_owned();
        step.pass().await;
        let held = winning.await.unwrap().unwrap();
        assert!(held.is_some());
        assert!(scene.bob.freely(losing).await.unwrap().unwrap().is_none());
        let now: String = scene.redis.get("goods").await.unwrap();
        assert_eq!(now, of_the_loser);
        assert_ne!(now, of_the_winner);
        std::mem::forget(held);
    }
}

/// A clock that is ahead changes nothing for a lock that lives on the server's clock.
#[tokio::test]
async fn a_lease_on_the_servers_clock_does_not_care_for_the_clients() {
    let ahead_ms = 2 * 3_600 * 1_000;
    for kind in [Kind::TokenLua, Kind::Fair, Kind::ReadWrite] {
        let mut scene = Scene::with_bobs_clock_ahead(kind, ahead_ms).await;
        for _ in 0..RUNS {
            scene.start_over().await;
            let first = scene.alice.takes().await.expect("a free lock");
            assert!(scene.bob.takes().await.is_none(), "{kind}");
            std::mem::forget(first);
        }
    }
}
