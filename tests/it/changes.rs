//! Adding and withdrawing stock, and splitting it anew, while the sale sells.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use redis::aio::MultiplexedConnection;
use stockade::domain::{BuyerId, IdempotencyKey, NewSale, Outcome, Refusal, SaleId};
use stockade::ledger::{ChangeAnswer, QuantityChange, StockChange};
use stockade::service::{AnswerWhen, AuditVerdict, Changed, Confirmation};

use crate::shop::{Shop, buy, open, shop, terms};

fn quantity(from: u32, to: u32) -> StockChange {
    StockChange {
        quantity: Some(QuantityChange { from, to }),
        segments: None,
    }
}

fn segments(count: u32) -> StockChange {
    StockChange {
        quantity: None,
        segments: Some(count),
    }
}

async fn change(shop: &Shop, sale: SaleId, change: StockChange) -> Changed {
    shop.service.change_stock(sale, change).await.unwrap()
}

async fn assert_done(shop: &Shop, sale: SaleId, wish: StockChange) {
    let changed = change(shop, sale, wish).await;
    assert!(matches!(changed, Changed::Done(_)), "{wish:?}: {changed:?}");
}

/// Buyers come without a pause, while stock is added and split into 4, 64 and 8 segments, ten times. Nobody
/// gets an error, and in the end every unit is sold.
#[tokio::test(flavor = "multi_thread")]
async fn ten_changes_during_a_sale_lose_nothing_and_disturb_nobody() {
    const BUYERS_AT_ONCE: u32 = 64;
    let shop = Arc::new(shop().await);
    let first = NewSale {
        segments: 4,
        ..terms(1_000, 1, 0)
    };
    let sale = open(&shop, first).await.id;
    let (over, sold) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let mut buyers = tokio::task::JoinSet::new();
    for lane in 0..BUYERS_AT_ONCE {
        let (shop, over, sold) = (Arc::clone(&shop), Arc::clone(&over), Arc::clone(&sold));
        buyers.spawn(async move {
            for n in 0.. {
                match buy(&shop, sale, &format!("b{lane}-{n}"), "k", 1).await {
                    Outcome::Committed { .. } => sold.fetch_add(1, Ordering::SeqCst),
                    // More stock is coming.
                    Outcome::Refused(Refusal::SoldOut | Refusal::Held { .. })
                        if !over.load(Ordering::SeqCst) =>
                    {
                        0
                    }
                    Outcome::Refused(Refusal::SoldOut | Refusal::Held { .. }) => return,
                    other => panic!("an error in the middle of a change: {other:?}"),
                };
            }
        });
    }
    let mut stock = 1_000;
    for count in [64, 8, 4, 64, 8, 4, 64, 8, 4, 64] {
        assert_done(&shop, sale, quantity(stock, stock + 500)).await;
        stock += 500;
        assert_done(&shop, sale, segments(count)).await;
    }
    over.store(true, Ordering::SeqCst);
    while let Some(lane) = buyers.join_next().await {
        lane.unwrap();
    }
    let audit = shop.service.audit(sale).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit}");
    assert_eq!((audit.quantity, audit.confirmed), (6_000, 6_000), "{audit}");
    assert_eq!(sold.load(Ordering::SeqCst), 6_000);
}

/// Whoever was told 202 pays at once, while one load follows the other: the order is there.
#[tokio::test(flavor = "multi_thread")]
async fn an_admitted_order_is_confirmed_in_the_middle_of_a_load() {
    let shop = Arc::new(shop().await);
    let first = NewSale {
        segments: 4,
        ..terms(1_000, 1, 600)
    };
    let sale = open(&shop, first).await.id;
    let over = Arc::new(AtomicBool::new(false));
    let changer = tokio::spawn({
        let (shop, over) = (Arc::clone(&shop), Arc::clone(&over));
        async move {
            for n in 0.. {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                assert_done(&shop, sale, segments(4 + n % 3)).await;
            }
        }
    });
    for n in 0..200 {
        let buyer = BuyerId::parse(&format!("b{n}")).unwrap();
        let key = IdempotencyKey::parse("k").unwrap();
        let when = AnswerWhen::Admitted;
        let outcome = shop.service.purchase(sale, &buyer, &key, 1, when).await;
        let order = match outcome.unwrap() {
            Outcome::Admitted(admission) => admission.order,
            Outcome::Committed { order, .. } => order.id,
            other => panic!("buyer {n}: {other:?}"),
        };
        let confirmed = shop.service.confirm(order, false).await;
        assert!(
            matches!(confirmed, Ok(Confirmation::Confirmed(_))),
            "buyer {n}: {confirmed:?}"
        );
    }
    over.store(true, Ordering::SeqCst);
    changer.await.unwrap();
}

