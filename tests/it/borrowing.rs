//! Many segments: buyers are served from all of them, and refused only for what is true of all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loadtest::servers::eventually;
use redis::aio::MultiplexedConnection;
use stockade::domain::{NewSale, Outcome, Refusal, SaleId};
use stockade::service::AuditVerdict;
use stockade::stock::SegmentKeys;
use stockade::stock::scripts::{TransferId, lend};
use tokio::time::Instant;

use crate::harness::repeats;
use crate::shop::{Shop, buy, buy_at, instance, open, shop, terms};

fn in_segments(segments: u32, quantity: u32, per_buyer_limit: u32, hold_seconds: u32) -> NewSale {
    NewSale {
        segments,
        ..terms(quantity, per_buyer_limit, hold_seconds)
    }
}

/// Everybody wants as many units as `quantity_of` says; the units sold, and all refusals.
async fn crowd(
    shop: &Arc<Shop>,
    sale: SaleId,
    buyers: u32,
    quantity_of: fn(u32) -> u32,
) -> (u32, Vec<Refusal>) {
    let mut crowd = tokio::task::JoinSet::new();
    for n in 0..buyers {
        let shop = Arc::clone(shop);
        crowd.spawn(async move {
            let quantity = quantity_of(n);
            (
                quantity,
                buy(&shop, sale, &format!("b{n}"), "k", quantity).await,
            )
        });
    }
    let (mut sold, mut refusals) = (0, Vec::new());
    for (quantity, outcome) in crowd.join_all().await {
        match outcome {
            Outcome::Committed { .. } => sold += quantity,
            Outcome::Refused(refusal) => refusals.push(refusal),
            other => panic!("neither sold nor refused: {other:?}"),
        }
    }
    (sold, refusals)
}

