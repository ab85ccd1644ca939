//! What a run shall do, and the purchases that follow from it.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use uuid::Builder;

use crate::api::NewSale;
use crate::pace::Pace;

/// The most purchases of one run: all are kept until they have been judged.
const PURCHASES_MAX: u64 = 2_000_000;
/// The most connections of one run; each needs a file descriptor here and another in the service.
const CONNECTIONS_MAX: usize = 4_096;

/// One sale and the demand for it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The sale to create.
    pub sale: NewSale,
    /// How many buyers there are.
    pub buyers: u32,
    /// Purchases that each buyer tries, each under a key of its own.
    pub purchases_per_buyer: u32,
    /// Units of a purchase, drawn evenly from this range.
    pub quantities: RangeInclusive<u32>,
    /// When they want to start.
    pub pace: Pace,
    /// Connections that carry them; one connection carries many buyers, one after the other.
    pub connections: usize,
    /// Whether buyers are content with 202.
    pub respond_async: bool,
    /// How long one attempt waits for its answer.
    pub request_timeout: Duration,
    /// How long a buyer goes on retrying, under the same key, until there is a final answer.
    pub patience: Duration,
    /// Whether every accepted purchase is sent once more at the end: it must name the same order.
    pub replay: bool,
    /// How long purchases may take to settle (to leave the journal, to return) before the judging.
    pub settle: Duration,
    /// Decides quantities, keys, the order of the buyers and the pace.
    pub seed: u64,
}

impl Default for Scenario {
    /// 2,000 buyers at once for 100 units, over 256 connections.
    fn default() -> Self {
        Self {
            sale: NewSale::default(),
            buyers: 2_000,
            purchases_per_buyer: 1,
            quantities: 1..=1,
            pace: Pace::AtOnce,
            connections: 256,
            respond_async: false,
            request_timeout: Duration::from_secs(10),
            patience: Duration::from_secs(60),
            replay: false,
            settle: Duration::from_secs(20),
            seed: 1,
        }
    }
}

/// A purchase that somebody wants to make.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Who.
    pub buyer: String,
    /// The idempotency key.
    pub key: String,
    /// Units.
    pub quantity: u32,
    /// When it shall start, counted from the beginning of the run.
    pub start: Duration,
}

impl Scenario {
    /// Refuses what could not be run.
    ///
    /// # Errors
    /// Names the bound that is broken.
    pub fn check(&self) -> Result<()> {
        let purchases = u64::from(self.buyers) * u64::from(self.purchases_per_buyer);
        ensure!(purchases > 0, "there must be a buyer and a purchase");
        ensure!(
            purchases <= PURCHASES_MAX,
            "{purchases} purchases are over {PURCHASES_MAX}"
        );
        let connections = 1..=CONNECTIONS_MAX;
        ensure!(
            connections.contains(&self.connections),
            "connections must be in {connections:?}"
        );
        let (low, high) = (*self.quantities.start(), *self.quantities.end());
        ensure!(
            low >= 1 && low <= high,
            "quantities {low} to {high} are not a range from 1"
        );
        Ok(())
    }

    /// All purchases, in the order of their starts. The same seed gives the same.
    #[must_use]
    pub fn wishes(&self) -> Vec<Wish> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut wishes = Vec::new();
        for _ in 0..self.purchases_per_buyer {
            for buyer in 1..=self.buyers {
                let key = Builder::from_random_bytes(rng.random())
                    .into_uuid()
                    .to_string();
                let quantity = rng.random_range(self.quantities.clone());
                let buyer = format!("buyer-{buyer:05}");
                wishes.push(Wish {
                    buyer,
                    key,
                    quantity,
                    start: Duration::ZERO,
                });
            }
        }
        // Buyers come in no particular order, and one buyer's purchases not one after the other.
        rand::seq::SliceRandom::shuffle(wishes.as_mut_slice(), &mut rng);
        for (wish, start) in wishes.iter_mut().zip(self.pace.starts(self.seed)) {
            wish.start = start;
        }
        wishes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn wishes_are_as_many_as_asked_for_with_keys_and_quantities_of_their_own() {
        let scenario = Scenario {
            purchases_per_buyer: 2,
            quantities: 1..=3,
            ..Scenario::default()
        };
        let wishes = scenario.wishes();
        assert_eq!(wishes.len(), 4_000);
        let keys: BTreeSet<_> = wishes.iter().map(|wish| &wish.key).collect();
        assert_eq!(keys.len(), 4_000);
        let buyers: BTreeSet<_> = wishes.iter().map(|wish| &wish.buyer).collect();
        assert_eq!(buyers.len(), 2_000);
        let quantities: BTreeSet<_> = wishes.iter().map(|wish| wish.quantity).collect();
        assert_eq!(quantities, BTreeSet::from([1, 2, 3]));
        assert_eq!(
            wishes[17].key,
            scenario.wishes()[17].key,
            "the seed decides"
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let good = Scenario::default();
        assert!(good.check().is_ok());
        let bad = [
            Scenario {
                buyers: 0,
                ..good.clone()
            },
            Scenario {
                buyers: 3_000_000,
                ..good.clone()
            },
            Scenario {
                connections: 0,
                ..good.clone()
            },
            Scenario {
                connections: 10_000,
                ..good.clone()
            },
            Scenario {
                quantities: 0..=1,
                ..good.clone()
            },
            #[expect(
                clippy::reversed_empty_ranges,
                reason = "that is the mistake to be refused"
            )]
            Scenario {
                quantities: 3..=2,
                ..good
            },
        ];
        for scenario in bad {
            assert!(scenario.check().is_err(), "{scenario:?}");
        }
    }
}
