//! The names of all keys in Redis; no other file builds one.

use crate::domain::{HOME_HASH_VERSION, SaleId};

/// The five keys of one segment under one epoch.
///
/// The braces make them share a hash slot, so that a script may touch them together and a Redis Cluster
/// spreads segments over its nodes. The epoch is part of the name: what a fenced instance still writes
/// lands in keys that nobody reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentKeys {
    /// Figures and switches.
    pub meta: String,
    /// Units per buyer.
    pub buyers: String,
    /// Mark per order id.
    pub requests: String,
    /// Admitted purchases that may not be in the ledger yet.
    pub journal: String,
    /// Units per transfer from and to other segments.
    pub transfers: String,
}

impl SegmentKeys {
    /// The keys of segment number `segment` of this load of the sale.
    #[must_use]
    pub fn new(sale: SaleId, segment: u32, epoch: u64) -> Self {
        let key =
            |name| format!("stockade:{HOME_HASH_VERSION}:{{{sale}.{segment}}}:{epoch}:{name}");
        Self {
            meta: key("meta"),
            buyers: key("buyers"),
            requests: key("requests"),
            journal: key("journal"),
            transfers: key("transfers"),
        }
    }

    /// Those that a purchase changes.
    #[must_use]
    pub fn purchase(&self) -> [&str; 4] {
        [&self.meta, &self.buyers, &self.requests, &self.journal]
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> [&str; 5] {
        [
            &self.meta,
            &self.buyers,
            &self.requests,
            &self.journal,
            &self.transfers,
        ]
    }
}

/// The lock of those who borrow for a segment. It shares the segment's slot and outlives its epochs.
#[must_use]
pub fn borrow_lock(sale: SaleId, segment: u32) -> String {
    format!("stockade:{HOME_HASH_VERSION}:{{{sale}.{segment}}}:lock:borrow")
}

/// The lock of those who gather a sale's last, scattered units.
#[must_use]
pub fn gather_lock(sale: SaleId) -> String {
    format!("stockade:{HOME_HASH_VERSION}:{{{sale}}}:lock:gather")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_segment_share_a_hash_tag_and_carry_the_epoch() {
        let sale = SaleId::new(12).unwrap();
        let keys = SegmentKeys::new(sale, 3, 7);
        assert_eq!(keys.meta, "stockade:1:{12.3}:7:meta");
        for key in keys.all() {
            assert!(key.starts_with("stockade:1:{12.3}:7:"), "{key}");
        }
    }
}
