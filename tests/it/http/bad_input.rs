//! What a purchase API must refuse, with the code that says why. Nothing of it may reach stock.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use serde_json::json;

use super::{Call, Shop, call, get, post, purchase};

fn raw(sale: u64, body: impl Into<Body>) -> Call {
    post(&format!("/v1/sales/{sale}/purchases"))
        .buyer("alice")
        .key("k")
        .header("content-type", "application/json")
        .body(body)
}

/// A body of this many kilobytes that does not announce its length.
struct Chunks(u32);

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        let chunk = || Ok(Frame::data(Bytes::from_static(&[b' '; 1_024])));
        Poll::Ready(left.map(|_| chunk()))
    }
}

#[tokio::test]
async fn bodies_that_are_no_purchase_are_refused() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({})).await;
    let deep = "[".repeat(10_000);
    let nested = format!(r#"{{"quantity":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    let malformed = [
        "",
        " ",
        "null",
        "1",
        "[1]",
        "{",
        "{}",
        "{\"quantity\"}",
        "{\"quantity\":}",
        "{\"quantity\":null}",
        "{\"quantity\":\"1\"}",
        "{\"quantity\":[1]}",
        "{\"quantity\":{}}",
        "{\"quantity\":true}",
        "{\"quantity\":01}",
        "{\"quantity\":+1}",
        "{\"quantity\":0x1}",
        "{\"quantity\":NaN}",
        "{\"quantity\":1e999}",
        "{\"quantity\":1,\"quantity\":1}",
        "{\"quantity\":1} {\"quantity\":1}",
        "{\"quantity\":1,\"price_minor\":1}",
        "{\"quantity\":1,\"buyer\":\"bob\"}",
        "{\"quantity\":1,\"state\":\"confirmed\"}",
        "{\"Quantity\":1}",
        "{'quantity':1}",
        "\u{feff}{\"quantity\":1}",
        &deep,
        &nested,
    ];
    for body in malformed {
        let reply = shop.send(raw(sale, body.to_owned())).await;
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
        reply.assert_problem(400, "body-malformed");
    }
    let unknown = shop
        .send(raw(sale, "{\"quantity\":1,\"price_minor\":1}"))
        .await;
    let detail = unknown.json()["detail"].to_string();
    assert!(detail.contains("price_minor"), "{detail}");
    let invalid_utf8: &[u8] = b"{\"quantity\":1,\"\xff\":1}";
    let reply = shop.send(raw(sale, invalid_utf8)).await;
    reply.assert_problem(400, "body-malformed");

    for number in [
        "0",
        "-0",
        "-1",
        "1.0",
        "1.5",
        "1e2",
        "1000000001",
        "4294967296",
        "4294967297",
        "9223372036854775808",
        "18446744073709551617",
        "-9223372036854775809",
    ] {
        let reply = shop
            .send(raw(sale, format!("{{\"quantity\":{number}}}")))
            .await;
        assert_eq!(reply.status, 422, "{number}: {reply:?}");
        reply.assert_problem(422, "invalid-quantity");
    }
    untouched(&shop, sale).await;
    shop.close().await;
}

#[tokio::test]
async fn bodies_that_are_too_large_or_of_another_type_are_refused() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({})).await;
    let padded = |length: usize| {
        let body = "{\"quantity\":99}";
        format!("{}{body}", " ".repeat(length - body.len()))
    };
    // Of the greatest length: it is read, and refused for what it says.
    let largest = shop.send(raw(sale, padded(16 * 1024))).await;
    largest.assert_problem(409, "limit-reached");
    let larger = shop.send(raw(sale, padded(16 * 1024 + 1))).await;
    larger.assert_problem(413, "body-too-large");
    // Without a length in the header, as chunks.
    let chunked = shop.send(raw(sale, Body::new(Chunks(17)))).await;
    chunked.assert_problem(413, "body-too-large");

    let path = format!("/v1/sales/{sale}/purchases");
    let untyped = || post(&path).buyer("alice").key("k").body("{\"quantity\":1}");
    shop.send(untyped())
        .await
        .assert_problem(415, "content-type-unsupported");
    for media in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "json",
    ] {
        let reply = shop.send(untyped().header("content-type", media)).await;
        reply.assert_problem(415, "content-type-unsupported");
    }
    untouched(&shop, sale).await;
    shop.close().await;
}

