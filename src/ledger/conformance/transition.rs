//! Orders end once, in one state, and their units come back once.

use super::fixture::{
    LONG_HOLD, audit, buyer, commit, expire_to_the_end, feed, keyed, loaded_sale, my_returns,
    order_now, purchase, singles,
};
use crate::domain::{Order, OrderId, OrderState, SaleId};
use crate::ledger::{End, Ledger, StockReturn, Transition};

const STATES: [OrderState; 5] = [
    OrderState::Reserved,
    OrderState::Confirmed,
    OrderState::Cancelled,
    OrderState::Expired,
    OrderState::Rejected,
];

/// An order in the given state, in a sale of its own.
async fn order_in(ledger: &Ledger, state: OrderState) -> Order {
    let hold = if state == OrderState::Expired {
        1
    } else {
        LONG_HOLD
    };
    let sale = loaded_sale(ledger, 10, hold).await.id;
    let wanted = purchase(sale, "a", 2);
    match state {
        OrderState::Rejected => {
            ledger.reject(sale, &wanted, None).await.expect("reject");
        }
        OrderState::Reserved => drop(commit(ledger, sale, 1, std::slice::from_ref(&wanted)).await),
        OrderState::Confirmed => {
            commit(ledger, sale, 1, std::slice::from_ref(&wanted)).await;
            ledger.confirm(wanted.order).await.expect("confirm");
        }
        OrderState::Cancelled => {
            commit(ledger, sale, 1, std::slice::from_ref(&wanted)).await;
            ledger.cancel(wanted.order).await.expect("cancel");
        }
        OrderState::Expired => {
            commit(ledger, sale, 1, std::slice::from_ref(&wanted)).await;
            expire_to_the_end(ledger, sale).await;
        }
    }
    let order = order_now(ledger, wanted.order).await;
    assert_eq!(order.state, state);
    order
}

/// Calls confirm or cancel.
async fn end(
    ledger: &Ledger,
    id: OrderId,
    wanted: OrderState,
) -> (Transition, Option<StockReturn>) {
    let ended = match wanted {
        OrderState::Confirmed => ledger.confirm(id).await,
        _ => ledger.cancel(id).await,
    };
    ended.expect("end an order")
}

/// Each of the five states, each of the two calls, and each call repeated.
pub async fn every_state_answers_confirm_and_cancel(ledger: &Ledger) {
    for wanted in [OrderState::Confirmed, OrderState::Cancelled] {
        for state in STATES {
            let case = format!("{wanted:?} of a {state:?} order");
            let before = order_in(ledger, state).await;
            let returns_before = my_returns(ledger, before.id.sale()).await;
            let (first, returned) = end(ledger, before.id, wanted).await;
            let now = order_now(ledger, before.id).await;
            if state == OrderState::Reserved {
                assert_eq!(first, Transition::Done(now.clone()), "{case}");
                assert_eq!(now.state, wanted, "{case}");
            } else if state == wanted {
                assert_eq!(first, Transition::Done(before.clone()), "{case}");
            } else {
                assert_eq!(first, Transition::Final(before.clone()), "{case}");
            }
            let gives_back = state == OrderState::Reserved && wanted == OrderState::Cancelled;
            assert_eq!(returned.is_some(), gives_back, "{case}");
            let (again, more) = end(ledger, before.id, wanted).await;
            assert_eq!((again, more), (first, None), "{case}, repeated");
            let returns = my_returns(ledger, before.id.sale()).await;
            let expected = returns_before
                .into_iter()
                .chain(returned)
                .collect::<Vec<_>>();
            assert_eq!(returns, expected, "{case}");
            audit(ledger, before.id.sale()).await;
        }
    }
}

