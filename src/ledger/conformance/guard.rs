//! Guard and once: no unit is taken twice, and no order is made twice.

use std::collections::HashSet;

use tokio::task::JoinSet;

use super::fixture::{
    LONG_HOLD, LONG_LEASE, all_orders, audit, commit, feed, loaded_sale, order_now, purchase,
    singles,
};
use crate::domain::{BuyerId, OrderState, SaleId};
use crate::ledger::{COMMIT_MAX, Commit, Error, Ledger};

/// At quantity - 1, at the quantity, and one beyond.
pub async fn units_are_taken_up_to_the_last_and_no_further(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, 0).await.id;
    commit(ledger, sale, 1, &[purchase(sale, "four", 4)]).await;
    let two = ledger
        .commit(sale, 1, &[purchase(sale, "two", 2)])
        .await
        .expect("commit");
    assert!(
        matches!(&two, Commit::Full(sale) if sale.free() == 1),
        "{two:?}"
    );
    commit(ledger, sale, 1, &[purchase(sale, "one", 1)]).await;
    let one = ledger
        .commit(sale, 1, &[purchase(sale, "late", 1)])
        .await
        .expect("commit");
    assert!(
        matches!(&one, Commit::Full(sale) if sale.free() == 0),
        "{one:?}"
    );
    assert_eq!(audit(ledger, sale).await.taken, 5);
}

/// Also the purchases that would have fitted are not there.
pub async fn a_group_commits_whole_or_not_at_all(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 2, 0).await.id;
    let three = ledger
        .commit(sale, 1, &singles(sale, 0..3))
        .await
        .expect("commit");
    assert!(matches!(three, Commit::Full(_)), "{three:?}");
    assert_eq!(
        ledger
            .count(sale)
            .await
            .expect("count")
            .expect("sale")
            .confirmed,
        0
    );
    assert_eq!(audit(ledger, sale).await.taken, 0);
}

/// In one call and across calls; the first quantity under an id stands.
pub async fn repeats_make_one_order_and_count_once(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 10, LONG_HOLD).await.id;
    let group = [
        purchase(sale, "b", 1),
        purchase(sale, "a", 2),
        purchase(sale, "b", 3),
        purchase(sale, "a", 2),
    ];
    let first = commit(ledger, sale, 1, &group).await;
    let answered: Vec<_> = first.iter().map(|done| done.order.id).collect();
    let asked: Vec<_> = group.iter().map(|purchase| purchase.order).collect();
    assert_eq!(answered, asked, "answers are in the order of the call");
    let fresh: Vec<_> = first.iter().map(|done| done.fresh).collect();
    assert_eq!(fresh, [true, true, false, false], "each order is new once");
    assert_eq!(
        first[0].order.quantity, 1,
        "the first of two quantities counts"
    );
    let again = commit(ledger, sale, 1, &group).await;
    assert!(again.iter().all(|done| !done.fresh), "{again:?}");
    assert_eq!(again[0].order, first[0].order, "the order is as it was");
    assert_eq!(audit(ledger, sale).await.taken, 3);
    assert_eq!(feed(ledger, sale).await.len(), 1, "a repeat is no change");
}

/// New ones count, known ones do not, in one call.
pub async fn a_group_of_known_and_new_purchases_counts_the_new_ones(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 4, LONG_HOLD).await.id;
    commit(ledger, sale, 1, &singles(sale, 0..3)).await;
    ledger
        .cancel(singles(sale, 1..2)[0].order)
        .await
        .expect("cancel");
    let mixed = commit(ledger, sale, 1, &singles(sale, 0..5)).await;
    let fresh: Vec<_> = mixed.iter().map(|done| done.fresh).collect();
    assert_eq!(fresh, [false, false, false, true, true]);
    assert_eq!(
        mixed[1].order.state,
        OrderState::Cancelled,
        "a known order is as it stands now"
    );
    assert_eq!(audit(ledger, sale).await.taken, 4);
}

/// What is in the ledger is answered whatever has become of the sale since.
pub async fn known_purchases_are_answered_when_nothing_could_commit(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 1, LONG_HOLD).await.id;
    let bought = singles(sale, 0..1);
    commit(ledger, sale, 1, &bought).await;
    assert!(
        !commit(ledger, sale, 1, &bought).await[0].fresh,
        "the sale is full"
    );
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    assert!(
        !commit(ledger, sale, 1, &bought).await[0].fresh,
        "the epoch is over"
    );
    audit(ledger, sale).await;
}

/// Nothing in, nothing out.
pub async fn an_empty_group_changes_nothing(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 1, 0).await.id;
    assert!(commit(ledger, sale, 1, &[]).await.is_empty());
    assert!(feed(ledger, sale).await.is_empty());
}

/// The largest group that a caller may hand over.
pub async fn the_largest_group_commits(ledger: &Ledger) {
    let size = u32::try_from(COMMIT_MAX).expect("a thousand");
    let sale = loaded_sale(ledger, size, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..size)).await;
    assert!(orders.iter().all(|done| done.fresh));
    let times: HashSet<_> = orders
        .iter()
        .map(|done| done.order.hold_expires_at)
        .collect();
    assert_eq!(
        times.len(),
        1,
        "orders of one commit end their hold at one instant"
    );
    assert_eq!(audit(ledger, sale).await.free(), 0);
}

