//! Every answer to a purchase that does not need trouble to happen.

use serde_json::{Value, json};

use super::{Shop, get, post, purchase};

#[tokio::test]
async fn a_purchase_is_created_once_and_replayed_on_every_retry() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({"per_buyer_limit": 5})).await;

    let first = shop.send(purchase(sale, "alice", "k-1", 2)).await;
    let order = first.assert_ok(201);
    let id = order["id"].as_str().unwrap();
    assert_eq!(first.header("location"), Some(&*format!("/v1/orders/{id}")));
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(first.header("content-type"), Some("application/json"));
    let expected = json!({
        "id": id, "sale": sale, "buyer": "alice", "quantity": 2, "price_minor": 9_900,
        "currency": "CNY", "amount_minor": 19_800, "state": "reserved",
        "created_at": order["created_at"], "hold_expires_at": order["hold_expires_at"],
        "finished_at": null,
    });
    assert_eq!(order, expected);
    assert!(order["created_at"].as_str().unwrap().ends_with('Z'));
    assert!(order["hold_expires_at"].is_string());

    // Bare and quoted are one key.
    let again = shop.send(purchase(sale, "alice", "\"k-1\"", 2)).await;
    assert_eq!(again.assert_ok(201), order);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    // Another buyer's key of the same name is another key.
    let other = shop.buy(sale, "bob", "k-1", 2).await;
    assert_ne!(other["id"], order["id"]);

    let reused = shop.send(purchase(sale, "alice", "k-1", 1)).await;
    assert_eq!(reused.assert_problem(422, "key-reused")["quantity"], 2);
    shop.close().await;
}

#[tokio::test]
async fn a_client_that_does_not_want_to_wait_is_answered_at_once() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({})).await;
    let wish = || purchase(sale, "alice", "k-1", 1).header("prefer", "respond-async");
    let reply = shop.send(wish()).await;
    let pending = reply.assert_ok(202);
    let id = pending["id"].as_str().unwrap();
    assert_eq!(
        pending,
        json!({"id": id, "sale": sale, "quantity": 1, "state": "pending"})
    );
    let path = format!("/v1/orders/{id}");
    assert_eq!(reply.header("location"), Some(&*path));
    assert_eq!(reply.header("preference-applied"), Some("respond-async"));
    assert!(reply.header("retry-after").is_some());

    let ask = || get(&path).buyer("alice");
    let order = shop
        .until("the commit", ask, |reply| {
            reply.json()["state"] == "reserved"
        })
        .await;
    assert_eq!(order.json()["quantity"], 1);
    shop.close().await;
}

#[tokio::test]
async fn a_refusal_says_which_and_with_which_numbers() {
    let shop = Shop::open().await;
    let problem = async |sale, buyer: &str, key: &str, quantity, code: &str| {
        let reply = shop.send(purchase(sale, buyer, key, quantity)).await;
        let status = if code == "closed" { 410 } else { 409 };
        reply.assert_problem(status, code)
    };

    let held = shop
        .sell(json!({"quantity": 3, "per_buyer_limit": 4}))
        .await;
    let limit = problem(held, "alice", "k", 5, "limit-reached").await;
    assert_eq!((&limit["limit"], &limit["left"]), (&json!(4), &json!(4)));
    let short = problem(held, "alice", "k", 4, "insufficient").await;
    assert_eq!(
        (&short["requested"], &short["available"]),
        (&json!(4), &json!(3))
    );
    shop.buy(held, "alice", "k", 3).await;
    let none = problem(held, "bob", "k", 1, "held").await;
    assert_eq!((&none["available"], &none["held"]), (&json!(0), &json!(3)));
    let left = problem(held, "alice", "k-2", 2, "limit-reached").await;
    assert_eq!(left["left"], 1);

    let sold = shop.sell(json!({"quantity": 1, "hold_seconds": 0})).await;
    let order = shop.buy(sold, "alice", "k", 1).await;
    assert_eq!(order["state"], "confirmed");
    problem(sold, "bob", "k", 1, "sold-out").await;

    let opens_at = "2099-01-01T00:00:00.000Z";
    let future = shop.create(json!({"opens_at": opens_at})).await;
    let early = problem(future, "alice", "k", 1, "not-open").await;
    assert_eq!(
        (&early["opens_at"], &early["state"]),
        (&json!(opens_at), &json!("scheduled"))
    );
    shop.verb(future, "load").await;
    let early = problem(future, "alice", "k", 1, "not-open").await;
    assert_eq!(early["opens_at"], opens_at);
    shop.verb(future, "open").await;
    shop.buy(future, "alice", "k", 1).await;

    shop.verb(future, "pause").await;
    let paused = problem(future, "bob", "k", 1, "not-open").await;
    assert_eq!(paused["state"], "paused");
    shop.verb(future, "resume").await;
    shop.buy(future, "bob", "k", 1).await;

    shop.verb(future, "close").await;
    problem(future, "carol", "k", 1, "closed").await;
    let replay = shop.send(purchase(future, "bob", "k", 1)).await;
    assert_eq!(
        replay.header("idempotent-replayed"),
        Some("true"),
        "{replay:?}"
    );
    shop.close().await;
}

