//! What a transaction does to the orders of one sale, ready to be numbered.

use std::collections::HashMap;

use uuid::Uuid;

use super::row::Locked;
use crate::domain::{Order, OrderState, Purchase, Sale, SaleId};

/// A change of orders, with what it does to the counters of the sale's row.
#[derive(Debug)]
pub(super) struct NewChange {
    pub(super) sale: SaleId,
    /// The sale's epoch, or the change does not happen.
    pub(super) epoch: u64,
    /// The state that the orders take.
    pub(super) state: OrderState,
    /// When, as it stands in the orders.
    pub(super) at_ms: i64,
    /// The orders.
    pub(super) ids: Vec<Uuid>,
    /// Units that become taken; negative: free.
    pub(super) taken: i64,
    /// Units that become confirmed.
    pub(super) confirmed: i64,
    /// When the hold of these orders ends, if it can.
    pub(super) due_at_ms: Option<i64>,
}

impl NewChange {
    /// Orders of one insert come into being; none if there are none.
    pub(super) fn begun(sale: SaleId, epoch: u64, orders: &[Order]) -> Option<Self> {
        let first = orders.first()?;
        let taken = units(orders);
        Some(Self {
            sale,
            epoch,
            state: first.state,
            at_ms: first.created_at.millis(),
            ids: ids(orders),
            taken,
            confirmed: if first.state == OrderState::Confirmed {
                taken
            } else {
                0
            },
            due_at_ms: first.hold_expires_at.map(|due| due.millis()),
        })
    }

    /// Reserved orders take their last state, under the sale's lock; none if there are none.
    pub(super) fn ended(locked: &Locked, state: OrderState, orders: &[Order]) -> Option<Self> {
        if orders.is_empty() {
            return None;
        }
        let sold = state == OrderState::Confirmed;
        Some(Self {
            state,
            taken: if sold { 0 } else { -units(orders) },
            confirmed: if sold { units(orders) } else { 0 },
            ..Self::rejected(&locked.sale, locked.now_ms, ids(orders))
        })
    }

    /// Purchases are recorded as rejected: no counter moves.
    pub(super) fn rejected(sale: &Sale, at_ms: i64, ids: Vec<Uuid>) -> Self {
        Self {
            sale: sale.id,
            epoch: sale.epoch,
            state: OrderState::Rejected,
            at_ms,
            ids,
            taken: 0,
            confirmed: 0,
            due_at_ms: None,
        }
    }
}

/// Units in these orders.
fn units(orders: &[Order]) -> i64 {
    orders.iter().map(|order| i64::from(order.quantity)).sum()
}

/// The orders' ids as SQL takes them.
pub(super) fn ids(orders: &[Order]) -> Vec<Uuid> {
    orders.iter().map(|order| order.id.uuid()).collect()
}

/// Splits orders into those that fit into `room` units and the others, each in its turn by the
/// order of `purchases`.
///
/// One that is too large does not block the smaller ones behind it: units that nobody may have
/// would be left over.
pub(super) fn fit(
    orders: Vec<Order>,
    purchases: &[Purchase],
    room: u64,
) -> (Vec<Order>, Vec<Order>) {
    let mut orders: HashMap<_, _> = orders.into_iter().map(|order| (order.id, order)).collect();
    let in_turn = purchases
        .iter()
        .filter_map(|purchase| orders.remove(&purchase.order));
    let mut room = room;
    in_turn.partition(|order| match room.checked_sub(order.quantity.into()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    })
}
