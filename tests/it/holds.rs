//! Holds end once: by confirmation, cancellation or expiry, whoever is first, and their units return once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use loadtest::api::{NewSale, OrderState};
use loadtest::client::{As, CallError, PurchaseRequest};
use loadtest::run::{open_sale, read_books};
use loadtest::scenario::Scenario;

use crate::harness::{Database, Deployment, PATIENCE, Plan, until};

const HOLDS: u32 = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_holds_paid_and_cancelled_at_the_moment_of_expiry_end_once() {
    let deployment = Deployment::start(Plan::new(Database::Postgres, 3)).await;
    let sale = NewSale {
        quantity: HOLDS,
        hold_seconds: 3,
        ..NewSale::default()
    };
    let scenario = Scenario {
        sale,
        buyers: HOLDS,
        connections: 64,
        ..Scenario::default()
    };
    let sale = open_sale(&deployment.target, &scenario).await.unwrap().id;
    let hasty = Scenario {
        settle: Duration::from_millis(1),
        ..scenario
    };
    let run = loadtest::run::run_opened(&deployment.target, &hasty, sale, Arc::default());
    let report = run.await.unwrap();
    assert_eq!(
        report.judgement.tally.committed, HOLDS as usize,
        "{:?}",
        report.judgement
    );
    let orders = &report.books.orders;

    // Every second order is paid or cancelled within the last and first 50 ms around its end.
    let mut tasks = tokio::task::JoinSet::new();
    for (n, order) in orders.iter().enumerate().filter(|(n, _)| n % 2 == 0) {
        let mut client = deployment.client(n);
        let (id, expires) = (order.id, order.hold_expires_at.expect("a hold has an end"));
        tasks.spawn(async move {
            let jitter = i64::try_from(n % 101).unwrap_or(0) - 50;
            let at = expires + time::Duration::milliseconds(jitter);
            let wait = (at - time::OffsetDateTime::now_utc())
                .try_into()
                .unwrap_or_default();
            tokio::time::sleep(wait).await;
            let answer = match n % 4 {
                0 => client.confirm(id, false).await,
                _ => client.cancel(As::Admin, id).await,
            };
            match answer {
                Ok(order) => (id, Some(order.state)),
                Err(CallError::Problem(_)) => (id, None),
                Err(other) => panic!("order {id}: {other}"),
            }
        });
    }
    let told: BTreeMap<_, _> = tasks.join_all().await.into_iter().collect();
    let won = told.values().filter(|state| state.is_some()).count();
    assert!(
        won > 0 && won < told.len(),
        "no race took place: {won} of {} won",
        told.len()
    );

    let audit = until(
        &deployment,
        "all holds to end, all units to return",
        async |client| {
            let audit = client.audit(sale).await.ok()?;
            let terms = &audit.terms;
            (terms.held == 0 && terms.returning == 0 && terms.journaled == 0).then_some(audit)
        },
    )
    .await;
    let books = read_books(&deployment.target, sale, PATIENCE)
        .await
        .unwrap();
    for order in &books.orders {
        assert_ne!(
            order.state,
            OrderState::Reserved,
            "order {} is still held",
            order.id
        );
        if let Some(Some(state)) = told.get(&order.id) {
            assert_eq!(
                order.state, *state,
                "order {} changed after its end",
                order.id
            );
        }
    }
    let confirmed = books
        .orders
        .iter()
        .filter(|o| o.state == OrderState::Confirmed)
        .count();
    assert_eq!(
        audit.terms.available,
        i64::from(HOLDS) - confirmed as i64,
        "{audit:?}"
    );
    assert_eq!(
        audit.terms.sum(),
        i64::from(HOLDS),
        "{audit:?}\n{}",
        deployment.logs()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_after_expiry_buys_again_if_stock_remains_and_is_refused_if_not() {
    let deployment = Deployment::start(Plan::new(Database::Sqlite, 1)).await;
    let sale = NewSale {
        quantity: 1,
        hold_seconds: 1,
        ..NewSale::default()
    };
    let scenario = Scenario {
        sale,
        ..Scenario::default()
    };
    let sale = open_sale(&deployment.target, &scenario).await.unwrap().id;
    let mut client = deployment.client(0);
    let mut expired = Vec::new();
    for buyer in ["slow", "slower"] {
        let request = PurchaseRequest {
            sale,
            buyer,
            key: "k",
            quantity: 1,
            respond_async: false,
        };
        let order = until(&deployment, "the unit to be free", async |client| {
            client.purchase(&request).await.order()
        })
        .await;
        until(&deployment, "the hold to end", async |client| {
            let order = client.order(As::Admin, order).await.ok()?;
            (order.state == OrderState::Expired).then_some(())
        })
        .await;
        expired.push(order);
    }
    let refused = client.confirm(expired[0], false).await;
    assert!(
        matches!(&refused, Err(CallError::Problem(_))),
        "{refused:?}"
    );
    // The unit of the second hold comes back a moment after the hold's end.
    let bought = until(
        &deployment,
        "the late payment to buy again",
        async |client| client.confirm(expired[0], true).await.ok(),
    )
    .await;
    assert_eq!(bought.state, OrderState::Confirmed);
    assert_ne!(bought.id, expired[0]);
    assert_eq!(
        client.confirm(expired[0], true).await.unwrap().id,
        bought.id,
        "bought twice"
    );
    match client.confirm(expired[1], true).await {
        Err(CallError::Problem(problem)) => assert_eq!(problem.code, "sold-out"),
        other => panic!("the only unit was sold twice: {other:?}"),
    }
}
