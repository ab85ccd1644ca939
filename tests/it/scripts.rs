//! The Lua scripts on a real Redis, without the service: examples, and random batches against a model.

use std::collections::BTreeMap;

use loadtest::servers::{RedisOptions, RedisServer, eventually};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use stockade::domain::{BuyerId, IdempotencyKey, OrderId, Purchase, SaleId};
use stockade::stock::requests::{Mark, marks};
use stockade::stock::scripts::{self, Answer, Copies, Decision, Presence, Returned};
use stockade::stock::{Error, SegmentKeys, journal};

struct Segment {
    connection: MultiplexedConnection,
    keys: SegmentKeys,
    _redis: Option<RedisServer>,
}

fn sale() -> SaleId {
    SaleId::new(1).unwrap()
}

/// A segment that sells `available` units, at most `limit` to a buyer.
async fn load(connection: &mut MultiplexedConnection, epoch: u64, available: u64, limit: u32) {
    let keys = SegmentKeys::new(sale(), 0, epoch);
    let meta = [
        ("available", available.to_string()),
        ("filled", available.to_string()),
        ("per_buyer_limit", limit.to_string()),
        ("control", "0".to_owned()),
        ("opens_at_ms", "0".to_owned()),
    ];
    assert!(
        scripts::load_finish(connection, &keys, 0, 0, &meta)
            .await
            .unwrap()
    );
}

async fn segment(available: u64, limit: u32) -> Segment {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let mut connection = redis.connection().await.unwrap();
    load(&mut connection, 1, available, limit).await;
    Segment {
        connection,
        keys: SegmentKeys::new(sale(), 0, 1),
        _redis: Some(redis),
    }
}

fn purchase(buyer: &str, key: &str, quantity: u32) -> Purchase {
    let buyer = BuyerId::parse(buyer).unwrap();
    let order = OrderId::of(sale(), &buyer, &IdempotencyKey::parse(key).unwrap());
    Purchase {
        order,
        buyer,
        quantity,
    }
}

impl Segment {
    async fn call(
        &mut self,
        last: bool,
        act_before_ms: i64,
        purchases: &[Purchase],
    ) -> Result<Decision, Error> {
        let purchases: Vec<&Purchase> = purchases.iter().collect();
        let connection = &mut self.connection;
        let copies = if last { Copies::LastWord } else { Copies::One };
        scripts::purchase(connection, &self.keys, copies, act_before_ms, &purchases).await
    }

    async fn decide(&mut self, last: bool, purchases: &[Purchase]) -> Decision {
        self.call(last, 0, purchases).await.unwrap()
    }

    async fn buy(&mut self, last: bool, purchases: &[Purchase]) -> Vec<Answer> {
        match self.decide(last, purchases).await {
            Decision::Decided { answers, .. } => answers,
            other => panic!("{other:?}"),
        }
    }

    async fn available(&mut self) -> u64 {
        scripts::figures(&mut self.connection, &self.keys)
            .await
            .unwrap()
            .available
    }
}

#[tokio::test]
async fn one_batch_sees_two_purchases_of_one_buyer_and_two_of_one_key() {
    let mut segment = segment(10, 3).await;
    let batch = [
        purchase("alice", "a", 2),
        purchase("alice", "a", 2), // the same purchase once more
        purchase("alice", "a", 1), // the same key for another
        purchase("alice", "b", 2), // over the limit, together with the first
        purchase("alice", "c", 1),
        purchase("bob", "a", 3),
        purchase("carol", "a", 3),
        purchase("dave", "a", 2), // one unit is left
        purchase("dave", "b", 1),
    ];
    let expected = [
        Answer::Admitted,
        Answer::Replay,
        Answer::KeyReused(2),
        Answer::LimitReached(1),
        Answer::Admitted,
        Answer::Admitted,
        Answer::Admitted,
        Answer::Short(1),
        Answer::Admitted,
    ];
    assert_eq!(segment.buy(false, &batch).await, expected);
    assert_eq!(segment.available().await, 0);
    let entries = journal::read(&mut segment.connection, &segment.keys, None)
        .await
        .unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].units(), 10);
    let journaled: Vec<&Purchase> = entries[0].purchases.iter().collect();
    assert_eq!(
        journaled,
        [&batch[0], &batch[4], &batch[5], &batch[6], &batch[8]]
    );
}

