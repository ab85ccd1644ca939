//! Purchases answered with 202, whose instance died before it committed them: they are in the
//! journal, and whoever loads the sale next takes them into the ledger.

use std::num::NonZeroU32;
use std::time::Duration;

use loadtest::api::NewSale;
use loadtest::pace::Pace;
use loadtest::scenario::Scenario;
use sqlx::{Connection as _, PgConnection, Row as _};

use super::scene::{SEGMENTS, Scene};
use crate::harness::{Database, Deployment, Plan, database};

/// The ledger's table of orders is locked for a while, so that promises stay open.
struct Lock {
    connection: PgConnection,
}

impl Lock {
    async fn take(url: &str) -> Self {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let lock = "begin; lock table purchase_order in exclusive mode";
        sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
        Self { connection }
    }

    async fn orders(&mut self) -> usize {
        let count = sqlx::query("select count(*) from purchase_order");
        let row = count.fetch_one(&mut self.connection).await.unwrap();
        usize::try_from(row.get::<i64, _>(0)).unwrap()
    }

    async fn give_back(mut self) {
        sqlx::raw_sql("rollback")
            .execute(&mut self.connection)
            .await
            .unwrap();
    }
}

/// Buyers are told 202, nothing can be committed, and all processes die and start again; then
/// `what` happens. None of these buyers comes back, and no sweep of the journal is due: only a load
/// can save them.
async fn promises_outlive(cause: &str, what: impl AsyncFnOnce(&mut Scene)) {
    let url = database().await;
    let mut plan = Plan::new(Database::Postgres, 3).flag("journal-grace-ms", 600_000);
    plan.database_url = Some(url.clone());
    let deployment = Deployment::start(plan).await;
    let scenario = Scenario {
        sale: NewSale {
            quantity: 1_500,
            segments: SEGMENTS,
            ..NewSale::default()
        },
        buyers: 2_000,
        pace: Pace::Constant {
            rate: NonZeroU32::new(800).unwrap(),
        },
        connections: 192,
        respond_async: true,
        patience: Duration::from_secs(60),
        ..Scenario::default()
    };
    let scene = Scene::open_at(deployment, scenario).await;
    scene
        .play(async |scene| {
            scene.sold_percent(30).await;
            let mut lock = Lock::take(&url).await;
            scene.sold_percent(50).await;
            for service in &mut scene.deployment.services {
                service.kill9().await.unwrap();
            }
            let open = scene.sold() - lock.orders().await;
            assert!(
                open > 50,
                "{open} promises are open: the fault was not injected"
            );
            lock.give_back().await;
            for service in &mut scene.deployment.services {
                service.restart().await.unwrap();
            }
            println!("{open} promises are open");
            let before = scene.epoch().await;
            what(scene).await;
            let loaded = scene.reopens_after(before).await;
            scene.is_so(loaded, cause, "no load followed");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_outlive_a_planned_load_after_their_instances_have_died() {
    promises_outlive("a planned load", async |scene| {
        let mut client = scene.deployment.client(1);
        client
            .change_segments(scene.sale, 2 * SEGMENTS)
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_outlive_their_instances_and_a_kill_of_redis() {
    promises_outlive("kill -9", async |scene| {
        scene.deployment.redis.restart().await.unwrap();
    })
    .await;
}