/// In one call: each wish gets its own answer, the first for an order counts, and each state that
/// orders took is one change.
pub async fn orders_that_end_together_are_answered_one_by_one(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..5)).await;
    let ids: Vec<_> = orders.iter().map(|done| done.order.id).collect();
    ledger.cancel(ids[4]).await.expect("cancel");
    let missing = purchase(sale, "nobody", 1).order;
    let wishes = [
        (ids[0], End::Confirm),
        (ids[1], End::Cancel),
        (missing, End::Confirm),
        (ids[0], End::Cancel),
        (ids[1], End::Cancel),
        (ids[2], End::Confirm),
        (ids[4], End::Confirm),
    ];
    let ended = ledger.end(sale, &wishes).await.expect("end");
    let told: Vec<_> = ended
        .iter()
        .map(|(transition, returned)| {
            let (done, order) = match transition {
                Transition::Done(order) => (true, Some(order)),
                Transition::Final(order) => (false, Some(order)),
                Transition::Missing => (false, None),
            };
            (
                done,
                order.map(|order| order.state),
                returned.as_ref().map(|back| back.order),
            )
        })
        .collect();
    let (confirmed, cancelled) = (Some(OrderState::Confirmed), Some(OrderState::Cancelled));
    let expected = [
        (true, confirmed, None),
        (true, cancelled, Some(ids[1])),
        (false, None, None),
        (false, confirmed, None),
        (true, cancelled, None),
        (true, confirmed, None),
        (false, cancelled, None),
    ];
    assert_eq!(told, expected);
    let changes: Vec<_> = feed(ledger, sale)
        .await
        .into_iter()
        .map(|change| (change.state, change.orders.len()))
        .collect();
    let expected = [
        (OrderState::Reserved, 5),
        (OrderState::Cancelled, 1),
        (OrderState::Confirmed, 2),
        (OrderState::Cancelled, 1),
    ];
    assert_eq!(changes, expected);
    assert!(ledger.end(sale, &[]).await.expect("end").is_empty());
    let now = audit(ledger, sale).await;
    assert_eq!((now.taken, now.confirmed), (3, 2));
}

/// Neither the order nor its sale need exist.
pub async fn an_order_that_is_not_there_is_missing(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 1, LONG_HOLD).await.id;
    let no_sale = SaleId::new(4_000_000_002).expect("a number");
    for id in [
        purchase(sale, "a", 1).order,
        purchase(no_sale, "a", 1).order,
    ] {
        for wanted in [OrderState::Confirmed, OrderState::Cancelled] {
            assert_eq!(
                end(ledger, id, wanted).await,
                (Transition::Missing, None),
                "{wanted:?}"
            );
        }
    }
    assert!(ledger.expire(no_sale).await.expect("expire").is_none());
}

/// The counters move with the order, and cancelled units can be sold again.
pub async fn units_of_a_cancelled_order_are_free_again(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 2, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..2)).await;
    ledger.confirm(orders[0].order.id).await.expect("confirm");
    ledger.cancel(orders[1].order.id).await.expect("cancel");
    let now = audit(ledger, sale).await;
    assert_eq!((now.taken, now.confirmed), (1, 1));
    commit(ledger, sale, 1, &[keyed(sale, "buyer-1", "second", 1)]).await;
    assert_eq!(audit(ledger, sale).await.taken, 2);
}

/// With all that Redis needs to take it back; gone when Redis has.
pub async fn a_return_stays_until_it_is_done(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    let order = commit(ledger, sale, 1, &[purchase(sale, "a", 3)])
        .await
        .remove(0)
        .order;
    let (_, returned) = ledger.cancel(order.id).await.expect("cancel");
    let expected = StockReturn {
        order: order.id,
        buyer: buyer("a"),
        quantity: 3,
        epoch: 1,
    };
    assert_eq!(returned, Some(expected.clone()));
    assert_eq!(my_returns(ledger, sale).await, [expected]);
    assert_eq!(
        ledger
            .count(sale)
            .await
            .expect("count")
            .expect("sale")
            .returning,
        3
    );
    for _ in 0..2 {
        ledger.returns_done(&[order.id]).await.expect("done");
        assert!(my_returns(ledger, sale).await.is_empty());
    }
    assert_eq!(
        ledger
            .count(sale)
            .await
            .expect("count")
            .expect("sale")
            .returning,
        0
    );
}

/// Oldest first, and no more than asked for.
pub async fn returns_come_in_the_order_of_their_orders_ends(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..9)).await;
    for done in &orders {
        ledger.cancel(done.order.id).await.expect("cancel");
    }
    let returned: Vec<_> = my_returns(ledger, sale)
        .await
        .into_iter()
        .map(|returned| returned.order)
        .collect();
    let cancelled: Vec<_> = orders.iter().map(|done| done.order.id).collect();
    assert_eq!(returned, cancelled);
    assert_eq!(ledger.returns(2).await.expect("returns").len(), 2);
}
