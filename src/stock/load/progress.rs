//! How far a load has come, for people who wait for it.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// What a loader is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// No load is under way here.
    Idle,
    /// Ending the old epoch in every segment.
    Sealing,
    /// Taking what the old journals hold into the ledger.
    Adopting,
    /// Reading from the ledger what is to be loaded.
    Reading,
    /// Writing the segments.
    Writing,
    /// Telling the ledger that it is done.
    Opening,
}

impl Step {
    const ALL: [Self; 6] = [
        Self::Idle,
        Self::Sealing,
        Self::Adopting,
        Self::Reading,
        Self::Writing,
        Self::Opening,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Idle => "waiting for another instance, or for the next attempt",
            Self::Sealing => "sealing the old segments",
            Self::Adopting => "adopting what the old journals hold",
            Self::Reading => "reading the ledger",
            Self::Writing => "writing segments",
            Self::Opening => "opening",
        }
    }
}

/// A load's step, and how many parts of it are done. Read at any time from anywhere.
#[derive(Debug, Default)]
pub struct Progress {
    step: AtomicU8,
    done: AtomicU32,
    parts: AtomicU32,
}

impl Progress {
    pub(super) fn begin(&self, step: Step, parts: u32) {
        self.done.store(0, Ordering::Relaxed);
        self.parts.store(parts, Ordering::Relaxed);
        self.step.store(step as u8, Ordering::Relaxed);
    }

    pub(super) fn part_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// The step.
    #[must_use]
    pub fn step(&self) -> Step {
        Step::ALL[usize::from(self.step.load(Ordering::Relaxed))]
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.step().word())?;
        match self.parts.load(Ordering::Relaxed) {
            0 => Ok(()),
            parts => write!(f, ", {} of {parts}", self.done.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_words() {
        let progress = Progress::default();
        assert_eq!(progress.step(), Step::Idle);
        for step in Step::ALL {
            progress.begin(step, 0);
            assert_eq!(progress.step(), step);
        }
        progress.begin(Step::Writing, 64);
        progress.part_done();
        assert_eq!(progress.to_string(), "writing segments, 1 of 64");
    }
}
