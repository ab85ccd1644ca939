//! What needs nobody: opening and closing by the clock, finishing what a dead instance began, ending
//! holds, and bringing units back. Any number of instances may do it at once; every step is idempotent.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::attempt::Attempt;
use super::live::LiveSale;
use super::loading::LoadCause;
use super::writer::Group;
use super::{Error, Service};
use crate::domain::{OrderId, Sale, SaleId, Stage};
use crate::ledger::{PAGE_MAX, StockReturn};
use crate::stock::scripts::{self, Figures, Presence, Returned};
use crate::stock::{journal, load};

/// How long before its opening a sale is loaded.
const LOAD_AHEAD_MS: i64 = 60_000;
/// Sales whose holds one round ends, and groups of holds of each.
const EXPIRING_SALES_MAX: u32 = 64;
const EXPIRING_GROUPS_MAX: usize = 64;
/// Returns that one round applies.
const RETURNS_MAX: u32 = 1_000;
/// Journal reads per segment and round.
const SWEEP_READS_MAX: usize = 8;

/// Starts the two loops of an instance: one for sales and journals, one for holds and returns, so that a
/// slow load keeps nobody's units back.
pub(super) fn start(service: &Service) {
    let (sales, holds) = (service.clone(), service.clone());
    service.core.env.spawn(async move {
        while !sales.pause_upkeep().await {
            sales.report(sales.look_after_sales().await, "sales");
        }
    });
    service.core.env.spawn(async move {
        while !holds.pause_upkeep().await {
            holds.report(holds.end_holds().await, "holds");
            holds.report(holds.bring_back_units().await, "returns");
        }
    });
}

impl Service {
    async fn pause_upkeep(&self) -> bool {
        let env = &self.core.env;
        self.core.metrics.backlog(self.attempts());
        env.sleep_or_stop(env.jittered(self.core.limits.upkeep_pause))
            .await
    }

    fn report(&self, round: Result<(), Error>, of: &'static str) {
        if let Err(error) = round {
            self.core.metrics.upkeep_failed();
            tracing::warn!(upkeep = of, error = %error, "a round of the upkeep did not end; it is repeated");
        }
    }

    async fn look_after_sales(&self) -> Result<(), Error> {
        self.core.ledger.close_due().await?;
        let mut after = None;
        let mut unreachable_for = 0_u32;
        loop {
            let began = self.core.env.now();
            let page = self.core.ledger.live_sales(after, PAGE_MAX).await?;
            let Some(last) = page.last() else {
                if unreachable_for > 0 {
                    tracing::warn!(
                        sales = unreachable_for,
                        "Redis or the ledger does not answer, or stock is being loaded: \
                         the upkeep of these sales is repeated"
                    );
                }
                return Ok(());
            };
            after = Some(last.id);
            for row in page {
                if self.core.env.is_stopping() {
                    return Ok(());
                }
                let id = row.id;
                match self.look_after(row, began).await {
                    Ok(()) => {}
                    // One line a round says so for all sales.
                    Err(Error::Unavailable(_)) => unreachable_for += 1,
                    Err(error) => {
                        tracing::warn!(sale.id = %id, error = %error, "the upkeep of a sale is repeated");
                    }
                }
            }
        }
    }

    async fn look_after(&self, row: Sale, began: Instant) -> Result<(), Error> {
        let soon = self.core.env.wall_clock_ms() + LOAD_AHEAD_MS;
        let due = row.terms.opens_at.is_some_and(|at| at.millis() <= soon);
        if row.stage == Stage::Scheduled && (!due || row.closed) {
            return Ok(());
        }
        let live = self.live_from(row, began);
        let row = live.loaded().await.map_err(Error::Unavailable)?;
        let reading = live.read_segments(&row).await?;
        if let Some(presence) = reading.not_there() {
            // A sealed segment may be the work of a loader under way.
            if presence == Presence::Absent {
                live.not_there(row.epoch, presence).await;
            }
            return Ok(());
        }
        live.finish_transfers(row.epoch, &reading.lenders()).await?;
        for (segment, figures) in (0..).zip(reading.segments()) {
            self.look_after_segment(&live, &row, segment, figures)
                .await?;
        }
        if row.closed && reading.segments().iter().all(|one| one.entries == 0) {
            self.drain(&live, &row).await?;
        }
        Ok(())
    }

    /// Repeats missed settings, commits what was left in the journal.
    async fn look_after_segment(
        &self,
        live: &Arc<LiveSale>,
        row: &Sale,
        segment: u32,
        figures: &Figures,
    ) -> Result<(), Error> {
        live.learn_clock(figures.now_ms);
        if figures.control < row.control {
            live.control(row).await?;
        }
        if figures.entries > 0 {
            self.sweep_journal(live, row, segment, figures.now_ms)
                .await?;
        }
        Ok(())
    }

