//! Loading: what a sealed journal held is taken in, and the stock is counted once.

use std::collections::HashMap;

use tokio::task::JoinSet;

use super::fixture::{
    LONG_HOLD, LONG_LEASE, audit, commit, feed, keyed, loaded_sale, my_returns, order_now,
    purchase, sale_now, singles,
};
use crate::domain::{OrderState, SaleId};
use crate::ledger::{Adopted, Commit, End, Ledger};

async fn fenced_sale(ledger: &Ledger, quantity: u32, hold_seconds: u32) -> SaleId {
    let sale = loaded_sale(ledger, quantity, hold_seconds).await.id;
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    sale
}

/// In their turn; one that is too large does not keep out a smaller one behind it.
pub async fn adopted_purchases_are_taken_as_long_as_they_fit(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, LONG_HOLD).await.id;
    let known = purchase(sale, "known", 2);
    commit(ledger, sale, 1, std::slice::from_ref(&known)).await;
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    let journal = [
        purchase(sale, "z-first", 2),
        known,
        purchase(sale, "too-large", 2),
        purchase(sale, "a-last", 1),
        purchase(sale, "z-first", 2),
        purchase(sale, "too-late", 1),
    ];
    let adopted = ledger.adopt(sale, 2, &journal).await.expect("adopt");
    assert_eq!(
        adopted,
        Some(Adopted {
            committed: 2,
            rejected: 2,
            known: 1
        })
    );
    let states = [
        ("z-first", OrderState::Reserved),
        ("known", OrderState::Reserved),
        ("too-large", OrderState::Rejected),
        ("a-last", OrderState::Reserved),
        ("too-late", OrderState::Rejected),
    ];
    for (name, state) in states {
        let order = order_now(ledger, purchase(sale, name, 1).order).await;
        assert_eq!(order.state, state, "{name}");
    }
    let changes: Vec<_> = feed(ledger, sale)
        .await
        .into_iter()
        .map(|change| change.state)
        .collect();
    assert_eq!(
        changes,
        [
            OrderState::Reserved,
            OrderState::Reserved,
            OrderState::Rejected
        ]
    );
    assert_eq!(audit(ledger, sale).await.taken, 5);
}

/// A loader may hand over one journal twice: after a lost answer, and from two segments' copies.
pub async fn adoption_can_be_repeated(ledger: &Ledger) {
    let sale = fenced_sale(ledger, 2, 0).await;
    let journal = singles(sale, 0..4);
    ledger.adopt(sale, 2, &journal).await.expect("adopt");
    let again = ledger.adopt(sale, 2, &journal).await.expect("adopt");
    assert_eq!(
        again,
        Some(Adopted {
            committed: 0,
            rejected: 0,
            known: 4
        })
    );
    assert_eq!(
        ledger.adopt(sale, 2, &[]).await.expect("adopt"),
        Some(Adopted::default())
    );
    let sale = audit(ledger, sale).await;
    assert_eq!((sale.taken, sale.confirmed), (2, 2));
}

/// An order that was adopted holds its units as long as any other.
pub async fn holds_of_adopted_orders_begin_at_the_adoption(ledger: &Ledger) {
    let sale = fenced_sale(ledger, 2, LONG_HOLD).await;
    ledger
        .adopt(sale, 2, &singles(sale, 0..3))
        .await
        .expect("adopt");
    // The audit compares each hold with the order's creation.
    let sale = audit(ledger, sale).await;
    assert_eq!((sale.taken, sale.confirmed), (2, 0));
}

/// The loader and a slow writer of the old epoch meet over the same purchases: no deadlock, and
/// each is taken once.
pub async fn adoption_and_late_commits_do_not_block_each_other(ledger: &Ledger) {
    for round in 0..8 {
        let sale = fenced_sale(ledger, 1_000, LONG_HOLD).await;
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let ledger = ledger.clone();
            tasks.spawn(async move {
                let late = ledger.commit(sale, 1, &singles(sale, 0..50)).await;
                let late = late.expect("commit, without deadlock");
                // Fenced; or all of them were already adopted.
                let known = |orders: &[crate::ledger::Committed]| orders.iter().all(|o| !o.fresh);
                assert!(
                    matches!(&late, Commit::Fenced(_))
                        || matches!(&late, Commit::Committed(orders) if known(orders)),
                    "round {round}: {late:?}"
                );
            });
        }
        let adopted = ledger.adopt(sale, 2, &singles(sale, 0..50)).await;
        let adopted = adopted
            .expect("adopt, without deadlock")
            .expect("not overtaken");
        assert_eq!((adopted.committed, adopted.known), (50, 0), "round {round}");
        tasks.join_all().await;
        assert_eq!(audit(ledger, sale).await.taken, 50);
    }
}

