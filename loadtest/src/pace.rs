//! When buyers want to start.
//!
//! A pace is an iterator of *intended* instants, fixed before the run. Latency counts from them:
//! a service that stalls for a second delays everybody who wanted to start in that second, also
//! those whom a stalled load tool had not got round to sending. To count from the actual sending
//! would leave them out (the "coordinated omission" of load tools).

use std::num::NonZeroU32;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// A rate: starts in a second.
pub type PerSecond = NonZeroU32;

/// The shape of the demand over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Everybody at the first instant: the load is as fast as answers come (a closed loop).
    AtOnce,
    /// Evenly spaced.
    Constant {
        /// The rate.
        rate: PerSecond,
    },
    /// Independently of each other, as strangers come.
    Poisson {
        /// The mean rate.
        rate: PerSecond,
    },
    /// Evenly spaced at a low rate, but for a while at a high one.
    Spike {
        /// The rate before and after.
        base: PerSecond,
        /// The rate of the spike.
        peak: PerSecond,
        /// When the spike begins.
        from: Duration,
        /// How long it lasts.
        lasts: Duration,
    },
}

impl Pace {
    /// The intended starts, counted from the beginning of the run, never falling, without end. The
    /// same seed gives the same starts.
    #[must_use]
    pub fn starts(self, seed: u64) -> Starts {
        Starts {
            pace: self,
            rng: StdRng::seed_from_u64(seed),
            count: 0,
            last_seconds: 0.0,
        }
    }
}

/// The iterator of [`Pace::starts`].
#[derive(Debug, Clone)]
pub struct Starts {
    pace: Pace,
    rng: StdRng,
    count: u32,
    last_seconds: f64,
}

impl Iterator for Starts {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let number = f64::from(self.count);
        self.count = self.count.saturating_add(1);
        let seconds = match self.pace {
            Pace::AtOnce => 0.0,
            // From the number, not from the last: so that no error adds up.
            Pace::Constant { rate } => number / per_second(rate),
            Pace::Poisson { rate } => {
                // Gaps between independent arrivals are distributed exponentially.
                let uniform: f64 = self.rng.random();
                self.last_seconds - (1.0 - uniform).ln() / per_second(rate)
            }
            Pace::Spike {
                base,
                peak,
                from,
                lasts,
            } => {
                let (base, peak) = (per_second(base), per_second(peak));
                let (from, lasts) = (from.as_secs_f64(), lasts.as_secs_f64());
                let before = base * from;
                let within = before + peak * lasts;
                if number <= before {
                    number / base
                } else if number <= within {
                    from + (number - before) / peak
                } else {
                    from + lasts + (number - within) / base
                }
            }
        };
        self.last_seconds = seconds;
        Some(Duration::from_secs_f64(seconds))
    }
}

fn per_second(rate: PerSecond) -> f64 {
    f64::from(rate.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32) -> PerSecond {
        PerSecond::new(per_second).unwrap()
    }

    fn millis(pace: Pace, count: usize) -> Vec<u128> {
        pace.starts(1)
            .take(count)
            .map(|start| start.as_millis())
            .collect()
    }

    #[test]
    fn all_start_at_once_or_evenly_spaced() {
        assert_eq!(millis(Pace::AtOnce, 3), [0, 0, 0]);
        assert_eq!(
            millis(Pace::Constant { rate: rate(4) }, 5),
            [0, 250, 500, 750, 1000]
        );
    }

    #[test]
    fn a_constant_pace_does_not_drift() {
        let last = Pace::Constant { rate: rate(3) }
            .starts(1)
            .nth(3_000_000)
            .unwrap();
        assert_eq!(last, Duration::from_secs(1_000_000));
    }

    #[test]
    fn a_spike_is_steep_only_while_it_lasts() {
        let (from, lasts) = (Duration::from_secs(1), Duration::from_millis(10));
        let pace = Pace::Spike {
            base: rate(2),
            peak: rate(1000),
            from,
            lasts,
        };
        let starts = millis(pace, 16);
        assert_eq!(starts[..4], [0, 500, 1000, 1001]);
        assert_eq!(starts[12..], [1010, 1510, 2010, 2510]);
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_their_rate() {
        let starts: Vec<f64> = Pace::Poisson { rate: rate(1000) }
            .starts(1)
            .take(100_000)
            .map(|start| start.as_secs_f64())
            .collect();
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let count = f64::from(u32::try_from(gaps.len()).unwrap());
        let mean = gaps.iter().sum::<f64>() / count;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count).sqrt();
        assert!((mean * 1000.0 - 1.0).abs() < 0.02, "mean gap {mean}");
        assert!(
            (deviation / mean - 1.0).abs() < 0.02,
            "deviation {deviation}, mean {mean}"
        );
    }

    #[test]
    fn the_seed_decides() {
        let pace = Pace::Poisson { rate: rate(10) };
        let starts = |seed| pace.starts(seed).take(20).collect::<Vec<_>>();
        assert_eq!(starts(1), starts(1));
        assert_ne!(starts(1), starts(2));
    }
}
