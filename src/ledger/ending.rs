//! How reserved orders of one sale end together: who wins, and what each caller is told.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{End, Ended, StockReturn, Transition};
use crate::domain::{Order, OrderId, OrderState};

impl End {
    /// The state that is asked for.
    const fn state(self) -> OrderState {
        match self {
            Self::Confirm => OrderState::Confirmed,
            Self::Cancel => OrderState::Cancelled,
        }
    }
}

/// Decides under the sale's lock which of these orders take which state now. Of several wishes for
/// one order the first counts.
pub(super) fn decide(
    wishes: &[(OrderId, End)],
    orders: &[Order],
    now_ms: i64,
) -> [(OrderState, Vec<Uuid>); 3] {
    let reserved = orders
        .iter()
        .filter(|order| order.state == OrderState::Reserved);
    let mut reserved: HashMap<_, _> = reserved.map(|order| (order.id, order)).collect();
    let states = [
        OrderState::Confirmed,
        OrderState::Cancelled,
        OrderState::Expired,
    ];
    let mut decided = states.map(|state| (state, Vec::new()));
    for (id, end) in wishes {
        let Some(order) = reserved.remove(id) else {
            continue;
        };
        // A hold that is over can still be cancelled, which gives back as much.
        let over = order
            .hold_expires_at
            .is_some_and(|due| due.millis() <= now_ms);
        let end = if over && *end == End::Confirm {
            OrderState::Expired
        } else {
            end.state()
        };
        let same = decided.iter_mut().find(|(state, _)| *state == end);
        same.expect("all ends are listed").1.push(id.uuid());
    }
    decided
}

/// What each caller is told, wish by wish: `orders` as they are now, and the `returns` of those that
/// ended just now, each to whoever asked first.
pub(super) fn answer(
    wishes: &[(OrderId, End)],
    orders: &HashMap<OrderId, Order>,
    returns: Vec<StockReturn>,
) -> Vec<Ended> {
    let mut returns: HashMap<_, _> = returns
        .into_iter()
        .map(|returned| (returned.order, returned))
        .collect();
    let told = wishes.iter().map(|(id, end)| {
        let transition = match orders.get(id) {
            None => Transition::Missing,
            Some(order) if order.state == end.state() => Transition::Done(order.clone()),
            Some(order) => Transition::Final(order.clone()),
        };
        (transition, returns.remove(id))
    });
    told.collect()
}

/// The ids of the orders that somebody wishes to end, each once.
pub(super) fn ids(wishes: &[(OrderId, End)]) -> Vec<Uuid> {
    let ids: HashSet<_> = wishes.iter().map(|(id, _)| id.uuid()).collect();
    ids.into_iter().collect()
}