/// Every order, and whether its units are taken.
pub async fn a_snapshot_has_every_order_of_the_sale(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 10, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..4)).await;
    ledger.confirm(orders[1].order.id).await.expect("confirm");
    ledger.cancel(orders[2].order.id).await.expect("cancel");
    ledger
        .reject(sale, &purchase(sale, "poison", 2), None)
        .await
        .expect("reject");
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    let snapshot = ledger
        .snapshot(sale, 2)
        .await
        .expect("snapshot")
        .expect("not overtaken");
    assert_eq!(snapshot.sale, sale_now(ledger, sale).await);
    assert_eq!((snapshot.sale.epoch, snapshot.sale.free()), (2, 7));
    let found: HashMap<_, _> = snapshot
        .orders
        .iter()
        .map(|order| (order.buyer.to_string(), order))
        .collect();
    assert_eq!(found.len(), snapshot.orders.len(), "{found:?}");
    let expected = [
        ("buyer-0", true),
        ("buyer-1", true),
        ("buyer-2", false),
        ("buyer-3", true),
        ("poison", false),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (name, active) in expected {
        let order = found[name];
        let units = if name == "poison" { 2 } else { 1 };
        assert_eq!((order.active, order.quantity), (active, units), "{name}");
        assert_eq!(order.id, purchase(sale, name, 1).order, "{name}");
    }
}

/// Units of an order that ended before the snapshot are in it as free units; those of one that ends
/// after it come back as a return. Never both, never neither.
pub async fn a_snapshot_absorbs_the_returns_before_it(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 3, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..3)).await;
    ledger.cancel(orders[0].order.id).await.expect("cancel");
    assert_eq!(my_returns(ledger, sale).await.len(), 1, "before the load");
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    ledger
        .cancel(orders[1].order.id)
        .await
        .expect("cancel, while loading");
    assert!(
        my_returns(ledger, sale).await.is_empty(),
        "no stock that could take them back"
    );
    let snapshot = ledger
        .snapshot(sale, 2)
        .await
        .expect("snapshot")
        .expect("not overtaken");
    assert_eq!(snapshot.sale.free(), 2);
    ledger
        .cancel(orders[2].order.id)
        .await
        .expect("cancel, after the snapshot");
    assert!(my_returns(ledger, sale).await.is_empty(), "still loading");
    assert!(ledger.finish_load(sale, 2).await.expect("finish"));
    let returns = my_returns(ledger, sale).await;
    assert_eq!(returns.len(), 1, "{returns:?}");
    assert_eq!(
        (returns[0].order, returns[0].epoch),
        (orders[2].order.id, 2)
    );
}

/// Returns that Redis has taken back are deleted while a load absorbs them: neither waits for the
/// other in a circle.
pub async fn absorbing_and_deleting_returns_do_not_block_each_other(ledger: &Ledger) {
    const RETURNS: u32 = 60;
    let sale = loaded_sale(ledger, RETURNS, LONG_HOLD).await.id;
    for epoch in 1..5 {
        let group: Vec<_> = (0..RETURNS)
            .map(|n| keyed(sale, &format!("buyer-{n}"), &format!("{epoch}"), 1))
            .collect();
        let mut ids: Vec<_> = group.iter().map(|purchase| purchase.order).collect();
        commit(ledger, sale, epoch, &group).await;
        let wishes: Vec<_> = ids.iter().map(|id| (*id, End::Cancel)).collect();
        ledger.end(sale, &wishes).await.expect("cancel");
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            let (ledger, done) = (ledger.clone(), ids.clone());
            tasks.spawn(async move { ledger.returns_done(&done).await.expect("done") });
            ids.reverse();
        }
        assert!(ledger.fence(sale, epoch, LONG_LEASE).await.expect("fence"));
        ledger
            .snapshot(sale, epoch + 1)
            .await
            .expect("snapshot")
            .expect("not overtaken");
        tasks.join_all().await;
        assert!(ledger.finish_load(sale, epoch + 1).await.expect("finish"));
        assert!(my_returns(ledger, sale).await.is_empty());
    }
    assert_eq!(audit(ledger, sale).await.taken, 0);
}
