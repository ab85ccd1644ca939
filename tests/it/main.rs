//! Everything that needs real servers, in one binary: one module per theme.
#![expect(
    clippy::unwrap_used,
    reason = "in a test, a panic with the error is the right answer"
)]

mod borrowing;
mod changes;
#[cfg(feature = "crash-points")]
mod crashes;
mod faults;
mod harness;
mod holds;
mod http;
mod interleavings;
mod ledger;
mod locks;
mod lost_replies;
mod outage;
mod poison;
mod scripts;
mod segmented;
mod selling;
mod shop;
