//! Locks with a lease.
//!
//! A lease can run out while its holder still works: paused, delayed, or behind a slow network. So a lock
//! here saves work and never guards stock; whoever uses one must be right without it.

mod token;

pub use token::{Guard, TokenLock};

/// What a release has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The lock was held and is free now.
    Released,
    /// The lease had run out; whoever holds the lock now keeps it.
    NotMine,
    /// The server did not answer; the lease ends it.
    Unknown,
}
