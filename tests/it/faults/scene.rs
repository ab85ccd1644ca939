//! A sale under load, at three processes on one PostgreSQL, in whose middle something happens.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use loadtest::api::NewSale;
use loadtest::pace::Pace;
use loadtest::run::{open_sale, run_opened};
use loadtest::scenario::Scenario;
use loadtest::servers::{RedisServer, eventually_within};
use loadtest::worker::Progress;
use tokio::time::Instant;

use crate::harness::{Database, Deployment, PATIENCE, Plan, assert_valid, database, until};

pub(super) const SEGMENTS: u32 = 8;
const INSTANCES: usize = 3;
/// How long after the fault somebody must be sold something again.
const RESUMES_WITHIN: Duration = Duration::from_secs(5);
/// Orders that show that it sells again: more than may have been committed already when it struck.
const SOLD_AGAIN: usize = 20;

/// How long the sale takes, and how much there is to sell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Every buyer tries twice, and may have one unit: most second tries come after the fault, and
    /// only who still knows the first refuses them.
    pub(super) buyers: u32,
    pub(super) quantity: u32,
    pub(super) per_second: u32,
}

impl Default for Size {
    /// Sold out after three to four seconds; the load goes on for two more.
    fn default() -> Self {
        Self {
            buyers: 2_400,
            quantity: 2_000,
            per_second: 800,
        }
    }
}

impl Size {
    fn scenario(self) -> Scenario {
        Scenario {
            sale: NewSale {
                quantity: self.quantity,
                segments: SEGMENTS,
                ..NewSale::default()
            },
            buyers: self.buyers,
            purchases_per_buyer: 2,
            pace: Pace::Constant {
                rate: NonZeroU32::new(self.per_second).unwrap(),
            },
            connections: 192,
            patience: Duration::from_secs(60),
            ..Scenario::default()
        }
    }
}

/// A sale that is open, and about to be stormed.
pub(super) struct Scene {
    pub(super) deployment: Deployment,
    pub(super) sale: u32,
    pub(super) scenario: Scenario,
    progress: Arc<Progress>,
    troubles: RefCell<Vec<String>>,
}

impl Scene {
    pub(super) async fn open(redis: RedisServer) -> Self {
        Self::open_as(Size::default(), redis, None).await
    }

    /// With `redis_url` if the processes reach Redis by another way than directly.
    pub(super) async fn open_as(size: Size, redis: RedisServer, redis_url: Option<String>) -> Self {
        let mut plan = Plan::new(Database::Postgres, INSTANCES);
        plan.redis_urls = redis_url.map(|url| vec![url]);
        plan.database_url = Some(database().await);
        let deployment = Deployment::start_on(plan, redis).await;
        Self::open_at(deployment, size.scenario()).await
    }

    pub(super) async fn open_at(deployment: Deployment, scenario: Scenario) -> Self {
        let sale = open_sale(&deployment.target, &scenario).await.unwrap().id;
        Self {
            deployment,
            sale,
            scenario,
            progress: Arc::default(),
            troubles: RefCell::default(),
        }
    }

    /// Lets the buyers in, injects the fault meanwhile, and judges at the end: everything is sold,
    /// to different buyers, and the books say so.
    pub(super) async fn play(mut self, fault: impl AsyncFnOnce(&mut Self)) {
        let (target, scenario) = (self.deployment.target.clone(), self.scenario.clone());
        let run = run_opened(&target, &scenario, self.sale, Arc::clone(&self.progress));
        let (report, ()) = tokio::join!(run, fault(&mut self));
        let report = report.unwrap();
        let (tally, slowest) = (
            &report.judgement.tally,
            report.purchases.iter().map(|one| one.response_time).max(),
        );
        println!("{tally:?} in {:?}, slowest {slowest:?}", report.elapsed);
        // The judge speaks first: what was sold wrongly says more than what was not noticed.
        assert_valid(&report, scenario.sale.quantity.into(), &self.deployment);
        let troubles = self.troubles.into_inner();
        assert!(
            troubles.is_empty(),
            "{troubles:?}\n{}",
            self.deployment.logs()
        );
    }

    /// Purchases that were accepted so far.
    pub(super) fn sold(&self) -> usize {
        self.progress.accepted()
    }

    /// Waits until this share of the stock has been sold.
    pub(super) async fn sold_percent(&self, percent: u32) {
        let accepted = u64::from(self.scenario.sale.quantity) * u64::from(percent) / 100;
        let enough = self
            .accepted(usize::try_from(accepted).unwrap(), PATIENCE)
            .await;
        assert!(
            enough,
            "{percent} % were never sold\n{}",
            self.deployment.logs()
        );
    }

    /// Whether so many purchases are accepted in time.
    async fn accepted(&self, count: usize, limit: Duration) -> bool {
        let enough = async || (self.sold() >= count).then_some(());
        eventually_within(limit, "purchases to be accepted", enough)
            .await
            .is_ok()
    }

    /// Number of the load of stock that the sale sells from.
    pub(super) async fn epoch(&self) -> u64 {
        until(&self.deployment, "the sale to be read", async |client| {
            Some(client.sale(self.sale).await.ok()?.epoch)
        })
        .await
    }

    /// The fault is over; the sale must notice it, and go on under a newer epoch than `before`.
    /// What is wrong is told at the end.
    pub(super) async fn recovers_from(&self, what: &str, before: u64) {
        let (over, sold) = (Instant::now(), self.sold());
        let left = (self.scenario.sale.quantity as usize).saturating_sub(sold);
        self.is_so(left > 2 * SOLD_AGAIN, what, "it struck too late");
        let noticed = self.reopens_after(before).await;
        self.is_so(noticed, what, "not noticed");
        let sells = self
            .accepted(self.sold() + SOLD_AGAIN, RESUMES_WITHIN)
            .await;
        let resumed = over.elapsed();
        self.is_so(
            sells && resumed < RESUMES_WITHIN,
            what,
            "sells no more, or late",
        );
        println!("{what} after {sold} orders: sells again {resumed:?} later");
    }

    /// Takes note of a trouble, to be told at the end.
    pub(super) fn is_so(&self, condition: bool, what: &str, trouble: &str) {
        if !condition {
            let trouble = format!("{what}: {trouble}");
            println!("{trouble}");
            self.troubles.borrow_mut().push(trouble);
        }
    }

    /// Whether the sale sells under a newer epoch than `before` in time.
    pub(super) async fn reopens_after(&self, before: u64) -> bool {
        let (mut client, began) = (self.deployment.client(0), Instant::now());
        while began.elapsed() < RESUMES_WITHIN {
            let sale = client.sale(self.sale).await;
            if sale.is_ok_and(|sale| sale.epoch > before && sale.state == "open") {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }
}
