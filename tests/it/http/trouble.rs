//! Answers when the servers behind are in trouble.

use serde_json::json;

use super::{Reply, Shop, get, purchase};

#[tokio::test]
async fn without_redis_purchases_are_refused_for_now_and_readiness_names_it() {
    let flags = [
        "--trust-buyer-header",
        "--redis-timeout-ms",
        "300",
        "--purchase-wait-ms",
        "500",
    ];
    let mut shop = Shop::with(&flags).await;
    let sale = shop.sell(json!({"per_buyer_limit": 5})).await;
    shop.buy(sale, "alice", "k-1", 1).await;
    shop.send(get("/readyz")).await.assert_ok(200);
    shop.redis.kill9().await.unwrap();

    let ready = shop
        .send(get("/readyz"))
        .await
        .assert_problem(503, "not-ready");
    let parts = ready["parts"].as_array().unwrap();
    let part = |name: &str| parts.iter().find(|part| part["part"] == name).unwrap();
    assert_eq!(part("redis")["ready"], false, "{ready}");
    assert_eq!(part("ledger")["ready"], true, "{ready}");
    shop.send(get("/healthz")).await.assert_ok(200);

    let refused = shop.send(purchase(sale, "alice", "k-2", 1)).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let code = refused.json()["code"].as_str().unwrap().to_owned();
    assert!(
        ["unavailable", "outcome-unknown", "loading"].contains(&&*code),
        "{code}"
    );
    refused.assert_problem(503, &code);
    // What was never sent is not in doubt.
    let wish = || purchase(sale, "alice", "k-3", 1);
    let known = |reply: &Reply| reply.status == 503 && reply.json()["code"] == "unavailable";
    shop.until("a refusal that is sure of itself", wish, known)
        .await;

    shop.redis.restart().await.unwrap();
    let again = || purchase(sale, "alice", "k-2", 1);
    let created = |reply: &Reply| reply.status == 201;
    let order = shop.until("Redis' return", again, created).await;
    assert_eq!(order.json()["quantity"], 1);
    shop.close().await;
}

#[tokio::test]
async fn more_purchases_than_the_backlog_takes_are_refused_before_redis() {
    let flags = [
        "--trust-buyer-header",
        "--backlog-max",
        "1",
        "--redis-timeout-ms",
        "20000",
    ];
    let shop = Shop::with(&flags).await;
    let sale = shop.sell(json!({})).await;
    // The first one waits for a Redis that does not move.
    shop.redis.pause().unwrap();
    let edge = shop.edge.clone();
    let first = tokio::spawn(async move { purchase(sale, "alice", "k", 1).send(&edge).await });
    let counted = |reply: &Reply| reply.text.contains("\nstockade_backlog 1\n");
    shop.until("the first purchase", || get("/metrics"), counted)
        .await;
    let second = || purchase(sale, "bob", "k", 1).header("prefer", "respond-async");
    let over = |reply: &Reply| reply.status == 503 && reply.json()["code"] == "overloaded";
    let refused = shop.until("the bound", second, over).await;
    refused.assert_problem(503, "overloaded");
    shop.redis.resume().unwrap();
    first.await.unwrap().assert_ok(201);
    shop.close().await;
}
