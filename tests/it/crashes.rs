//! The service is killed at every labelled point, in the middle of a sale: nothing that was
//! promised is lost, and nothing is sold twice.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use loadtest::api::NewSale;
use loadtest::client::{Client, SaleAction};
use loadtest::pace::Pace;
use loadtest::run::{open_sale, run_opened};
use loadtest::scenario::Scenario;
use loadtest::servers::{RedisServer, Service, ServiceOptions, eventually, eventually_within};
use loadtest::worker::Progress;
use stockade::crash::POINTS;

use crate::harness::{Database, Deployment, PATIENCE, Plan, assert_valid, repeats};

const INSTANCES: usize = 3;

/// Starts dead processes again, without their order to crash, for as long as it is polled; counts
/// them.
async fn revive(services: &mut [Service], options: &[ServiceOptions], dead: &Cell<u32>) -> ! {
    loop {
        for (service, options) in services.iter_mut().zip(options) {
            if let Ok(status) = service.wait(Duration::ZERO).await {
                assert!(!status.success(), "it ended by itself: {status}");
                dead.set(dead.get() + 1);
                service.restart_with(options).await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Lets a story happen while all processes are under the order to die at the `count`th passage of
/// the point, each of them once. One of them must come to pass it.
async fn doomed_at<T>(
    point: &str,
    count: u32,
    deployment: &mut Deployment,
    story: impl AsyncFnOnce(&mut RedisServer) -> T,
) -> T {
    for (service, options) in deployment.services.iter_mut().zip(&deployment.options) {
        let doomed = doomed(options, point, count);
        service.restart_with(&doomed).await.unwrap();
    }
    let dead = Cell::new(0);
    let told = tokio::select! {
        told = story(&mut deployment.redis) => told,
        never = revive(&mut deployment.services, &deployment.options, &dead) => never,
    };
    let dead = dead.get();
    assert!(dead > 0, "{point} was never reached\n{}", deployment.logs());
    println!("{point}: {dead} died");
    told
}

/// The same options with an order to die at the `count`th passage of the point.
fn doomed(options: &ServiceOptions, point: &str, count: u32) -> ServiceOptions {
    let mut doomed = options.clone();
    doomed
        .env
        .push(("STOCKADE_CRASH_AT".to_owned(), format!("{point}:{count}")));
    doomed
}

/// So few units in each of so many segments that all borrow from each other.
fn sale_in_segments(quantity: u32) -> NewSale {
    NewSale {
        quantity,
        segments: 64,
        ..NewSale::default()
    }
}

async fn crash_at(point: &'static str, count: u32, database: Database, respond_async: bool) {
    let returning = point.starts_with("return");
    let plan = Plan::new(database, INSTANCES).flag("journal-grace-ms", 300);
    let mut deployment = Deployment::start(plan).await;
    // Holds of a second end during and after the run, so that units return while it crashes.
    let hold_seconds = u32::from(returning);
    let sale = NewSale {
        per_buyer_limit: 2,
        hold_seconds,
        ..sale_in_segments(300)
    };
    let scenario = Scenario {
        sale,
        buyers: 1_200,
        connections: 64,
        respond_async,
        // Whoever was told 202 does not come back: only the sweep can finish what the dead one
        // began.
        replay: !respond_async,
        patience: Duration::from_secs(60),
        ..Scenario::default()
    };
    let sale = open_sale(&deployment.target, &scenario).await.unwrap().id;
    // Many holds end in one transaction, and units are moved in bulk: such a point may be passed
    // only once.
    let often = !returning && !point.starts_with("transfer");
    let count = if often { count } else { 1 };
    let target = deployment.target.clone();
    let sold = async |_: &mut RedisServer| {
        let report = run_opened(&target, &scenario, sale, Arc::default()).await;
        if returning {
            // Everything expires: at the end every unit is back, once.
            let back = async || {
                let audit = Client::new(&target, 0).audit(sale).await.ok()?;
                (audit.terms.available == 300 && audit.terms.sum() == 300).then_some(())
            };
            let limit = Duration::from_secs(60);
            eventually_within(limit, "all units to be back", back)
                .await
                .unwrap();
        }
        report.unwrap()
    };
    let report = doomed_at(point, count, &mut deployment, sold).await;
    if !returning {
        assert_valid(&report, 300, &deployment);
    }
}

/// Points that a sale passes once it is open; those of a load have a test of their own.
fn selling_points() -> impl Iterator<Item = &'static str> {
    POINTS
        .into_iter()
        .filter(|point| !point.starts_with("load"))
}

fn load_points() -> impl Iterator<Item = &'static str> {
    POINTS.into_iter().filter(|point| point.starts_with("load"))
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_of_a_purchase_on_sqlite_it_loses_nothing() {
    for _ in 0..repeats() {
        for (n, point) in selling_points().enumerate() {
            crash_at(point, 2, Database::Sqlite, n % 2 == 1).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_of_a_purchase_on_postgres_it_loses_nothing() {
    for _ in 0..repeats() {
        for (n, point) in selling_points().enumerate() {
            crash_at(point, 3, Database::Postgres, n % 2 == 0).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_of_a_load_another_process_finishes_it() {
    // At the first load there is nothing to seal.
    for point in load_points().filter(|point| *point != "load:sealed") {
        // The upkeep of the others would load the sale first.
        let plan = Plan::new(Database::Postgres, INSTANCES).flag("upkeep-pause-ms", 60_000);
        let mut deployment = Deployment::start(plan).await;
        let options = deployment.options[0].clone();
        let victim = &mut deployment.services[0];
        victim
            .restart_with(&doomed(&options, point, 1))
            .await
            .unwrap();
        let scenario = Scenario {
            buyers: 500,
            replay: true,
            ..Scenario::default()
        };
        let sale = deployment
            .client(1)
            .create_sale(&scenario.sale)
            .await
            .unwrap()
            .id;
        let mut first = deployment.client(0);
        let opened = first.change_sale(sale, SaleAction::Open).await;
        assert!(
            opened.is_err(),
            "{point}: the process that opened the sale did not die"
        );
        let victim = &mut deployment.services[0];
        victim.wait(PATIENCE).await.unwrap();
        victim.restart_with(&options).await.unwrap();
        let report = run_opened(&deployment.target, &scenario, sale, Arc::default())
            .await
            .unwrap();
        assert_valid(&report, 100, &deployment);
    }
}

/// Whoever comes to load dies; the lease of each must run out before the next one begins.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_of_a_load_under_way_in_a_sale_it_loses_nothing() {
    for point in load_points() {
        let mut deployment = Deployment::start(Plan::new(Database::Postgres, INSTANCES)).await;
        let scenario = Scenario {
            sale: sale_in_segments(1_000),
            buyers: 1_500,
            connections: 128,
            pace: Pace::Constant {
                rate: NonZeroU32::new(800).unwrap(),
            },
            patience: Duration::from_secs(60),
            replay: true,
            ..Scenario::default()
        };
        let sale = open_sale(&deployment.target, &scenario).await.unwrap().id;
        let (target, progress) = (deployment.target.clone(), Arc::<Progress>::default());
        let sold = async |redis: &mut RedisServer| {
            let run = run_opened(&target, &scenario, sale, Arc::clone(&progress));
            let fault = async {
                let selling = async || (progress.accepted() > 300).then_some(());
                eventually("the sale to be in full swing", selling)
                    .await
                    .unwrap();
                redis.restart().await.unwrap();
            };
            tokio::join!(run, fault).0.unwrap()
        };
        let report = doomed_at(point, 1, &mut deployment, sold).await;
        assert_valid(&report, 1_000, &deployment);
    }
}
