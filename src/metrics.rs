//! Metrics, as one struct in a registry of its own: several apps in one process do not mix.
//!
//! A field's doc is its help text: both are made from the same words by the macro below.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::domain::{Outcome, Refusal, Unavailable};

/// From half a millisecond (a lone purchase on an idle machine) to ten seconds (longer than any
/// limit on waiting), each about twice the one before: percentiles read from them are within a
/// factor of two.
const SECONDS_BUCKETS: [f64; 14] = [
    0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 4.0, 10.0,
];
/// Powers of two up to the largest batch: under load a batch is as large as what came during the
/// one before, so its size shows the load.
const BATCH_BUCKETS: [f64; 11] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_000.0,
];

/// Statuses that a purchase can be answered with.
const PURCHASE_STATUSES: [u16; 15] = [
    201, 202, 400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 429, 500, 503,
];
/// The purchase's route.
const PURCHASE_ROUTE: &str = "/v1/sales/{sale}/purchases";

type Count = Counter<u64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Arc<str>,
    method: &'static str,
    status: u16,
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS_BUCKETS)
}

fn batch() -> Histogram {
    Histogram::new(BATCH_BUCKETS)
}

/// Declares the struct and registers each field under the words of its doc.
macro_rules! families {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ty = $name:literal, $new:expr;)+) => {
        #[derive(Debug)]
        struct Families {
            $($(#[doc = $help])+ $field: $kind,)+
        }

        impl Families {
            fn register(registry: &mut Registry) -> Self {
                $(
                    let $field: $kind = $new;
                    // The registry adds the full stop.
                    let help = concat!($($help),+).trim().trim_end_matches('.');
                    registry.register($name, help, $field.clone());
                )+
                Self { $($field,)+ }
            }
        }
    };
}

families! {
    /// Purchases by how they ended.
    purchases: Family<OutcomeLabels, Count> = "purchases", Family::default();
    /// Seconds from a parsed purchase to its outcome.
    purchase_seconds: Histogram = "purchase_seconds", seconds();
    /// HTTP requests by route, method and status.
    requests: Family<RequestLabels, Count> = "http_requests", Family::default();
    /// HTTP requests that are not answered yet.
    requests_in_flight: Gauge = "http_requests_in_flight", Gauge::default();
    /// Purchases in one call of the script in Redis.
    flush_size: Histogram = "redis_flush_size", batch();
    /// Seconds that one call of the script in Redis took.
    flush_seconds: Histogram = "redis_flush_seconds", seconds();
    /// Purchases in one transaction of the ledger.
    commit_size: Histogram = "ledger_commit_size", batch();
    /// Seconds that one transaction of the ledger took.
    commit_seconds: Histogram = "ledger_commit_seconds", seconds();
    /// Purchases that are queued, at Redis or on their way to the ledger.
    backlog: Gauge = "backlog", Gauge::default();
    /// Journal entries that were finished for a writer who had not.
    journal_swept: Count = "journal_swept", Counter::default();
    /// Units moved between segments of a sale.
    units_transferred: Count = "units_transferred", Counter::default();
    /// Transfers that were finished for whoever had not.
    transfers_finished: Count = "transfers_finished", Counter::default();
    /// Transfers that did not end here: somebody finishes them, if they began.
    transfers_failed: Count = "transfers_failed", Counter::default();
    /// Returns of ended orders that were put back into stock.
    returns_applied: Count = "returns_applied", Counter::default();
    /// Loads of a sale's stock into Redis that became necessary, by what made them so.
    loads_needed: Family<CauseLabels, Count> = "loads_needed", Family::default();
    /// Loads of a sale's stock into Redis that this instance is at.
    loads_under_way: Gauge = "loads_under_way", Gauge::default();
    /// Seconds that one load of a sale's stock into Redis took.
    load_seconds: Histogram = "load_seconds", seconds();
    /// Holds that ended without payment.
    holds_expired: Count = "holds_expired", Counter::default();
    /// Purchases that were sent to Redis again because their outcome was unknown.
    unknown_resent: Count = "unknown_resent", Counter::default();
    /// Commits that were tried again because the ledger did not answer.
    commits_retried: Count = "ledger_commits_retried", Counter::default();
    /// Purchases that were bought again because a newer epoch had begun.
    fenced: Count = "purchases_fenced", Counter::default();
    /// Admitted purchases that were recorded as rejected.
    rejected: Count = "purchases_rejected", Counter::default();
    /// Rounds of the upkeep that did not end, and are repeated.
    upkeep_failed: Count = "upkeep_failed", Counter::default();
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    /// Resolved once: a purchase looks up no table of labels.
    purchases: [Count; PurchaseOutcome::ALL.len()],
    /// The same for the statuses of the purchase's route.
    purchase_statuses: [Count; PURCHASE_STATUSES.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("stockade");
        let families = Families::register(&mut registry);
        let purchases = PurchaseOutcome::ALL.map(|outcome| {
            let outcome = outcome.as_str();
            families
                .purchases
                .get_or_create_owned(&OutcomeLabels { outcome })
        });
        let route: Arc<str> = PURCHASE_ROUTE.into();
        let purchase_statuses = PURCHASE_STATUSES.map(|status| {
            families.requests.get_or_create_owned(&RequestLabels {
                route: Arc::clone(&route),
                method: "POST",
                status,
            })
        });
        Self {
            registry,
            families,
            purchases,
            purchase_statuses,
        }
    }

    /// The text that Prometheus reads.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }

    /// A purchase has ended.
    pub fn purchase(&self, outcome: PurchaseOutcome, took: Duration) {
        self.purchases[outcome as usize].inc();
        self.families.purchase_seconds.observe(took.as_secs_f64());
    }

    /// The purchase's route has answered.
    pub fn purchase_answered(&self, status: u16) {
        match PURCHASE_STATUSES.iter().position(|known| *known == status) {
            Some(index) => {
                self.purchase_statuses[index].inc();
            }
            None => self.request(&PURCHASE_ROUTE.into(), "POST", status),
        }
    }

    /// A route has answered. `method` must come from a closed set.
    pub fn request(&self, route: &Arc<str>, method: &'static str, status: u16) {
        let labels = RequestLabels {
            route: Arc::clone(route),
            method,
            status,
        };
        self.families.requests.get_or_create(&labels).inc();
    }

    /// A request has come; it is in flight until the guard is dropped, also by a panic or a client
    /// that goes away.
    #[must_use]
    pub fn request_begins(&self) -> InFlight<'_> {
        self.families.requests_in_flight.inc();
        InFlight(&self.families.requests_in_flight)
    }

    /// A load of stock has begun; it counts as under way until the guard is dropped.
    pub fn load_begins(&self) -> InFlight<'_> {
        self.families.loads_under_way.inc();
        InFlight(&self.families.loads_under_way)
    }

    /// A batch of purchases has been through Redis.
    pub fn flushed(&self, purchases: usize, took: Duration) {
        self.families.flush_size.observe(purchases as f64);
        self.families.flush_seconds.observe(took.as_secs_f64());
    }

    /// A group of purchases has been committed.
    pub fn committed(&self, purchases: usize, took: Duration) {
        self.families.commit_size.observe(purchases as f64);
        self.families.commit_seconds.observe(took.as_secs_f64());
    }

    /// This many purchases are being worked on.
    pub fn backlog(&self, purchases: usize) {
        let purchases = i64::try_from(purchases).unwrap_or(i64::MAX);
        self.families.backlog.set(purchases);
    }

    /// Journal entries were finished for a writer who had not.
    pub fn journal_swept(&self, entries: u64) {
        self.families.journal_swept.inc_by(entries);
    }

    /// Units were moved between segments.
    pub fn transferred(&self, units: u64) {
        self.families.units_transferred.inc_by(units);
    }

    /// A transfer was finished for whoever had not.
    pub fn transfer_finished(&self) {
        self.families.transfers_finished.inc();
    }

    /// A transfer did not end here.
    pub fn transfer_failed(&self) {
        self.families.transfers_failed.inc();
    }

    /// Returns were put back into stock.
    pub fn returns_applied(&self, returns: u64) {
        self.families.returns_applied.inc_by(returns);
    }

    /// A sale's stock must be loaded. `cause` must come from a closed set.
    pub fn load_needed(&self, cause: &'static str) {
        let labels = CauseLabels { cause };
        self.families.loads_needed.get_or_create(&labels).inc();
    }

    /// A sale's stock was loaded.
    pub fn loaded(&self, took: Duration) {
        self.families.load_seconds.observe(took.as_secs_f64());
    }

    /// A commit is tried again.
    pub fn commit_retried(&self) {
        self.families.commits_retried.inc();
    }

    /// A purchase is bought again under a newer epoch.
    pub fn fenced(&self) {
        self.families.fenced.inc();
    }

    /// An admitted purchase was recorded as rejected.
    pub fn rejected(&self) {
        self.families.rejected.inc();
    }

    /// A round of the upkeep did not end.
    pub fn upkeep_failed(&self) {
        self.families.upkeep_failed.inc();
    }

    /// Holds have ended without payment.
    pub fn holds_expired(&self, holds: u64) {
        self.families.holds_expired.inc_by(holds);
    }

    /// Purchases of unknown outcome were sent again.
    pub fn unknown_resent(&self, purchases: u64) {
        self.families.unknown_resent.inc_by(purchases);
    }
}

