//! Counting the stock of all segments, so that "there is not enough" is true.
//!
//! The segments lie in different slots, perhaps on different nodes, and cannot be read in one instant.
//! They are read twice. Between two loads, stock only rises by a transfer or a return, and each of these
//! raises the segment's version. So if no version has changed and nothing is in transfer, then at every
//! moment between the two readings each segment had at most what the first one saw. (The double collect
//! of atomic snapshots: Afek et al., "Atomic Snapshots of Shared Memory", JACM 40(4), 1993.)

use super::scripts::{Figures, Presence};

/// One reading of all segments of a sale under one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading(Vec<Figures>);

impl Reading {
    /// The segments' figures, in the order of their numbers.
    #[must_use]
    pub const fn of(figures: Vec<Figures>) -> Self {
        Self(figures)
    }

    /// The segments' figures.
    #[must_use]
    pub fn segments(&self) -> &[Figures] {
        &self.0
    }

    /// The first segment that is not there, if any: then the reading says nothing.
    #[must_use]
    pub fn not_there(&self) -> Option<Presence> {
        let mut presences = self.0.iter().map(|one| one.presence);
        presences.find(|presence| *presence != Presence::Loaded)
    }

    /// Units that purchases could take.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.0.iter().map(|one| one.available).sum()
    }

    /// Segments that have lent units which may not have arrived.
    #[must_use]
    pub fn lenders(&self) -> Vec<u32> {
        let numbered = (0..).zip(&self.0);
        numbered
            .filter(|(_, one)| one.in_transfer > 0)
            .map(|(number, _)| number)
            .collect()
    }

    /// Whether [`Self::available`] was an upper bound of the stock at a moment between this reading and
    /// `second`, which was begun after this one had ended, under the same epoch.
    #[must_use]
    pub fn stands(&self, second: &Self) -> bool {
        let quiet = |reading: &Self| reading.not_there().is_none() && reading.lenders().is_empty();
        let versions =
            |reading: &Self| -> Vec<u64> { reading.0.iter().map(|one| one.version).collect() };
        quiet(self) && quiet(second) && versions(self) == versions(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(available: u64, version: u64, in_transfer: u64) -> Figures {
        Figures {
            presence: Presence::Loaded,
            now_ms: 0,
            available,
            journaled: 0,
            version,
            control: 0,
            entries: 0,
            in_transfer,
            filled: 0,
            lent: 0,
            borrowed: 0,
        }
    }

    #[test]
    fn a_count_stands_only_if_nothing_rose_in_between() {
        let first = Reading::of(vec![figures(2, 5, 0), figures(1, 7, 0)]);
        let fallen = Reading::of(vec![figures(0, 5, 0), figures(1, 7, 0)]);
        let risen = Reading::of(vec![figures(2, 5, 0), figures(1, 8, 0)]);
        let moving = Reading::of(vec![figures(1, 5, 1), figures(1, 7, 0)]);
        assert_eq!(first.available(), 3);
        assert!(first.stands(&first.clone()) && first.stands(&fallen));
        assert!(!first.stands(&risen), "a return in between");
        assert!(
            !first.stands(&moving) && !moving.stands(&first),
            "a unit on its way"
        );
        let mut lost = first.clone();
        lost.0[1].presence = Presence::Absent;
        assert!(
            !first.stands(&lost) && !lost.stands(&first),
            "a lost segment"
        );
    }
}
