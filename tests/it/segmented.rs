//! The purchase path without HTTP: an instance on a real Redis and a real ledger.

use std::sync::Arc;
use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer, eventually};
use stockade::domain::{
    BuyerId, IdempotencyKey, NewSale, OrderId, Outcome, Purchase, Refusal, Sale, SaleId, Stage,
    Strategy,
};
use stockade::ledger::{self, Ledger};
use stockade::metrics::Metrics;
use stockade::service::{AnswerWhen, AuditVerdict, Limits, OrderView, Service};
use stockade::stock::scripts::{self, Decision};
use stockade::stock::{Redis, SegmentKeys};

struct Shop {
    service: Service,
    ledger: Ledger,
    redis: RedisServer,
    _folder: tempfile::TempDir,
}

async fn shop() -> Shop {
    let _ = tracing_subscriber::fmt()
        .with_env_filter("debug,sqlx=warn")
        .with_test_writer()
        .try_init();
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("stockade.db").display());
    let limits = ledger::Limits {
        connections_max: 4,
        connect_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(5),
    };
    let ledger = Ledger::connect(&url, limits).await.unwrap();
    ledger.migrate().await.unwrap();
    let service = instance(&ledger, &redis, Duration::from_millis(50)).await;
    Shop {
        service,
        ledger,
        redis,
        _folder: folder,
    }
}

async fn instance(ledger: &Ledger, redis: &RedisServer, upkeep_pause: Duration) -> Service {
    let handle = Redis::connect(&redis.url(), 2, Duration::from_secs(1))
        .await
        .unwrap();
    let limits = Limits {
        backlog_max: 20_000,
        commit_wait: Duration::from_secs(5),
        purchase_wait: Duration::from_secs(5),
        journal_grace: Duration::from_millis(500),
        redis_retention: Duration::from_secs(60),
        upkeep_pause,
    };
    Service::start(ledger.clone(), handle, limits, Arc::new(Metrics::default()))
}

fn terms(quantity: u32, per_buyer_limit: u32, hold_seconds: u32) -> NewSale {
    NewSale {
        product: "sku".into(),
        title: "A phone".into(),
        price_minor: 100,
        currency: "CNY".into(),
        quantity,
        segments: 1,
        per_buyer_limit,
        opens_at: None,
        closes_at: None,
        hold_seconds,
        strategy: Strategy::Segmented,
    }
}

async fn open(shop: &Shop, terms: NewSale) -> Sale {
    let sale = shop.service.create_sale(terms).await.unwrap();
    shop.service.open(sale.id).await.unwrap()
}

async fn buy(shop: &Shop, sale: SaleId, buyer: &str, key: &str, quantity: u32) -> Outcome {
    buy_at(&shop.service, sale, buyer, key, quantity).await
}

async fn buy_at(service: &Service, sale: SaleId, buyer: &str, key: &str, quantity: u32) -> Outcome {
    let buyer = BuyerId::parse(buyer).unwrap();
    let key = IdempotencyKey::parse(key).unwrap();
    let when = AnswerWhen::Committed;
    service
        .purchase(sale, &buyer, &key, quantity, when)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_buyers_get_one_hundred_units_and_the_books_balance() {
    let shop = Arc::new(shop().await);
    let sale = open(&shop, terms(100, 1, 0)).await.id;
    let mut buyers = tokio::task::JoinSet::new();
    for n in 0..2_000 {
        let shop = Arc::clone(&shop);
        buyers.spawn(async move { buy(&shop, sale, &format!("b{n}"), "k", 1).await });
    }
    let outcomes = buyers.join_all().await;
    let sold = outcomes
        .iter()
        .filter(|o| matches!(o, Outcome::Committed { .. }))
        .count();
    let refused = outcomes
        .iter()
        .filter(|o| matches!(o, Outcome::Refused(_)))
        .count();
    assert_eq!(
        (sold, refused),
        (100, 1_900),
        "{:?}",
        outcomes
            .iter()
            .find(|o| !matches!(o, Outcome::Committed { .. } | Outcome::Refused(_)))
    );
    let last = buy(&shop, sale, "late", "k", 1).await;
    assert_eq!(last, Outcome::Refused(Refusal::SoldOut));
    let audit = shop.service.audit(sale).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit:?}");
    assert_eq!((audit.confirmed, audit.available), (100, 0));
}

/// The other instance opened it. Whoever was refused before must not keep refusing for what it saw then.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_saw_a_sale_before_it_opened_sells_at_once() {
    let shop = shop().await;
    let never_by_itself = Duration::from_secs(3_600);
    let other = instance(&shop.ledger, &shop.redis, never_by_itself).await;
    let sale = shop.service.create_sale(terms(10, 1, 0)).await.unwrap().id;
    let early = buy_at(&other, sale, "b", "k", 1).await;
    let not_open = |outcome: &Outcome| matches!(outcome, Outcome::Refused(Refusal::NotOpen { .. }));
    assert!(not_open(&early), "{early:?}");
    shop.service.open(sale).await.unwrap();
    let now = buy_at(&other, sale, "b", "k", 1).await;
    assert!(matches!(now, Outcome::Committed { .. }), "{now:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_outlives_a_loader_that_died_before_it_adopted() {
    let shop = shop().await;
    let sale = open(&shop, terms(10, 1, 0)).await;
    // Admitted under epoch 1, and its instance died before the commit.
    let buyer = BuyerId::parse("promised").unwrap();
    let order = OrderId::of(sale.id, &buyer, &IdempotencyKey::parse("k").unwrap());
    let purchase = Purchase {
        order,
        buyer,
        quantity: 1,
    };
    let mut connection = shop.redis.connection().await.unwrap();
    let keys = SegmentKeys::new(sale.id, 0, 1);
    let decision = scripts::purchase(&mut connection, &keys, false, 0, &[&purchase]).await;
    assert!(
        matches!(decision, Ok(Decision::Decided { .. })),
        "{decision:?}"
    );
    // Two loaders in a row die right after their fence.
    for epoch in 1..=2 {
        assert!(
            shop.ledger
                .fence(sale.id, epoch, Duration::ZERO)
                .await
                .unwrap()
        );
    }
    eventually("the sale to be loaded again", || {
        let ledger = shop.ledger.clone();
        async move {
            let row = ledger.sale(sale.id).await.ok()??;
            (row.stage == Stage::Loaded && row.epoch > 2).then_some(())
        }
    })
    .await
    .unwrap();
    let view = shop.service.order(order).await.unwrap();
    assert!(matches!(view, OrderView::Known(_)), "{view:?}");
    let audit = shop.service.audit(sale.id).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit}");
    assert_eq!((audit.confirmed, audit.available), (1, 9));
}
