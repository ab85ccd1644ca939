//! The Lua scripts on a real Redis, without the service: examples; random batches in [`model`].

mod model;

use loadtest::servers::{RedisOptions, RedisServer, eventually};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use stockade::domain::{BuyerId, IdempotencyKey, OrderId, Purchase, SaleId};
use stockade::stock::requests::{Mark, marks};
use stockade::stock::scripts::{
    self, Answer, Batch, Copies, Decided, Decision, Presence, Returned,
};
use stockade::stock::{Error, SegmentKeys, journal};

use crate::harness::purchase_at;

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
    load_segment(
        connection,
        &SegmentKeys::new(sale(), 0, epoch),
        available,
        limit,
    )
    .await;
}

async fn load_segment(
    connection: &mut MultiplexedConnection,
    keys: &SegmentKeys,
    available: u64,
    limit: u32,
) {
    let meta = [
        ("available", available.to_string()),
        ("filled", available.to_string()),
        ("per_buyer_limit", limit.to_string()),
        ("control", "0".to_owned()),
        ("opens_at_ms", "0".to_owned()),
    ];
    assert!(
        scripts::load_finish(connection, keys, 0, 0, &meta)
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
        purchases: &[Purchase],
    ) -> Result<Result<Decided, Presence>, Error> {
        let purchases: Vec<&Purchase> = purchases.iter().collect();
        let copies = if last { Copies::LastWord } else { Copies::One };
        purchase_at(&mut self.connection, &self.keys, copies, &purchases).await
    }

    async fn decide(&mut self, last: bool, purchases: &[Purchase]) -> Result<Decided, Presence> {
        self.call(last, purchases).await.unwrap()
    }

    async fn buy(&mut self, last: bool, purchases: &[Purchase]) -> Vec<Answer> {
        self.decide(last, purchases).await.unwrap().answers
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
    let batches = [Batch {
        keys: &segment.keys,
        purchases: &[&purchase("a", "k", 1)],
    }];
    let call = scripts::purchase(&mut segment.connection, Copies::One, 1, &batches);
    let decision = call.await.unwrap();
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
        let gone = matches!(decision, Err(Presence::Absent));
        assert!(gone, "without {key}: {decision:?}");
        let figures = scripts::figures(&mut segment.connection, &segment.keys)
            .await
            .unwrap();
        assert_eq!(figures.presence, Presence::Absent, "without {key}");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_no_segment_and_nothing_changes() {
    for foreign in 0..4 {
        let mut segment = segment(5, 1).await;
        let key = segment.keys.all()[foreign].to_owned();
        let _: () = segment.connection.set(&key, "foreign").await.unwrap();
        let one = purchase("a", "k", 1);
        let decision = segment.decide(false, std::slice::from_ref(&one)).await;
        let gone = matches!(decision, Err(Presence::Absent));
        assert!(gone, "{key}: {decision:?}");
        if key != segment.keys.requests {
            let order = one.order.as_bytes().as_slice();
            let marked = segment.connection.hexists(&segment.keys.requests, order);
            let marked: bool = marked.await.unwrap();
            assert!(!marked, "{key}");
        }
    }
}

/// Each segment of a call is decided by what it has itself, and those that are there do not suffer from
/// one that is not.
#[tokio::test]
async fn one_call_decides_the_purchases_of_several_segments() {
    let mut segment = segment(3, 2).await;
    let connection = &mut segment.connection;
    let all: Vec<SegmentKeys> = (0..4).map(|n| SegmentKeys::new(sale(), n, 1)).collect();
    load_segment(connection, &all[1], 1, 2).await;
    load_segment(connection, &all[3], 5, 2).await;
    scripts::seal(connection, &all[3]).await.unwrap();
    let wishes: Vec<Purchase> = ["a", "b", "c", "d"]
        .iter()
        .map(|buyer| purchase(buyer, "k", 2))
        .collect();
    let (first, second) = ([&wishes[0], &wishes[1]], [&wishes[2]]);
    let (third, fourth) = ([&wishes[3]], [&wishes[3]]);
    let purchases: [&[&Purchase]; 4] = [&first, &second, &third, &fourth];
    let batch = |(keys, purchases)| Batch { keys, purchases };
    let batches: Vec<Batch<'_>> = all.iter().zip(purchases).map(batch).collect();
    let call = scripts::purchase(connection, Copies::One, 0, &batches);
    let Decision::Decided { batches, .. } = call.await.unwrap() else {
        panic!("too late")
    };
    let answers = batches
        .iter()
        .map(|decided| decided.as_ref().map(|decided| decided.answers.as_slice()));
    assert_eq!(
        answers.collect::<Vec<_>>(),
        [
            Ok([Answer::Admitted, Answer::Short(1)].as_slice()),
            Ok([Answer::Short(1)].as_slice()),
            Err(&Presence::Absent),
            Err(&Presence::Sealed),
        ]
    );
    let entries = batches
        .iter()
        .map(|decided| matches!(decided, Ok(decided) if decided.entry.is_some()));
    assert_eq!(entries.collect::<Vec<_>>(), [true, false, false, false]);
    for (keys, available) in [(&all[0], 1), (&all[1], 1)] {
        let figures = scripts::figures(connection, keys).await.unwrap();
        assert_eq!(figures.available, available);
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
    assert!(matches!(decision, Err(Presence::Absent)), "{decision:?}");
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
    assert!(matches!(decision, Err(Presence::Sealed)), "{decision:?}");
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
    let call = segment.call(false, std::slice::from_ref(&one)).await;
    let error = call.expect_err("memory is full");
    assert!(matches!(error, Error::NotRun(_)), "{error}");
    assert_eq!(segment.available().await, 5);
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
        let decision = purchase_at(connection, keys, copies, &[&wish]).await;
        let answers = decision.unwrap().unwrap().answers;
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
    assert!(matches!(decision, Err(Presence::Absent)), "{decision:?}");
}
