//! The feed: every change has a number, and whoever has seen a number has missed none before it.

use std::collections::HashSet;

use tokio::task::JoinSet;

use super::fixture::{LONG_HOLD, audit, commit, feed, loaded_sale, singles, until};
use crate::domain::{OrderState, SaleId};
use crate::ledger::Ledger;

/// What happened, to which orders, in which order.
pub async fn changes_tell_what_happened_in_commit_order(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..3)).await;
    let ids: Vec<_> = orders.iter().map(|done| done.order.id).collect();
    ledger.cancel(ids[1]).await.expect("cancel");
    ledger.confirm(ids[0]).await.expect("confirm");
    let told: Vec<_> = feed(ledger, sale)
        .await
        .into_iter()
        .map(|change| {
            (
                change.number,
                change.state,
                change.orders.into_iter().collect(),
            )
        })
        .collect();
    let expected: [(u64, OrderState, HashSet<_>); 3] = [
        (1, OrderState::Reserved, ids.iter().copied().collect()),
        (2, OrderState::Cancelled, HashSet::from([ids[1]])),
        (3, OrderState::Confirmed, HashSet::from([ids[0]])),
    ];
    assert_eq!(told, expected);
}

/// From any number on, no more than asked for, nothing beyond the end.
pub async fn changes_are_read_from_any_number(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    for first in 0..5 {
        commit(ledger, sale, 1, &singles(sale, first..first + 1)).await;
    }
    for (from, limit, expected) in [
        (0, 9, 1..6),
        (1, 2, 1..3),
        (4, 9, 4..6),
        (6, 9, 6..6),
        (u64::MAX, 9, 6..6),
    ] {
        let page = ledger.changes(sale, from, limit).await.expect("changes");
        let numbers: Vec<_> = page.iter().map(|change| change.number).collect();
        assert_eq!(
            numbers,
            expected.collect::<Vec<_>>(),
            "from {from}, at most {limit}"
        );
    }
}

/// A reader follows the feed while several write: it sees the numbers without a gap, and in the end
/// every change. A number that became visible before a smaller one would be a gap.
pub async fn a_reader_misses_no_change_of_concurrent_writers(ledger: &Ledger) {
    const WRITERS: u32 = 4;
    const ROUNDS: u32 = 25;
    let sale = loaded_sale(ledger, WRITERS * ROUNDS, LONG_HOLD).await.id;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let ledger = ledger.clone();
        writers.spawn(
            async move { write(&ledger, sale, writer * ROUNDS..(writer + 1) * ROUNDS).await },
        );
    }
    let mut seen: Vec<(OrderState, usize)> = Vec::new();
    // Each order is reserved once and ends once.
    let all = (2 * WRITERS * ROUNDS) as usize;
    until("the reader has seen every change", async || {
        let next = seen.len() as u64 + 1;
        for (change, number) in ledger
            .changes(sale, next, 3)
            .await
            .expect("changes")
            .iter()
            .zip(next..)
        {
            assert_eq!(change.number, number, "the reader missed a change");
            seen.push((change.state, change.orders.len()));
        }
        seen.len() == all
    })
    .await;
    writers.join_all().await;
    let now = audit(ledger, sale).await;
    assert_eq!(feed(ledger, sale).await.len(), all);
    let confirmed = seen
        .iter()
        .filter(|seen| **seen == (OrderState::Confirmed, 1))
        .count();
    assert_eq!(now.confirmed, confirmed as u64);
}

async fn write(ledger: &Ledger, sale: SaleId, buyers: std::ops::Range<u32>) {
    for n in buyers {
        let order = commit(ledger, sale, 1, &singles(sale, n..n + 1))
            .await
            .remove(0)
            .order;
        if n % 2 == 0 {
            ledger.confirm(order.id).await.expect("confirm");
        } else {
            ledger.cancel(order.id).await.expect("cancel");
        }
    }
}
