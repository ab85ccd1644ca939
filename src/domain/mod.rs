//! The words of the business as types, and the rules that need no I/O.
//!
//! Everything that crosses a boundary (HTTP, Redis, SQL) is parsed into one of these types once; code
//! behind the boundary never validates again.

mod ids;
mod order;
mod outcome;
mod sale;
mod timestamp;

pub use ids::{BuyerId, HOME_HASH_VERSION, IdempotencyKey, OrderId, SaleId};
pub use order::{Order, OrderState};
pub use outcome::{Admission, Outcome, Refusal, Unavailable};
pub use sale::{
    CURRENCY_LENGTH, HOLD_SECONDS_MAX, NewSale, PRICE_MINOR_MAX, QUANTITY_MAX, SEGMENTS_MAX, Sale,
    Stage, Strategy, TITLE_LENGTH_MAX,
};
pub use timestamp::Timestamp;

/// Why a value from outside was not taken: one sentence that names the mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl Invalid {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// One buyer's attempt: what is bought by whom, under which order id.
///
/// Two purchases with one id are the same purchase; two quantities under one id are a misuse of the
/// idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purchase {
    /// The order that this purchase becomes if it is admitted and committed.
    pub order: OrderId,
    /// Who buys.
    pub buyer: BuyerId,
    /// Units asked for, at least one.
    pub quantity: u32,
}
