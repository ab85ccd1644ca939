//! Loaders: one that sleeps and is overtaken, and one that has much to read.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use loadtest::api::NewSale;
use loadtest::client::PurchaseRequest;
use loadtest::outcome::Outcome as Told;
use loadtest::scenario::Scenario;
use loadtest::servers::eventually;
use redis::AsyncCommands as _;
use stockade::domain::{
    BuyerId, IdempotencyKey, OrderId, Outcome, Purchase, Refusal, Sale, SaleId, Stage,
};
use stockade::ledger::{COMMIT_MAX, Commit, Ledger, Limits};
use stockade::service::AuditVerdict;
use stockade::stock::load::{Failed, Loader, Progress};
use stockade::stock::scripts::{Answer, Copies};
use stockade::stock::{Calls, SegmentKeys};
use tokio::time::Instant;

use super::drowsy::{Drowsy, Nap};
use super::scene::{SEGMENTS, Scene};
use crate::harness::{Database, Deployment, Plan, database, purchase_at};
use crate::shop::{Shop, buy, open, shop, terms};

const A_MINUTE: Duration = Duration::from_secs(60);

fn purchase(sale: SaleId, buyer: &str) -> Purchase {
    let buyer = BuyerId::parse(buyer).unwrap();
    let order = OrderId::of(sale, &buyer, &IdempotencyKey::parse("k").unwrap());
    Purchase {
        order,
        buyer,
        quantity: 1,
    }
}

async fn bought(shop: &Shop, sale: SaleId, buyer: &str) {
    let outcome = buy(shop, sale, buyer, "k", 1).await;
    assert!(
        matches!(outcome, Outcome::Committed { .. }),
        "{buyer}: {outcome:?}"
    );
}

/// Admits a purchase in Redis whose instance dies before the commit.
async fn promise(shop: &Shop, sale: &Sale, buyer: &str) {
    let purchase = purchase(sale.id, buyer);
    let keys = SegmentKeys::new(sale.id, sale.home(purchase.order), sale.epoch);
    let mut redis = shop.redis.connection().await.unwrap();
    let decision = purchase_at(&mut redis, &keys, Copies::One, &[&purchase]).await;
    assert_eq!(decision.unwrap().unwrap().answers, [Answer::Admitted]);
}

/// Everything that is in Redis of the sale's current load.
async fn contents(shop: &Shop, sale: &Sale) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut redis = shop.redis.connection().await.unwrap();
    let mut contents = BTreeMap::new();
    for segment in 0..sale.terms.segments {
        let keys = SegmentKeys::new(sale.id, segment, sale.epoch);
        for key in keys.all() {
            let mut dump = redis::cmd("DUMP");
            let dump = dump.arg(key).query_async(&mut redis).await.unwrap();
            contents.insert(key.to_owned(), dump);
        }
    }
    contents
}

/// A sale of twelve units in three segments, of which three are sold and one promised. Its loader
/// falls asleep before the given command; the service overtakes it and sells; then the loader
/// wakes. False if it loads with fewer commands.
async fn a_loader_sleeps_before(shop: &Shop, command: usize) -> bool {
    let sale = stockade::domain::NewSale {
        segments: 3,
        ..terms(12, 1, 0)
    };
    let sale = open(shop, sale).await;
    for buyer in ["a", "b", "c"] {
        bought(shop, sale.id, buyer).await;
    }
    promise(shop, &sale, "promised").await;

    assert!(
        shop.ledger
            .fence(sale.id, sale.epoch, A_MINUTE)
            .await
            .unwrap()
    );
    let fenced = shop.ledger.sale(sale.id).await.unwrap().unwrap();
    let (inner, nap) = (shop.redis.connection().await.unwrap(), Nap::before(command));
    let progress = Progress::default();
    let first = Loader {
        connection_of: |_| Drowsy {
            inner: inner.clone(),
            nap: Arc::clone(&nap),
        },
        calls: Calls { timeout: A_MINUTE },
        ledger: &shop.ledger,
        sale: &fenced,
        progress: &progress,
    };
    let mut first = pin!(first.load(None));
    if let Some(loaded) = nap.asleep(first.as_mut()).await {
        loaded.unwrap();
        return false;
    }
    let lease_ends = shop
        .ledger
        .renew_load(sale.id, fenced.epoch, Duration::ZERO);
    assert!(lease_ends.await.unwrap());
    bought(shop, sale.id, "d").await;
    let now = shop.service.sale(sale.id).await.unwrap();
    assert_eq!((now.epoch, now.stage), (fenced.epoch + 1, Stage::Loaded));
    eventually("the journal to be empty", async || {
        let audit = shop.service.audit(sale.id).await.ok()?;
        (audit.verdict == AuditVerdict::Balanced && audit.journaled == 0).then_some(())
    })
    .await
    .unwrap();

    let before = contents(shop, &now).await;
    nap.wake();
    let woken = first.await;
    assert_eq!(
        contents(shop, &now).await,
        before,
        "before command {command}"
    );
    assert!(
        matches!(woken, Err(Failed::Overtaken)),
        "before command {command}: {woken:?}"
    );
    assert!(nap.late() > 0, "it did nothing after command {command}");
    for buyer in ["e", "f", "g", "h", "i", "j", "k"] {
        bought(shop, sale.id, buyer).await;
    }
    let late = buy(shop, sale.id, "late", "k", 1).await;
    assert_eq!(late, Outcome::Refused(Refusal::SoldOut));
    let audit = shop.service.audit(sale.id).await.unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Balanced, "{audit}");
    assert_eq!(audit.confirmed, 12, "{audit}");
    true
}