/// A hold of no seconds is no hold.
pub async fn without_holds_an_order_is_confirmed_at_once(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 3, 0).await.id;
    let order = commit(ledger, sale, 1, &[purchase(sale, "a", 2)])
        .await
        .remove(0)
        .order;
    assert_eq!(order.state, OrderState::Confirmed);
    assert_eq!(
        (order.hold_expires_at, order.finished_at),
        (None, Some(order.created_at))
    );
    assert_eq!(
        order_now(ledger, order.id).await,
        order,
        "the answer is what is stored"
    );
    assert!(
        !ledger
            .expiries_due(u32::MAX)
            .await
            .expect("due")
            .contains(&sale)
    );
    assert_eq!(audit(ledger, sale).await.confirmed, 2);
}

/// Overlapping groups in different orders, from many sides: the sale sells out exactly, each order
/// is new once, and nobody runs into a deadlock.
pub async fn concurrent_commits_sell_each_unit_once(ledger: &Ledger) {
    const BUYERS: u32 = 60;
    const QUANTITY: u32 = 40;
    let sale = loaded_sale(ledger, QUANTITY, 0).await.id;
    let mut tasks = JoinSet::new();
    for writer in 0..6 {
        let ledger = ledger.clone();
        tasks.spawn(async move {
            let mut fresh = 0;
            for round in 0..BUYERS {
                let first = (round * 7 + writer) % BUYERS;
                let mut group = singles(sale, first..first + 3);
                if writer % 2 == 1 {
                    group.reverse();
                }
                match ledger
                    .commit(sale, 1, &group)
                    .await
                    .expect("commit, without deadlock")
                {
                    Commit::Committed(orders) => {
                        fresh += orders.iter().filter(|done| done.fresh).count();
                    }
                    Commit::Full(_) => {}
                    Commit::Fenced(sale) => panic!("fenced by nobody: {sale:?}"),
                }
            }
            fresh
        });
    }
    let fresh: usize = tasks.join_all().await.into_iter().sum();
    let taken = audit(ledger, sale).await.taken;
    assert_eq!(fresh as u64, taken, "orders that somebody was told are new");
    assert!(
        taken + 3 > u64::from(QUANTITY),
        "only groups that do not fit were refused: {taken}"
    );
}

/// It would be counted against the wrong sale.
pub async fn a_purchase_of_another_sale_is_refused(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, 0).await.id;
    let other = loaded_sale(ledger, 5, 0).await.id;
    let group = [purchase(sale, "a", 1), purchase(other, "a", 1)];
    let refused = ledger.commit(sale, 1, &group).await;
    assert!(matches!(refused, Err(Error::Permanent(_))), "{refused:?}");
    assert_eq!(
        audit(ledger, sale).await.taken + audit(ledger, other).await.taken,
        0
    );
}

/// Purchases of a sale that is not there mean the wrong database: not the purchases are at fault.
pub async fn purchases_of_a_missing_sale_are_no_fault_of_theirs(ledger: &Ledger) {
    let missing = SaleId::new(4_000_000_000).expect("a number");
    let lone = purchase(missing, "a", 1);
    let commit = ledger.commit(missing, 0, std::slice::from_ref(&lone)).await;
    assert!(matches!(commit, Err(Error::Corrupt(_))), "{commit:?}");
    let reject = ledger.reject(missing, &lone, None).await;
    assert!(matches!(reject, Err(Error::Corrupt(_))), "{reject:?}");
    assert!(ledger.order(lone.order).await.expect("read").is_none());
}

/// `poisoned` is a buyer whose orders the database has been made to refuse, by a trigger say.
///
/// Not among [`super::cases`], since only the caller can make the database do that.
pub async fn a_purchase_that_the_database_refuses_commits_nothing(
    ledger: &Ledger,
    poisoned: &BuyerId,
) {
    let sale = loaded_sale(ledger, 10, LONG_HOLD).await.id;
    let group = [
        purchase(sale, "a", 1),
        purchase(sale, poisoned.as_str(), 1),
        purchase(sale, "z", 1),
    ];
    let refused = ledger.commit(sale, 1, &group).await;
    assert!(matches!(refused, Err(Error::Permanent(_))), "{refused:?}");
    assert!(
        all_orders(ledger, sale).await.is_empty(),
        "neighbours of a refused purchase"
    );
    assert_eq!(audit(ledger, sale).await.taken, 0);
    // The caller bisects: the others commit without it.
    commit(ledger, sale, 1, &[group[0].clone(), group[2].clone()]).await;
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    let adopted = ledger.adopt(sale, 2, &group).await;
    assert!(matches!(adopted, Err(Error::Permanent(_))), "{adopted:?}");
    assert_eq!(audit(ledger, sale).await.taken, 2);
}