#[tokio::test]
async fn the_last_unit_is_sold_and_the_next_buyer_is_short() {
    let mut segment = segment(1, 1).await;
    assert_eq!(
        segment.buy(false, &[purchase("a", "k", 1)]).await,
        [Answer::Admitted]
    );
    assert_eq!(
        segment.buy(false, &[purchase("b", "k", 1)]).await,
        [Answer::Short(0)]
    );
    assert_eq!(
        segment.buy(false, &[purchase("a", "k", 1)]).await,
        [Answer::Replay]
    );
}

#[tokio::test]
async fn a_refusal_binds_no_key_unless_a_late_copy_is_possible() {
    let mut segment = segment(1, 1).await;
    segment.buy(false, &[purchase("winner", "k", 1)]).await;
    let late = [purchase("late", "k", 1)];
    assert_eq!(segment.buy(false, &late).await, [Answer::Short(0)]);
    assert_eq!(segment.buy(true, &late).await, [Answer::Short(0)]);
    assert_eq!(segment.buy(false, &late).await, [Answer::Void]);
}

#[tokio::test]
async fn a_copy_after_its_time_does_nothing() {
    let mut segment = segment(1, 1).await;
    let decision = segment
        .call(false, 1, &[purchase("a", "k", 1)])
        .await
        .unwrap();
    let Decision::TooLate { now_ms } = decision else {
        panic!("{decision:?}")
    };
    assert!(now_ms > 1_600_000_000_000, "{now_ms}");
    assert_eq!(segment.available().await, 1);
}

#[tokio::test]
async fn units_come_back_once_with_the_allowance_and_raise_the_version() {
    let mut segment = segment(2, 2).await;
    let bought = purchase("a", "k", 2);
    segment.buy(false, std::slice::from_ref(&bought)).await;
    let back = [(bought.order, "a", 2)];
    for _ in 0..3 {
        let call = scripts::give_back(&mut segment.connection, &segment.keys, &back);
        assert_eq!(call.await.unwrap(), Ok(vec![Returned::Back]));
    }
    let figures = scripts::figures(&mut segment.connection, &segment.keys)
        .await
        .unwrap();
    assert_eq!((figures.available, figures.version), (2, 1));
    assert_eq!(
        segment.buy(false, &[purchase("a", "other", 2)]).await,
        [Answer::Admitted]
    );
    assert_eq!(
        segment.buy(false, &[bought]).await,
        [Answer::Replay],
        "the ended order's key"
    );
    let stranger = [(purchase("x", "k", 1).order, "x", 1)];
    let call = scripts::give_back(&mut segment.connection, &segment.keys, &stranger);
    assert_eq!(call.await.unwrap(), Ok(vec![Returned::Unmarked]));
}

#[tokio::test]
async fn a_segment_that_lost_any_of_its_keys_is_not_there() {
    for lost in 0..4 {
        let mut segment = segment(5, 1).await;
        let key = segment.keys.all()[lost].to_owned();
        let _: () = segment.connection.del(&key).await.unwrap();
        let decision = segment.decide(false, &[purchase("a", "k", 1)]).await;
        let gone = matches!(decision, Decision::NotThere(Presence::Absent));
        assert!(gone, "without {key}: {decision:?}");
        let figures = scripts::figures(&mut segment.connection, &segment.keys)
            .await
            .unwrap();
        assert_eq!(figures.presence, Presence::Absent, "without {key}");
    }
}

