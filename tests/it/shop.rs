//! One or more instances of the service in this process, on a private Redis and SQLite: the purchase path
//! without HTTP.

use std::sync::Arc;
use std::time::Duration;

use loadtest::servers::{RedisOptions, RedisServer};
use stockade::domain::{BuyerId, IdempotencyKey, NewSale, Outcome, Sale, SaleId, Strategy};
use stockade::ledger::{self, Ledger};
use stockade::metrics::Metrics;
use stockade::service::{AnswerWhen, Limits, Service};
use stockade::stock::Redis;

pub(crate) struct Shop {
    pub(crate) service: Service,
    pub(crate) ledger: Ledger,
    pub(crate) redis: RedisServer,
    _folder: tempfile::TempDir,
}

impl Shop {
    /// Another instance on the same servers, with this many connections to Redis.
    pub(crate) async fn instance_with_connections(&self, connections: usize) -> Service {
        let pause = Duration::from_millis(50);
        instance_with(&self.ledger, &self.redis, pause, connections).await
    }
}

pub(crate) async fn shop() -> Shop {
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

pub(crate) async fn instance(
    ledger: &Ledger,
    redis: &RedisServer,
    upkeep_pause: Duration,
) -> Service {
    instance_with(ledger, redis, upkeep_pause, 2).await
}

async fn instance_with(
    ledger: &Ledger,
    redis: &RedisServer,
    upkeep_pause: Duration,
    connections: usize,
) -> Service {
    let handle = Redis::connect(&redis.url(), connections, Duration::from_secs(1))
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

pub(crate) fn terms(quantity: u32, per_buyer_limit: u32, hold_seconds: u32) -> NewSale {
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

pub(crate) async fn open(shop: &Shop, terms: NewSale) -> Sale {
    let sale = shop.service.create_sale(terms).await.unwrap();
    shop.service.open(sale.id).await.unwrap()
}

pub(crate) async fn buy(
    shop: &Shop,
    sale: SaleId,
    buyer: &str,
    key: &str,
    quantity: u32,
) -> Outcome {
    buy_at(&shop.service, sale, buyer, key, quantity).await
}

pub(crate) async fn buy_at(
    service: &Service,
    sale: SaleId,
    buyer: &str,
    key: &str,
    quantity: u32,
) -> Outcome {
    let buyer = BuyerId::parse(buyer).unwrap();
    let key = IdempotencyKey::parse(key).unwrap();
    let when = AnswerWhen::Committed;
    service
        .purchase(sale, &buyer, &key, quantity, when)
        .await
        .unwrap()
}
