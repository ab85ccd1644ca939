//! What the cases share: sales, purchases, and an audit from the outside.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::{
    BuyerId, IdempotencyKey, NewSale, Order, OrderId, OrderState, Purchase, Sale, SaleId, Strategy,
    Timestamp,
};
use crate::ledger::{Change, Commit, Committed, Ledger, StockReturn};

/// A lease that no case outlives.
pub(super) const LONG_LEASE: Duration = Duration::from_secs(3_600);
/// How long a case waits for what must come.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Seconds of a hold that no case outlives.
pub(super) const LONG_HOLD: u32 = 3_600;

/// Terms of a sale that sells at once.
pub(super) fn terms(quantity: u32, hold_seconds: u32) -> NewSale {
    NewSale {
        product: "sku-1".into(),
        title: "A phone".into(),
        price_minor: 9_900,
        currency: "CNY".into(),
        quantity,
        segments: 4,
        per_buyer_limit: 2,
        opens_at: None,
        closes_at: None,
        hold_seconds,
        strategy: Strategy::Segmented,
    }
}

/// A sale that was loaded once: epoch 1.
pub(super) async fn loaded_sale(ledger: &Ledger, quantity: u32, hold_seconds: u32) -> Sale {
    let sale = ledger
        .create_sale(&terms(quantity, hold_seconds))
        .await
        .expect("create");
    assert!(
        ledger.fence(sale.id, 0, LONG_LEASE).await.expect("fence"),
        "first load"
    );
    assert!(
        ledger.finish_load(sale.id, 1).await.expect("finish"),
        "first load"
    );
    sale_now(ledger, sale.id).await
}

/// A sale that was loaded once and is loaded again: epoch 2.
pub(super) async fn fenced_sale(ledger: &Ledger, quantity: u32, hold_seconds: u32) -> SaleId {
    let sale = loaded_sale(ledger, quantity, hold_seconds).await.id;
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    sale
}

/// The sale as it is now.
pub(super) async fn sale_now(ledger: &Ledger, sale: SaleId) -> Sale {
    ledger
        .sale(sale)
        .await
        .expect("read a sale")
        .expect("the sale is there")
}

/// A buyer of this name.
pub(super) fn buyer(name: &str) -> BuyerId {
    BuyerId::parse(name).expect("a valid name")
}

/// The purchase of a buyer under one key.
pub(super) fn purchase(sale: SaleId, name: &str, quantity: u32) -> Purchase {
    keyed(sale, name, "k", quantity)
}

/// The purchase of a buyer under a given key.
pub(super) fn keyed(sale: SaleId, name: &str, key: &str, quantity: u32) -> Purchase {
    let buyer = buyer(name);
    let key = IdempotencyKey::parse(key).expect("a valid key");
    Purchase {
        order: OrderId::of(sale, &buyer, &key),
        buyer,
        quantity,
    }
}

/// One unit each for buyers whose numbers are in the range.
pub(super) fn singles(sale: SaleId, buyers: std::ops::Range<u32>) -> Vec<Purchase> {
    buyers
        .map(|n| purchase(sale, &format!("buyer-{n}"), 1))
        .collect()
}

/// Commits what must be committed.
pub(super) async fn commit(
    ledger: &Ledger,
    sale: SaleId,
    epoch: u64,
    purchases: &[Purchase],
) -> Vec<Committed> {
    match ledger.commit(sale, epoch, purchases).await.expect("commit") {
        Commit::Committed(orders) => orders,
        other => panic!("not committed: {other:?}"),
    }
}

/// The order as it is now, which must be there.
pub(super) async fn order_now(ledger: &Ledger, id: OrderId) -> Order {
    ledger
        .order(id)
        .await
        .expect("read an order")
        .expect("the order is there")
}

/// Every change of the sale, read page by page; fails on a gap.
pub(super) async fn feed(ledger: &Ledger, sale: SaleId) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    loop {
        let next = changes.len() as u64 + 1;
        let page = ledger.changes(sale, next, 7).await.expect("changes");
        if page.is_empty() {
            return changes;
        }
        for (change, expected) in page.iter().zip(next..) {
            assert_eq!(change.number, expected, "a gap in the feed of sale {sale}");
        }
        changes.extend(page);
    }
}

/// Every order of the sale, read page by page.
pub(super) async fn all_orders(ledger: &Ledger, sale: SaleId) -> Vec<Order> {
    let (mut orders, mut after) = (Vec::new(), None);
    loop {
        let page = ledger
            .sale_orders(sale, after, 7)
            .await
            .expect("orders of a sale");
        orders.extend(page.orders);
        match page.next {
            Some(next) => after = Some(next),
            None => return orders,
        }
    }
}

