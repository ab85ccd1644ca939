//! Whole sales over HTTP: as many units sold as there are, not one more and not one less.

use loadtest::api::NewSale;
use loadtest::client::{Client, PurchaseRequest};
use loadtest::outcome::Outcome;
use loadtest::run::run_sale;
use loadtest::scenario::Scenario;

use crate::harness::{Database, Deployment, Plan, assert_valid};

const SEGMENTS: [u32; 5] = [1, 4, 16, 64, 256];

/// 10,000 buyers want one to three of 1,000 units each, whatever the number of segments.
async fn ten_thousand_buyers(deployment: &Deployment) {
    for segments in SEGMENTS {
        let sale = NewSale {
            quantity: 1_000,
            segments,
            per_buyer_limit: 3,
            ..NewSale::default()
        };
        let scenario = Scenario {
            sale,
            buyers: 10_000,
            quantities: 1..=3,
            replay: true,
            ..Scenario::default()
        };
        let report = run_sale(&deployment.target, &scenario).await.unwrap();
        assert_valid(&report, 1_000, deployment);
        println!("{segments} segments: {:?}", report.elapsed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_buyers_at_one_process_on_sqlite_get_exactly_the_quantity() {
    ten_thousand_buyers(&Deployment::start(Plan::new(Database::Sqlite, 1)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_buyers_at_three_processes_on_postgres_get_exactly_the_quantity() {
    ten_thousand_buyers(&Deployment::start(Plan::new(Database::Postgres, 3)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_at_two_processes_at_the_same_instant_is_one_order_a_thousand_times() {
    let deployment = Deployment::start(Plan::new(Database::Postgres, 2)).await;
    let sale = NewSale {
        quantity: 2_000,
        per_buyer_limit: 2,
        ..NewSale::default()
    };
    let sale = loadtest::run::open_sale(
        &deployment.target,
        &Scenario {
            sale,
            ..Scenario::default()
        },
    )
    .await
    .unwrap();
    let (mut one, mut two) = (deployment.client(0), deployment.client(1));
    for n in 0..1_000 {
        let (buyer, key) = (format!("buyer-{n}"), format!("key-{n}"));
        let request = PurchaseRequest {
            sale: sale.id,
            buyer: &buyer,
            key: &key,
            quantity: 1,
            respond_async: false,
        };
        let (first, second) = tokio::join!(one.purchase(&request), two.purchase(&request));
        let (Outcome::Committed { order: a, .. }, Outcome::Committed { order: b, .. }) =
            (&first, &second)
        else {
            panic!("pair {n}: {first} and {second}\n{}", deployment.logs());
        };
        assert_eq!(a, b, "pair {n}");
    }
    assert_eq!(one.sale_orders(sale.id).await.unwrap().len(), 1_000);
    let books = loadtest::run::read_books(&deployment.target, sale.id, crate::harness::PATIENCE)
        .await
        .unwrap();
    assert!(books.settled, "{:?}", books.audit);
    assert_eq!(books.audit.terms.confirmed, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clicks_of_one_buyer_respect_key_and_limit() {
    let deployment = Deployment::start(Plan::new(Database::Sqlite, 2)).await;
    let sale = NewSale {
        quantity: 100,
        per_buyer_limit: 3,
        ..NewSale::default()
    };
    let scenario = Scenario {
        sale,
        ..Scenario::default()
    };
    let sale = loadtest::run::open_sale(&deployment.target, &scenario)
        .await
        .unwrap()
        .id;
    let mut clicks = tokio::task::JoinSet::new();
    for worker in 0..50_usize {
        let mut client: Client = deployment.client(worker);
        clicks.spawn(async move {
            let mut outcomes = Vec::new();
            for click in 0..20 {
                let key = format!("key-{}", (worker + click) % 10);
                let request = PurchaseRequest {
                    sale,
                    buyer: "eager",
                    key: &key,
                    quantity: 1,
                    respond_async: false,
                };
                outcomes.push((key.clone(), client.purchase(&request).await));
            }
            outcomes
        });
    }
    let outcomes: Vec<_> = clicks.join_all().await.into_iter().flatten().collect();
    let mut bought = std::collections::BTreeMap::new();
    for (key, outcome) in &outcomes {
        match outcome {
            Outcome::Committed { order, .. } => {
                let first = *bought.entry(key).or_insert(*order);
                assert_eq!(first, *order, "{key} names two orders");
            }
            Outcome::Refused { code } => assert_eq!(code, "limit-reached"),
            other => panic!("{key}: {other}"),
        }
    }
    assert_eq!(bought.len(), 3, "{bought:?}");
    assert_eq!(
        deployment
            .client(0)
            .buyer_orders("eager")
            .await
            .unwrap()
            .len(),
        3
    );
}