    /// Commits journal entries that are old enough to be abandoned, and not this instance's own.
    async fn sweep_journal(
        &self,
        live: &Arc<LiveSale>,
        row: &Sale,
        segment: u32,
        now_ms: i64,
    ) -> Result<(), Error> {
        let (mut connection, keys) = (live.connection(segment), live.keys(segment, row.epoch));
        let grace_ms =
            i64::try_from(self.core.limits.journal_grace.as_millis()).unwrap_or(i64::MAX);
        let mut after: Option<String> = None;
        for _ in 0..SWEEP_READS_MAX {
            let read = journal::read(&mut connection, &keys, after.as_deref());
            let entries = live.within(read).await?;
            let Some(last) = entries.last() else {
                return Ok(());
            };
            after = Some(last.id.clone());
            for entry in entries {
                if now_ms - entry.written_ms() < grace_ms {
                    return Ok(());
                }
                if live.is_in_flight(row.epoch, segment, &entry.id) {
                    continue;
                }
                self.core.metrics.journal_swept(1);
                let units = entry.units();
                let now = self.core.env.now();
                let found = entry
                    .purchases
                    .into_iter()
                    .map(|found| Attempt::found(found, now));
                let attempts = found.collect();
                let entry = Some((entry.id, units));
                live.commit(vec![Group {
                    epoch: row.epoch,
                    segment,
                    entry,
                    attempts,
                }]);
            }
        }
        Ok(())
    }

    /// A closed sale with empty journals: its keys go away after the retention, and nobody looks after it
    /// any more.
    async fn drain(&self, live: &Arc<LiveSale>, row: &Sale) -> Result<(), Error> {
        for segment in 0..row.terms.segments {
            let mut connection = live.connection(segment);
            let keys = live.keys(segment, row.epoch);
            let expire = load::expire(&mut connection, &keys, self.core.limits.redis_retention);
            live.within(expire).await?;
        }
        if self.core.ledger.set_drained(live.id, row.epoch).await? {
            tracing::info!(sale.id = %live.id, "the closed sale is drained");
        }
        live.refresh().await?;
        Ok(())
    }

    async fn end_holds(&self) -> Result<(), Error> {
        for sale in self.core.ledger.expiries_due(EXPIRING_SALES_MAX).await? {
            for _ in 0..EXPIRING_GROUPS_MAX {
                let Some(returns) = self.core.ledger.expire(sale).await? else {
                    break;
                };
                self.core.metrics.holds_expired(returns.len() as u64);
                crate::crash_point!("return:before");
                self.apply_returns(&returns).await;
            }
        }
        Ok(())
    }

    async fn bring_back_units(&self) -> Result<(), Error> {
        let returns = self.core.ledger.returns(RETURNS_MAX).await?;
        self.apply_returns(&returns).await;
        Ok(())
    }

    /// Puts units back into their segments and forgets the rows. What fails stays for the next round.
    pub(super) async fn apply_returns(&self, returns: &[StockReturn]) {
        let mut homes: BTreeMap<(SaleId, u64), Vec<&StockReturn>> = BTreeMap::new();
        for one in returns {
            homes
                .entry((one.order.sale(), one.epoch))
                .or_default()
                .push(one);
        }
        for ((sale, epoch), returns) in homes {
            if let Err(error) = self.apply_returns_of(sale, epoch, &returns).await {
                tracing::debug!(sale.id = %sale, error = %error, "returns are left to the next round");
            }
        }
    }

    async fn apply_returns_of(
        &self,
        sale: SaleId,
        epoch: u64,
        returns: &[&StockReturn],
    ) -> Result<(), Error> {
        let live = self.live(sale).await?;
        // Returns of an epoch that is over are absorbed by the load that ended it.
        let row = live.loaded().await.map_err(Error::Unavailable)?;
        if row.epoch != epoch {
            return Ok(());
        }
        let mut segments: BTreeMap<u32, Vec<(OrderId, &str, u32)>> = BTreeMap::new();
        for one in returns {
            let home = segments.entry(row.home(one.order)).or_default();
            home.push((one.order, one.buyer.as_str(), one.quantity));
        }
        for (segment, orders) in segments {
            let (mut connection, keys) = (live.connection(segment), live.keys(segment, epoch));
            let call = scripts::give_back(&mut connection, &keys, &orders);
            match live.within(call).await? {
                Err(Presence::Absent) => live.not_there(epoch, Presence::Absent).await,
                Err(_) => {}
                Ok(answers) if answers.contains(&Returned::Unmarked) => {
                    live.mark_lost(epoch, LoadCause::MarkMissing);
                }
                Ok(_) => {
                    crate::crash_point!("return:applied");
                    let ids: Vec<OrderId> = orders.iter().map(|order| order.0).collect();
                    self.core.ledger.returns_done(&ids).await?;
                    self.core.metrics.returns_applied(ids.len() as u64);
                }
            }
        }
        Ok(())
    }
}
