//! Everything that needs real servers, in one binary: one module per theme.

#[cfg(feature = "crash-points")]
mod crashes;
mod harness;
mod holds;
mod http;
mod ledger;
mod lost_replies;
mod outage;
mod poison;
mod scripts;
mod segmented;
mod selling;