#[tokio::test]
async fn keys_that_are_missing_or_malformed_are_refused() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({})).await;
    let unnamed = || {
        post(&format!("/v1/sales/{sale}/purchases"))
            .buyer("alice")
            .json(&json!({"quantity": 1}))
    };
    shop.send(unnamed())
        .await
        .assert_problem(400, "key-missing");
    let long = "x".repeat(256);
    for key in [
        "", " ", "\"\"", "\"open", "a b", "a\tb", "ключ", "\"a\"b\"", &long,
    ] {
        let reply = shop.send(unnamed().key(key)).await;
        assert_eq!(reply.status, 400, "{key}: {reply:?}");
        reply.assert_problem(400, "key-malformed");
    }
    let twice = shop.send(unnamed().key("a").key("a")).await;
    twice.assert_problem(400, "key-malformed");
    untouched(&shop, sale).await;
    shop.close().await;
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_refused() {
    let shop = Shop::open().await;
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v1/sale/1",
        "/v1/sales/",
        "/v1/sales/1/",
        "/v2/sales/1",
        "/admin",
        "/v1/sales/1/purchases/1",
        "//v1/sales/1",
        "/v1/null/1/purchases",
        "/v1/%73ales/x",
    ] {
        let reply = shop.send(get(path)).await;
        assert_eq!(reply.status, 404, "{path}: {reply:?}");
        reply.assert_problem(404, "not-found");
    }
    for id in [
        "0",
        "-1",
        "+1",
        "01",
        "1.0",
        "1e3",
        "x",
        "4294967296",
        "99999999999999999999",
        "%00",
        "1%0d%0aSet-Cookie:x",
        "..%2f1",
        "%ff",
        "1;drop",
        "4294967295",
    ] {
        for path in [format!("/v1/sales/{id}"), format!("/v1/sales/{id}/stock")] {
            let reply = shop.send(get(&path)).await;
            assert_eq!(reply.status, 404, "{path}: {reply:?}");
            reply.assert_problem(404, "not-found");
        }
        let path = format!("/v1/sales/{id}/purchases");
        let reply = purchase(1, "alice", "k", 1);
        let reply = shop.send(Call(reply.0.uri(&path), reply.1)).await;
        reply.assert_problem(404, "not-found");
    }
    for id in ["x", "1", "00000000-0000-0000-0000-000000000000", "%00"] {
        let reply = shop.send(get(&format!("/v1/orders/{id}")).admin()).await;
        reply.assert_problem(404, "not-found");
    }
    let nowhere = "/v1/orders/7fffffff-6dda-8221-9e5f-d7f82a46b46a";
    shop.send(get(nowhere).admin())
        .await
        .assert_problem(404, "not-found");
    let nowhere = post(&format!("{nowhere}/confirm")).admin();
    shop.send(nowhere).await.assert_problem(404, "not-found");

    for (method, path, allowed) in [
        ("GET", "/v1/sales/1/purchases", "POST"),
        ("DELETE", "/v1/sales/1", "GET,HEAD"),
        ("PUT", "/v1/sales", "GET,HEAD,POST"),
        ("BREW", "/healthz", "GET,HEAD"),
    ] {
        let reply = shop.send(call(method, path)).await;
        reply.assert_problem(405, "method-not-allowed");
        let mut methods: Vec<_> = reply.header("allow").unwrap().split(',').collect();
        methods.sort_unstable();
        assert_eq!(methods.join(","), allowed, "{method} {path}");
    }
    shop.close().await;
}

#[tokio::test]
async fn queries_and_sales_that_are_out_of_bounds_are_refused() {
    let shop = Shop::open().await;
    let sale = shop.create(json!({})).await;
    for query in [
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=x",
        "limit=",
        "after=0",
        "after=x",
        "offset=1",
        "limit=1&limit=2",
    ] {
        let reply = shop.send(get(&format!("/v1/sales?{query}")).admin()).await;
        assert_eq!(reply.status, 400, "{query}: {reply:?}");
        reply.assert_problem(400, "query-malformed");
    }
    for query in [
        "after=x",
        "wait_ms=30001",
        "limit=501",
        "after=-1.0",
        "cursor=1.0",
    ] {
        let path = format!("/v1/sales/{sale}/feed?{query}");
        let reply = shop.send(get(&path).admin()).await;
        reply.assert_problem(400, "query-malformed");
    }
    let long = "x".repeat(201);
    for (field, value) in [
        ("quantity", json!(0)),
        ("quantity", json!(1_000_000_001)),
        ("quantity", json!(1.5)),
        ("price_minor", json!(-1)),
        ("currency", json!("yuan")),
        ("product", json!("")),
        ("title", json!(long)),
        ("title", json!("a\u{0}b")),
        ("segments", json!(0)),
        ("segments", json!(257)),
        ("segments", json!("many")),
        ("per_buyer_limit", json!(0)),
        ("hold_seconds", json!(2_592_001)),
        ("strategy", json!("naive")),
        ("opens_at", json!("tomorrow")),
        ("opens_at", json!(1_700_000_000)),
        ("id", json!(7)),
        ("taken", json!(0)),
    ] {
        let mut body = json!({
            "product": "p", "title": "t", "price_minor": 1, "currency": "CNY", "quantity": 1,
        });
        body[field] = value.clone();
        let reply = shop.send(post("/v1/sales").admin().json(&body)).await;
        assert_eq!(reply.status, 400, "{field} = {value}: {reply:?}");
        reply.assert_problem(400, "body-malformed");
    }
    let order = "/v1/orders/00000001-6dda-8221-9e5f-d7f82a46b46a/confirm";
    let unknown = post(order)
        .admin()
        .json(&json!({"reacquire": true, "force": true}));
    shop.send(unknown)
        .await
        .assert_problem(400, "body-malformed");
    let sales = shop.send(get("/v1/sales").admin()).await.assert_ok(200);
    assert_eq!(sales["sales"].as_array().unwrap().len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn buyer_ids_that_are_none_are_refused() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({})).await;
    let long = "x".repeat(129);
    for buyer in ["", &long, "a\tb"] {
        let reply = shop.send(purchase(sale, buyer, "k", 1)).await;
        reply.assert_problem(401, "unauthenticated");
    }
    let twice = shop
        .send(purchase(sale, "alice", "k", 1).buyer("bob"))
        .await;
    twice.assert_problem(401, "unauthenticated");
    untouched(&shop, sale).await;
    shop.close().await;
}

/// Nothing of it may have been taken for a purchase.
async fn untouched(shop: &Shop, sale: u64) {
    let path = format!("/v1/sales/{sale}/audit");
    let audit = shop.send(get(&path).admin()).await.assert_ok(200);
    assert_eq!(audit["terms"]["available"], 10, "{audit}");
    assert_eq!(audit["verdict"], "balanced", "{audit}");
}
