//! A sale under load, at three processes on one PostgreSQL, in whose middle something happens.

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
    /// Every buyer tries twice, and may have one unit: most second tries come after the fault, and only
    /// who still knows the first refuses them.
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
        }
    }

    /// Lets the buyers in, injects the fault meanwhile, and judges at the end: everything is sold, to
    /// different buyers, and the books say so.
    pub(super) async fn play(mut self, fault: impl AsyncFnOnce(&mut Self)) {
        let (target, scenario) = (self.deployment.target.clone(), self.scenario.clone());
        let run = run_opened(&target, &scenario, self.sale, Arc::clone(&self.progress));
        let (report, ()) = tokio::join!(run, fault(&mut self));
        let report = report.unwrap();
        assert_valid(&report, scenario.sale.quantity.into(), &self.deployment);
        let tally = &report.judgement.tally;
        println!(
            "sold {} in {:?}, refused {:?}, slowest {:?}",
            tally.sold,
            report.elapsed,
            tally.refused,
            report.purchases.iter().map(|one| one.response_time).max(),
        );
    }

    /// Purchases that were accepted so far.
    pub(super) fn sold(&self) -> usize {
        self.progress.accepted()
    }

    /// Waits until this share of the stock has been sold.
    pub(super) async fn sold_percent(&self, percent: u32) {
        let accepted = u64::from(self.scenario.sale.quantity) * u64::from(percent) / 100;
        self.accepted(usize::try_from(accepted).unwrap(), PATIENCE)
            .await;
    }

    async fn accepted(&self, count: usize, limit: Duration) {
        let enough = async || (self.sold() >= count).then_some(());
        if let Err(error) = eventually_within(limit, "purchases to be accepted", enough).await {
            panic!("{error}\n{}", self.deployment.logs());
        }
    }

    /// Number of the load of stock that the sale sells from.
    pub(super) async fn epoch(&self) -> u64 {
        until(&self.deployment, "the sale to be read", async |client| {
            Some(client.sale(self.sale).await.ok()?.epoch)
        })
        .await
    }

    /// The sale has noticed the fault, which is over, and goes on under a newer epoch than `before`.
    pub(super) async fn recovers_from(&self, what: &str, before: u64) {
        let (over, sold) = (Instant::now(), self.sold());
        let left = self.scenario.sale.quantity as usize - sold;
        assert!(
            left > 2 * SOLD_AGAIN,
            "{what}: it struck too late, {left} units are left"
        );
        let noticed = format!("{what} to be noticed, as it was under epoch {before}");
        until(&self.deployment, &noticed, async |client| {
            let sale = client.sale(self.sale).await.ok()?;
            (sale.epoch > before && sale.state == "open").then_some(())
        })
        .await;
        self.accepted(self.sold() + SOLD_AGAIN, PATIENCE).await;
        let resumed = over.elapsed();
        println!("{what} after {sold} orders: sells again after {resumed:?}");
        assert!(
            resumed < RESUMES_WITHIN,
            "{what}: sells again after {resumed:?}"
        );
    }
}