async fn assert_balanced(shop: &Shop, sale: SaleId, confirmed: u64) {
    let audit = shop.service.audit(sale).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit}");
    assert_eq!(
        (audit.confirmed, audit.in_transfer),
        (confirmed, 0),
        "{audit}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_number_of_segments_every_unit_is_sold_once() {
    let shop = Arc::new(shop().await);
    for segments in [1, 4, 16, 64, 256] {
        let began = Instant::now();
        let sale = open(&shop, in_segments(segments, 1_000, 3, 0)).await.id;
        let (sold, refusals) = crowd(&shop, sale, 4_000, |n| n % 3 + 1).await;
        assert_eq!(sold, 1_000, "in {segments} segments");
        for refusal in &refusals {
            let true_at_some_moment = match refusal {
                Refusal::SoldOut | Refusal::Held { available: 0, .. } => true,
                Refusal::Insufficient {
                    requested,
                    available,
                } => u64::from(*requested) > *available,
                _ => false,
            };
            assert!(true_at_some_moment, "in {segments} segments: {refusal:?}");
        }
        assert_balanced(&shop, sale, 1_000).await;
        println!("{segments} segments: {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_five_units_in_sixty_four_segments_are_found() {
    let shop = Arc::new(shop().await);
    let sale = open(&shop, in_segments(64, 5, 1, 0)).await.id;
    let (sold, refusals) = crowd(&shop, sale, 1_000, |_| 1).await;
    assert_eq!((sold, refusals.len()), (5, 995));
    let last = buy(&shop, sale, "late", "k", 1).await;
    assert_eq!(last, Outcome::Refused(Refusal::SoldOut));
    assert_balanced(&shop, sale, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_units_in_three_segments_serve_an_order_of_three() {
    let shop = shop().await;
    let sale = open(&shop, in_segments(3, 3, 3, 0)).await.id;
    let first = buy(&shop, sale, "a", "k", 3).await;
    assert!(matches!(first, Outcome::Committed { .. }), "{first:?}");
    assert_balanced(&shop, sale, 3).await;
}

/// At two instances, which share nothing but Redis and the ledger: one of them gets all three units, and
/// neither pulls them away from the other for long.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_orders_for_all_scattered_units_one_wins() {
    let shop = shop().await;
    let other = instance(&shop.ledger, &shop.redis, Duration::from_millis(50)).await;
    for _ in 0..20 {
        let sale = open(&shop, in_segments(3, 3, 3, 0)).await.id;
        let began = Instant::now();
        let (a, b) = tokio::join!(
            buy(&shop, sale, "a", "k", 3),
            buy_at(&other, sale, "b", "k", 3),
        );
        let won = |outcome: &Outcome| matches!(outcome, Outcome::Committed { .. });
        assert!(won(&a) != won(&b), "{a:?}, {b:?}");
        let lost = if won(&a) { &b } else { &a };
        assert!(matches!(lost, Outcome::Refused(_)), "{lost:?}");
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        assert_balanced(&shop, sale, 3).await;
    }
}

/// Units in unpaid orders may come back, wherever the buyer is at home: "held" is said, not "sold out",
/// and the unit that comes back is sold to whoever asks next.
#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_comes_back_anywhere_is_sold_to_anybody() {
    let shop = Arc::new(shop().await);
    let sale = open(&shop, in_segments(16, 4, 4, 600)).await.id;
    let Outcome::Committed { order, .. } = buy(&shop, sale, "holder", "k", 4).await else {
        panic!("four units are free");
    };
    let held = buy(&shop, sale, "late", "k", 1).await;
    assert_eq!(
        held,
        Outcome::Refused(Refusal::Held {
            available: 0,
            held: 4
        })
    );
    shop.service.cancel(order.id).await.unwrap();
    eventually("the units to come back", || {
        let shop = Arc::clone(&shop);
        async move {
            let stock = shop.service.stock(sale).await.ok()?;
            (stock.available == 4).then_some(())
        }
    })
    .await
    .unwrap();
    for n in 0..4 {
        let outcome = buy(&shop, sale, &format!("next{n}"), "k", 1).await;
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
    assert_balanced(&shop, sale, 0).await;
}

/// As many buyers as units, at two instances: any refusal would be a false one, and strand a unit.
#[tokio::test(flavor = "multi_thread")]
async fn when_there_is_a_unit_for_everybody_nobody_is_refused() {
    let shop = Arc::new(shop().await);
    let other = instance(&shop.ledger, &shop.redis, Duration::from_millis(50)).await;
    for _ in 0..3 * repeats() {
        let sale = open(&shop, in_segments(64, 600, 1, 0)).await.id;
        let mut crowd = tokio::task::JoinSet::new();
        for n in 0..600 {
            let service = if n % 2 == 0 {
                shop.service.clone()
            } else {
                other.clone()
            };
            crowd.spawn(async move { buy_at(&service, sale, &format!("b{n}"), "k", 1).await });
        }
        while let Some(outcome) = crowd.join_next().await {
            let outcome = outcome.unwrap();
            assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        }
        assert_balanced(&shop, sale, 600).await;
    }
}

/// Lend, receive and settle in one go, as seen by whoever reads the segments one after the other.
const CARRY: &str = r"
    if tonumber(redis.call('HGET', KEYS[1], 'available')) == 0 then
      return 0
    end
    redis.call('HINCRBY', KEYS[1], 'available', -1)
    redis.call('HINCRBY', KEYS[1], 'version', 1)
    redis.call('HINCRBY', KEYS[2], 'version', 1)
    return redis.call('HINCRBY', KEYS[2], 'available', 1)";

/// Carries the only unit from segment to segment without a rest.
async fn carry(mut redis: MultiplexedConnection, sale: SaleId, over: Arc<AtomicBool>) {
    let script = redis::Script::new(CARRY);
    let meta = |segment: u32| SegmentKeys::new(sale, segment % CARRIED_AMONG, 1).meta;
    let mut at = 0;
    while !over.load(Ordering::SeqCst) {
        let next = at + rand::random_range(1..CARRIED_AMONG);
        let mut call = script.key(meta(at));
        let moved: i64 = call.key(meta(next)).invoke_async(&mut redis).await.unwrap();
        // If it is not there, it was bought, or borrowed, or came back elsewhere: go and look.
        at = (if moved == 1 { next } else { at + 1 }) % CARRIED_AMONG;
    }
}

const CARRIED_AMONG: u32 = 31;

/// The only unit moves while the segments are counted: whoever reads each of them once can miss it.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_never_overlooks_a_unit_that_is_on_its_way() {
    let shop = Arc::new(shop().await);
    // A connection for each segment, so that the readings of one count are not one pipeline.
    let service = shop.instance_with_connections(CARRIED_AMONG as usize).await;
    let sale = open(&shop, in_segments(CARRIED_AMONG, 1, 1, 600)).await.id;
    let over = Arc::new(AtomicBool::new(false));
    let redis = shop.redis.connection().await.unwrap();
    let carrier = tokio::spawn(carry(redis, sale, Arc::clone(&over)));
    for n in 0..40 * repeats() {
        let outcome = buy_at(&service, sale, &format!("b{n}"), "k", 1).await;
        let order = match outcome {
            Outcome::Committed { order, .. } => order,
            // It could not be told in time, and nobody said that it could.
            Outcome::Unavailable(_) => continue,
            other => panic!("the only unit is free, and buyer {n} is told {other:?}"),
        };
        service.cancel(order.id).await.unwrap();
        eventually("the unit to come back", || {
            let (ledger, id) = (shop.ledger.clone(), order.id);
            async move {
                let open = ledger.sale_returns(id.sale(), 10).await.ok()?;
                open.is_empty().then_some(())
            }
        })
        .await
        .unwrap();
    }
    over.store(true, Ordering::SeqCst);
    carrier.await.unwrap();
    assert_balanced(&shop, sale, 0).await;
}

/// Whoever began the transfer died after its first step. Whoever meets it finishes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_a_dead_instance_left_on_its_way_is_sold() {
    let shop = shop().await;
    let sale = open(&shop, in_segments(2, 1, 1, 0)).await.id;
    let mut redis = shop.redis.connection().await.unwrap();
    let donor = SegmentKeys::new(sale, 0, 1);
    let lent = lend(&mut redis, &donor, &TransferId::random(), 1, 1).await;
    assert_eq!(
        lent.unwrap(),
        Ok(1),
        "the only unit is in the first segment"
    );
    let outcome = buy(&shop, sale, "a", "k", 1).await;
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_balanced(&shop, sale, 1).await;
}