#[tokio::test]
async fn a_segment_of_another_redis_process_is_not_there() {
    let mut redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let mut connection = redis.connection().await.unwrap();
    load(&mut connection, 1, 5, 1).await;
    redis.stop().await.unwrap();
    redis.restart().await.unwrap();
    let connection = redis.connection().await.unwrap();
    let keys = SegmentKeys::new(sale(), 0, 1);
    let mut segment = Segment {
        connection,
        keys,
        _redis: Some(redis),
    };
    let kept: bool = segment.connection.exists(&segment.keys.meta).await.unwrap();
    assert!(
        kept,
        "the append-only file was lost: this test shows nothing"
    );
    let decision = segment.decide(false, &[purchase("a", "k", 1)]).await;
    assert!(
        matches!(decision, Decision::NotThere(Presence::Absent)),
        "{decision:?}"
    );
}

#[tokio::test]
async fn a_sealed_segment_admits_nothing_and_takes_nothing_back() {
    let mut segment = segment(5, 1).await;
    let bought = purchase("a", "k", 1);
    segment.buy(false, std::slice::from_ref(&bought)).await;
    let sealed = scripts::seal(&mut segment.connection, &segment.keys)
        .await
        .unwrap();
    assert_eq!(sealed, (true, 1));
    let decision = segment.decide(false, &[purchase("b", "k", 1)]).await;
    assert!(
        matches!(decision, Decision::NotThere(Presence::Sealed)),
        "{decision:?}"
    );
    let back = [(bought.order, "a", 1)];
    let call = scripts::give_back(&mut segment.connection, &segment.keys, &back);
    assert_eq!(call.await.unwrap(), Err(Presence::Sealed));
}

#[tokio::test]
async fn a_late_chunk_of_a_load_does_not_undo_what_was_sold_since() {
    let mut segment = segment(5, 5).await;
    segment.buy(false, &[purchase("a", "k", 2)]).await;
    let chunk = scripts::Chunk {
        buyers: vec![("a".into(), 0)],
        requests: Vec::new(),
    };
    scripts::load_chunk(&mut segment.connection, &segment.keys, 60_000, &chunk)
        .await
        .unwrap();
    assert_eq!(
        segment.buy(false, &[purchase("a", "l", 4)]).await,
        [Answer::LimitReached(3)]
    );
}

#[tokio::test]
async fn a_load_that_lost_a_part_on_the_way_is_not_opened() {
    let mut segment = segment(5, 5).await;
    let keys = SegmentKeys::new(sale(), 0, 2);
    let chunk = scripts::Chunk {
        buyers: vec![("a".into(), 1)],
        requests: Vec::new(),
    };
    scripts::load_chunk(&mut segment.connection, &keys, 60_000, &chunk)
        .await
        .unwrap();
    let meta = [("available", "1".to_owned())];
    let whole = scripts::load_finish(&mut segment.connection, &keys, 2, 0, &meta);
    assert!(!whole.await.unwrap());
    let figures = scripts::figures(&mut segment.connection, &keys)
        .await
        .unwrap();
    assert_eq!(figures.presence, Presence::Absent);
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_told_them_again() {
    let mut segment = segment(2, 1).await;
    let _: () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut segment.connection)
        .await
        .unwrap();
    assert_eq!(
        segment.buy(false, &[purchase("a", "k", 1)]).await,
        [Answer::Admitted]
    );
}

#[tokio::test]
async fn a_key_of_the_wrong_type_changes_nothing() {
    let mut segment = segment(2, 1).await;
    let _: () = segment.connection.del(&segment.keys.buyers).await.unwrap();
    let _: () = segment
        .connection
        .set(&segment.keys.buyers, "not a hash")
        .await
        .unwrap();
    let one = purchase("a", "k", 1);
    let call = segment.call(false, 0, std::slice::from_ref(&one)).await;
    let error = call.expect_err("a string is no hash");
    assert!(
        !error.is_not_run(),
        "an error inside a script leaves the outcome open: {error}"
    );
    let marked: bool = segment
        .connection
        .hexists(&segment.keys.requests, one.order.as_bytes())
        .await
        .unwrap();
    assert!(!marked);
}