/// Counts a request as in flight as long as it lives.
#[derive(Debug)]
pub struct InFlight<'a>(&'a Gauge);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// How a purchase ends, as a label; the words are those of the problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what the outcome of that name says")]
pub enum PurchaseOutcome {
    Committed,
    Replayed,
    Admitted,
    SoldOut,
    Insufficient,
    Held,
    LimitReached,
    NotOpen,
    Closed,
    KeyReused,
    Void,
    Rejected,
    Overloaded,
    Loading,
    OutcomeUnknown,
    Unavailable,
    /// No such sale, or a defect.
    Failed,
}

impl PurchaseOutcome {
    /// Every outcome, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Committed,
        Self::Replayed,
        Self::Admitted,
        Self::SoldOut,
        Self::Insufficient,
        Self::Held,
        Self::LimitReached,
        Self::NotOpen,
        Self::Closed,
        Self::KeyReused,
        Self::Void,
        Self::Rejected,
        Self::Overloaded,
        Self::Loading,
        Self::OutcomeUnknown,
        Self::Unavailable,
        Self::Failed,
    ];

    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Replayed => "replayed",
            Self::Admitted => "admitted",
            Self::SoldOut => "sold-out",
            Self::Insufficient => "insufficient",
            Self::Held => "held",
            Self::LimitReached => "limit-reached",
            Self::NotOpen => "not-open",
            Self::Closed => "closed",
            Self::KeyReused => "key-reused",
            Self::Void => "void",
            Self::Rejected => "rejected",
            Self::Overloaded => "overloaded",
            Self::Loading => "loading",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
        }
    }

    /// The label of an outcome.
    #[must_use]
    pub const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Committed { replayed: true, .. } => Self::Replayed,
            Outcome::Committed { .. } => Self::Committed,
            Outcome::Admitted(_) => Self::Admitted,
            Outcome::Refused(refusal) => match refusal {
                Refusal::SoldOut => Self::SoldOut,
                Refusal::Insufficient { .. } => Self::Insufficient,
                Refusal::Held { .. } => Self::Held,
                Refusal::LimitReached { .. } => Self::LimitReached,
                Refusal::NotOpen { .. } => Self::NotOpen,
                Refusal::Closed => Self::Closed,
                Refusal::KeyReused { .. } => Self::KeyReused,
                Refusal::Void => Self::Void,
                Refusal::Rejected => Self::Rejected,
            },
            Outcome::Unavailable(unavailable) => match unavailable {
                Unavailable::Overloaded => Self::Overloaded,
                Unavailable::Loading => Self::Loading,
                Unavailable::OutcomeUnknown => Self::OutcomeUnknown,
                Unavailable::Unreachable => Self::Unavailable,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_numbered_in_the_order_of_their_counters() {
        for (index, outcome) in PurchaseOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index, "{outcome:?}");
        }
    }

    #[test]
    fn what_was_counted_is_read_with_its_help() {
        let metrics = Metrics::new();
        metrics.purchase(PurchaseOutcome::SoldOut, Duration::from_millis(3));
        metrics.purchase_answered(409);
        metrics.request(&"/healthz".into(), "GET", 200);
        metrics.load_needed("not-loaded");
        metrics.loaded(Duration::from_millis(5));
        metrics.backlog(7);
        let text = metrics.encode();
        for line in [
            "# HELP stockade_purchases Purchases by how they ended.",
            "stockade_purchases_total{outcome=\"sold-out\"} 1",
            "stockade_purchase_seconds_bucket{le=\"0.004\"} 1",
            "stockade_http_requests_total{route=\"/healthz\",method=\"GET\",status=\"200\"} 1",
            "stockade_loads_needed_total{cause=\"not-loaded\"} 1",
            "stockade_backlog 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_request_is_in_flight_until_its_guard_goes() {
        let metrics = Metrics::new();
        let guard = metrics.request_begins();
        assert_eq!(metrics.families.requests_in_flight.get(), 1);
        drop(guard);
        assert_eq!(metrics.families.requests_in_flight.get(), 0);
    }
}
