//! Points at which a test can make the process die, as `kill -9` would.
//!
//! Only with the feature `crash-points`, which no release has: `STOCKADE_CRASH_AT=label` ends the process
//! when it first passes that point, `label:3` when it passes it for the third time.

/// Marks a point at which a test can end the process; nothing at all without the feature.
#[macro_export]
macro_rules! crash_point {
    ($label:literal) => {
        #[cfg(feature = "crash-points")]
        $crate::crash::pass($label);
    };
}

/// Every label in the source; a test kills the service at each.
#[cfg(feature = "crash-points")]
pub const POINTS: [&str; 15] = [
    "purchase:decided",
    "commit:before",
    "commit:done",
    "settle:before",
    "return:before",
    "return:applied",
    "transfer:lent",
    "transfer:received",
    "transfer:settled",
    "load:fenced",
    "load:sealed",
    "load:adopted",
    "load:read",
    "load:written",
    "load:finished",
];

/// Ends the process if the environment asks for it here and now.
///
/// # Panics
/// If the label is not in [`POINTS`], so that none is forgotten by the tests.
#[cfg(feature = "crash-points")]
pub fn pass(label: &'static str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ORDER: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let order = std::env::var("STOCKADE_CRASH_AT").ok()?;
        Some(
            match order
                .rsplit_once(':')
                .and_then(|(l, n)| Some((l, n.parse().ok()?)))
            {
                Some((label, count)) => (label.to_owned(), count),
                None => (order, 1),
            },
        )
    });
    static PASSED: AtomicU64 = AtomicU64::new(0);

    assert!(POINTS.contains(&label), "{label} is not in crash::POINTS");
    if let Some((at, count)) = &*ORDER
        && at == label
        && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *count
    {
        use std::io::Write as _;
        let _ = writeln!(
            std::io::stderr(),
            "crash point {label} reached: ending the process"
        );
        std::process::abort();
    }
}
