//! Epoch: a load fences everything begun before it, and one loader loads at a time.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fixture::{
    LONG_HOLD, LONG_LEASE, PATIENCE, audit, commit, feed, loaded_sale, purchase, sale_now, singles,
    terms, until,
};
use crate::domain::{SaleId, Stage};
use crate::ledger::{Commit, Ledger};

/// A lease that is over as soon as it is given.
const NO_LEASE: Duration = Duration::ZERO;

async fn fence(ledger: &Ledger, sale: SaleId, from: u64, lease: Duration) -> bool {
    ledger.fence(sale, from, lease).await.expect("fence")
}

/// Also not while the load goes on, and not after it.
pub async fn nothing_of_an_older_epoch_commits(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 10, LONG_HOLD).await.id;
    commit(ledger, sale, 1, &singles(sale, 0..2)).await;
    assert!(fence(ledger, sale, 1, LONG_LEASE).await);
    for stage in [Stage::Loading, Stage::Loaded] {
        let late = ledger
            .commit(sale, 1, &singles(sale, 1..4))
            .await
            .expect("commit");
        let Commit::Fenced(now) = late else {
            panic!("{late:?} while {stage:?}")
        };
        assert_eq!(
            (now.epoch, now.stage),
            (2, stage),
            "the sale as it is comes back"
        );
        assert!(ledger.finish_load(sale, 2).await.expect("finish"));
    }
    let future = ledger
        .commit(sale, 3, &singles(sale, 5..6))
        .await
        .expect("commit");
    assert!(
        matches!(future, Commit::Fenced(_)),
        "an epoch to come: {future:?}"
    );
    assert_eq!(audit(ledger, sale).await.taken, 2);
    commit(ledger, sale, 2, &singles(sale, 1..4)).await;
    assert_eq!(audit(ledger, sale).await.taken, 4);
}

/// The counters at the moment when the fence returns are final for the old epoch, whatever was
/// under way then.
pub async fn a_fence_overtakes_commits_under_way(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 1_000_000, 0).await.id;
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let ledger = ledger.clone();
        writers.spawn(async move { commit_until_fenced(&ledger, sale, writer).await });
    }
    // In the midst of it: when each writer has surely begun.
    until("the writers are at work", async || {
        sale_now(ledger, sale).await.taken >= 20
    })
    .await;
    assert!(fence(ledger, sale, 1, LONG_LEASE).await);
    let fenced = sale_now(ledger, sale).await;
    let told: u64 = writers.join_all().await.into_iter().sum();
    let end = audit(ledger, sale).await;
    assert_eq!(
        end.taken, fenced.taken,
        "an old commit came after the fence"
    );
    assert_eq!(
        end.taken, told,
        "every commit that was answered is there, and no other"
    );
}

/// Commits one purchase after the other; how many there were before the fence.
async fn commit_until_fenced(ledger: &Ledger, sale: SaleId, writer: u32) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    for round in 0.. {
        let lone = [purchase(sale, &format!("w{writer}-{round}"), 1)];
        match ledger.commit(sale, 1, &lone).await.expect("commit") {
            Commit::Committed(_) => {}
            Commit::Fenced(_) => return round,
            Commit::Full(sale) => panic!("full: {sale:?}"),
        }
        assert!(
            Instant::now() < deadline,
            "committed for {PATIENCE:?} after the fence"
        );
    }
    unreachable!("an endless loop")
}

/// Compare-and-set: of many that saw one epoch.
pub async fn one_of_many_fences_wins(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 10, 0).await.id;
    let mut loaders = JoinSet::new();
    for _ in 0..12 {
        let ledger = ledger.clone();
        loaders.spawn(async move { fence(&ledger, sale, 1, NO_LEASE).await });
    }
    let won = loaders
        .join_all()
        .await
        .into_iter()
        .filter(|won| *won)
        .count();
    assert_eq!(won, 1);
    assert_eq!(sale_now(ledger, sale).await.epoch, 2);
}

/// A fence is refused from another epoch, of a sale that is drained, and of none.
pub async fn a_fence_needs_the_current_epoch_of_a_living_sale(ledger: &Ledger) {
    let sale = ledger.create_sale(&terms(5, 0)).await.expect("create").id;
    assert!(!fence(ledger, sale, 1, NO_LEASE).await, "an epoch to come");
    assert!(fence(ledger, sale, 0, NO_LEASE).await);
    assert!(!fence(ledger, sale, 0, NO_LEASE).await, "an epoch gone by");
    let drained = ledger.create_sale(&terms(5, 0)).await.expect("create").id;
    assert!(
        ledger
            .close_sale(drained)
            .await
            .expect("close")
            .expect("sale")
            .drained
    );
    assert!(!fence(ledger, drained, 0, NO_LEASE).await, "drained");
    assert!(!fence(ledger, SaleId::new(4_000_000_001).expect("id"), 0, NO_LEASE).await);
}

