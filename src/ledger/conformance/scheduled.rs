//! Stock changes of a sale that was never loaded: at once, as long as no load has begun.

use tokio::task::JoinSet;

use super::fixture::{LONG_HOLD, LONG_LEASE, audit, loaded_sale, sale_now, terms};
use super::stock_change::{change, stock};
use crate::domain::{NewSale, Sale, SaleId, Timestamp};
use crate::ledger::{ChangeAnswer, Ledger, ScheduledChange, StockChange};

async fn scheduled_sale(ledger: &Ledger) -> Sale {
    ledger.create_sale(&terms(5, 0)).await.expect("create")
}

async fn changed(ledger: &Ledger, sale: SaleId, change: StockChange) -> ScheduledChange {
    let answer = ledger.change_scheduled(sale, &change).await;
    answer.expect("change").expect("the sale is there")
}

/// No load is needed, and the first one finds the new terms.
pub async fn a_sale_that_was_never_loaded_is_changed_at_once(ledger: &Ledger) {
    let both = (Some((5, 8)), Some(16), (8, 16));
    let quantity = (Some((5, 4)), None, (4, 4));
    let segments = (None, Some(1), (5, 1));
    for (from_to, wanted, expected) in [both, quantity, segments] {
        let before = scheduled_sale(ledger).await;
        let answer = changed(ledger, before.id, change(from_to, wanted)).await;
        let ScheduledChange::Answered(ChangeAnswer::Applied, mut now) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(stock(&now), expected);
        assert_eq!(now, sale_now(ledger, now.id).await, "told and stored");
        (now.terms.quantity, now.terms.segments) = stock(&before);
        assert_eq!(now, before, "nothing else has changed");
        let fenced = ledger.fence(now.id, 0, LONG_LEASE).await;
        assert!(fenced.expect("fence"), "first load");
        let finished = ledger.finish_load(now.id, 1).await;
        assert!(finished.expect("finish"), "first load");
        let now = audit(ledger, now.id).await;
        assert_eq!((stock(&now), now.loaded_segments), (expected, expected.1));
    }
}

/// Compare-and-set; a refused change changes the segments neither.
pub async fn a_change_of_a_scheduled_sale_can_be_stale(ledger: &Ledger) {
    let sale = scheduled_sale(ledger).await;
    for from_to in [(4, 9), (6, 9), (9, 5)] {
        let answer = changed(ledger, sale.id, change(Some(from_to), Some(16))).await;
        let stale = ChangeAnswer::Stale { quantity: 5 };
        assert_eq!(answer, ScheduledChange::Answered(stale, sale.clone()));
        assert_eq!(sale_now(ledger, sale.id).await, sale, "{from_to:?}");
    }
}

/// Loading, loaded, or closed: it as it is comes back.
pub async fn a_sale_that_is_not_scheduled_is_left_as_it_is(ledger: &Ledger) {
    let loaded = loaded_sale(ledger, 5, LONG_HOLD).await.id;
    let loading = scheduled_sale(ledger).await.id;
    let fenced = ledger.fence(loading, 0, LONG_LEASE).await;
    assert!(fenced.expect("fence"));
    let closed = scheduled_sale(ledger).await.id;
    ledger.close_sale(closed).await.expect("close");
    let over = NewSale {
        closes_at: Some(Timestamp::from_millis(1).expect("a time")),
        ..terms(5, 0)
    };
    let over = ledger.create_sale(&over).await.expect("create").id;
    ledger.close_due().await.expect("close");
    for sale in [loaded, loading, closed, over] {
        let before = sale_now(ledger, sale).await;
        let answer = changed(ledger, sale, change(Some((5, 6)), Some(8))).await;
        assert_eq!(answer, ScheduledChange::NotScheduled(before.clone()));
        assert_eq!(sale_now(ledger, sale).await, before);
    }
    let missing = SaleId::new(4_000_000_006).expect("a number");
    let none = ledger.change_scheduled(missing, &change(None, None)).await;
    assert_eq!(none.expect("change"), None);
}

/// Of many that saw one quantity, and the others are told what it made.
pub async fn one_of_many_changes_from_one_quantity_wins(ledger: &Ledger) {
    let sale = scheduled_sale(ledger).await.id;
    let mut admins = JoinSet::new();
    for admin in 0..8 {
        let ledger = ledger.clone();
        let wish = change(Some((5, 100 + admin)), Some(8 + admin));
        admins.spawn(async move { (admin, changed(&ledger, sale, wish).await) });
    }
    let answers = admins.join_all().await;
    let now = sale_now(ledger, sale).await;
    let mut winners = Vec::new();
    for (admin, answer) in answers {
        match answer {
            ScheduledChange::Answered(ChangeAnswer::Applied, _) => winners.push(admin),
            ScheduledChange::Answered(ChangeAnswer::Stale { quantity }, _) => {
                assert_eq!(quantity, now.terms.quantity, "told to admin {admin}");
            }
            other => panic!("admin {admin} was told {other:?}"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(stock(&now), (100 + winners[0], 8 + winners[0]));
}

/// Either the load has the new terms, or the change was told to go through a load.
pub async fn a_change_comes_before_the_first_load_or_not_at_all(ledger: &Ledger) {
    for _ in 0..8 {
        let sale = scheduled_sale(ledger).await.id;
        let admin = {
            let ledger = ledger.clone();
            tokio::spawn(async move { changed(&ledger, sale, change(Some((5, 7)), None)).await })
        };
        assert!(ledger.fence(sale, 0, LONG_LEASE).await.expect("fence"));
        let snapshot = ledger.snapshot(sale, 1, None).await.expect("snapshot");
        let loaded = snapshot.expect("not overtaken").sale.terms.quantity;
        let expected = match admin.await.expect("no panic") {
            ScheduledChange::Answered(ChangeAnswer::Applied, _) => 7,
            ScheduledChange::NotScheduled(_) => 5,
            other @ ScheduledChange::Answered(..) => panic!("{other:?}"),
        };
        assert_eq!(loaded, expected);
        assert_eq!(sale_now(ledger, sale).await.terms.quantity, expected);
    }
}
