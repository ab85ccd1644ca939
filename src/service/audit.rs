//! The audit, which balances the books:
//! quantity = available + in transfer + journaled + held + confirmed + returning.
//!
//! The terms lie in two servers, so they are read twice: two equal readings are those of a quiet moment.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::live::LiveSale;
use super::{Error, Service};
use crate::domain::{OrderId, Sale, SaleId, Stage};
use crate::ledger::{COMMIT_MAX, Count};
use crate::stock::journal::{self, Entry};
use crate::stock::requests::{Mark, marks};
use crate::stock::scripts::{Figures, Presence, open_transfers, received};

/// How often the audit looks for a quiet moment, and how long it waits in between.
const QUIET_ATTEMPTS: u32 = 40;
const QUIET_PAUSE: Duration = Duration::from_millis(50);
/// Journal reads per segment; beyond that the audit cannot tell.
const JOURNAL_READS_MAX: usize = 4_096;
/// Returns under way; beyond that the audit cannot tell.
const RETURNS_MAX: u32 = 1_000_000;

/// Whether the books balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditVerdict {
    /// At a quiet moment, every unit was found once.
    Balanced,
    /// A unit is missing, or there twice, or an invariant is broken.
    Unbalanced,
    /// There was no quiet moment, or a server did not answer.
    Unknown,
}

/// The books of a sale, term by term.
#[derive(Debug, Clone)]
pub struct Audit {
    /// Which sale.
    pub sale: SaleId,
    /// Under which epoch.
    pub epoch: u64,
    /// Whether they balance.
    pub verdict: AuditVerdict,
    /// Units for sale.
    pub quantity: u64,
    /// Units in the segments.
    pub available: u64,
    /// Units on their way between segments.
    pub in_transfer: u64,
    /// Units admitted and not in the ledger.
    pub journaled: u64,
    /// Units in reserved orders.
    pub held: u64,
    /// Units in confirmed orders.
    pub confirmed: u64,
    /// Units of ended orders that Redis has not taken back.
    pub returning: u64,
    /// Units in active orders beyond the quantity.
    pub oversold: u64,
    /// What is wrong, or why nothing can be told.
    pub findings: Vec<String>,
}

/// What the audit reads in one go.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    count: Count,
    /// Empty if nothing of the sale is in Redis.
    segments: Vec<(Figures, Vec<Entry>)>,
    /// Units lent that have not arrived.
    in_transfer: u64,
    /// Units in journal entries of orders that the ledger does not have.
    journaled: u64,
    /// Units in returns that Redis has not marked as taken back.
    returning: u64,
}

impl Service {
    /// Balances the books of a sale.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such sale, or see [`Error`].
    pub async fn audit(&self, id: SaleId) -> Result<Audit, Error> {
        let live = self.live(id).await?;
        let mut last = self.read_books(&live).await?;
        for _ in 0..QUIET_ATTEMPTS {
            let again = self.read_books(&live).await?;
            let quiet = again == last && again.count.sale.stage != Stage::Loading;
            last = again;
            if quiet
                && last
                    .segments
                    .iter()
                    .all(|(one, _)| one.presence == Presence::Loaded)
            {
                return Ok(Audit::of_a_quiet_moment(&last));
            }
            self.core.env.sleep(QUIET_PAUSE).await;
        }
        let mut audit = Audit::of(&last);
        let why = "no quiet moment: the sale is selling or being loaded";
        audit.findings.push(why.to_owned());
        Ok(audit)
    }

