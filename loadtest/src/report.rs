//! A run as a person reads it.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::latency::{Latency, QUANTILES};
use crate::run::RunReport;

/// Findings shown; a service that loses everything would fill pages.
const FINDINGS_SHOWN: usize = 10;

impl fmt::Display for RunReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_sales(formatter)?;
        self.write_speed(formatter)?;
        let terms = &self.books.audit.terms;
        writeln!(formatter, "\n  the books\n    {terms}")?;
        let verdict = format!("{:?}", self.books.audit.verdict).to_lowercase();
        writeln!(formatter, "    the service's own audit: {verdict}")?;
        self.write_verdict(formatter)
    }
}

impl RunReport {
    fn write_sales(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.judgement.tally;
        let quantity = self.books.sale.quantity;
        let mut line = |name: &str, count: i64, more: &str| {
            let count = thousands(count);
            let line = format!("  {name:<14}{count:>10}  {more}");
            writeln!(formatter, "{}", line.trim_end())
        };
        line(
            "sold",
            tally.sold,
            &format!("of {} units", thousands(quantity.into())),
        )?;
        line("oversold", tally.oversold, "")?;
        line("undersold", tally.undersold, "")?;
        line(
            "accepted",
            signed(tally.committed),
            "purchases answered 201",
        )?;
        if tally.admitted > 0 {
            line("admitted", signed(tally.admitted), "purchases answered 202")?;
        }
        for (reason, &count) in &tally.refused {
            line("refused", signed(count), reason)?;
        }
        if tally.turned_away > 0 {
            line(
                "turned away",
                signed(tally.turned_away),
                "never let in (429, 503)",
            )?;
        }
        line("unknown", signed(tally.unknown), "")
    }

    fn write_speed(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.purchases.len();
        let answered = thousands(signed(count));
        let rate = thousands(per_second(count, self.elapsed));
        let elapsed = self.elapsed.as_secs_f64();
        writeln!(
            formatter,
            "\n  {rate} purchases a second ({answered} in {elapsed:.2} s)"
        )?;
        let retries: u32 = self
            .purchases
            .iter()
            .map(|purchase| purchase.attempts - 1)
            .sum();
        if retries > 0 {
            writeln!(
                formatter,
                "  {} attempts were retries",
                thousands(retries.into())
            )?;
        }
        write!(formatter, "\n  {:<24}", "latency in ms")?;
        for (name, _) in QUANTILES {
            write!(formatter, "{name:>10}")?;
        }
        writeln!(formatter)?;
        let rows = [
            ("accepted", &self.accepted_latency),
            ("refused", &self.refused_latency),
        ];
        for (name, Latency { response, service }) in rows {
            write_quantiles(formatter, &format!("{name}, response"), response)?;
            write_quantiles(formatter, &format!("{name}, service"), service)?;
        }
        writeln!(
            formatter,
            "  Response time begins when the buyer wants to buy, service time when the last \
             attempt is sent:\n  the wait for a free connection, and retries, lie between them."
        )
    }

    fn write_verdict(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let judgement = &self.judgement;
        writeln!(formatter, "\n  verdict: {}", judgement.verdict)?;
        for finding in judgement.findings.iter().take(FINDINGS_SHOWN) {
            writeln!(formatter, "    {finding}")?;
        }
        if judgement.findings.len() > FINDINGS_SHOWN {
            let more = judgement.findings.len() - FINDINGS_SHOWN;
            writeln!(formatter, "    and {more} more")?;
        }
        for doubt in &judgement.doubts {
            writeln!(formatter, "    doubtful: {doubt}")?;
        }
        Ok(())
    }
}

fn write_quantiles(
    formatter: &mut fmt::Formatter<'_>,
    name: &str,
    histogram: &Histogram<u64>,
) -> fmt::Result {
    if histogram.is_empty() {
        return Ok(());
    }
    write!(formatter, "  {name:<24}")?;
    for (_, quantile) in QUANTILES {
        let micros = Duration::from_micros(histogram.value_at_quantile(quantile));
        write!(formatter, "{:>10.2}", micros.as_secs_f64() * 1_000.0)?;
    }
    writeln!(formatter)
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn per_second(count: usize, elapsed: Duration) -> i64 {
    let micros = elapsed.as_micros().max(1);
    i64::try_from(count as u128 * 1_000_000 / micros).unwrap_or(i64::MAX)
}

/// 1234567 as `1,234,567`.
fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        let cases = [
            (0, "0"),
            (100, "100"),
            (1_000, "1,000"),
            (-1_234_567, "-1,234,567"),
        ];
        for (number, text) in cases {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn a_rate_is_per_second_and_survives_an_empty_run() {
        assert_eq!(per_second(2_000, Duration::from_millis(500)), 4_000);
        assert_eq!(per_second(0, Duration::ZERO), 0);
    }
}
