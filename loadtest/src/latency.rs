//! Latency, twice: as the buyers felt it, and as the service caused it.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::worker::Purchase;

/// Percentiles that a report shows.
pub const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];
/// Longer ones count as this: 10 minutes, in microseconds.
const HIGHEST_US: u64 = 600_000_000;
/// Digits to which a value is exact.
const DIGITS: u8 = 3;

/// Two distributions over the same purchases.
#[derive(Debug, Clone)]
pub struct Latency {
    /// From the intended start to the final answer, waiting and retries included.
    pub response: Histogram<u64>,
    /// From sending the last attempt to its answer.
    pub service: Histogram<u64>,
}

impl Latency {
    /// The latency of these purchases.
    pub(crate) fn of<'a>(purchases: impl Iterator<Item = &'a Purchase>) -> Self {
        let mut latency = Self {
            response: histogram(),
            service: histogram(),
        };
        for purchase in purchases {
            latency
                .response
                .saturating_record(micros(purchase.response_time));
            latency
                .service
                .saturating_record(micros(purchase.service_time));
        }
        latency
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(HIGHEST_US, DIGITS).expect("the bounds are constants and fit")
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
