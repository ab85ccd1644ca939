//! The judge: compares what the buyers were told with what the service has on its books.
//!
//! Pure: evidence in, judgement out. A purchase whose outcome its buyer never learnt may have
//! bought or not, and both are fine; whatever was promised must be there, whatever was refused
//! must not, and the books must add up.

#[cfg(test)]
mod fixture;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::api::AuditVerdict;
use crate::outcome::Outcome;
use crate::run::Books;
use crate::worker::Purchase;
use rules::Case;

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// What the buyers know. Nobody else bought in this sale.
    pub purchases: &'a [Purchase],
    /// What they were told when they sent accepted purchases once more.
    pub replays: &'a [Purchase],
    /// What the service says.
    pub books: &'a Books,
}

/// The conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything fits.
    Valid,
    /// Something does not, whatever else is unclear.
    Violated,
    /// Nothing was found that does not fit, but the run cannot show that everything does.
    Unknown,
}

impl Verdict {
    /// The exit code of a run that ends so.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::Violated => 1,
            Self::Unknown => 2,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Valid => "VALID",
            Self::Violated => "VIOLATED",
            Self::Unknown => "UNKNOWN",
        })
    }
}

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Units in active orders beyond the quantity.
    Oversold,
    /// Units free at the end although a buyer who asked for no more was refused for good.
    Undersold,
    /// Two orders for one purchase.
    Duplicate,
    /// A 201 without its order.
    Lost,
    /// A 202 without its order. A loss of Redis may cause it; nothing else may.
    LostAdmitted,
    /// An order that is not what was asked for.
    Altered,
    /// An order for a purchase that was definitely refused, or that nobody made.
    Phantom,
    /// A buyer with more units than a buyer may have.
    LimitExceeded,
    /// A final refusal whose reason is not true.
    FalseRefusal,
    /// Two final answers to one purchase that do not agree.
    Contradiction,
    /// A hold that nobody ends, or that belongs to no order.
    HoldLeaked,
    /// Terms that do not add up, or not to what the orders say.
    Unbalanced,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Of what kind it is.
    pub violation: Violation,
    /// What exactly.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}", self.violation, self.detail)
    }
}

/// The numbers of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Units in active orders.
    pub sold: i64,
    /// Units in active orders beyond the quantity.
    pub oversold: i64,
    /// Free units that refused buyers would have taken.
    pub undersold: i64,
    /// Purchases answered 201.
    pub committed: usize,
    /// Purchases answered 202.
    pub admitted: usize,
    /// Purchases refused for good, by reason.
    pub refused: BTreeMap<String, usize>,
    /// Purchases never let in before their buyers gave up.
    pub turned_away: usize,
    /// Purchases whose outcome their buyers never learnt.
    pub unknown: usize,
}

/// The judge's opinion of a run.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The conclusion.
    pub verdict: Verdict,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Why the run shows less than it should.
    pub doubts: Vec<String>,
    /// The numbers.
    pub tally: Tally,
}

impl Judgement {
    /// Whether something of this kind is wrong.
    #[must_use]
    pub fn found(&self, violation: Violation) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.violation == violation)
    }
}

/// Judges a run.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Judgement {
    let mut tally = count(evidence.purchases);
    let mut case = Case::new(evidence);
    case.check_promises();
    case.check_unclaimed_orders();
    case.check_replays();
    case.check_limit();
    case.check_books();
    tally.sold = case.sold();
    tally.oversold = case.check_oversold();
    tally.undersold = case.check_undersold();
    case.check_refusals();
    let findings = case.into_findings();
    let doubts = doubts(evidence, &tally);
    let verdict = match (findings.is_empty(), doubts.is_empty()) {
        (false, _) => Verdict::Violated,
        (true, false) => Verdict::Unknown,
        (true, true) => Verdict::Valid,
    };
    Judgement {
        verdict,
        findings,
        doubts,
        tally,
    }
}

fn count(purchases: &[Purchase]) -> Tally {
    let mut tally = Tally::default();
    for purchase in purchases {
        match &purchase.outcome {
            Outcome::Committed { .. } => tally.committed += 1,
            Outcome::Admitted { .. } => tally.admitted += 1,
            Outcome::Refused { code } => *tally.refused.entry(code.clone()).or_default() += 1,
            Outcome::Shed { .. } => tally.turned_away += 1,
            Outcome::Unknown { .. } => tally.unknown += 1,
        }
    }
    tally
}

/// Reasons for which a sale refuses; any other means that the run was not what it should be.
const REASONS: [&str; 9] = [
    "sold-out",
    "insufficient",
    "held",
    "limit-reached",
    "not-open",
    "closed",
    "void",
    "rejected",
    "key-reused",
];

fn doubts(evidence: &Evidence<'_>, tally: &Tally) -> Vec<String> {
    let books = evidence.books;
    let mut doubts = Vec::new();
    if !books.settled {
        doubts.push(format!(
            "the books did not settle in time: {}",
            books.audit.terms
        ));
    }
    if books.audit.verdict == AuditVerdict::Unknown {
        doubts.push(format!(
            "the audit could not tell: {}",
            books.audit.findings.join("; ")
        ));
    }
    if tally.committed + tally.admitted == 0 {
        doubts.push("nothing was sold".to_owned());
    }
    let available = books.audit.terms.available;
    let without_answer = evidence.purchases.iter().filter(|purchase| {
        !purchase.outcome.is_final() && i64::from(purchase.wish.quantity) <= available
    });
    let without_answer = without_answer.count();
    if without_answer > 0 {
        doubts.push(format!(
            "{available} units are free, and {without_answer} buyers gave up without an answer"
        ));
    }
    for (code, count) in &tally.refused {
        if !REASONS.contains(&code.as_str()) {
            doubts.push(format!("{count} purchases were refused as {code}"));
        }
    }
    doubts
}