/// There is no room for a second copy of the sale: the load must let the old one go first.
#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_loaded_anew_in_the_memory_that_it_has() {
    const ORDERS: u32 = 6_000;
    let shop = Arc::new(shop().await);
    let mut redis = shop.redis.connection().await.unwrap();
    let used = async |redis: &mut MultiplexedConnection| -> u64 {
        let mut info = redis::cmd("INFO");
        let text: String = info.arg("memory").query_async(redis).await.unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        line.unwrap().trim().parse().unwrap()
    };
    let sale = open(&shop, terms(2 * ORDERS, 1, 0)).await.id;
    let before = used(&mut redis).await;
    let mut buyers = tokio::task::JoinSet::new();
    for n in 0..ORDERS {
        let shop = Arc::clone(&shop);
        buyers.spawn(async move { buy(&shop, sale, &format!("b{n}"), "k", 1).await });
    }
    buyers.join_all().await;
    let after = used(&mut redis).await;
    let bound = after + (after - before) / 2;
    let mut config = redis::cmd("CONFIG");
    let config = config.arg("SET").arg("maxmemory").arg(bound);
    config.query_async::<()>(&mut redis).await.unwrap();
    assert_done(&shop, sale, segments(4)).await;
    let outcome = buy(&shop, sale, "one more", "k", 1).await;
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsold_stock_is_withdrawn_and_sold_stock_is_not() {
    let shop = shop().await;
    let sale = open(&shop, terms(10, 10, 0)).await.id;
    buy(&shop, sale, "a", "k", 4).await;
    let stale = change(&shop, sale, quantity(9, 8)).await;
    assert_eq!(
        stale,
        Changed::Refused(ChangeAnswer::Stale { quantity: 10 })
    );
    let epoch = shop.service.sale(sale).await.unwrap().epoch;
    let sold = change(&shop, sale, quantity(10, 3)).await;
    assert_eq!(
        sold,
        Changed::Refused(ChangeAnswer::BelowTaken { taken: 4 })
    );
    let same = shop.service.sale(sale).await.unwrap().epoch;
    assert_eq!(same, epoch, "a load that changes nothing");
    assert_done(&shop, sale, quantity(10, 5)).await;
    assert!(shop.service.sale(sale).await.unwrap().epoch > epoch);
    let too_many = buy(&shop, sale, "b", "k", 2).await;
    let fewer = Refusal::Insufficient {
        requested: 2,
        available: 1,
    };
    assert_eq!(too_many, Outcome::Refused(fewer));
    let last = buy(&shop, sale, "b", "k", 1).await;
    assert!(matches!(last, Outcome::Committed { .. }), "{last:?}");
    assert_eq!(
        buy(&shop, sale, "c", "k", 1).await,
        Outcome::Refused(Refusal::SoldOut)
    );
    // "Sold out" was final for five units; with a sixth one the sale sells again, at once.
    assert_done(&shop, sale, quantity(5, 6)).await;
    let sixth = buy(&shop, sale, "c", "k", 1).await;
    assert!(matches!(sixth, Outcome::Committed { .. }), "{sixth:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_was_never_loaded_is_changed_without_a_load_and_one_that_is_over_not_at_all() {
    let shop = shop().await;
    let sale = shop.service.create_sale(terms(10, 1, 0)).await.unwrap().id;
    let both = StockChange {
        segments: Some(3),
        ..quantity(10, 12)
    };
    assert_done(&shop, sale, both).await;
    let row = shop.service.sale(sale).await.unwrap();
    assert_eq!(
        (row.terms.quantity, row.terms.segments, row.epoch),
        (12, 3, 0)
    );
    shop.service.open(sale).await.unwrap();
    let (_, figures) = shop.service.segments(sale).await.unwrap();
    let filled: Vec<u64> = figures.iter().map(|one| one.filled).collect();
    assert_eq!(filled, [4, 4, 4]);
    shop.service.close(sale).await.unwrap();
    assert_eq!(change(&shop, sale, quantity(12, 13)).await, Changed::Closed);
}

/// Eight admins who all read 100 and wish for more: one gets it, the others are told.
#[tokio::test(flavor = "multi_thread")]
async fn of_changes_that_believe_in_one_quantity_one_is_made() {
    let shop = Arc::new(shop().await);
    let sale = open(&shop, terms(100, 1, 0)).await.id;
    let mut admins = tokio::task::JoinSet::new();
    for n in 1..=8 {
        let shop = Arc::clone(&shop);
        admins.spawn(async move { change(&shop, sale, quantity(100, 100 + n)).await });
    }
    let answers = admins.join_all().await;
    let done = answers
        .iter()
        .filter(|answer| matches!(answer, Changed::Done(_)));
    assert_eq!(done.count(), 1, "{answers:?}");
    let audit = shop.service.audit(sale).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit}");
}
