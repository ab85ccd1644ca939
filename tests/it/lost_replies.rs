//! A reply is lost, or a request arrives late: there is one truth all the same, and no unit is lost.

use std::time::Duration;

use loadtest::api::{NewSale, Sale};
use loadtest::client::{As, PurchaseRequest};
use loadtest::outcome::Outcome;
use loadtest::run::{open_sale, read_books};
use loadtest::scenario::Scenario;
use loadtest::servers::{Address, PostgresServer, Proxy, eventually};
use redis::Script;

use crate::harness::{Database, Deployment, PATIENCE, Plan, database, redis, until};

/// The start of the purchase script's digest: what a call of it contains on the wire.
fn purchase_call() -> Vec<u8> {
    let script = Script::new(include_str!("../../scripts/redis/purchase.lua"));
    script.get_hash().as_bytes()[..40].to_vec()
}

fn request<'a>(sale: u32, buyer: &'a str, key: &'a str) -> PurchaseRequest<'a> {
    PurchaseRequest {
        sale,
        buyer,
        key,
        quantity: 1,
        respond_async: false,
    }
}

/// Two instances on one Redis; the first one reaches it through the proxy.
async fn behind_a_redis_proxy(flags: &[(&str, u64)]) -> (Deployment, Proxy) {
    let redis = redis().await;
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let mut plan = Plan::new(Database::Sqlite, 2).flag("redis-connections", 1);
    for (name, value) in flags {
        plan = plan.flag(name, *value);
    }
    plan.redis_urls = Some(vec![
        format!("redis://127.0.0.1:{}", proxy.port()),
        redis.url(),
    ]);
    (Deployment::start_on(plan, redis).await, proxy)
}

async fn open(deployment: &Deployment, quantity: u32, hold_seconds: u32) -> Sale {
    let sale = NewSale {
        quantity,
        hold_seconds,
        ..NewSale::default()
    };
    let scenario = Scenario {
        sale,
        ..Scenario::default()
    };
    open_sale(&deployment.target, &scenario).await.unwrap()
}

