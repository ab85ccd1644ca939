//! What the service's API sends and takes, as a client knows it.

use std::fmt;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

/// A sale to be created.
#[derive(Debug, Clone, Serialize)]
pub struct NewSale {
    /// What is sold.
    pub product: String,
    /// Its name for people.
    pub title: String,
    /// Price of one unit in minor units of the currency.
    pub price_minor: u64,
    /// ISO 4217 code.
    pub currency: String,
    /// Units on sale.
    pub quantity: u32,
    /// Shards of the stock.
    pub segments: u32,
    /// Units that one buyer may hold.
    pub per_buyer_limit: u32,
    /// Seconds for which an order waits for its payment; 0 confirms at once.
    pub hold_seconds: u32,
}

impl Default for NewSale {
    /// 100 units, one each, confirmed at once.
    fn default() -> Self {
        Self {
            product: "kettle-01".to_owned(),
            title: "Copper kettle".to_owned(),
            price_minor: 9_900,
            currency: "CNY".to_owned(),
            quantity: 100,
            segments: 1,
            per_buyer_limit: 1,
            hold_seconds: 0,
        }
    }
}

/// What one segment of a sale has and has done since it was loaded.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Segment {
    /// Its number.
    pub segment: u32,
    /// Units that the load brought.
    pub filled: u64,
    /// Units borrowed from other segments.
    pub borrowed: u64,
    /// Units lent to other segments.
    pub lent: u64,
    /// Units free now.
    pub available: u64,
}

/// The segments of a sale.
#[derive(Debug, Clone, Deserialize)]
pub struct SegmentList {
    /// By number.
    pub segments: Vec<Segment>,
}

/// A sale, as far as the load tool cares.
#[derive(Debug, Clone, Deserialize)]
pub struct Sale {
    /// Its number.
    pub id: u32,
    /// Units on sale.
    pub quantity: u32,
    /// Units that one buyer may hold.
    pub per_buyer_limit: u32,
    /// Price of one unit in minor units of the currency.
    pub price_minor: u64,
    /// `scheduled`, `loading`, `open`, `paused` or `closed`.
    pub state: String,
    /// Number of its current load into Redis.
    pub epoch: u64,
    /// The service's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub server_time: OffsetDateTime,
}

/// The state of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderState {
    /// Waits for its payment.
    Reserved,
    /// Paid.
    Confirmed,
    /// Given back by the buyer or the shop.
    Cancelled,
    /// Not paid in time.
    Expired,
    /// Was admitted, then impossible.
    Rejected,
}

impl OrderState {
    /// Whether the order takes units.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Reserved | Self::Confirmed)
    }
}

/// An order.
#[derive(Debug, Clone, Deserialize)]
pub struct Order {
    /// Its name.
    pub id: Uuid,
    /// The sale it belongs to.
    pub sale: u32,
    /// Who bought.
    pub buyer: String,
    /// Units.
    pub quantity: u32,
    /// What it costs in all, in minor units of the currency.
    pub amount_minor: u64,
    /// Where it stands.
    pub state: OrderState,
    /// When an unpaid one expires.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub hold_expires_at: Option<OffsetDateTime>,
}

/// The units of a sale, each counted in one place. A balanced sale's places add up to `quantity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Terms {
    /// Units on sale.
    pub quantity: i64,
    /// Free in Redis.
    pub available: i64,
    /// On the way from one segment to another.
    pub in_transfer: i64,
    /// Admitted, not yet orders.
    pub journaled: i64,
    /// In orders that wait for their payment.
    pub held: i64,
    /// In paid orders.
    pub confirmed: i64,
    /// Given back, not yet free in Redis.
    pub returning: i64,
}

impl Terms {
    /// The sum of all places.
    #[must_use]
    pub fn sum(&self) -> i64 {
        let free = self.available + self.in_transfer + self.returning;
        free + self.journaled + self.held + self.confirmed
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.in_transfer == 0 && self.journaled == 0 && self.returning == 0
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            quantity,
            available,
            in_transfer,
            journaled,
            held,
            confirmed,
            returning,
        } = self;
        write!(
            formatter,
            "quantity {quantity} = available {available} + in transfer {in_transfer} + \
             journaled {journaled} + held {held} + confirmed {confirmed} + returning {returning}"
        )
    }
}

/// What the service says of its own books.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditVerdict {
    /// They add up.
    Balanced,
    /// They do not.
    Unbalanced,
    /// It could not find out.
    Unknown,
}

/// The service's audit of a sale.
#[derive(Debug, Clone, Deserialize)]
pub struct Audit {
    /// Its conclusion.
    pub verdict: AuditVerdict,
    /// Where the units are.
    pub terms: Terms,
    /// Units in active orders beyond the quantity.
    pub oversold: i64,
    /// What it has to say.
    #[serde(default)]
    pub findings: Vec<String>,
}

/// The stock of a sale, as buyers may see it.
#[derive(Debug, Clone, Deserialize)]
pub struct Stock {
    /// The sale.
    pub sale: u32,
    /// Where the units are.
    #[serde(flatten)]
    pub terms: Terms,
    /// `scheduled`, `loading`, `open`, `paused` or `closed`.
    pub state: String,
}

/// A page of orders.
#[derive(Debug, Clone, Deserialize)]
pub struct OrderPage {
    /// The orders.
    pub orders: Vec<Order>,
    /// Where the next page begins, if there is one.
    pub next: Option<serde_json::Value>,
}

/// A change of an order.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    /// Its place in the feed.
    pub cursor: serde_json::Value,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// The order afterwards.
    pub order: Order,
}

/// A page of the feed.
#[derive(Debug, Clone, Deserialize)]
pub struct FeedPage {
    /// The changes, in order.
    pub events: Vec<Event>,
    /// Where to go on.
    pub next: serde_json::Value,
}

/// A refusal or an error, as RFC 9457 writes it.
#[derive(Debug, Clone, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The short, stable name.
    pub code: String,
    /// What happened, for people.
    #[serde(default)]
    pub detail: String,
    /// Numbers and times that belong to it.
    #[serde(flatten)]
    pub members: serde_json::Map<String, serde_json::Value>,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}: {}", self.status, self.code, self.detail)
    }
}
