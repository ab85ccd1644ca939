//! How often one buyer may send purchases to one instance.
//!
//! It keeps one script that hammers the service from taking everybody's share. It is no rule of the
//! sale: limits per buyer are counted in Redis and in the ledger.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::{Code, Problem};
use crate::domain::BuyerId;

/// Above this number of known buyers, those whose allowance is full again are forgotten.
const BUYERS_KEPT: usize = 16_384;
/// Purchases between two looks at the number of known buyers.
const PURCHASES_PER_LOOK: u64 = 1_024;

/// A bucket for each buyer: it fills at the given rate and holds two seconds' worth.
///
/// Memory is bounded by `BUYERS_KEPT` and the buyers who came within the last two seconds.
#[derive(Debug)]
pub struct BuyerRate {
    buckets: DefaultKeyedRateLimiter<BuyerId>,
    clock: DefaultClock,
    purchases: AtomicU64,
}

impl BuyerRate {
    /// Lets each buyer send this many purchases a second, and twice as many at once.
    #[must_use]
    pub fn new(requests_per_second: NonZeroU32) -> Self {
        let burst = requests_per_second.saturating_mul(NonZeroU32::MIN.saturating_add(1));
        let quota = Quota::per_second(requests_per_second).allow_burst(burst);
        Self {
            buckets: RateLimiter::keyed(quota),
            clock: DefaultClock::default(),
            purchases: AtomicU64::new(0),
        }
    }

    /// Counts one purchase of this buyer.
    ///
    /// # Errors
    /// [`Code::TooManyRequests`] with the seconds until the next one is taken.
    pub fn admit(&self, buyer: &BuyerId) -> Result<(), Problem> {
        let count = self.purchases.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(PURCHASES_PER_LOOK) && self.buckets.len() > BUYERS_KEPT {
            self.buckets.retain_recent();
        }
        self.buckets.check_key(buyer).map_err(|early| {
            let wait = early.wait_time_from(self.clock.now());
            // Whole seconds, rounded up: none would invite the client back at once.
            let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
            Problem::plain(Code::TooManyRequests).retry_after(seconds)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buyer(n: usize) -> BuyerId {
        BuyerId::parse(&format!("buyer-{n}")).unwrap()
    }

    #[test]
    fn a_buyer_may_burst_twice_the_rate_and_does_not_touch_others() {
        let rate = BuyerRate::new(NonZeroU32::MIN);
        assert!(rate.admit(&buyer(1)).is_ok());
        assert!(rate.admit(&buyer(1)).is_ok());
        let refused = rate.admit(&buyer(1)).expect_err("the third at once");
        assert_eq!(refused.code, Code::TooManyRequests);
        assert!(rate.admit(&buyer(2)).is_ok());
    }

    #[test]
    fn buyers_who_have_gone_are_forgotten() {
        // A bucket that fills in two microseconds: everybody has gone at once.
        let rate = BuyerRate::new(NonZeroU32::new(1_000_000).unwrap());
        for n in 0..BUYERS_KEPT * 3 {
            assert!(rate.admit(&buyer(n)).is_ok());
        }
        let kept = rate.buckets.len();
        let most = BUYERS_KEPT + usize::try_from(PURCHASES_PER_LOOK).unwrap();
        assert!(kept <= most, "{kept} buyers are kept");
    }
}
