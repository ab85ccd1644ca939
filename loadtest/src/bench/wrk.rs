//! Runs wrk and reads its report.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

/// Threads of the load: it shares the cores with everything else.
const THREADS: u32 = 2;

/// A load to be repeated.
pub(super) struct Wrk {
    pub(super) url: String,
    pub(super) path: String,
    pub(super) script: PathBuf,
    pub(super) connections: u32,
}

/// What one run showed.
pub(super) struct Load {
    pub(super) per_second: f64,
    pub(super) p99_ms: f64,
    pub(super) refused: u64,
}

impl Wrk {
    pub(super) async fn run(&self, duration: Duration) -> Result<Load> {
        let mut command = Command::new("wrk");
        command
            .arg(format!("-t{THREADS}"))
            .arg(format!("-c{}", self.connections))
            .arg(format!("-d{}s", duration.as_secs()))
            .arg("--latency")
            .arg("-s")
            .arg(&self.script)
            .arg(&self.url)
            .arg("--")
            .arg(format!("path={}", self.path))
            .kill_on_drop(true);
        let output = command
            .output()
            .await
            .context("wrk does not run: apt-get install wrk")?;
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "wrk: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        parse(&report).with_context(|| format!("wrk's report has another shape:\n{report}"))
    }
}

fn parse(report: &str) -> Option<Load> {
    let after = |label: &str| {
        let line = report
            .lines()
            .find(|line| line.trim_start().starts_with(label))?;
        Some(line.trim_start()[label.len()..].trim())
    };
    Some(Load {
        per_second: after("Requests/sec:")?.parse().ok()?,
        p99_ms: milliseconds(after("99%")?)?,
        refused: match after("Non-2xx or 3xx responses:") {
            Some(count) => count.parse().ok()?,
            None => 0,
        },
    })
}

/// "850.00us", "7.52ms" or "1.20s" in milliseconds.
fn milliseconds(text: &str) -> Option<f64> {
    for (unit, factor) in [("us", 0.001), ("ms", 1.0), ("s", 1_000.0)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<f64>().ok().map(|number| number * factor);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_wrk_is_read() {
        let report = "  Latency Distribution\n     50%    3.10ms\n     99%    7.52ms\n\
                      Non-2xx or 3xx responses: 12\nRequests/sec:  28123.45\n";
        let load = parse(report).unwrap();
        assert_eq!(
            (load.per_second, load.p99_ms, load.refused),
            (28_123.45, 7.52, 12)
        );
        assert!(parse("nothing").is_none());
    }

    #[test]
    fn latencies_are_read_in_any_unit() {
        let read: Vec<_> = ["850.00us", "7.52ms", "1.20s", "x"]
            .map(milliseconds)
            .to_vec();
        assert_eq!(read, [Some(0.85), Some(7.52), Some(1_200.0), None]);
    }
}
