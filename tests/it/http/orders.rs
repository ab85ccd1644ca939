//! Orders after the purchase: reading, listing, ending, and the feed of all of it.

use serde_json::{Value, json};

use super::{Call, Shop, get, post};

fn order_path(order: &Value) -> String {
    format!("/v1/orders/{}", order["id"].as_str().unwrap())
}

fn confirm(order: &Value) -> Call {
    post(&format!("{}/confirm", order_path(order))).admin()
}

fn cancel(order: &Value) -> Call {
    post(&format!("{}/cancel", order_path(order)))
}

#[tokio::test]
async fn an_order_is_confirmed_or_cancelled_and_the_other_is_told_which() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({"per_buyer_limit": 5})).await;
    let paid = shop.buy(sale, "alice", "k-1", 1).await;
    for attempt in 1..=2 {
        let order = shop.send(confirm(&paid)).await.assert_ok(200);
        assert_eq!(order["state"], "confirmed", "attempt {attempt}");
        assert!(order["finished_at"].is_string());
    }
    let late = shop.send(cancel(&paid).buyer("alice")).await;
    let late = late.assert_problem(409, "order-final");
    assert_eq!(late["state"], "confirmed");
    assert!(late["finished_at"].is_string());

    let returned = shop.buy(sale, "alice", "k-2", 1).await;
    for attempt in 1..=2 {
        let order = shop.send(cancel(&returned).buyer("alice")).await;
        assert_eq!(
            order.assert_ok(200)["state"],
            "cancelled",
            "attempt {attempt}"
        );
    }
    let late = shop.send(confirm(&returned).json(&json!({}))).await;
    assert_eq!(
        late.assert_problem(409, "order-final")["state"],
        "cancelled"
    );
    let by_admin = shop.buy(sale, "bob", "k", 1).await;
    shop.send(cancel(&by_admin).admin()).await.assert_ok(200);
    shop.close().await;
}

#[tokio::test]
async fn a_payment_after_expiry_buys_again_or_is_refused() {
    let shop = Shop::with(&["--trust-buyer-header", "--upkeep-pause-ms", "20"]).await;
    let sale = shop.sell(json!({"quantity": 1, "hold_seconds": 1})).await;
    let order = shop.buy(sale, "alice", "k", 1).await;
    let ask = || get(&order_path(&order)).buyer("alice");
    let expired = |reply: &super::Reply| reply.json()["state"] == "expired";
    shop.until("the expiry", ask, expired).await;

    let plain = shop.send(confirm(&order)).await;
    assert_eq!(plain.assert_problem(409, "order-final")["state"], "expired");
    let wish = || confirm(&order).json(&json!({"reacquire": true}));
    let again = shop
        .until("the return of the unit", wish, |reply| reply.status == 200)
        .await;
    let new = again.json();
    assert_eq!(new["state"], "confirmed");
    assert_ne!(new["id"], order["id"]);
    assert_eq!(again.header("content-location"), Some(&*order_path(&new)));
    let repeated = shop.send(wish()).await.assert_ok(200);
    assert_eq!(
        repeated["id"], new["id"],
        "a repeated payment buys nothing more"
    );
    shop.close().await;
}

#[tokio::test]
async fn a_payment_after_expiry_is_refused_when_the_unit_is_somebody_elses() {
    let shop = Shop::with(&["--trust-buyer-header", "--upkeep-pause-ms", "20"]).await;
    let sale = shop.sell(json!({"quantity": 1, "hold_seconds": 1})).await;
    let order = shop.buy(sale, "alice", "k", 1).await;
    let bob = || super::purchase(sale, "bob", "k", 1);
    let bobs = shop
        .until("the unit's return", bob, |reply| reply.status == 201)
        .await
        .json();
    shop.send(confirm(&bobs)).await.assert_ok(200);
    let refused = shop
        .send(confirm(&order).json(&json!({"reacquire": true})))
        .await;
    refused.assert_problem(409, "sold-out");
    shop.close().await;
}

