//! One winner: several at once want to end the same orders in different ways.

use std::collections::{HashMap, HashSet};

use tokio::task::JoinSet;

use super::fixture::LONG_HOLD;
use super::fixture::{
    audit, commit, expire_all, expire_to_the_end, loaded_sale, my_returns, order_now, singles,
    until,
};
use crate::domain::{OrderId, OrderState, SaleId};
use crate::ledger::{End, Ledger, StockReturn, Transition};

/// What one contender was told.
type Told = (OrderId, End, Transition, Option<StockReturn>);

/// Two confirmations and two cancellations per order, one by one and all together, at once.
async fn contend(ledger: &Ledger, sale: SaleId, orders: &[OrderId]) -> Vec<Told> {
    let mut tasks = JoinSet::new();
    for end in [End::Confirm, End::Cancel] {
        let all: Vec<_> = orders.iter().map(|id| (*id, end)).collect();
        let alone = all.iter().map(|wish| vec![*wish]);
        for wishes in alone.chain([all.clone()]) {
            let ledger = ledger.clone();
            tasks.spawn(async move {
                let ended = ledger
                    .end(sale, &wishes)
                    .await
                    .expect("end, without deadlock");
                let told = wishes.into_iter().zip(ended);
                told.map(|((id, end), (now, back))| (id, end, now, back))
                    .collect::<Vec<_>>()
            });
        }
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Everybody was told the state in which the order is, and its units came back once if at all.
async fn assert_one_winner(ledger: &Ledger, sale: SaleId, told: &[Told], expired: &[StockReturn]) {
    let mut returned: HashMap<OrderId, u32> = HashMap::new();
    for returns in told
        .iter()
        .filter_map(|told| told.3.as_ref())
        .chain(expired)
    {
        *returned.entry(returns.order).or_default() += 1;
    }
    for (id, end, transition, _) in told {
        let now = order_now(ledger, *id).await;
        let wanted = match end {
            End::Confirm => OrderState::Confirmed,
            End::Cancel => OrderState::Cancelled,
        };
        let answer = match transition {
            Transition::Done(order) if order.state == wanted => order,
            Transition::Final(order) if order.state != wanted => order,
            other => panic!("{wanted:?} of {id} was told {other:?}"),
        };
        assert_eq!(*answer, now, "{wanted:?} was told another end");
        let sold = now.state == OrderState::Confirmed;
        let times = returned.get(id).copied().unwrap_or(0);
        assert_eq!(times, u32::from(!sold), "returns of {now:?}");
    }
    let stored = my_returns(ledger, sale).await;
    assert_eq!(
        stored.len(),
        returned.len(),
        "returns told and returns stored"
    );
}

/// Who loses is told who won.
pub async fn confirm_and_cancel_have_one_winner(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 20, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..20)).await;
    let ids: Vec<_> = orders.iter().map(|done| done.order.id).collect();
    let told = contend(ledger, sale, &ids).await;
    assert_one_winner(ledger, sale, &told, &[]).await;
    let now = audit(ledger, sale).await;
    assert_eq!(now.taken, now.confirmed, "every order has ended");
}

/// At the instant when the hold ends, with several processes that expire.
pub async fn confirm_cancel_and_expiry_have_one_winner(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 30, 1).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..30)).await;
    let ids: Vec<_> = orders.iter().map(|done| done.order.id).collect();
    until("the hold is nearly over", async || {
        ledger
            .expiries_due(u32::MAX)
            .await
            .expect("due")
            .contains(&sale)
    })
    .await;
    let mut sweepers = JoinSet::new();
    for _ in 0..3 {
        let ledger = ledger.clone();
        sweepers.spawn(async move { expire_all(&ledger, sale).await });
    }
    let told = contend(ledger, sale, &ids).await;
    let expired: Vec<_> = sweepers.join_all().await.into_iter().flatten().collect();
    assert_one_winner(ledger, sale, &told, &expired).await;
    assert_eq!(
        audit(ledger, sale).await.taken,
        audit(ledger, sale).await.confirmed
    );
}

/// Several processes expire one sale's many groups: each order's units come back once.
pub async fn concurrent_sweepers_expire_each_order_once(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 40, 1).await.id;
    for first in 0..20 {
        commit(ledger, sale, 1, &singles(sale, 2 * first..2 * first + 2)).await;
    }
    let mut sweepers = JoinSet::new();
    for _ in 0..4 {
        let ledger = ledger.clone();
        sweepers.spawn(async move { expire_to_the_end(&ledger, sale).await });
    }
    let returns: Vec<_> = sweepers.join_all().await.into_iter().flatten().collect();
    let ids: HashSet<_> = returns.iter().map(|returned| returned.order).collect();
    assert_eq!((returns.len(), ids.len()), (40, 40));
    assert_eq!(audit(ledger, sale).await.free(), 40);
}
