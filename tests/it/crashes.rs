//! The service is killed at every labelled point, in the middle of a sale: nothing that was promised is
//! lost, and nothing is sold twice.

use std::sync::Arc;
use std::time::Duration;

use loadtest::api::NewSale;
use loadtest::run::{open_sale, run_opened};
use loadtest::scenario::Scenario;
use loadtest::servers::{Service, ServiceOptions};
use stockade::crash::POINTS;

use crate::harness::{Database, Deployment, PATIENCE, Plan, assert_valid, repeats, until};

/// Starts the process again without its order to crash, as soon as it is dead.
async fn revive(service: &mut Service, options: &ServiceOptions) {
    let status = service
        .wait(PATIENCE)
        .await
        .expect("the crash point was never reached");
    assert!(!status.success(), "it ended by itself: {status}");
    service.restart_with(options).await.unwrap();
}

/// The same options with an order to die at the `count`th passage of the point.
fn doomed(options: &ServiceOptions, point: &str, count: u32) -> ServiceOptions {
    let mut doomed = options.clone();
    doomed
        .env
        .push(("STOCKADE_CRASH_AT".to_owned(), format!("{point}:{count}")));
    doomed
}

async fn crash_at(point: &'static str, count: u32, database: Database, respond_async: bool) {
    let returning = point.starts_with("return");
    // A second process could end all the holds, and the victim never pass the point.
    let instances = if returning { 1 } else { 2 };
    let plan = Plan::new(database, instances).flag("journal-grace-ms", 300);
    let mut deployment = Deployment::start(plan).await;
    // Holds of a second end during and after the run, so that units return while it crashes.
    let hold_seconds = u32::from(returning);
    let sale = NewSale {
        quantity: 300,
        per_buyer_limit: 2,
        hold_seconds,
        ..NewSale::default()
    };
    let scenario = Scenario {
        sale,
        buyers: 1_200,
        connections: 64,
        respond_async,
        // Whoever was told 202 does not come back: only the sweep can finish what the dead one began.
        replay: !respond_async,
        patience: Duration::from_secs(60),
        ..Scenario::default()
    };
    let sale = open_sale(&deployment.target, &scenario).await.unwrap().id;
    let options = deployment.options[0].clone();
    // Many holds end in one transaction: the point may be passed only once.
    let count = if returning { 1 } else { count };
    let doomed = doomed(&options, point, count);
    let mut victim = deployment.services.remove(0);
    victim.restart_with(&doomed).await.unwrap();
    let target = deployment.target.clone();
    let run = run_opened(&target, &scenario, sale, Arc::default());
    let (report, ()) = tokio::join!(run, revive(&mut victim, &options));
    let report = report.unwrap();
    deployment.services.insert(0, victim);
    if returning {
        // Everything expires: at the end every unit is back, once.
        let audit = until(&deployment, "all holds to end", async |client| {
            let audit = client.audit(sale).await.ok()?;
            (audit.terms.available == 300).then_some(audit)
        })
        .await;
        assert_eq!(audit.terms.sum(), 300, "{audit:?}");
    } else {
        assert_valid(&report, 300, &deployment);
    }
}

/// Points that a sale passes once it is open; those of a load have a test of their own.
fn selling_points() -> impl Iterator<Item = &'static str> {
    POINTS
        .into_iter()
        .filter(|point| !point.starts_with("load"))
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
    for point in POINTS.into_iter().filter(|point| point.starts_with("load")) {
        // The upkeep of the other process would load the sale first.
        let plan = Plan::new(Database::Postgres, 2).flag("upkeep-pause-ms", 60_000);
        let mut deployment = Deployment::start(plan).await;
        let options = deployment.options[0].clone();
        let mut victim = deployment.services.remove(0);
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
        let opened = first
            .change_sale(sale, loadtest::client::SaleAction::Open)
            .await;
        assert!(
            opened.is_err(),
            "{point}: the process that opened the sale did not die"
        );
        revive(&mut victim, &options).await;
        deployment.services.insert(0, victim);
        let report = run_opened(&deployment.target, &scenario, sale, Arc::default())
            .await
            .unwrap();
        assert_valid(&report, 100, &deployment);
    }
}
