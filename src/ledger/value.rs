//! What goes into the ledger's calls and comes out of them.

use std::time::Duration;

use crate::domain::{
    BuyerId, Invalid, Order, OrderId, OrderState, QUANTITY_MAX, SEGMENTS_MAX, Sale, Timestamp,
};

/// Limits of a ledger's connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections that one instance opens at the most.
    pub connections_max: u32,
    /// How long a caller waits for a free connection, or to reach the server.
    pub connect_timeout: Duration,
    /// How long one statement may take, lock waits included.
    pub statement_timeout: Duration,
}

/// What became of a group of purchases.
#[derive(Debug)]
pub enum Commit {
    /// All of them are in the ledger, in the order given.
    Committed(Vec<Committed>),
    /// None is: the sale has another epoch than the purchases.
    Fenced(Sale),
    /// None is: the epoch is right, but there is no room for all of them. Redis admitted units that
    /// the sale does not have.
    Full(Sale),
}

/// A purchase that is in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The order as it stands now.
    pub order: Order,
    /// Whether this call inserted it.
    pub fresh: bool,
}

/// How a caller wishes a reserved order to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// It is paid for.
    Confirm,
    /// The buyer or the shop gives it back.
    Cancel,
}

/// What became of an order that was to end, and the units that its end sets free, if this call ended
/// it.
pub type Ended = (Transition, Option<StockReturn>);

/// What became of a confirmation or cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// The order is in the state asked for, by this call or an earlier one.
    Done(Order),
    /// Another final state came first.
    Final(Order),
    /// No such order.
    Missing,
}

/// Units of an ended order on their way back to the sale's stock in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockReturn {
    /// The order that ended.
    pub order: OrderId,
    /// Whose allowance is restored.
    pub buyer: BuyerId,
    /// Units.
    pub quantity: u32,
    /// The sale's epoch when the order ended; a load absorbs the returns of older epochs.
    pub epoch: u64,
}

/// A wish to have more or fewer units for sale, or another number of segments. Both are changed or
/// neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StockChange {
    /// Units added or withdrawn.
    pub quantity: Option<QuantityChange>,
    /// How many segments there are to be.
    pub segments: Option<u32>,
}

/// A quantity that replaces the one its caller believes in. Not a difference: of two admins who both
/// read 100 and wish for 150, the second is told, and does not make it 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantityChange {
    /// The quantity that the sale must have now.
    pub from: u32,
    /// The quantity that it is to have.
    pub to: u32,
}

/// What became of a [`StockChange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeAnswer {
    /// The sale has the terms asked for.
    Applied,
    /// Nothing was changed: the sale has another quantity than the caller believed.
    Stale {
        /// The quantity that it has.
        quantity: u32,
    },
    /// Nothing was changed: active orders hold more units than there would be.
    BelowTaken {
        /// Units in active orders.
        taken: u64,
    },
}

/// What became of a [`StockChange`] of a sale that nobody had loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduledChange {
    /// The sale was still to be loaded; it as it is now.
    Answered(ChangeAnswer, Sale),
    /// Nothing was changed: a load has begun, so the change must go through a load too; or the sale
    /// is closed. It as it is now.
    NotScheduled(Sale),
}

/// What a load into Redis is made from.
#[derive(Debug)]
pub struct Snapshot {
    /// The sale under the epoch of the load, after the change.
    pub sale: Sale,
    /// What became of the change, if there was one.
    pub change: Option<ChangeAnswer>,
    /// Every order of the sale, ended ones too.
    pub orders: Vec<SnapshotOrder>,
}

/// An order in a [`Snapshot`].
#[derive(Debug, Clone)]
pub struct SnapshotOrder {
    /// Its id.
    pub id: OrderId,
    /// Whose it is.
    pub buyer: BuyerId,
    /// Units.
    pub quantity: u32,
    /// Whether its units count as taken.
    pub active: bool,
}

/// What became of purchases found in a sealed journal.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Adopted {
    /// Newly committed.
    pub committed: u64,
    /// Recorded as rejected: no room.
    pub rejected: u64,
    /// In the ledger before.
    pub known: u64,
}

/// What happened to orders, in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Number within the sale, growing in commit order without gaps.
    pub number: u64,
    /// The state that the orders took.
    pub state: OrderState,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The orders that took it, at most [`COMMIT_MAX`](super::COMMIT_MAX).
    pub orders: Vec<OrderId>,
}

/// The ledger's side of the books, read in one transaction by counting orders, not from the
/// counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The sale's row, with its counters.
    pub sale: Sale,
    /// Units in reserved orders.
    pub reserved: u64,
    /// Units in confirmed orders.
    pub confirmed: u64,
    /// Units in returns that Redis has not taken back under the current epoch.
    pub returning: u64,
    /// Buyers whose active orders exceed the limit.
    pub buyers_over_limit: u64,
}

/// A page of orders and where the next one begins.
#[derive(Debug, Default)]
pub struct OrderPage {
    /// At most as many as were asked for.
    pub orders: Vec<Order>,
    /// Ask again with this to go on; none at the end.
    pub next: Option<OrderId>,
}

impl StockChange {
    /// The same wish, if what it asks for is within a sale's bounds.
    ///
    /// # Errors
    /// [`Invalid`] for the first value that is not, with its bounds.
    pub fn checked(&self) -> Result<(), Invalid> {
        let quantity = self
            .quantity
            .is_none_or(|change| (1..=QUANTITY_MAX).contains(&change.to));
        let segments = self
            .segments
            .is_none_or(|count| (1..=SEGMENTS_MAX).contains(&count));
        let bounds =
            |name, most| Invalid::new(format!("{name} is a whole number from 1 to {most}"));
        match (quantity, segments) {
            (false, _) => Err(bounds("the new quantity", QUANTITY_MAX)),
            (_, false) => Err(bounds("segments", SEGMENTS_MAX)),
            _ => Ok(()),
        }
    }

    /// Whether the sale has the terms that are asked for.
    pub(crate) fn is_so_already(&self, sale: &Sale) -> bool {
        let terms = &sale.terms;
        let quantity = self
            .quantity
            .is_none_or(|change| change.from == terms.quantity && change.to == terms.quantity);
        quantity && self.segments.is_none_or(|count| count == terms.segments)
    }

    /// What becomes of it if it meets this row, which nobody else changes meanwhile.
    pub(crate) fn answer(&self, sale: &Sale) -> ChangeAnswer {
        match self.quantity {
            Some(change) if change.from != sale.terms.quantity => ChangeAnswer::Stale {
                quantity: sale.terms.quantity,
            },
            Some(change) if u64::from(change.to) < sale.taken => {
                ChangeAnswer::BelowTaken { taken: sale.taken }
            }
            _ => ChangeAnswer::Applied,
        }
    }
}

impl OrderPage {
    /// A page asked for with `limit`; a full one may have a successor.
    pub(super) fn of(orders: Vec<Order>, limit: u32) -> Self {
        let full = orders.len() as u64 >= u64::from(limit);
        let next = orders.last().filter(|_| full).map(|last| last.id);
        Self { orders, next }
    }
}

impl StockReturn {
    /// The units of an order that ended while the sale had this epoch.
    pub(super) fn of(order: &Order, epoch: u64) -> Self {
        Self {
            order: order.id,
            buyer: order.buyer.clone(),
            quantity: order.quantity,
            epoch,
        }
    }
}