/// While it lasts nobody else loads; a loader that died is overtaken when it is over.
pub async fn a_lease_keeps_other_loaders_out_while_it_lasts(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, 0).await.id;
    assert!(fence(ledger, sale, 1, LONG_LEASE).await);
    assert!(!fence(ledger, sale, 2, LONG_LEASE).await, "the lease lasts");
    assert!(ledger.renew_load(sale, 2, NO_LEASE).await.expect("renew"));
    assert!(fence(ledger, sale, 2, NO_LEASE).await, "the lease is over");
    assert!(
        ledger.renew_load(sale, 3, LONG_LEASE).await.expect("renew"),
        "late, but not overtaken"
    );
    assert!(!fence(ledger, sale, 3, LONG_LEASE).await, "renewed");
    assert!(ledger.finish_load(sale, 3).await.expect("finish"));
    assert!(fence(ledger, sale, 3, LONG_LEASE).await, "loaded again");
}

/// Who read `loading` a moment ago does not fence what has been loaded since.
pub async fn a_load_is_overtaken_only_before_its_end(ledger: &Ledger) {
    let overtake = async |sale, from, lease| {
        let won = ledger.overtake(sale, from, lease).await;
        won.expect("overtake")
    };
    let sale = loaded_sale(ledger, 5, 0).await.id;
    assert!(!overtake(sale, 1, NO_LEASE).await, "loaded");
    assert!(fence(ledger, sale, 1, LONG_LEASE).await);
    assert!(!overtake(sale, 2, NO_LEASE).await, "the lease lasts");
    assert!(ledger.renew_load(sale, 2, NO_LEASE).await.expect("renew"));
    assert!(!overtake(sale, 1, NO_LEASE).await, "an epoch gone by");
    assert!(overtake(sale, 2, NO_LEASE).await, "the lease is over");
    let now = sale_now(ledger, sale).await;
    assert_eq!((now.epoch, now.stage), (3, Stage::Loading));
    assert!(!ledger.finish_load(sale, 2).await.expect("finish"));
    assert!(ledger.finish_load(sale, 3).await.expect("finish"));
    assert!(!overtake(sale, 3, NO_LEASE).await, "loaded since");
    assert_eq!(sale_now(ledger, sale).await.epoch, 3);
}

/// Whatever it still tries; and the one that overtook it is not disturbed.
pub async fn an_overtaken_loader_changes_nothing(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, LONG_HOLD).await.id;
    let bought = commit(ledger, sale, 1, &singles(sale, 0..1))
        .await
        .remove(0)
        .order;
    assert!(fence(ledger, sale, 1, NO_LEASE).await);
    assert!(fence(ledger, sale, 2, LONG_LEASE).await, "overtakes");
    ledger.cancel(bought.id).await.expect("cancel");
    assert!(
        ledger
            .adopt(sale, 2, &singles(sale, 0..3))
            .await
            .expect("adopt")
            .is_none()
    );
    assert!(
        ledger
            .snapshot(sale, 2, None)
            .await
            .expect("snapshot")
            .is_none()
    );
    assert!(!ledger.renew_load(sale, 2, LONG_LEASE).await.expect("renew"));
    assert!(!ledger.finish_load(sale, 2).await.expect("finish"));
    let now = audit(ledger, sale).await;
    assert_eq!((now.epoch, now.stage, now.taken), (3, Stage::Loading, 0));
    assert_eq!(
        feed(ledger, sale).await.len(),
        2,
        "reserved and cancelled, nothing adopted"
    );
    let count = ledger.count(sale).await.expect("count").expect("sale");
    assert_eq!(count.returning, 1, "the return was not absorbed");
}

/// The answer to the first may have been lost.
pub async fn the_end_of_a_load_can_be_repeated(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, 0).await.id;
    assert!(ledger.finish_load(sale, 1).await.expect("finish"), "again");
    assert!(
        !ledger.finish_load(sale, 0).await.expect("finish"),
        "another epoch"
    );
    assert!(
        !ledger.renew_load(sale, 1, LONG_LEASE).await.expect("renew"),
        "no longer loading"
    );
    assert!(
        ledger
            .adopt(sale, 1, &singles(sale, 0..1))
            .await
            .expect("adopt")
            .is_none()
    );
    assert!(
        ledger
            .snapshot(sale, 1, None)
            .await
            .expect("snapshot")
            .is_none()
    );
    assert_eq!(audit(ledger, sale).await.taken, 0);
}

/// What an epoch admitted may still lie in its journals when its successors were never finished.
pub async fn the_newest_finished_load_is_remembered(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, 0).await;
    assert_eq!(sale.loaded_epoch, 1);
    for from in 1..3 {
        assert!(fence(ledger, sale.id, from, NO_LEASE).await);
        assert_eq!(
            sale_now(ledger, sale.id).await.loaded_epoch,
            1,
            "while {from} + 1 is loading"
        );
    }
    assert!(
        !ledger.finish_load(sale.id, 2).await.expect("finish"),
        "overtaken"
    );
    assert_eq!(sale_now(ledger, sale.id).await.loaded_epoch, 1);
    assert!(ledger.finish_load(sale.id, 3).await.expect("finish"));
    assert_eq!(sale_now(ledger, sale.id).await.loaded_epoch, 3);
}