#[tokio::test]
async fn a_sale_is_read_listed_and_shown_where_its_units_are() {
    let shop = Shop::open().await;
    let created = shop
        .send(post("/v1/sales").admin().json(&json!({
            "product": "sku-1", "title": "手机", "price_minor": 1, "currency": "CNY",
            "quantity": 5, "per_buyer_limit": 2, "hold_seconds": 60,
            "closes_at": "2099-01-01T08:00:00+08:00",
        })))
        .await;
    let sale = created.assert_ok(201);
    let path = format!("/v1/sales/{}", sale["id"]);
    assert_eq!(created.header("location"), Some(&*path));
    let expected = json!({
        "id": sale["id"], "product": "sku-1", "title": "手机", "price_minor": 1,
        "currency": "CNY", "quantity": 5, "segments": 1, "per_buyer_limit": 2, "opens_at": null,
        "closes_at": "2099-01-01T00:00:00.000Z", "hold_seconds": 60, "strategy": "segmented",
        "state": "scheduled", "loaded": false, "epoch": 0, "created_at": sale["created_at"],
        "server_time": sale["server_time"],
    });
    assert_eq!(sale, expected);

    let id = sale["id"].as_u64().unwrap();
    let loaded = shop.verb(id, "load").await;
    assert_eq!(
        (&loaded["state"], &loaded["loaded"]),
        (&json!("scheduled"), &json!(true))
    );
    assert_eq!(shop.verb(id, "open").await["state"], "open");
    assert_eq!(shop.verb(id, "open").await["state"], "open", "repeatable");
    shop.buy(id, "alice", "k", 2).await;
    let read = shop.send(get(&path)).await;
    assert_eq!(read.assert_ok(200)["state"], "open");
    assert_eq!(read.header("cache-control"), Some("no-store"));

    let stock = || get(&format!("{path}/stock"));
    let sold = |reply: &super::Reply| {
        let stock = reply.json();
        (&stock["available"], &stock["held"], &stock["journaled"])
            == (&json!(3), &json!(2), &json!(0))
    };
    let stock = shop.until("the stock's figures", stock, sold).await.json();
    assert_eq!(
        (&stock["quantity"], &stock["state"]),
        (&json!(5), &json!("open"))
    );
    for zero in ["in_transfer", "confirmed", "returning"] {
        assert_eq!(stock[zero], 0, "{zero}");
    }
    assert!(stock["server_time"].is_string());

    let audit = shop
        .send(get(&format!("{path}/audit")).admin())
        .await
        .assert_ok(200);
    assert_eq!(
        (&audit["verdict"], &audit["oversold"]),
        (&json!("balanced"), &json!(0))
    );
    assert_eq!(audit["terms"]["held"], 2, "{audit}");
    assert_eq!(audit["terms"]["quantity"], 5);
    assert_eq!(audit["findings"], json!([]));
    shop.close().await;
}

#[tokio::test]
async fn sales_are_listed_page_by_page() {
    let shop = Shop::open().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(shop.create(json!({})).await);
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/sales?limit=2".to_owned());
    loop {
        let page = shop.send(get(&path).admin()).await.assert_ok(200);
        let sales = page["sales"].as_array().unwrap();
        assert!(sales.len() <= 2, "{page}");
        seen.extend(sales.iter().map(|sale| sale["id"].as_u64().unwrap()));
        let Value::Number(next) = &page["next"] else {
            break;
        };
        path = format!("/v1/sales?limit=2&after={next}");
    }
    assert_eq!(seen, ids);
    shop.close().await;
}

#[tokio::test]
async fn what_is_over_is_not_opened_paused_or_loaded_again() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({})).await;
    let verb = |verb: &str| post(&format!("/v1/sales/{sale}/{verb}")).admin();
    for _ in 0..2 {
        let closed = shop.send(verb("close")).await.assert_ok(200);
        assert_eq!(closed["state"], "closed");
    }
    for again in ["open", "pause", "resume", "load"] {
        shop.send(verb(again)).await.assert_problem(410, "closed");
    }
    shop.close().await;
}