/// Wherever it sleeps: its lease runs out, the second one loads and sells, and what the first one
/// still writes is read by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_loader_that_wakes_after_it_was_overtaken_changes_nothing() {
    const COMMANDS_MAX: usize = 100;
    let shop = shop().await;
    for command in 0..COMMANDS_MAX {
        if !a_loader_sleeps_before(&shop, command).await {
            assert!(
                command > 9,
                "it loads three segments with {command} commands"
            );
            println!("it slept before each of {command} commands");
            return;
        }
    }
    panic!("a load of three segments takes more than {COMMANDS_MAX} commands");
}

/// A release does it in a fraction of the time; the figure is printed.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_hundred_thousand_orders_it_sells_again_soon_after_flushall() {
    const ORDERS: u32 = 100_000;
    const SELLS_WITHIN: Duration = Duration::from_secs(30);
    let mut plan = Plan::new(Database::Postgres, 3);
    let url = database().await;
    plan.database_url = Some(url.clone());
    let deployment = Deployment::start(plan).await;
    let scenario = Scenario {
        sale: NewSale {
            quantity: ORDERS + 1,
            segments: SEGMENTS,
            ..NewSale::default()
        },
        ..Scenario::default()
    };
    let scene = Scene::open_at(deployment, scenario).await;
    let (sale, epoch) = (SaleId::new(scene.sale.into()).unwrap(), scene.epoch().await);
    let limits = Limits {
        connections_max: 1,
        connect_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(30),
    };
    let ledger = Ledger::connect(&url, limits).await.unwrap();
    let buyers: Vec<u32> = (0..ORDERS).collect();
    for group in buyers.chunks(COMMIT_MAX) {
        let group = group.iter().map(|n| purchase(sale, &format!("buyer-{n}")));
        let group: Vec<Purchase> = group.collect();
        let committed = ledger.commit(sale, epoch, &group).await.unwrap();
        assert!(matches!(committed, Commit::Committed(_)), "{committed:?}");
    }
    let mut redis = scene.deployment.redis.connection().await.unwrap();
    redis.flushall::<()>().await.unwrap();

    let (flushed, mut client) = (Instant::now(), scene.deployment.client(0));
    let mut purchase = async |buyer, key| {
        let request = PurchaseRequest {
            sale: scene.sale,
            buyer,
            key,
            quantity: 1,
            respond_async: false,
        };
        client.purchase(&request).await
    };
    loop {
        let told = purchase("late", "k").await;
        if matches!(told, Told::Committed { .. }) {
            break;
        }
        let waited = flushed.elapsed();
        assert!(
            waited < SELLS_WITHIN,
            "after {waited:?}: {told}\n{}",
            scene.deployment.logs()
        );
    }
    let waited = flushed.elapsed();
    println!("with {ORDERS} orders it sells again {waited:?} after FLUSHALL");
    assert!(waited < SELLS_WITHIN, "sells again after {waited:?}");
    let code = "limit-reached".to_owned();
    assert_eq!(
        purchase("buyer-77777", "other").await,
        Told::Refused { code }
    );
}
