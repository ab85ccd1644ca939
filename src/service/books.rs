//! Figures to look at, and the audit that balances the books:
//! quantity = available + in transfer + journaled + held + confirmed + returning.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::live::LiveSale;
use super::{Error, Service};
use crate::domain::{OrderId, Sale, SaleId, Stage};
use crate::ledger::{COMMIT_MAX, Count};
use crate::stock::journal::{self, Entry};
use crate::stock::scripts::{self, Figures, Presence};

/// How old the figures of [`Service::stock`] may be: a page that polls costs Redis and the ledger nothing
/// beyond that rate.
pub const STOCK_AGE_MAX: Duration = Duration::from_millis(100);
/// How often the audit looks for a quiet moment, and how long it waits in between.
const QUIET_ATTEMPTS: u32 = 40;
const QUIET_PAUSE: Duration = Duration::from_millis(50);
/// Journal reads of one audit; beyond that it cannot tell.
const JOURNAL_READS_MAX: usize = 4_096;

/// A sale's figures, read one after the other and not in one instant: for showing, not for deciding.
#[derive(Debug, Clone)]
pub struct Stock {
    /// The sale as the ledger has it.
    pub sale: Sale,
    /// Units that a purchase could take now.
    pub available: u64,
    /// Units on their way between segments.
    pub in_transfer: u64,
    /// Units in journal entries; a committed entry counts until it is deleted, moments later.
    pub journaled: u64,
    /// Units in orders that wait for payment.
    pub held: u64,
    /// Units in confirmed orders.
    pub confirmed: u64,
    /// Units of ended orders on their way back to Redis.
    pub returning: u64,
}

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

/// What the audit reads in one go; a second, equal reading proves a quiet moment.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    count: Count,
    segments: Vec<(Figures, Vec<Entry>)>,
}

/// The last figures that were read, and when.
pub(super) type StockCache = tokio::sync::Mutex<Option<(Instant, Stock)>>;

impl Service {
    /// A sale's figures, at most [`STOCK_AGE_MAX`] old.
    ///
    /// # Errors
    /// [`Error::NotFound`], or see [`Error`].
    pub async fn stock(&self, id: SaleId) -> Result<Stock, Error> {
        let live = self.live(id).await?;
        let mut cache = live.stock_cache.lock().await;
        let now = self.core.env.now();
        if let Some((at, stock)) = &*cache
            && now - *at < STOCK_AGE_MAX
        {
            return Ok(stock.clone());
        }
        let stock = self.read_stock(&live).await?;
        *cache = Some((now, stock.clone()));
        Ok(stock)
    }

    async fn read_stock(&self, live: &Arc<LiveSale>) -> Result<Stock, Error> {
        let returning = self.core.ledger.returning(live.id).await?;
        let row = live.refresh().await?;
        let mut stock = Stock {
            available: row.free(),
            in_transfer: 0,
            journaled: 0,
            held: row.held(),
            confirmed: row.confirmed,
            returning,
            sale: Sale::clone(&row),
        };
        if row.stage == Stage::Loaded && !row.drained {
            (stock.available, stock.journaled) = (0, 0);
            for segment in 0..row.terms.segments {
                let figures = self.figures(live, &row, segment).await?;
                stock.available += figures.available;
                stock.journaled += figures.journaled;
            }
        }
        Ok(stock)
    }

    async fn figures(&self, live: &LiveSale, row: &Sale, segment: u32) -> Result<Figures, Error> {
        let (mut connection, keys) = (live.connection(segment), live.keys(segment, row.epoch));
        let read = scripts::figures(&mut connection, &keys);
        let figures = timeout(self.core.redis.timeout(), read).await;
        let mut figures = figures.map_err(|_| crate::stock::Error::TimedOut)??;
        figures.now_ms = 0;
        Ok(figures)
    }

    /// Balances the books of a sale.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such sale, or see [`Error`].
    pub async fn audit(&self, id: SaleId) -> Result<Audit, Error> {
        let live = self.live(id).await?;
        let mut last = self.read_books(&live).await?;
        for _ in 0..QUIET_ATTEMPTS {
            let again = self.read_books(&live).await?;
            let quiet = again == last;
            last = again;
            let loading = last.count.sale.stage == Stage::Loading;
            let sealed = last
                .segments
                .iter()
                .any(|(one, _)| one.presence != Presence::Loaded);
            if quiet && !loading && !sealed {
                return self.balance(&last).await;
            }
            self.core.env.sleep(QUIET_PAUSE).await;
        }
        let mut audit = Audit::of(&last, 0);
        audit
            .findings
            .push("no quiet moment: the sale is selling or being loaded".to_owned());
        Ok(audit)
    }

