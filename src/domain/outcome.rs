//! How a purchase ends.

use super::{Order, OrderId, Timestamp};

/// What became of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The ledger has the order; `replayed` if an earlier attempt had already made it.
    Committed {
        /// The order as it stands now.
        order: Order,
        /// Whether this attempt was a retry.
        replayed: bool,
    },
    /// Redis has deducted and journaled; the ledger has not answered yet.
    Admitted(Admission),
    /// A definite no; nothing was deducted.
    Refused(Refusal),
    /// No answer: try again with the same key.
    Unavailable(Unavailable),
}

/// A purchase that is journaled in Redis and will become an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// The order it will become.
    pub order: OrderId,
    /// Units deducted.
    pub quantity: u32,
    /// Whether an earlier attempt had already been admitted.
    pub replayed: bool,
}

/// A definite no. A refusal is a value, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Every unit is confirmed: final for this quantity.
    SoldOut,
    /// Fewer units are free than were asked for.
    Insufficient {
        /// Units asked for.
        requested: u32,
        /// Units free.
        available: u64,
    },
    /// Nothing is free now, but held units may come back.
    Held {
        /// Units free.
        available: u64,
        /// Units that orders hold without payment, or that are on their way.
        held: u64,
    },
    /// The buyer may not have that many.
    LimitReached {
        /// Units that one buyer may hold or own.
        limit: u32,
        /// Units that this buyer may still take.
        left: u32,
    },
    /// The sale does not sell yet, or not at this moment.
    NotOpen {
        /// When it opens, if that is known.
        opens_at: Option<Timestamp>,
        /// Whether it was paused by the shop.
        paused: bool,
    },
    /// The sale is over.
    Closed,
    /// The key already names a purchase of another quantity.
    KeyReused {
        /// The quantity it names.
        quantity: u32,
    },
    /// An earlier attempt under this key was refused after a lost connection; the key is spent.
    Void,
    /// Admitted, then impossible; the order is recorded as rejected.
    Rejected,
}

/// Why there is no answer. Every one of them may be retried with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unavailable {
    /// Too much work is queued; nothing was deducted.
    Overloaded,
    /// The stock is being loaded into Redis; nothing was deducted.
    Loading,
    /// A server did not answer; the purchase may have been admitted or not.
    OutcomeUnknown,
    /// A server cannot be reached; nothing was deducted.
    Unreachable,
}
