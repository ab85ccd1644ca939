//! Everything that needs real servers, in one binary: one module per theme.

mod ledger;
mod scripts;
mod segmented;
