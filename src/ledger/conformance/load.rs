//! Loading: what a sealed journal held is taken in, and the stock is counted once.

use std::collections::HashMap;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fixture::{
    LONG_HOLD, LONG_LEASE, PATIENCE, audit, commit, feed, fenced_sale, keyed, loaded_sale,
    my_returns, order_now, purchase, sale_now, singles,
};
use crate::domain::{OrderState, SaleId};
use crate::ledger::{Adopted, Commit, End, Ledger};

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

/// The loader meets slow writers of the old epoch over the same purchases, some of which they give
/// up: no deadlock, and each is taken once or not at all.
pub async fn adoption_and_late_writers_do_not_block_each_other(ledger: &Ledger) {
    for _ in 0..4 {
        let sale = fenced_sale(ledger, 1_000, LONG_HOLD).await;
        let journal = singles(sale, 0..50);
        let mut late = JoinSet::new();
        for _ in 0..2 {
            let ledger = ledger.clone();
            late.spawn(async move { commit_until_adopted(&ledger, sale).await });
        }
        for purchase in journal.clone().into_iter().rev() {
            let ledger = ledger.clone();
            late.spawn(async move {
                let rejected = ledger.reject(sale, &purchase, None).await;
                rejected.expect("reject, without deadlock");
            });
        }
        let adopted = ledger.adopt(sale, 2, &journal).await;
        let adopted = adopted
            .expect("adopt, without deadlock")
            .expect("not overtaken");
        assert_eq!(adopted.committed + adopted.known, 50);
        late.join_all().await;
        assert_eq!(audit(ledger, sale).await.taken, adopted.committed);
    }
}

/// Tries to commit under the old epoch until somebody else has taken the purchases in.
async fn commit_until_adopted(ledger: &Ledger, sale: SaleId) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let late = ledger.commit(sale, 1, &singles(sale, 0..50)).await;
        match late.expect("commit, without deadlock") {
            Commit::Fenced(_) => assert!(Instant::now() < deadline, "never adopted"),
            Commit::Committed(orders) if orders.iter().all(|done| !done.fresh) => return,
            other => panic!("committed under an old epoch: {other:?}"),
        }
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
        .snapshot(sale, 2, None)
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
        .snapshot(sale, 2, None)
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
    // So many that the deletions surely meet.
    const RETURNS: u32 = 400;
    let sale = loaded_sale(ledger, RETURNS, LONG_HOLD).await.id;
    for epoch in 1..5 {
        let key = epoch.to_string();
        let buyers = (0..RETURNS).map(|n| format!("buyer-{n}"));
        let group: Vec<_> = buyers.map(|name| keyed(sale, &name, &key, 1)).collect();
        let ids: Vec<_> = group.iter().map(|purchase| purchase.order).collect();
        commit(ledger, sale, epoch, &group).await;
        assert!(ledger.fence(sale, epoch, LONG_LEASE).await.expect("fence"));
        let wishes: Vec<_> = ids.iter().map(|id| (*id, End::Cancel)).collect();
        ledger.end(sale, &wishes).await.expect("cancel");
        let mut tasks = JoinSet::new();
        for some in ids.chunks(10) {
            let (ledger, done) = (ledger.clone(), some.to_vec());
            tasks.spawn(async move { ledger.returns_done(&done).await.expect("done") });
        }
        ledger
            .snapshot(sale, epoch + 1, None)
            .await
            .expect("snapshot")
            .expect("not overtaken");
        tasks.join_all().await;
        assert!(ledger.finish_load(sale, epoch + 1).await.expect("finish"));
        assert!(my_returns(ledger, sale).await.is_empty());
    }
    assert_eq!(audit(ledger, sale).await.taken, 0);
}
