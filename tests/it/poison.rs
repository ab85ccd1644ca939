//! One purchase that the database refuses harms nobody else.

use std::time::Duration;

use hyper::Method;
use loadtest::api::{NewSale, OrderState};
use loadtest::client::{As, PurchaseRequest};
use loadtest::outcome::Outcome;
use loadtest::run::{open_sale, read_books};
use loadtest::scenario::Scenario;
use loadtest::servers::PostgresServer;

use crate::harness::{Database, Deployment, PATIENCE, Plan, database, until};

const BATCH: usize = 500;

/// The database refuses every order of this buyer unless it is a rejected one.
const POISON: &str = "
    create function refuse_poison() returns trigger language plpgsql as $$
    begin
        if new.buyer_id = 'poison' and new.state <> 'rejected' then
            raise exception 'poison';
        end if;
        return new;
    end $$;
    create trigger poison before insert on purchase_order
        for each row execute function refuse_poison();";

#[tokio::test(flavor = "multi_thread")]
async fn one_poisoned_purchase_in_a_batch_of_five_hundred_harms_nobody_else() {
    let server = PostgresServer::shared().await.unwrap();
    let url = database().await;
    let name = url.rsplit('/').next().expect("a URL has a path").to_owned();
    let mut plan = Plan::new(Database::Postgres, 1).flag("statement-timeout-ms", 20_000);
    plan.database_url = Some(url.clone());
    let deployment = Deployment::start(plan).await;
    server.psql(&name, POISON).await.unwrap();
    let sale = NewSale {
        quantity: 1_000,
        ..NewSale::default()
    };
    let scenario = Scenario {
        sale,
        ..Scenario::default()
    };
    let sale = open_sale(&deployment.target, &scenario).await.unwrap().id;

    // While somebody else holds the sale's row, all purchases gather behind the first two commits.
    let lock = tokio::spawn({
        let name = name.clone();
        async move {
            let hold = "begin; select 1 from sale for update; select pg_sleep(1.5); commit;";
            server.psql(&name, hold).await
        }
    });
    until(&deployment, "the row to be locked", async |_| {
        let locked = "select count(*) from pg_stat_activity where query like '%pg_sleep(1.5)%'
                       and pid <> pg_backend_pid() and datname = current_database()";
        let count = server.psql(&name, locked).await.ok()?;
        (count.trim() == "1").then_some(())
    })
    .await;
    let mut buyers = tokio::task::JoinSet::new();
    for n in 0..BATCH {
        let mut client = deployment.client(0);
        buyers.spawn(async move {
            let buyer = if n == BATCH / 2 {
                "poison".to_owned()
            } else {
                format!("buyer-{n}")
            };
            let request = PurchaseRequest {
                sale,
                buyer: &buyer,
                key: "k",
                quantity: 1,
                respond_async: false,
            };
            let outcome = tokio::time::timeout(Duration::from_secs(30), client.purchase(&request));
            (buyer.clone(), outcome.await.expect("an answer"))
        });
    }
    let outcomes = buyers.join_all().await;
    lock.await.unwrap().unwrap();
    for (buyer, outcome) in &outcomes {
        match (buyer.as_str(), outcome) {
            ("poison", Outcome::Refused { code }) => assert_eq!(code, "rejected"),
            ("poison", Outcome::Admitted { .. }) => {}
            ("poison", other) => panic!("poison: {other}"),
            (_, outcome) => assert!(outcome.order().is_some(), "{buyer}: {outcome}"),
        }
    }
    let mut client = deployment.client(0);
    let rejected = until(
        &deployment,
        "the poisoned purchase to be rejected",
        async |client| {
            let orders = client.buyer_orders("poison").await.ok()?;
            orders
                .into_iter()
                .find(|order| order.state == OrderState::Rejected)
        },
    )
    .await;
    assert_eq!(
        client
            .order(As::Buyer("poison"), rejected.id)
            .await
            .unwrap()
            .id,
        rejected.id
    );
    let books = read_books(&deployment.target, sale, PATIENCE)
        .await
        .unwrap();
    let terms = &books.audit.terms;
    assert_eq!(terms.confirmed, BATCH as i64 - 1, "{:?}", books.audit);
    assert_eq!(
        terms.available,
        1_000 - (BATCH as i64 - 1),
        "{:?}",
        books.audit
    );
    let metrics = client
        .send(As::Anonymous, Method::GET, "/metrics", &[], None)
        .await
        .unwrap();
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let largest = largest_commit(&metrics);
    assert!(
        largest >= 250,
        "the batch was never large: at most {largest} in one commit"
    );
}

/// The upper bound of the largest bucket of commit sizes that holds anything.
fn largest_commit(metrics: &str) -> u64 {
    let mut before = 0;
    let mut largest = 0;
    for line in metrics
        .lines()
        .filter(|line| line.contains("ledger_commit_size") && line.contains("le="))
    {
        let bound = line
            .split("le=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let count: u64 = line
            .rsplit(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        if count > before {
            largest = bound
                .and_then(|b| b.parse::<f64>().ok())
                .map_or(u64::MAX, |b| b as u64);
        }
        before = count;
    }
    largest
}