    async fn read_books(&self, live: &Arc<LiveSale>) -> Result<Reading, Error> {
        let count = self
            .core
            .ledger
            .count(live.id)
            .await?
            .ok_or(Error::NotFound)?;
        let mut reading = Reading {
            count,
            segments: Vec::new(),
            in_transfer: 0,
            journaled: 0,
            returning: 0,
        };
        let row = &reading.count.sale;
        if row.stage == Stage::Loaded && !row.drained {
            let figures = live.read_segments(row).await?;
            for (segment, figures) in (0..).zip(figures.segments()) {
                let journal = self.read_journal(live, row, segment).await?;
                // The clock alone does not make a moment unquiet.
                let figures = Figures {
                    now_ms: 0,
                    ..*figures
                };
                reading.segments.push((figures, journal));
            }
            reading.in_transfer = self.not_received(live, row, &reading.segments).await?;
            reading.journaled = self.not_in_ledger(&reading.segments).await?;
            reading.returning = self.not_in_redis(live, row).await?;
        }
        Ok(reading)
    }

    async fn read_journal(
        &self,
        live: &LiveSale,
        row: &Sale,
        segment: u32,
    ) -> Result<Vec<Entry>, Error> {
        let (mut connection, keys) = (live.connection(segment), live.keys(segment, row.epoch));
        let mut all: Vec<Entry> = Vec::new();
        for _ in 0..JOURNAL_READS_MAX {
            let after = all.last().map(|entry| entry.id.clone());
            let read = journal::read(&mut connection, &keys, after.as_deref());
            let entries = live.within(read).await?;
            if entries.is_empty() {
                return Ok(all);
            }
            all.extend(entries);
        }
        Err(Error::Internal(
            "the journal is too long to be audited".to_owned(),
        ))
    }

    /// Units of open transfers that have not arrived: one that has is open for a moment longer.
    async fn not_received(
        &self,
        live: &LiveSale,
        row: &Sale,
        segments: &[(Figures, Vec<Entry>)],
    ) -> Result<u64, Error> {
        let mut units = 0;
        let lenders = (0..).zip(segments).filter(|(_, one)| one.0.in_transfer > 0);
        for (donor, _) in lenders {
            let (mut connection, keys) = (live.connection(donor), live.keys(donor, row.epoch));
            let open = live.within(open_transfers(&mut connection, &keys)).await?;
            for transfer in open {
                let borrower = live.keys(transfer.borrower, row.epoch);
                let mut connection = live.connection(transfer.borrower);
                let received = received(&mut connection, &borrower, &transfer.id);
                if !live.within(received).await? {
                    units += transfer.units;
                }
            }
        }
        Ok(units)
    }

    /// Units of journaled purchases that are no orders yet: a committed entry stays for a moment.
    async fn not_in_ledger(&self, segments: &[(Figures, Vec<Entry>)]) -> Result<u64, Error> {
        let entries = segments.iter().flat_map(|(_, entries)| entries);
        let purchases: Vec<(OrderId, u64)> = entries
            .flat_map(|entry| &entry.purchases)
            .map(|purchase| (purchase.order, purchase.quantity.into()))
            .collect();
        let mut units = 0;
        for group in purchases.chunks(COMMIT_MAX) {
            let ids: Vec<OrderId> = group.iter().map(|(id, _)| *id).collect();
            let orders = self.core.ledger.orders(&ids).await?;
            let known: HashSet<OrderId> = orders.into_iter().map(|order| order.id).collect();
            let unknown = group.iter().filter(|(id, _)| !known.contains(id));
            units += unknown.map(|(_, units)| units).sum::<u64>();
        }
        Ok(units)
    }

    /// Units of returns that Redis has not taken back: an applied return's row stays for a moment.
    async fn not_in_redis(&self, live: &LiveSale, row: &Sale) -> Result<u64, Error> {
        let returns = self.core.ledger.sale_returns(live.id, RETURNS_MAX).await?;
        let mut homes = vec![Vec::new(); row.terms.segments as usize];
        for one in &returns {
            homes[row.home(one.order) as usize].push((one.order, u64::from(one.quantity)));
        }
        let mut units = 0;
        for (segment, returns) in (0..).zip(homes) {
            let (mut connection, keys) = (live.connection(segment), live.keys(segment, row.epoch));
            for group in returns.chunks(COMMIT_MAX) {
                let ids: Vec<OrderId> = group.iter().map(|(id, _)| *id).collect();
                let read = marks(&mut connection, &keys, &ids);
                let found = live.within(read).await?;
                let pairs = group.iter().zip(found);
                let open = pairs.filter(|(_, mark)| !matches!(mark, Some(Mark::Ended(_))));
                units += open.map(|((_, units), _)| units).sum::<u64>();
            }
        }
        Ok(units)
    }
}