#[tokio::test]
async fn an_order_is_its_buyers_and_the_admins_only() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({})).await;
    let order = shop.buy(sale, "alice", "k", 1).await;
    let path = order_path(&order);
    assert_eq!(
        shop.send(get(&path).buyer("alice")).await.assert_ok(200),
        order
    );
    assert_eq!(shop.send(get(&path).admin()).await.assert_ok(200), order);
    for foreign in [get(&path), cancel(&order)] {
        let reply = shop.send(foreign.buyer("mallory")).await;
        reply.assert_problem(403, "forbidden");
    }
    let confirmed = post(&format!("{path}/confirm")).buyer("alice");
    shop.send(confirmed).await.assert_problem(403, "forbidden");
    let still = shop.send(get(&path).buyer("alice")).await.assert_ok(200);
    assert_eq!(still["state"], "reserved");
    shop.close().await;
}

#[tokio::test]
async fn orders_are_listed_for_their_buyer_and_for_the_shop() {
    let shop = Shop::open().await;
    let sale = shop
        .sell(json!({"per_buyer_limit": 10, "quantity": 20}))
        .await;
    let mut alices = Vec::new();
    for n in 0..5 {
        let order = shop.buy(sale, "alice", &format!("k-{n}"), 1).await;
        alices.push(order["id"].as_str().unwrap().to_owned());
        shop.buy(sale, "bob", &format!("k-{n}"), 1).await;
    }
    let pages = async |path: &str, call: fn(&str) -> Call| {
        let (mut ids, mut next) = (Vec::new(), String::new());
        loop {
            let page = shop.send(call(&format!("{path}?limit=2{next}"))).await;
            let page = page.assert_ok(200);
            for order in page["orders"].as_array().unwrap() {
                ids.push(order["id"].as_str().unwrap().to_owned());
            }
            match page["next"].as_str() {
                Some(after) => next = format!("&after={after}"),
                None => return ids,
            }
        }
    };
    let mut own = pages("/v1/orders", |path| get(path).buyer("alice")).await;
    own.sort();
    alices.sort();
    assert_eq!(own, alices);
    let all = pages(&format!("/v1/sales/{sale}/orders"), |path| {
        get(path).admin()
    })
    .await;
    assert_eq!(all.len(), 10);
    assert!(all.is_sorted());
    shop.close().await;
}

#[tokio::test]
async fn the_feed_tells_every_change_once_to_a_reader_that_goes_on() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({"per_buyer_limit": 5})).await;
    let first = shop.buy(sale, "alice", "k-1", 1).await;
    let second = shop.buy(sale, "alice", "k-2", 1).await;
    shop.send(confirm(&first)).await.assert_ok(200);
    shop.send(cancel(&second).admin()).await.assert_ok(200);

    let feed = format!("/v1/sales/{sale}/feed");
    let (mut told, mut after) = (Vec::new(), String::new());
    loop {
        let page = shop
            .send(get(&format!("{feed}?limit=1{after}")).admin())
            .await;
        let page = page.assert_ok(200);
        let Some(event) = page["events"].get(0) else {
            break;
        };
        assert_eq!(event["cursor"], page["next"]);
        assert!(
            event["at"].is_string() && event["order"]["buyer"] == "alice",
            "{event}"
        );
        told.push((event["type"].clone(), event["order"]["id"].clone()));
        after = format!("&after={}", page["next"].as_str().unwrap());
    }
    let expected = [
        (json!("reserved"), first["id"].clone()),
        (json!("reserved"), second["id"].clone()),
        (json!("confirmed"), first["id"].clone()),
        (json!("cancelled"), second["id"].clone()),
    ];
    assert_eq!(told, expected);

    // A reader that waits is woken by the next change.
    let wait = get(&format!("{feed}?wait_ms=20000{after}")).admin();
    let (page, order) = tokio::join!(shop.send(wait), shop.buy(sale, "bob", "k", 1));
    assert_eq!(page.assert_ok(200)["events"][0]["order"]["id"], order["id"]);
    shop.close().await;
}
