//! Stock changes in a load: whole or not at all, and never below what was sold.

use std::time::Duration;

use super::fixture::{
    LONG_HOLD, LONG_LEASE, audit, commit, fenced_sale, loaded_sale, my_returns, purchase, sale_now,
    singles,
};
use crate::domain::{Sale, SaleId, Stage};
use crate::ledger::{ChangeAnswer, Commit, Ledger, QuantityChange, Snapshot, StockChange};

/// A change of both, or of one of them.
pub(super) fn change(quantity: Option<(u32, u32)>, segments: Option<u32>) -> StockChange {
    let quantity = quantity.map(|(from, to)| QuantityChange { from, to });
    StockChange { quantity, segments }
}

/// What a change is about.
pub(super) fn stock(sale: &Sale) -> (u32, u32) {
    (sale.terms.quantity, sale.terms.segments)
}

/// The snapshot of a loader that was not overtaken, with this change.
async fn changed(ledger: &Ledger, sale: SaleId, epoch: u64, change: StockChange) -> Snapshot {
    let snapshot = ledger.snapshot(sale, epoch, Some(&change)).await;
    snapshot.expect("snapshot").expect("not overtaken")
}

async fn finish(ledger: &Ledger, sale: SaleId, epoch: u64) {
    let finished = ledger.finish_load(sale, epoch).await.expect("finish");
    assert!(finished, "epoch {epoch} of sale {sale}");
}

/// The snapshot is of the new terms; no switch has changed.
pub async fn a_load_changes_quantity_and_segments(ledger: &Ledger) {
    let both = (Some((5, 8)), Some(16), (8, 16));
    let quantity = (Some((5, 4)), None, (4, 4));
    let segments = (None, Some(1), (5, 1));
    let as_it_is = (Some((5, 5)), Some(4), (5, 4));
    let nothing = (None, None, (5, 4));
    for (from_to, wanted, expected) in [both, quantity, segments, as_it_is, nothing] {
        let sale = fenced_sale(ledger, 5, LONG_HOLD).await;
        let before = sale_now(ledger, sale).await;
        let snapshot = changed(ledger, sale, 2, change(from_to, wanted)).await;
        assert_eq!(snapshot.change, Some(ChangeAnswer::Applied));
        assert_eq!(stock(&snapshot.sale), expected);
        let mut now = sale_now(ledger, sale).await;
        assert_eq!(now, snapshot.sale, "what was told is what is stored");
        (now.terms.quantity, now.terms.segments) = stock(&before);
        assert_eq!(now, before, "nothing else has changed");
    }
    let sale = fenced_sale(ledger, 5, LONG_HOLD).await;
    let plain = ledger.snapshot(sale, 2, None).await.expect("snapshot");
    assert_eq!(plain.expect("not overtaken").change, None, "no change");
}

/// Exactly: after units were added, and after some were withdrawn.
pub async fn the_guard_moves_with_the_quantity(ledger: &Ledger) {
    for to in [3, 7] {
        let sale = loaded_sale(ledger, 5, LONG_HOLD).await.id;
        commit(ledger, sale, 1, &singles(sale, 0..2)).await;
        assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
        let snapshot = changed(ledger, sale, 2, change(Some((5, to)), None)).await;
        assert_eq!(snapshot.sale.free(), u64::from(to) - 2);
        finish(ledger, sale, 2).await;
        let beyond = ledger.commit(sale, 2, &singles(sale, 2..to + 1)).await;
        let beyond = beyond.expect("commit");
        assert!(matches!(beyond, Commit::Full(_)), "of {to}: {beyond:?}");
        commit(ledger, sale, 2, &singles(sale, 2..to)).await;
        let one_more = ledger.commit(sale, 2, &singles(sale, to..to + 1)).await;
        let one_more = one_more.expect("commit");
        assert!(matches!(one_more, Commit::Full(_)), "of {to}: {one_more:?}");
        assert_eq!(audit(ledger, sale).await.taken, u64::from(to));
    }
}

/// Compare-and-set. Also a change that was applied is stale when it comes again.
pub async fn a_change_from_another_quantity_is_stale(ledger: &Ledger) {
    let sale = fenced_sale(ledger, 5, LONG_HOLD).await;
    let before = sale_now(ledger, sale).await;
    for from_to in [(4, 9), (6, 9), (9, 5)] {
        let stale = changed(ledger, sale, 2, change(Some(from_to), Some(16))).await;
        assert_eq!(stale.change, Some(ChangeAnswer::Stale { quantity: 5 }));
        assert_eq!(stale.sale, before, "{from_to:?}");
        assert_eq!(sale_now(ledger, sale).await, before, "{from_to:?}");
    }
    let added = change(Some((5, 6)), Some(8));
    let first = changed(ledger, sale, 2, added).await;
    assert_eq!(first.change, Some(ChangeAnswer::Applied));
    let again = changed(ledger, sale, 2, added).await;
    assert_eq!(again.change, Some(ChangeAnswer::Stale { quantity: 6 }));
    assert_eq!(stock(&again.sale), (6, 8), "changed once");
    // The load goes on with what stands.
    finish(ledger, sale, 2).await;
    commit(ledger, sale, 2, &singles(sale, 0..6)).await;
    assert_eq!(audit(ledger, sale).await.free(), 0);
}