#[tokio::test]
async fn a_full_redis_refuses_the_whole_script() {
    let mut segment = segment(5, 1).await;
    let mut config = redis::cmd("CONFIG");
    let _: () = config
        .arg("SET")
        .arg("maxmemory")
        .arg("1mb")
        .query_async(&mut segment.connection)
        .await
        .unwrap();
    let one = purchase("a", "k", 1);
    let call = segment.call(false, 0, std::slice::from_ref(&one)).await;
    let error = call.expect_err("memory is full");
    assert!(matches!(error, Error::NotRun(_)), "{error}");
    assert_eq!(segment.available().await, 5);
}

/// A segment as a person would think of it.
#[derive(Debug, Default)]
struct Model {
    available: u64,
    limit: u32,
    units: BTreeMap<String, u32>,
    marks: BTreeMap<OrderId, (u32, bool)>,
    void: std::collections::BTreeSet<OrderId>,
}

impl Model {
    fn decide(&mut self, last: bool, purchase: &Purchase) -> Answer {
        if self.void.contains(&purchase.order) {
            return Answer::Void;
        }
        if let Some((quantity, _)) = self.marks.get(&purchase.order) {
            return match *quantity == purchase.quantity {
                true => Answer::Replay,
                false => Answer::KeyReused(*quantity),
            };
        }
        let units = self.units.entry(purchase.buyer.to_string()).or_default();
        let refusal = if *units + purchase.quantity > self.limit {
            Answer::LimitReached(self.limit - *units)
        } else if u64::from(purchase.quantity) > self.available {
            Answer::Short(self.available)
        } else {
            *units += purchase.quantity;
            self.available -= u64::from(purchase.quantity);
            self.marks.insert(purchase.order, (purchase.quantity, true));
            return Answer::Admitted;
        };
        if last {
            self.void.insert(purchase.order);
        }
        refusal
    }

    fn give_back(&mut self, order: OrderId, buyer: &str) -> Returned {
        let Some((quantity, active)) = self.marks.get_mut(&order) else {
            return Returned::Unmarked;
        };
        if std::mem::take(active) {
            self.available += u64::from(*quantity);
            *self.units.get_mut(buyer).unwrap() -= *quantity;
        }
        Returned::Back
    }
}

#[derive(Debug, Clone)]
enum Step {
    Buy {
        last: bool,
        batch: Vec<(u8, u8, u32)>,
    },
    GiveBack {
        buyer: u8,
        key: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let one = (0..5_u8, 0..4_u8, 1..=3_u32);
    prop_oneof![
        4 => (any::<bool>(), prop::collection::vec(one, 1..12))
            .prop_map(|(last, batch)| Step::Buy { last, batch }),
        1 => (0..5_u8, 0..4_u8).prop_map(|(buyer, key)| Step::GiveBack { buyer, key }),
    ]
}

#[test]
fn random_batches_and_returns_are_decided_as_the_model_decides_them() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let redis = runtime
        .block_on(RedisServer::start(&RedisOptions::default()))
        .unwrap();
    let epoch = std::cell::Cell::new(1_u64);
    let cases = 150;
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let inputs = (0..15_u64, 1..6_u32, prop::collection::vec(step(), 1..25));
    let outcome = runner.run(&inputs, |(available, limit, steps)| {
        epoch.set(epoch.get() + 1);
        let result: Result<(), TestCaseError> = runtime.block_on(async {
            let mut connection = redis.connection().await.unwrap();
            load(&mut connection, epoch.get(), available, limit).await;
            let keys = SegmentKeys::new(sale(), 0, epoch.get());
            let mut segment = Segment {
                connection,
                keys,
                _redis: None,
            };
            let mut model = Model {
                available,
                limit,
                ..Model::default()
            };
            for step in steps {
                match step {
                    Step::Buy { last, batch } => {
                        let batch: Vec<Purchase> = batch
                            .iter()
                            .map(|(b, k, n)| purchase(&format!("b{b}"), &format!("k{k}"), *n))
                            .collect();
                        let expected: Vec<Answer> =
                            batch.iter().map(|one| model.decide(last, one)).collect();
                        prop_assert_eq!(segment.buy(last, &batch).await, expected);
                    }
                    Step::GiveBack { buyer, key } => {
                        let one = purchase(&format!("b{buyer}"), &format!("k{key}"), 1);
                        let buyer = one.buyer.as_str();
                        let quantity = model.marks.get(&one.order).map_or(1, |mark| mark.0);
                        let expected = model.give_back(one.order, buyer);
                        let back = [(one.order, buyer, quantity)];
                        let call =
                            scripts::give_back(&mut segment.connection, &segment.keys, &back);
                        prop_assert_eq!(call.await.unwrap(), Ok(vec![expected]));
                    }
                }
                prop_assert_eq!(segment.available().await, model.available);
            }
            Ok(())
        });
        result
    });
    outcome.unwrap();
}

