//! What the ledger says when its database does not answer, and that it says the truth.

use std::time::Duration;

use loadtest::servers::{PostgresOptions, PostgresServer, Proxy};
use stockade::domain::{
    BuyerId, IdempotencyKey, NewSale, OrderId, OrderState, Purchase, SaleId, Strategy,
};
use stockade::ledger::{
    ChangeAnswer, Commit, Error, Ledger, Limits, QuantityChange, StockChange, Transition,
};

use super::{LIMITS, connect, postgres_execute, postgres_url, sqlite_url};

const HOLD_SECONDS: u32 = 3_600;

async fn loaded_sale(ledger: &Ledger) -> SaleId {
    let terms = NewSale {
        product: "sku-1".into(),
        title: "A phone".into(),
        price_minor: 9_900,
        currency: "CNY".into(),
        quantity: 100,
        segments: 1,
        per_buyer_limit: 10,
        opens_at: None,
        closes_at: None,
        hold_seconds: HOLD_SECONDS,
        strategy: Strategy::Segmented,
    };
    let sale = ledger.create_sale(&terms).await.unwrap().id;
    assert!(
        ledger
            .fence(sale, 0, Duration::from_secs(60))
            .await
            .unwrap()
    );
    assert!(ledger.finish_load(sale, 1).await.unwrap());
    sale
}

fn purchases(sale: SaleId, buyers: std::ops::Range<u32>) -> Vec<Purchase> {
    let key = IdempotencyKey::parse("k").unwrap();
    let purchase = |n| {
        let buyer = BuyerId::parse(&format!("buyer-{n}")).unwrap();
        Purchase {
            order: OrderId::of(sale, &buyer, &key),
            buyer,
            quantity: 1,
        }
    };
    buyers.map(purchase).collect()
}

async fn taken(ledger: &Ledger, sale: SaleId) -> u64 {
    let count = ledger.count(sale).await.unwrap().unwrap();
    assert_eq!(
        count.sale.taken,
        count.reserved + count.confirmed,
        "{count:?}"
    );
    count.sale.taken
}