    async fn read_books(&self, live: &Arc<LiveSale>) -> Result<Reading, Error> {
        let count = self
            .core
            .ledger
            .count(live.id)
            .await?
            .ok_or(Error::NotFound)?;
        let row = &count.sale;
        let mut segments = Vec::new();
        if row.stage == Stage::Loaded && !row.drained {
            for segment in 0..row.terms.segments {
                let figures = self.figures(live, row, segment).await?;
                segments.push((figures, self.read_journal(live, row, segment).await?));
            }
        }
        Ok(Reading { count, segments })
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
            let entries = timeout(self.core.redis.timeout(), read).await;
            let entries = entries.map_err(|_| crate::stock::Error::TimedOut)??;
            if entries.is_empty() {
                return Ok(all);
            }
            all.extend(entries);
        }
        Err(Error::Internal(
            "the journal is too long to be audited".to_owned(),
        ))
    }

    async fn balance(&self, reading: &Reading) -> Result<Audit, Error> {
        let purchases = reading.segments.iter().flat_map(|(_, entries)| entries);
        let purchases = purchases.flat_map(|entry| &entry.purchases);
        let admitted: Vec<(OrderId, u64)> = purchases
            .map(|purchase| (purchase.order, purchase.quantity.into()))
            .collect();
        let ids: Vec<OrderId> = admitted.iter().map(|(id, _)| *id).collect();
        let mut known: HashSet<OrderId> = HashSet::new();
        for ids in ids.chunks(COMMIT_MAX) {
            known.extend(
                self.core
                    .ledger
                    .orders(ids)
                    .await?
                    .into_iter()
                    .map(|order| order.id),
            );
        }
        let journaled = admitted.iter().filter(|(id, _)| !known.contains(id));
        let mut audit = Audit::of(reading, journaled.map(|(_, units)| units).sum());
        audit.judge(reading);
        Ok(audit)
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
        write!(f, "\n  quantity {:>12}", self.quantity)?;
        for (term, units) in [
            ("available", self.available),
            ("in transfer", self.in_transfer),
            ("journaled", self.journaled),
            ("held", self.held),
            ("confirmed", self.confirmed),
            ("returning", self.returning),
        ] {
            write!(f, "\n  = {term:<12} {units:>6}")?;
        }
        for finding in &self.findings {
            write!(f, "\n  ! {finding}")?;
        }
        Ok(())
    }
}

impl Audit {
    fn of(reading: &Reading, journaled: u64) -> Self {
        let Count {
            sale,
            reserved,
            confirmed,
            returning,
            ..
        } = &reading.count;
        let quantity = u64::from(sale.terms.quantity);
        let here = sale.stage == Stage::Loaded && !sale.drained;
        let available = match here {
            true => reading
                .segments
                .iter()
                .map(|(figures, _)| figures.available)
                .sum(),
            false => quantity.saturating_sub(reserved + confirmed),
        };
        Self {
            sale: sale.id,
            epoch: sale.epoch,
            verdict: AuditVerdict::Unknown,
            quantity,
            available,
            in_transfer: 0,
            journaled,
            held: *reserved,
            confirmed: *confirmed,
            returning: if here { *returning } else { 0 },
            oversold: (reserved + confirmed).saturating_sub(quantity),
            findings: Vec::new(),
        }
    }

    /// Compares the terms of a quiet moment.
    fn judge(&mut self, reading: &Reading) {
        let count = &reading.count;
        let sum = self.available
            + self.in_transfer
            + self.journaled
            + self.held
            + self.confirmed
            + self.returning;
        let quantity = self.quantity;
        let mut expect = |right: bool, finding: String| {
            if !right {
                self.findings.push(finding);
            }
        };
        expect(
            sum == quantity,
            format!("the terms add up to {sum}, the quantity is {quantity}"),
        );
        expect(
            self.oversold == 0,
            format!("{} units are oversold", self.oversold),
        );
        let (taken, active) = (count.sale.taken, count.reserved + count.confirmed);
        expect(
            taken == active,
            format!("the sale counts {taken} units as taken, its orders hold {active}"),
        );
        let (counted, confirmed) = (count.sale.confirmed, count.confirmed);
        expect(
            counted == confirmed,
            format!("the sale counts {counted} units as confirmed, its orders hold {confirmed}"),
        );
        let over = count.buyers_over_limit;
        expect(over == 0, format!("{over} buyers have more than the limit"));
        for (segment, (figures, entries)) in reading.segments.iter().enumerate() {
            let (figure, units) = (
                figures.journaled,
                entries.iter().map(Entry::units).sum::<u64>(),
            );
            expect(
                figure == units,
                format!(
                    "segment {segment} counts {figure} units as journaled, its journal has {units}"
                ),
            );
        }
        let clean = self.findings.is_empty();
        self.verdict = if clean {
            AuditVerdict::Balanced
        } else {
            AuditVerdict::Unbalanced
        };
    }
}
