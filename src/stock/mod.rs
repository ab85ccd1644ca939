//! The Redis side of a sale: its stock, split into segments.
//!
//! A segment is five keys that share a hash tag: figures and switches (`meta`), what each buyer took
//! (`buyers`), which purchases were decided (`requests`), what was admitted but is not yet in the ledger
//! (`journal`) and which units came from or went to other segments (`transfers`). Every change is one Lua script; each has one typed function in [`scripts`].
//!
//! Redis is never the authority: whatever is lost here is loaded again from the ledger.

pub mod collect;
mod error;
pub mod journal;
mod keys;
pub mod load;
pub mod plan;
mod redis;
pub mod requests;
pub mod scripts;

pub use error::Error;
pub use keys::{SegmentKeys, borrow_lock, gather_lock};
pub use redis::{Calls, Connection, Persistence, Redis};
