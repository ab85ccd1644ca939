//! An order: an admitted purchase that the ledger knows.

use super::{BuyerId, Invalid, OrderId, Timestamp};

/// Where an order stands.
///
/// `Reserved` becomes one of the next three, once. `Rejected` is for a purchase that was admitted and
/// then turned out to be impossible, which only a loss of Redis or a row that the database refuses can
/// cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrderState {
    /// Units are held for the buyer until payment or until the hold ends.
    Reserved,
    /// Sold.
    Confirmed,
    /// Given back by the buyer or the shop.
    Cancelled,
    /// The hold ended without payment.
    Expired,
    /// Admitted, then impossible; never counted as sold.
    Rejected,
}

impl OrderState {
    /// The word used in the API, in SQL and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Confirmed => "confirmed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
        }
    }

    /// The state of this name.
    ///
    /// # Errors
    /// [`Invalid`] for any other word.
    pub fn parse(word: &str) -> Result<Self, Invalid> {
        [
            Self::Reserved,
            Self::Confirmed,
            Self::Cancelled,
            Self::Expired,
            Self::Rejected,
        ]
        .into_iter()
        .find(|state| state.as_str() == word)
        .ok_or_else(|| Invalid::new(format!("no order state is called {word:?}")))
    }

    /// Whether the order's units count as taken.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Reserved | Self::Confirmed)
    }
}

/// An order as the ledger stores it. Price and currency are the sale's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Names the order, its sale and its home.
    pub id: OrderId,
    /// Who bought.
    pub buyer: BuyerId,
    /// Units.
    pub quantity: u32,
    /// Where it stands.
    pub state: OrderState,
    /// When it was committed, by the database's clock.
    pub created_at: Timestamp,
    /// Until when its units are held; none when the sale has no holds.
    pub hold_expires_at: Option<Timestamp>,
    /// When it became confirmed, cancelled, expired or rejected.
    pub finished_at: Option<Timestamp>,
}