/// Returns of the sale that are due, in the ledger's order. Other cases have theirs in between.
pub(super) async fn my_returns(ledger: &Ledger, sale: SaleId) -> Vec<StockReturn> {
    let mut returns = ledger.returns(u32::MAX).await.expect("returns");
    returns.retain(|returned| returned.order.sale() == sale);
    returns
}

/// Expires every group of the sale that is due.
pub(super) async fn expire_all(ledger: &Ledger, sale: SaleId) -> Vec<StockReturn> {
    let mut returns = Vec::new();
    while let Some(group) = ledger.expire(sale).await.expect("expire") {
        returns.extend(group);
    }
    returns
}

/// Expires the sale's groups as they become due, until nothing of the sale is held.
pub(super) async fn expire_to_the_end(ledger: &Ledger, sale: SaleId) -> Vec<StockReturn> {
    let deadline = Instant::now() + PATIENCE;
    let mut returns = Vec::new();
    while sale_now(ledger, sale).await.held() > 0 {
        assert!(
            Instant::now() < deadline,
            "units of sale {sale} are held for ever"
        );
        returns.extend(expire_all(ledger, sale).await);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    returns
}

/// Waits until `condition` holds, for a bounded time.
pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(
            Instant::now() < deadline,
            "waited {PATIENCE:?} in vain until {what}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until the database's clock shows at least `instant`.
pub(super) async fn until_clock_shows(ledger: &Ledger, instant: Option<Timestamp>) {
    assert!(instant.is_some(), "no instant to wait for");
    let terms = NewSale {
        closes_at: instant,
        ..terms(1, 0)
    };
    let watch = ledger.create_sale(&terms).await.expect("create").id;
    until("the clock shows it", async || {
        ledger.close_due().await.expect("close");
        sale_now(ledger, watch).await.closed
    })
    .await;
}

/// Checks everything that must hold whenever no call is under way, and returns the sale.
pub(super) async fn audit(ledger: &Ledger, sale: SaleId) -> Sale {
    let count = ledger
        .count(sale)
        .await
        .expect("count")
        .expect("the sale is there");
    let orders = all_orders(ledger, sale).await;
    let units = |state: OrderState| {
        let of_state = orders.iter().filter(|order| order.state == state);
        of_state.map(|order| u64::from(order.quantity)).sum::<u64>()
    };
    let (reserved, confirmed) = (units(OrderState::Reserved), units(OrderState::Confirmed));
    assert_eq!(
        (count.reserved, count.confirmed),
        (reserved, confirmed),
        "count of sale {sale}"
    );
    assert_eq!(
        count.sale.confirmed, confirmed,
        "counter of confirmed units, sale {sale}"
    );
    assert_eq!(
        count.sale.taken,
        reserved + confirmed,
        "counter of taken units, sale {sale}"
    );
    assert!(
        count.sale.taken <= u64::from(count.sale.terms.quantity),
        "oversold: {count:?}"
    );
    assert_replay(&orders, &feed(ledger, sale).await);
    for order in &orders {
        assert_times(order, &count.sale);
    }
    count.sale
}

/// The feed tells the whole story of every order.
fn assert_replay(orders: &[Order], changes: &[Change]) {
    let mut states = HashMap::new();
    for change in changes {
        assert!(!change.orders.is_empty(), "a change of nothing: {change:?}");
        for id in &change.orders {
            let before = states.insert(*id, change.state);
            let first = matches!(before, None | Some(OrderState::Reserved));
            assert!(first, "order {id} was {before:?} before {change:?}");
        }
    }
    let now: HashMap<_, _> = orders.iter().map(|order| (order.id, order.state)).collect();
    assert_eq!(states, now, "the feed's end and the orders differ");
}

fn assert_times(order: &Order, sale: &Sale) {
    let finished = order.state != OrderState::Reserved;
    assert_eq!(order.finished_at.is_some(), finished, "{order:?}");
    assert!(
        order.finished_at.is_none_or(|at| at >= order.created_at),
        "{order:?}"
    );
    let held = order
        .hold_expires_at
        .map(|at| at.millis() - order.created_at.millis());
    if let Some(held_ms) = held {
        assert_eq!(
            held_ms,
            i64::from(sale.terms.hold_seconds) * 1_000,
            "{order:?}"
        );
    }
    assert!(
        held.is_some() || order.state != OrderState::Reserved,
        "{order:?}"
    );
}
