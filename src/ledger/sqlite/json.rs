//! Lists on their way into SQLite, which has no arrays: as JSON text for `json_each`.
//!
//! One statement over a list instead of one per element: each statement costs two hops between
//! threads, and a statement with a parameter per value would have to be made anew for each length.

use uuid::Uuid;
use uuid::fmt::Simple;

use crate::domain::Order;

/// Ids as `["…32 hexadecimal digits…", …]`.
pub(super) fn ids(ids: &[Uuid]) -> String {
    let ids: Vec<&Simple> = ids.iter().map(Uuid::as_simple).collect();
    serde_json::to_string(&ids).expect("strings can be written as JSON")
}

/// Numbers as `[1, …]`.
pub(super) fn numbers(numbers: &[i64]) -> String {
    serde_json::to_string(numbers).expect("numbers can be written as JSON")
}

/// Orders as `[["…id…", "buyer", quantity], …]`.
pub(super) fn orders(orders: &[Order]) -> String {
    let row = |order: &Order| {
        (
            order.id.uuid().simple(),
            order.buyer.to_string(),
            order.quantity,
        )
    };
    let rows: Vec<_> = orders.iter().map(row).collect();
    serde_json::to_string(&rows).expect("strings and numbers can be written as JSON")
}
