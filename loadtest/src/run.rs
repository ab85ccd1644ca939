//! A run: create a sale, let the buyers at it, let it settle, read everything, judge.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::Instant;

use crate::api::{Audit, AuditVerdict, Order, Sale};
use crate::client::{Client, SaleAction};
use crate::judge::{Evidence, Judgement, judge};
use crate::latency::Latency;
use crate::outcome::Outcome;
use crate::scenario::{Scenario, Wish};
use crate::target::Target;
use crate::worker::{Progress, Purchase, drive};

/// Pause between two looks at books that are not settled yet.
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// What the service says at the end, after everything has settled.
#[derive(Debug, Clone)]
pub struct Books {
    /// The sale.
    pub sale: Sale,
    /// All its orders.
    pub orders: Vec<Order>,
    /// Its audit.
    pub audit: Audit,
    /// Whether nothing was under way any more, and nothing changed while all this was read.
    pub settled: bool,
}

/// Everything known about a run.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// What was run.
    pub scenario: Scenario,
    /// What the buyers know.
    pub purchases: Vec<Purchase>,
    /// What the buyers were told when they sent their accepted purchases once more.
    pub replays: Vec<Purchase>,
    /// What the service says.
    pub books: Books,
    /// Whether the two agree.
    pub judgement: Judgement,
    /// From the beginning to the last answer.
    pub elapsed: Duration,
    /// Latency of the purchases that were accepted.
    pub accepted_latency: Latency,
    /// Latency of those that were refused; a fast no must not flatter the average.
    pub refused_latency: Latency,
}

/// Creates a sale and opens it.
///
/// # Errors
/// What the service answered.
pub async fn open_sale(target: &Target, scenario: &Scenario) -> Result<Sale> {
    let mut client = Client::new(target, 0);
    let sale = client
        .create_sale(&scenario.sale)
        .await
        .context("cannot create the sale")?;
    client
        .change_sale(sale.id, SaleAction::Open)
        .await
        .context("cannot open the sale")
}

/// Runs a scenario against a new sale and judges it.
///
/// # Errors
/// When the scenario breaks a bound, or the service cannot be asked before and after. What goes
/// wrong in between is not an error but a matter of the judgement.
pub async fn run_sale(target: &Target, scenario: &Scenario) -> Result<RunReport> {
    scenario.check()?;
    let sale = open_sale(target, scenario).await?;
    run_opened(target, scenario, sale.id, Arc::default()).await
}

/// As [`run_sale`], on a sale that is open already and was created as the scenario says, and
/// which nobody else uses. `progress` can be watched meanwhile.
///
/// # Errors
/// As [`run_sale`].
pub async fn run_opened(
    target: &Target,
    scenario: &Scenario,
    sale: u32,
    progress: Arc<Progress>,
) -> Result<RunReport> {
    scenario.check()?;
    let purchases = drive(target, sale, scenario, scenario.wishes(), progress).await;
    let replays = if scenario.replay {
        replay(target, scenario, sale, &purchases).await
    } else {
        Vec::new()
    };
    let books = read_books(target, sale, scenario.settle).await?;
    let evidence = Evidence {
        purchases: &purchases,
        replays: &replays,
        books: &books,
    };
    let judgement = judge(&evidence);
    let elapsed = purchases
        .iter()
        .map(|purchase| purchase.finished)
        .max()
        .unwrap_or_default();
    let accepted = purchases
        .iter()
        .filter(|purchase| purchase.outcome.order().is_some());
    let refused = purchases
        .iter()
        .filter(|purchase| matches!(purchase.outcome, Outcome::Refused { .. }));
    let (accepted_latency, refused_latency) = (Latency::of(accepted), Latency::of(refused));
    let scenario = scenario.clone();
    Ok(RunReport {
        scenario,
        purchases,
        replays,
        books,
        judgement,
        elapsed,
        accepted_latency,
        refused_latency,
    })
}

async fn replay(
    target: &Target,
    scenario: &Scenario,
    sale: u32,
    purchases: &[Purchase],
) -> Vec<Purchase> {
    let accepted = purchases
        .iter()
        .filter(|purchase| purchase.outcome.order().is_some());
    let again = accepted.map(|purchase| Wish {
        start: Duration::ZERO,
        ..purchase.wish.clone()
    });
    let wishes: Vec<Wish> = again.collect();
    if wishes.is_empty() {
        return Vec::new();
    }
    drive(target, sale, scenario, wishes, Arc::default()).await
}

/// Reads what the service says of a sale, as soon as nothing is under way any more, or after
/// `limit`. Until then it also waits for a process that answers.
///
/// # Errors
/// When the service cannot be asked.
pub async fn read_books(target: &Target, sale: u32, limit: Duration) -> Result<Books> {
    let deadline = Instant::now() + limit;
    for instance in 0.. {
        let mut client = Client::new(target, instance);
        let late = Instant::now() >= deadline;
        match read_once(&mut client, sale).await {
            Ok(books) if books.settled || late => return Ok(books),
            Err(error) if late => return Err(error),
            _ => tokio::time::sleep(SETTLE_PAUSE).await,
        }
    }
    unreachable!("the deadline passes")
}

async fn read_once(client: &mut Client, sale: u32) -> Result<Books> {
    let before = client.audit(sale).await.context("cannot audit the sale")?;
    let orders = client
        .sale_orders(sale)
        .await
        .context("cannot list the orders")?;
    let audit = client.audit(sale).await.context("cannot audit the sale")?;
    let sale = client.sale(sale).await.context("cannot read the sale")?;
    let quiet = audit.terms.is_settled() && audit.terms == before.terms;
    let settled = quiet && audit.verdict != AuditVerdict::Unknown;
    Ok(Books {
        sale,
        orders,
        audit,
        settled,
    })
}
