//! The database is gone for a while: what is admitted is promised with 202, nobody is refused falsely,
//! and the backlog drains by itself.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use loadtest::api::NewSale;
use loadtest::judge::Verdict;
use loadtest::pace::Pace;
use loadtest::run::{open_sale, run_opened};
use loadtest::scenario::Scenario;
use loadtest::servers::{PostgresOptions, PostgresServer};

use crate::harness::{Database, Deployment, Plan};

const OUTAGE: Duration = Duration::from_secs(10);
const RATE_PER_SECOND: NonZeroU32 = NonZeroU32::new(2_000).unwrap();
const SECONDS: u32 = 16;

#[tokio::test(flavor = "multi_thread")]
async fn ten_seconds_without_postgres_at_two_thousand_purchases_a_second_lose_nothing() {
    let mut postgres = PostgresServer::start(&PostgresOptions::default())
        .await
        .unwrap();
    let mut plan = Plan::new(Database::Postgres, 2).flag("commit-wait-ms", 100);
    plan.database_url = Some(postgres.create_database("outage").await.unwrap());
    let deployment = Deployment::start(plan).await;
    let purchases = RATE_PER_SECOND.get() * SECONDS;
    let scenario = Scenario {
        sale: NewSale {
            quantity: purchases + 1,
            ..NewSale::default()
        },
        buyers: purchases,
        connections: 512,
        pace: Pace::Constant {
            rate: RATE_PER_SECOND,
        },
        patience: Duration::from_secs(60),
        settle: Duration::from_secs(60),
        ..Scenario::default()
    };
    let sale = open_sale(&deployment.target, &scenario).await.unwrap().id;
    let run = run_opened(&deployment.target, &scenario, sale, Arc::default());
    let outage = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        postgres.kill9().await.unwrap();
        tokio::time::sleep(OUTAGE).await;
        postgres.restart().await.unwrap();
    };
    let (report, ()) = tokio::join!(run, outage);
    let report = report.unwrap();
    let (judgement, tally) = (&report.judgement, &report.judgement.tally);
    assert_eq!(
        judgement.verdict,
        Verdict::Valid,
        "{judgement:#?}\n{}",
        deployment.logs()
    );
    assert!(
        tally.admitted > 1_000,
        "nobody was told 202, so there was no outage: {tally:?}"
    );
    assert!(
        tally.refused.is_empty(),
        "refused although there was stock: {tally:?}"
    );
    assert_eq!(
        tally.committed + tally.admitted,
        purchases as usize,
        "{tally:?}"
    );
    assert_eq!(tally.sold, i64::from(purchases), "{tally:?}");
}
