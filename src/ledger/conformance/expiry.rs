//! Holds end at their instant, by one rule, and only those that nobody has paid for.

use super::fixture::{
    audit, commit, expire_all, expire_to_the_end, feed, loaded_sale, my_returns, order_now,
    singles, until,
};
use crate::domain::{Order, OrderState, SaleId};
use crate::ledger::{Ledger, Transition};

/// Not before their instant, and then all of one commit that are still reserved.
pub async fn holds_expire_at_their_instant(ledger: &Ledger) {
    let (sale, orders) = paid_in_time(ledger, 4).await;
    let due = orders[0].hold_expires_at.expect("a hold");
    ledger.cancel(orders[1].id).await.expect("cancel");
    let expired = expire_to_the_end(ledger, sale).await;
    assert_eq!(
        expired.len(),
        2,
        "neither the confirmed nor the cancelled one: {expired:?}"
    );
    for done in &orders[2..] {
        let order = order_now(ledger, done.id).await;
        assert_eq!(order.state, OrderState::Expired);
        assert!(
            order.finished_at.is_some_and(|at| at >= due),
            "expired too early: {order:?}"
        );
    }
    assert!(
        ledger.expire(sale).await.expect("expire").is_none(),
        "nothing is left"
    );
    assert!(
        !ledger
            .expiries_due(u32::MAX)
            .await
            .expect("due")
            .contains(&sale)
    );
    let now = audit(ledger, sale).await;
    assert_eq!((now.taken, now.confirmed), (1, 1));
}

/// Each commit is a group; the oldest goes first, and one call takes one.
pub async fn groups_of_holds_expire_one_by_one(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, 1).await.id;
    for first in 0..3 {
        commit(ledger, sale, 1, &singles(sale, first..first + 1)).await;
    }
    let mut expired = Vec::new();
    until("all holds are over", async || {
        if let Some(group) = ledger.expire(sale).await.expect("expire") {
            assert_eq!(group.len(), 1, "one group per call");
            expired.extend(group.into_iter().map(|returned| returned.order));
        }
        expired.len() == 3
    })
    .await;
    let bought: Vec<_> = singles(sale, 0..3)
        .iter()
        .map(|purchase| purchase.order)
        .collect();
    assert_eq!(expired, bought);
    assert_eq!(audit(ledger, sale).await.taken, 0);
}

/// A hold that is over cannot be confirmed, whether or not anybody has expired it.
pub async fn to_confirm_an_order_whose_hold_is_over_expires_it(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, 1).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..2)).await;
    let due = orders[0].order.hold_expires_at.expect("a hold");
    until("the sale is due", async || {
        ledger
            .expiries_due(u32::MAX)
            .await
            .expect("due")
            .contains(&sale)
    })
    .await;
    let (late, returned) = ledger.confirm(orders[0].order.id).await.expect("confirm");
    let Transition::Final(order) = late else {
        panic!("{late:?}")
    };
    assert_eq!(order, order_now(ledger, order.id).await);
    assert_eq!(order.state, OrderState::Expired);
    assert!(order.finished_at.is_some_and(|at| at >= due), "{order:?}");
    assert_eq!(returned.map(|returned| returned.order), Some(order.id));
    let expired = expire_all(ledger, sale).await;
    let rest: Vec<_> = expired.iter().map(|returned| returned.order).collect();
    assert_eq!(
        rest,
        [orders[1].order.id],
        "only the other one was left to expire"
    );
    assert_eq!(my_returns(ledger, sale).await.len(), 2);
    audit(ledger, sale).await;
}

/// A payment that comes in time is kept, a payment is never undone by the end of the hold.
pub async fn a_confirmed_order_does_not_expire(ledger: &Ledger) {
    let (sale, _) = paid_in_time(ledger, 1).await;
    until("the group is due", async || {
        let group = ledger.expire(sale).await.expect("expire");
        group.is_some_and(|returns| returns.is_empty())
    })
    .await;
    assert_eq!(
        feed(ledger, sale).await.len(),
        2,
        "reserved, confirmed, and no change of nothing"
    );
    assert_eq!(audit(ledger, sale).await.confirmed, 1);
}

/// Orders of one commit, of which the first was paid before the end of its hold. On a busy machine a
/// short hold may be over before that; then with a longer one.
async fn paid_in_time(ledger: &Ledger, orders: u32) -> (SaleId, Vec<Order>) {
    for hold_seconds in [1, 5, 25] {
        let sale = loaded_sale(ledger, 9, hold_seconds).await.id;
        let orders = commit(ledger, sale, 1, &singles(sale, 0..orders)).await;
        let orders: Vec<_> = orders.into_iter().map(|done| done.order).collect();
        let (confirmed, _) = ledger.confirm(orders[0].id).await.expect("confirm");
        if matches!(confirmed, Transition::Done(_)) {
            return (sale, orders);
        }
    }
    panic!("no order could be confirmed within 25 seconds of its commit");
}
