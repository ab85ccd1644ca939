//! The Redis side of a sale: its stock, split into segments.
//!
//! A segment is four keys that share a hash tag: figures and switches (`meta`), what each buyer took
//! (`buyers`), which purchases were decided (`requests`) and what was admitted but is not yet in the
//! ledger (`journal`). Every change is one Lua script; each has one typed function in [`scripts`].
//!
//! Redis is never the authority: whatever is lost here is loaded again from the ledger.

mod error;
pub mod journal;
mod keys;
pub mod load;
mod redis;
pub mod requests;
pub mod scripts;

pub use error::Error;
pub use keys::SegmentKeys;
pub use redis::{Connection, Persistence, Redis};
