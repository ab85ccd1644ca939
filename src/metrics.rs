//! stub
use std::time::Duration;
#[derive(Debug, Default)]
/// x
pub struct Metrics;
/// Why the stock of a sale must be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadCause {
    /// a
    NotLoaded,
    /// b
    Sealed,
    /// c
    GuardRefused,
    /// d
    MarkMissing,
}
impl LoadCause {
    /// x
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotLoaded => "not-loaded",
            Self::Sealed => "sealed",
            Self::GuardRefused => "guard-refused",
            Self::MarkMissing => "mark-missing",
        }
    }
}
impl Metrics {
    /// x
    pub fn load_needed(&self, _c: LoadCause) {}
    /// x
    pub fn load_done(&self, _d: Duration) {}
    /// x
    pub fn purchase_batch(&self, _n: usize, _d: Duration) {}
    /// x
    pub fn commit_batch(&self, _n: usize, _d: Duration) {}
    /// x
    pub fn redis_failed(&self, _not_run: bool) {}
    /// x
    pub fn ledger_failed(&self) {}
    /// x
    pub fn fenced(&self) {}
    /// x
    pub fn rejected(&self) {}
    /// x
    pub fn upkeep_failed(&self) {}
    /// x
    pub fn journal_swept(&self) {}
    /// x
    pub fn holds_expired(&self, _n: usize) {}
    /// x
    pub fn returns_applied(&self, _n: usize) {}
}
