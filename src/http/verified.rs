//! Tokens whose signature was found good a moment ago.
//!
//! To check an Ed25519 signature costs three times as much as all the rest of a request, and a buyer
//! comes again with the same token: to retry, to look at the order. HS256 costs less than a third of
//! the rest, and is checked each time: nothing is remembered without need.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::domain::BuyerId;

/// Parts of the memory, so that threads seldom wait for each other.
const SHARDS: usize = 16;
/// Tokens of a shard; a full shard is emptied. All of them together are about ten megabytes.
const SHARD_TOKENS_MAX: usize = 4_096;

/// SHA-256 of a token. Nobody finds a second token with the hash of a good one, and tokens
/// themselves are not kept.
pub(super) type Hash = [u8; 32];

/// The buyers of good tokens, and until when they are good, in seconds since 1970.
#[derive(Default)]
pub(super) struct Verified {
    shards: [Mutex<HashMap<Hash, (BuyerId, u64)>>; SHARDS],
}

pub(super) fn hash(token: &str) -> Hash {
    Sha256::digest(token).into()
}

impl Verified {
    /// Whose token this is, if it was found good and has not expired since.
    pub(super) fn buyer(&self, hash: &Hash, now: u64) -> Option<BuyerId> {
        let shard = self.shard(hash);
        let known = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let (buyer, good_until) = known.get(hash)?;
        (now <= *good_until).then(|| buyer.clone())
    }

    /// Remembers a good token.
    pub(super) fn remember(&self, hash: Hash, buyer: BuyerId, good_until: u64) {
        let shard = self.shard(&hash);
        let mut known = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SHARD_TOKENS_MAX {
            known.clear();
        }
        known.insert(hash, (buyer, good_until));
    }

    fn shard(&self, hash: &Hash) -> &Mutex<HashMap<Hash, (BuyerId, u64)>> {
        &self.shards[usize::from(hash[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> BuyerId {
        BuyerId::parse("alice").unwrap()
    }

    #[test]
    fn a_token_is_known_until_it_expires_and_no_other_is() {
        let verified = Verified::default();
        verified.remember(hash("good"), alice(), 100);
        assert_eq!(verified.buyer(&hash("good"), 100), Some(alice()));
        assert_eq!(verified.buyer(&hash("good"), 101), None);
        assert_eq!(verified.buyer(&hash("Good"), 0), None);
    }

    #[test]
    fn it_remembers_no_more_than_it_may() {
        let verified = Verified::default();
        for n in 0..2 * SHARDS * SHARD_TOKENS_MAX {
            verified.remember(hash(&n.to_string()), alice(), 100);
        }
        let kept = verified
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap().len());
        assert!(kept.max() <= Some(SHARD_TOKENS_MAX));
    }
}