/// A ledger that reaches its database through a proxy, and one that goes there directly.
async fn proxied(name: &str) -> (Proxy, Ledger, Ledger) {
    let server = PostgresServer::shared().await.unwrap();
    let direct = connect(&server.create_database(name).await.unwrap()).await;
    direct.migrate().await.unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let ledger = connect(&server.url_through(proxy.port(), name)).await;
    (proxy, ledger, direct)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_a_commit_is_an_unknown_outcome_and_can_be_repeated() {
    let (proxy, ledger, direct) = proxied("lost_commit").await;
    let sale = loaded_sale(&direct).await;
    let group = purchases(sale, 0..3);

    proxy.drop_next_reply(b"COMMIT");
    let lost = ledger.commit(sale, 1, &group).await;
    assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
    assert_eq!(taken(&direct, sale).await, 3, "this commit had happened");
    let again = ledger.commit(sale, 1, &group).await.unwrap();
    let Commit::Committed(orders) = again else {
        panic!("{again:?}")
    };
    assert!(orders.iter().all(|done| !done.fresh), "{orders:?}");

    proxy.drop_next_reply(b"COMMIT");
    let lost = ledger.cancel(group[0].order).await;
    assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
    let (again, returned) = ledger.cancel(group[0].order).await.unwrap();
    assert!(matches!(again, Transition::Done(_)), "{again:?}");
    assert!(returned.is_none(), "the first call wrote the return");
    assert_eq!(ledger.returns(9).await.unwrap().len(), 1);
    assert_eq!(taken(&direct, sale).await, 2);
    assert_eq!(proxy.counts().replies_dropped, 2, "the fault was injected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_a_change_of_stock_is_told_by_the_next_snapshot() {
    let (proxy, ledger, direct) = proxied("lost_change").await;
    let sale = loaded_sale(&direct).await;
    assert!(
        direct
            .fence(sale, 1, Duration::from_secs(60))
            .await
            .unwrap()
    );
    let quantity = Some(QuantityChange { from: 100, to: 150 });
    let change = StockChange {
        quantity,
        segments: Some(8),
    };
    proxy.drop_next_reply(b"COMMIT");
    let lost = ledger.snapshot(sale, 2, Some(&change)).await;
    assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
    let next = ledger.snapshot(sale, 2, None).await.unwrap().unwrap();
    let terms = next.sale.terms;
    assert_eq!(
        (terms.quantity, terms.segments),
        (150, 8),
        "it had happened"
    );
    let repeated = ledger.snapshot(sale, 2, Some(&change)).await.unwrap();
    let stale = ChangeAnswer::Stale { quantity: 150 };
    assert_eq!(repeated.unwrap().change, Some(stale));
    assert_eq!(proxy.counts().replies_dropped, 1, "the fault was injected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_before_the_commit_has_changed_nothing() {
    let (proxy, ledger, direct) = proxied("lost_insert").await;
    let sale = loaded_sale(&direct).await;
    let group = purchases(sale, 0..3);
    // Prepared once, so that the statement's text is not sent again and the next request that
    // contains the table's name is none of these.
    ledger.commit(sale, 1, &group[..1]).await.unwrap();
    for pattern in ["BEGIN", "buyer-1"] {
        proxy.drop_next_reply(pattern.as_bytes());
        let lost = ledger.commit(sale, 1, &group).await;
        assert!(
            matches!(lost, Err(Error::Transient(_))),
            "after {pattern}: {lost:?}"
        );
        assert_eq!(taken(&direct, sale).await, 1, "after {pattern}");
    }
    assert_eq!(proxy.counts().replies_dropped, 2, "the fault was injected");
    ledger.commit(sale, 1, &group).await.unwrap();
    assert_eq!(taken(&direct, sale).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_is_found_again() {
    let mut server = PostgresServer::start(&PostgresOptions::default())
        .await
        .unwrap();
    let ledger = connect(&server.create_database("restart").await.unwrap()).await;
    ledger.migrate().await.unwrap();
    let sale = loaded_sale(&ledger).await;
    server.stop_immediate().await.unwrap();
    let limits = Limits {
        connect_timeout: Duration::from_millis(200),
        ..LIMITS
    };
    let url = server.url("restart");
    let unreachable = Ledger::connect(&url, limits).await;
    assert!(
        matches!(unreachable, Err(Error::Transient(_))),
        "{unreachable:?}"
    );
    server.restart().await.unwrap();
    // A connection of before costs at most one error each.
    let mut errors = Vec::new();
    for _ in 0..=LIMITS.connections_max {
        match ledger.commit(sale, 1, &purchases(sale, 0..2)).await {
            Ok(_) => break,
            Err(error @ Error::Transient(_)) => errors.push(error),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(taken(&ledger, sale).await, 2, "{errors:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_held_too_long_has_changed_nothing() {
    let url = postgres_url("locked").await;
    let ledger = connect(&url).await;
    ledger.migrate().await.unwrap();
    let sale = loaded_sale(&ledger).await;
    let limits = Limits {
        statement_timeout: Duration::from_millis(300),
        ..LIMITS
    };
    let impatient = Ledger::connect(&url, limits).await.unwrap();
    let order = purchases(sale, 0..1).remove(0).order;
    ledger
        .commit(sale, 1, &purchases(sale, 0..1))
        .await
        .unwrap();

    let blocker = tokio::spawn(async {
        let hold = "begin; select 1 from sale for update; select pg_sleep(3); rollback";
        postgres_execute("locked", hold).await;
    });
    let waiting = "select 1 / count(*) from pg_stat_activity
                    where datname = 'locked' and query like '%pg_sleep%' and state = 'active'
                      and pid <> pg_backend_pid()";
    let server = PostgresServer::shared().await.unwrap();
    let locked = async || server.psql("locked", waiting).await.ok();
    loadtest::servers::eventually("the lock is held", locked)
        .await
        .unwrap();

    let late = impatient.commit(sale, 1, &purchases(sale, 0..3)).await;
    assert!(matches!(late, Err(Error::Transient(_))), "{late:?}");
    let late = impatient.confirm(order).await;
    assert!(matches!(late, Err(Error::Transient(_))), "{late:?}");
    blocker.await.unwrap();
    assert_eq!(taken(&ledger, sale).await, 1);
    impatient
        .commit(sale, 1, &purchases(sale, 0..3))
        .await
        .expect("the connection is as good as new");
    assert_eq!(taken(&ledger, sale).await, 3);
}

/// A caller that gives up at any moment leaves all or nothing, and no broken connection.
async fn assert_cancel_safe(ledger: &Ledger) {
    let sale = loaded_sale(ledger).await;
    for round in 0..40_u32 {
        let group = purchases(sale, 2 * round..2 * round + 2);
        let patience = Duration::from_micros(u64::from(round) * 100);
        let _ = tokio::time::timeout(patience, ledger.commit(sale, 1, &group)).await;
        let _ = tokio::time::timeout(patience, ledger.confirm(group[0].order)).await;
    }
    let count = ledger.count(sale).await.unwrap().unwrap();
    assert_eq!(
        count.sale.taken,
        count.reserved + count.confirmed,
        "{count:?}"
    );
    assert_eq!(count.sale.taken % 2, 0, "half a group: {count:?}");
    for round in 0..40 {
        let group = purchases(sale, 2 * round..2 * round + 2);
        ledger.commit(sale, 1, &group).await.unwrap();
        let (done, _) = ledger.confirm(group[0].order).await.unwrap();
        let confirmed = |order: &stockade::domain::Order| order.state == OrderState::Confirmed;
        assert!(
            matches!(&done, Transition::Done(order) if confirmed(order)),
            "{done:?}"
        );
    }
    let count = ledger.count(sale).await.unwrap().unwrap();
    assert_eq!(
        (count.sale.taken, count.sale.confirmed),
        (80, 40),
        "{count:?}"
    );
    assert_eq!((count.reserved, count.confirmed), (40, 40), "{count:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_postgres_can_be_abandoned_at_any_moment() {
    let ledger = connect(&postgres_url("abandoned").await).await;
    ledger.migrate().await.unwrap();
    assert_cancel_safe(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_sqlite_can_be_abandoned_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = connect(&sqlite_url(&directory)).await;
    ledger.migrate().await.unwrap();
    assert_cancel_safe(&ledger).await;
}

#[tokio::test]
async fn what_names_no_database_is_refused_with_a_reason() {
    let missing = postgres_url("there").await.replace("/there", "/not_there");
    for url in [
        "mysql://user@host/database",
        "postgres://user@host:port/database",
        "sqlite::memory:",
        "sqlite://some/file.db?mode=memory",
        "sqlite:///no/such/directory/ledger.db",
        missing.as_str(),
    ] {
        let refused = Ledger::connect(url, LIMITS).await;
        assert!(
            matches!(refused, Err(Error::Unusable(_))),
            "{url}: {refused:?}"
        );
    }
}