/// Another segment may have the unit: whoever is short at home keeps the key until that is known.
#[tokio::test]
async fn lack_of_stock_makes_a_key_void_only_as_the_last_word() {
    let mut segment = segment(0, 1).await;
    let wish = purchase("a", "k", 1);
    let (connection, keys) = (&mut segment.connection, &segment.keys);
    for (copies, mark) in [
        (Copies::One, None),
        (Copies::LateOnePossible, None),
        (Copies::LastWord, Some(Mark::Void)),
    ] {
        let decision = scripts::purchase(connection, keys, copies, 0, &[&wish]).await;
        let Ok(Decision::Decided { answers, .. }) = decision else {
            panic!("{copies:?}: {decision:?}");
        };
        assert_eq!(answers, [Answer::Short(0)], "{copies:?}");
        let marks = marks(connection, keys, &[wish.order]).await.unwrap();
        assert_eq!(marks, [mark], "{copies:?}");
    }
}

/// Its data was replaced by a copy that another server has sold from, without a restart: the run id is
/// still the same.
#[tokio::test]
async fn a_server_that_took_its_data_from_another_one_is_not_there() {
    let first = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let mut connection = first.connection().await.unwrap();
    load(&mut connection, 1, 5, 1).await;
    let master = ([127, 0, 0, 1], first.tcp_port()).into();
    let options = RedisOptions::default();
    let second = RedisServer::start_replica(&options, master).await.unwrap();
    let copied = async |from: &RedisServer, to: &RedisServer| {
        eventually("the copy", async || {
            let (from, to) = (
                from.replication_offset().await.ok()?,
                to.replication_offset().await.ok()?,
            );
            (from == to).then_some(())
        })
        .await
        .unwrap();
    };
    copied(&first, &second).await;
    second.promote().await.unwrap();
    let mut back = redis::cmd("REPLICAOF");
    let back = back.arg("127.0.0.1").arg(second.tcp_port());
    back.query_async::<()>(&mut connection).await.unwrap();
    eventually("the way back", async || {
        let up = first.info("master_link_status").await.ok()?;
        (up == "up").then_some(())
    })
    .await
    .unwrap();
    first.promote().await.unwrap();
    let mut segment = Segment {
        connection,
        keys: SegmentKeys::new(sale(), 0, 1),
        _redis: Some(first),
    };
    let kept: bool = segment.connection.exists(&segment.keys.meta).await.unwrap();
    assert!(kept, "the data is not there: this test shows nothing");
    let decision = segment.decide(false, &[purchase("a", "k", 1)]).await;
    assert!(
        matches!(decision, Decision::NotThere(Presence::Absent)),
        "{decision:?}"
    );
}