/// Reserved, confirmed, and adopted by this load; and then the segments stay as well.
pub async fn units_in_active_orders_are_not_withdrawn(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..3)).await;
    ledger.confirm(orders[0].order.id).await.expect("confirm");
    ledger.cancel(orders[1].order.id).await.expect("cancel");
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    let journal = [purchase(sale, "adopted", 2)];
    ledger.adopt(sale, 2, &journal).await.expect("adopt");
    let before = audit(ledger, sale).await;
    assert_eq!(before.taken, 4);
    for to in [1, 3] {
        let refused = changed(ledger, sale, 2, change(Some((9, to)), Some(16))).await;
        let below = ChangeAnswer::BelowTaken { taken: 4 };
        assert_eq!(refused.change, Some(below), "to {to}");
        assert_eq!(refused.sale, before, "to {to}");
        assert_eq!(audit(ledger, sale).await, before, "to {to}");
    }
    let stale = changed(ledger, sale, 2, change(Some((8, 3)), None)).await;
    let told = Some(ChangeAnswer::Stale { quantity: 9 });
    assert_eq!(stale.change, told, "whoever is wrong about it is told that");
}

/// Down to what is taken; its orders end as before, and units that they set free are for sale.
pub async fn all_units_that_are_free_can_be_withdrawn(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..3)).await;
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    let snapshot = changed(ledger, sale, 2, change(Some((9, 3)), None)).await;
    assert_eq!(snapshot.change, Some(ChangeAnswer::Applied));
    assert_eq!((snapshot.sale.free(), snapshot.sale.held()), (0, 3));
    assert!(!snapshot.sale.is_sold_out(), "holds may end");
    finish(ledger, sale, 2).await;
    ledger.confirm(orders[0].order.id).await.expect("confirm");
    ledger.confirm(orders[1].order.id).await.expect("confirm");
    ledger.cancel(orders[2].order.id).await.expect("cancel");
    assert_eq!(my_returns(ledger, sale).await.len(), 1);
    let now = audit(ledger, sale).await;
    assert_eq!((now.free(), now.is_sold_out()), (1, false));
    let last = commit(ledger, sale, 2, &singles(sale, 3..4)).await;
    let last = last[0].order.id;
    ledger.confirm(last).await.expect("confirm");
    assert!(audit(ledger, sale).await.is_sold_out());
}

/// Of two loaders the one that was overtaken wakes late.
pub async fn an_overtaken_loader_changes_no_terms(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, LONG_HOLD).await.id;
    assert!(
        ledger
            .fence(sale, 1, Duration::ZERO)
            .await
            .expect("first fence")
    );
    let second = ledger.fence(sale, 2, LONG_LEASE).await;
    assert!(second.expect("second fence"), "overtakes");
    let before = sale_now(ledger, sale).await;
    let late = change(Some((5, 50)), Some(16));
    for stage in [Stage::Loading, Stage::Loaded] {
        for epoch in [1, 2, 4] {
            let late = ledger.snapshot(sale, epoch, Some(&late)).await;
            let late = late.expect("snapshot");
            assert!(late.is_none(), "epoch {epoch}, {stage:?}: {late:?}");
        }
        let now = sale_now(ledger, sale).await;
        assert_eq!((stock(&now), now.stage), (stock(&before), stage));
        finish(ledger, sale, 3).await;
    }
    let ended = ledger.snapshot(sale, 3, Some(&late)).await;
    assert!(
        ended.expect("snapshot").is_none(),
        "its own load has ended too"
    );
    assert_eq!(stock(&audit(ledger, sale).await), stock(&before));
}

/// What the newest finished load has written is what a later load must seal, however often the
/// wish has changed since.
pub async fn the_segments_of_the_newest_finished_load_are_remembered(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, 0).await;
    assert_eq!((sale.terms.segments, sale.loaded_segments), (4, 4));
    let sale = sale.id;
    for (epoch, segments) in [(2, 8), (3, 2)] {
        let fenced = ledger.fence(sale, epoch - 1, Duration::ZERO).await;
        assert!(fenced.expect("fence"), "epoch {epoch}");
        let snapshot = changed(ledger, sale, epoch, change(None, Some(segments))).await;
        let told = (snapshot.sale.terms.segments, snapshot.sale.loaded_segments);
        assert_eq!(told, (segments, 4), "epoch {epoch} is not finished");
    }
    let overtaken = ledger.finish_load(sale, 2).await.expect("finish");
    assert!(!overtaken);
    assert_eq!(sale_now(ledger, sale).await.loaded_segments, 4);
    finish(ledger, sale, 3).await;
    finish(ledger, sale, 3).await;
    let now = sale_now(ledger, sale).await;
    assert_eq!((now.loaded_segments, now.loaded_epoch), (2, 3));
}

/// The callers check them; if one forgets, the row stays readable.
pub async fn terms_beyond_their_bounds_change_nothing(ledger: &Ledger) {
    let sale = fenced_sale(ledger, 5, LONG_HOLD).await;
    let scheduled = super::fixture::terms(5, 0);
    let scheduled = ledger.create_sale(&scheduled).await.expect("create").id;
    let quantities = [0, 1_000_000_001, u32::MAX].map(|to| change(Some((5, to)), None));
    let segments = [0, 257, u32::MAX].map(|wanted| change(Some((5, 6)), Some(wanted)));
    for wrong in quantities.into_iter().chain(segments) {
        let refused = ledger.snapshot(sale, 2, Some(&wrong)).await;
        assert!(refused.is_err(), "{wrong:?}: {refused:?}");
        assert_eq!(stock(&sale_now(ledger, sale).await), (5, 4), "{wrong:?}");
        let refused = ledger.change_scheduled(scheduled, &wrong).await;
        assert!(refused.is_err(), "{wrong:?}: {refused:?}");
        let now = sale_now(ledger, scheduled).await;
        assert_eq!(stock(&now), (5, 4), "{wrong:?}");
    }
}
