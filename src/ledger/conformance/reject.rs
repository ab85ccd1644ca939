//! Purchases that were admitted and then turned out to be impossible.

use super::fixture::{
    LONG_HOLD, LONG_LEASE, audit, buyer, commit, loaded_sale, my_returns, purchase, singles,
};
use crate::domain::OrderState;
use crate::ledger::Ledger;

/// It is recorded, counts nowhere, and is not changed by a second one.
pub async fn a_rejected_purchase_is_recorded_once(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 1, LONG_HOLD).await.id;
    let poison = purchase(sale, "poison", 3);
    let first = ledger.reject(sale, &poison, Some(1)).await.expect("reject");
    assert_eq!((first.state, first.quantity), (OrderState::Rejected, 3));
    assert_eq!(
        (first.hold_expires_at, first.finished_at),
        (None, Some(first.created_at))
    );
    let returns = my_returns(ledger, sale).await;
    assert_eq!(returns.len(), 1, "its units were deducted under epoch 1");
    assert_eq!((returns[0].order, returns[0].quantity), (poison.order, 3));
    ledger.returns_done(&[poison.order]).await.expect("done");
    assert_eq!(
        ledger.reject(sale, &poison, Some(1)).await.expect("reject"),
        first
    );
    assert!(
        my_returns(ledger, sale).await.is_empty(),
        "units come back once"
    );
    let known = commit(ledger, sale, 1, &[poison]).await.remove(0);
    assert_eq!(
        (known.order, known.fresh),
        (first, false),
        "and it is never sold after all"
    );
    assert_eq!(audit(ledger, sale).await.taken, 0);
}

/// Who comes second does not undo a sale.
pub async fn to_reject_an_order_leaves_it_as_it_is(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 1, LONG_HOLD).await.id;
    let bought = singles(sale, 0..1);
    let order = commit(ledger, sale, 1, &bought).await.remove(0).order;
    assert_eq!(
        ledger
            .reject(sale, &bought[0], Some(1))
            .await
            .expect("reject"),
        order
    );
    assert!(my_returns(ledger, sale).await.is_empty());
    assert_eq!(audit(ledger, sale).await.taken, 1);
}

/// They are in the stock that the load counted.
pub async fn units_of_an_older_epoch_are_not_given_back(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, LONG_HOLD).await.id;
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    assert!(ledger.finish_load(sale, 2).await.expect("finish"));
    for (name, give_back) in [("none", None), ("old", Some(1)), ("new", Some(2))] {
        ledger
            .reject(sale, &purchase(sale, name, 1), give_back)
            .await
            .expect("reject");
    }
    let returned: Vec<_> = my_returns(ledger, sale)
        .await
        .into_iter()
        .map(|returned| returned.buyer)
        .collect();
    assert_eq!(returned, [buyer("new")]);
    audit(ledger, sale).await;
}