impl Audit {
    fn of(reading: &Reading) -> Self {
        let Count {
            sale,
            reserved,
            confirmed,
            ..
        } = &reading.count;
        let quantity = u64::from(sale.terms.quantity);
        let available = if reading.segments.is_empty() {
            // Nothing is in Redis: what no order holds is free.
            quantity.saturating_sub(reserved + confirmed)
        } else {
            reading
                .segments
                .iter()
                .map(|(figures, _)| figures.available)
                .sum()
        };
        Self {
            sale: sale.id,
            epoch: sale.epoch,
            verdict: AuditVerdict::Unknown,
            quantity,
            available,
            in_transfer: reading.in_transfer,
            journaled: reading.journaled,
            held: *reserved,
            confirmed: *confirmed,
            returning: reading.returning,
            oversold: (reserved + confirmed).saturating_sub(quantity),
            findings: Vec::new(),
        }
    }

    /// Compares the terms with each other, and the counters with what they count.
    fn of_a_quiet_moment(reading: &Reading) -> Self {
        let mut audit = Self::of(reading);
        let (count, quantity, oversold) = (&reading.count, audit.quantity, audit.oversold);
        let sum: u64 = audit.terms().iter().map(|(_, units)| units).sum();
        let mut expect = |right: bool, finding: String| {
            if !right {
                audit.findings.push(finding);
            }
        };
        expect(
            sum == quantity,
            format!("the terms add up to {sum}, the quantity is {quantity}"),
        );
        expect(oversold == 0, format!("{oversold} units are oversold"));
        let (taken, active) = (count.sale.taken, count.reserved + count.confirmed);
        let finding = format!("the sale counts {taken} units as taken, its orders hold {active}");
        expect(taken == active, finding);
        let (counted, confirmed) = (count.sale.confirmed, count.confirmed);
        let finding =
            format!("the sale counts {counted} units as confirmed, orders hold {confirmed}");
        expect(counted == confirmed, finding);
        let over = count.buyers_over_limit;
        expect(over == 0, format!("{over} buyers have more than the limit"));
        for (segment, (figures, entries)) in reading.segments.iter().enumerate() {
            let (figure, units) = (
                figures.journaled,
                entries.iter().map(Entry::units).sum::<u64>(),
            );
            let finding =
                format!("segment {segment} counts {figure} units as journaled, not {units}");
            expect(figure == units, finding);
        }
        let clean = audit.findings.is_empty();
        audit.verdict = if clean {
            AuditVerdict::Balanced
        } else {
            AuditVerdict::Unbalanced
        };
        audit
    }

    /// The terms that must add up to the quantity.
    fn terms(&self) -> [(&'static str, u64); 6] {
        [
            ("available", self.available),
            ("in transfer", self.in_transfer),
            ("journaled", self.journaled),
            ("held", self.held),
            ("confirmed", self.confirmed),
            ("returning", self.returning),
        ]
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            AuditVerdict::Balanced => "balanced",
            AuditVerdict::Unbalanced => "NOT BALANCED",
            AuditVerdict::Unknown => "cannot be told",
        };
        write!(f, "sale {} (epoch {}): {verdict}", self.sale, self.epoch)?;
        write!(f, "\n  {:<14}{:>12}", "quantity", self.quantity)?;
        for (n, (term, units)) in self.terms().into_iter().enumerate() {
            let sign = if n == 0 { '=' } else { '+' };
            write!(f, "\n  {sign} {term:<12}{units:>12}")?;
        }
        for finding in &self.findings {
            write!(f, "\n  ! {finding}")?;
        }
        Ok(())
    }
}