async fn assert_balanced(deployment: &Deployment, sale: u32, active: i64) {
    let books = read_books(&deployment.target, sale, PATIENCE)
        .await
        .unwrap();
    let terms = &books.audit.terms;
    assert!(books.settled, "{:?}", books.audit);
    assert_eq!(terms.sum(), terms.quantity, "{:?}", books.audit);
    assert_eq!(terms.held + terms.confirmed, active, "{:?}", books.audit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_whose_reply_from_redis_is_lost_is_one_order() {
    let (deployment, proxy) = behind_a_redis_proxy(&[]).await;
    let sale = open(&deployment, 10, 0).await.id;
    let mut client = deployment.client(0);
    // The first purchase makes sure that the script is known to the server.
    assert!(
        client
            .purchase(&request(sale, "first", "k"))
            .await
            .order()
            .is_some()
    );
    proxy.drop_next_reply(&purchase_call());
    let outcome = client.purchase(&request(sale, "unlucky", "k")).await;
    assert_eq!(
        proxy.counts().replies_dropped,
        1,
        "the fault was not injected"
    );
    let Outcome::Committed { order, .. } = outcome else {
        panic!("{outcome}\n{}", deployment.logs())
    };
    let again = deployment
        .client(1)
        .purchase(&request(sale, "unlucky", "k"))
        .await;
    assert_eq!(
        again,
        Outcome::Committed {
            order,
            replayed: true
        }
    );
    assert_balanced(&deployment, sale, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_arrives_after_the_buyer_was_refused_buys_nothing() {
    let (deployment, proxy) = behind_a_redis_proxy(&[("purchase-wait-ms", 20_000)]).await;
    let sale = open(&deployment, 2, 60).await.id;
    let (mut slow, mut quick) = (deployment.client(0), deployment.client(1));
    assert!(
        slow.purchase(&request(sale, "first", "k"))
            .await
            .order()
            .is_some()
    );

    let mut held = proxy.hold_next_request(&purchase_call());
    let wire_cut = request(sale, "late", "k");
    let waiting = tokio::spawn({
        let mut slow = deployment.client(0);
        async move { slow.purchase(&request(sale, "late", "k")).await }
    });
    // While the first copy is under way, somebody else takes the last unit; the second copy is refused.
    // The connection is cut meanwhile, so that the second copy cannot be quicker.
    held.caught().await.unwrap();
    proxy.cut().await;
    let last = quick.purchase(&request(sale, "rival", "k")).await.order();
    let last = last.expect("the rival gets the last unit");
    proxy.restore().await;
    let refused = waiting.await.unwrap();
    let late_won = refused.order().is_some();
    if late_won {
        // The second copy was sent before the cut: nothing to see, and nothing wrong.
        assert_balanced(&deployment, sale, 2).await;
        return;
    }
    assert_eq!(
        refused,
        Outcome::Refused {
            code: "held".to_owned()
        }
    );
    quick.cancel(As::Admin, last).await.unwrap();
    until(&deployment, "the unit to return", async |client| {
        let stock = client.stock(sale).await.ok()?;
        (stock.terms.available == 1).then_some(())
    })
    .await;
    held.deliver().await.unwrap();
    assert_eq!(
        proxy.counts().requests_delivered,
        1,
        "the fault was not injected"
    );
    assert_balanced(&deployment, sale, 1).await;
    let again = slow.purchase(&wire_cut).await;
    assert_eq!(
        again,
        Outcome::Refused {
            code: "void".to_owned()
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_arrives_after_its_time_does_nothing() {
    let flags = [("purchase-wait-ms", 300), ("redis-timeout-ms", 100)];
    let (deployment, proxy) = behind_a_redis_proxy(&flags).await;
    let sale = open(&deployment, 10, 0).await.id;
    let mut slow = deployment.client(0);
    assert!(
        slow.purchase(&request(sale, "first", "k"))
            .await
            .order()
            .is_some()
    );
    let mut held = proxy.hold_next_request(&purchase_call());
    let waiting = tokio::spawn({
        let mut slow = deployment.client(0);
        async move { slow.purchase(&request(sale, "late", "k")).await }
    });
    held.caught().await.unwrap();
    proxy.cut().await;
    let outcome = waiting.await.unwrap();
    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome}");
    // The copy's time is over when the buyer has been told that the outcome is unknown.
    tokio::time::sleep(Duration::from_millis(50)).await;
    held.deliver().await.unwrap();
    assert_eq!(
        proxy.counts().requests_delivered,
        1,
        "the fault was not injected"
    );
    proxy.restore().await;
    assert_balanced(&deployment, sale, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_reply_is_lost_is_one_order() {
    let server = PostgresServer::shared().await.unwrap();
    let direct = database().await;
    let name = direct.rsplit('/').next().expect("a URL has a path");
    let Address::Tcp(_) = server.address() else {
        panic!("PostgreSQL listens on TCP")
    };
    let proxy = Proxy::start(server.address()).await.unwrap();
    let mut plan = Plan::new(Database::Postgres, 1).flag("database-connections", 2);
    plan.database_url = Some(server.url_through(proxy.port(), name));
    let deployment = Deployment::start(plan).await;
    let sale = open(&deployment, 100, 0).await.id;
    let mut client = deployment.client(0);
    for n in 0..20 {
        let (buyer, before) = (format!("buyer-{n}"), proxy.counts().replies_dropped);
        proxy.drop_next_reply(b"COMMIT");
        let request = request(sale, &buyer, "k");
        let first = client.purchase(&request).await;
        let Some(order) = first.order() else {
            panic!("{first}\n{}", deployment.logs())
        };
        // A slow commit was answered 202, and the fault is still to come.
        eventually("the fault to be injected", async || {
            (proxy.counts().replies_dropped == before + 1).then_some(())
        })
        .await
        .unwrap();
        let again = client.purchase(&request).await;
        assert_eq!(again.order(), Some(order));
    }
    assert_balanced(&deployment, sale, 20).await;
}
