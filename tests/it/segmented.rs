//! The purchase path without HTTP: an instance on a real Redis and a real ledger.

use std::sync::Arc;
use std::time::Duration;

use loadtest::servers::eventually;
use stockade::domain::{
    BuyerId, IdempotencyKey, NewSale, OrderId, Outcome, Purchase, Refusal, Stage,
};
use stockade::ledger::StockChange;
use stockade::service::{AuditVerdict, OrderView};
use stockade::stock::SegmentKeys;
use stockade::stock::scripts::{Answer, Copies};

use crate::harness::purchase_at;
use crate::shop::{buy, buy_at, instance, open, shop, terms};

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_buyers_get_one_hundred_units_and_the_books_balance() {
    let shop = Arc::new(shop().await);
    let sale = open(&shop, terms(100, 1, 0)).await.id;
    let mut buyers = tokio::task::JoinSet::new();
    for n in 0..2_000 {
        let shop = Arc::clone(&shop);
        buyers.spawn(async move { buy(&shop, sale, &format!("b{n}"), "k", 1).await });
    }
    let outcomes = buyers.join_all().await;
    let sold = outcomes
        .iter()
        .filter(|o| matches!(o, Outcome::Committed { .. }))
        .count();
    let refused = outcomes
        .iter()
        .filter(|o| matches!(o, Outcome::Refused(_)))
        .count();
    assert_eq!(
        (sold, refused),
        (100, 1_900),
        "{:?}",
        outcomes
            .iter()
            .find(|o| !matches!(o, Outcome::Committed { .. } | Outcome::Refused(_)))
    );
    let last = buy(&shop, sale, "late", "k", 1).await;
    assert_eq!(last, Outcome::Refused(Refusal::SoldOut));
    let audit = shop.service.audit(sale).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit:?}");
    assert_eq!((audit.confirmed, audit.available), (100, 0));
}

/// The other instance opened it. Whoever was refused before must not keep refusing for what it saw then.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_saw_a_sale_before_it_opened_sells_at_once() {
    let shop = shop().await;
    let never_by_itself = Duration::from_secs(3_600);
    let other = instance(&shop.ledger, &shop.redis, never_by_itself).await;
    let sale = shop.service.create_sale(terms(10, 1, 0)).await.unwrap().id;
    let early = buy_at(&other, sale, "b", "k", 1).await;
    let not_open = |outcome: &Outcome| matches!(outcome, Outcome::Refused(Refusal::NotOpen { .. }));
    assert!(not_open(&early), "{early:?}");
    shop.service.open(sale).await.unwrap();
    let now = buy_at(&other, sale, "b", "k", 1).await;
    assert!(matches!(now, Outcome::Committed { .. }), "{now:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_outlives_a_loader_that_died_before_it_adopted() {
    let shop = shop().await;
    let sale = open(&shop, terms(10, 1, 0)).await;
    // Admitted under epoch 1, and its instance died before the commit.
    let buyer = BuyerId::parse("promised").unwrap();
    let order = OrderId::of(sale.id, &buyer, &IdempotencyKey::parse("k").unwrap());
    let purchase = Purchase {
        order,
        buyer,
        quantity: 1,
    };
    let mut connection = shop.redis.connection().await.unwrap();
    let keys = SegmentKeys::new(sale.id, 0, 1);
    let decision = purchase_at(&mut connection, &keys, Copies::One, &[&purchase]).await;
    assert_eq!(decision.unwrap().unwrap().answers, [Answer::Admitted]);
    // Two loaders in a row die right after their fence.
    for epoch in 1..=2 {
        assert!(
            shop.ledger
                .fence(sale.id, epoch, Duration::ZERO)
                .await
                .unwrap()
        );
    }
    eventually("the sale to be loaded again", || {
        let ledger = shop.ledger.clone();
        async move {
            let row = ledger.sale(sale.id).await.ok()??;
            (row.stage == Stage::Loaded && row.epoch > 2).then_some(())
        }
    })
    .await
    .unwrap();
    let view = shop.service.order(order).await.unwrap();
    assert!(matches!(view, OrderView::Known(_)), "{view:?}");
    let audit = shop.service.audit(sale.id).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit}");
    assert_eq!((audit.confirmed, audit.available), (1, 9));
}

/// The terms ask for one segment by now, but four have sold.
#[tokio::test(flavor = "multi_thread")]
async fn a_loader_that_died_with_new_terms_leaves_the_old_segments_to_be_adopted() {
    let shop = shop().await;
    let terms = NewSale {
        segments: 4,
        ..terms(40, 1, 0)
    };
    let sale = open(&shop, terms).await;
    let mut connection = shop.redis.connection().await.unwrap();
    let mut orders = Vec::new();
    for n in 0..8 {
        let buyer = BuyerId::parse(&format!("promised{n}")).unwrap();
        let order = OrderId::of(sale.id, &buyer, &IdempotencyKey::parse("k").unwrap());
        let purchase = Purchase {
            order,
            buyer,
            quantity: 1,
        };
        let keys = SegmentKeys::new(sale.id, sale.home(order), 1);
        let decision = purchase_at(&mut connection, &keys, Copies::One, &[&purchase]).await;
        assert_eq!(decision.unwrap().unwrap().answers, [Answer::Admitted]);
        orders.push(order);
    }
    let change = StockChange {
        quantity: None,
        segments: Some(1),
    };
    let no_lease = Duration::ZERO;
    assert!(shop.ledger.fence(sale.id, 1, no_lease).await.unwrap());
    let snapshot = shop.ledger.snapshot(sale.id, 2, Some(&change)).await;
    assert!(snapshot.unwrap().is_some(), "somebody else was faster");
    eventually("the sale to be loaded again", || {
        let ledger = shop.ledger.clone();
        async move {
            let row = ledger.sale(sale.id).await.ok()??;
            (row.stage == Stage::Loaded && row.epoch > 2).then_some(())
        }
    })
    .await
    .unwrap();
    for order in orders {
        let view = shop.service.order(order).await.unwrap();
        assert!(matches!(view, OrderView::Known(_)), "{view:?}");
    }
    let audit = shop.service.audit(sale.id).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit}");
    assert_eq!((audit.confirmed, audit.available), (8, 32));
}
