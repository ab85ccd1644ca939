//! Who may do what: every route without credentials, with bad ones, and with those of the wrong
//! kind.

use std::io::Write as _;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};

use super::{ADMIN_TOKEN, Call, JWT_SECRET, Shop, call, get, purchase, token};

/// Who must be able to call a route, as its documentation says.
fn documented() -> Vec<(String, String, Vec<String>)> {
    let document = serde_json::to_value(stockade::http::document()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schemes = operation["security"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let names = schemes
                .iter()
                .filter_map(Value::as_object)
                .flat_map(|s| s.keys());
            routes.push((
                method.to_uppercase(),
                path.clone(),
                names.cloned().collect(),
            ));
        }
    }
    routes
}

fn concrete(path: &str) -> String {
    path.replace("{sale}", "1")
        .replace("{order}", "00000001-6dda-8221-9e5f-d7f82a46b46a")
}

#[tokio::test]
async fn no_route_but_the_public_ones_answers_without_credentials() {
    let shop = Shop::with(&["--buyer-jwt-hs256-secret", JWT_SECRET]).await;
    let mut public = Vec::new();
    for (method, path, schemes) in documented() {
        let route = || call(&method, &concrete(&path));
        if schemes.is_empty() {
            public.push(path.clone());
            let reply = shop.send(route()).await;
            assert_ne!(reply.status, 401, "{method} {path}");
            continue;
        }
        let bad = [
            ("authorization", ""),
            ("authorization", "Bearer"),
            ("authorization", "Bearer wrong"),
            ("authorization", "Bearer a.b.c"),
            ("authorization", ADMIN_TOKEN),
            ("x-buyer-id", "alice"),
        ];
        shop.send(route())
            .await
            .assert_problem(401, "unauthenticated");
        for (name, value) in bad {
            let reply = shop.send(route().header(name, value)).await;
            reply.assert_problem(401, "unauthenticated");
            assert_eq!(
                reply.header("www-authenticate"),
                Some("Bearer"),
                "{method} {path}"
            );
        }
    }
    let expected = [
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/sales/{sale}",
        "/v1/sales/{sale}/stock",
    ];
    assert_eq!(public, expected);
    shop.close().await;
}

#[tokio::test]
async fn good_credentials_of_the_wrong_kind_are_forbidden_on_every_route() {
    let shop = Shop::with(&["--buyer-jwt-hs256-secret", JWT_SECRET]).await;
    let buyer = format!("Bearer {}", token("alice"));
    for (method, path, schemes) in documented() {
        let has = |scheme: &str| schemes.iter().any(|name| name == scheme);
        let route = || call(&method, &concrete(&path));
        if has("admin") && !has("buyer") {
            let reply = shop.send(route().header("authorization", &buyer)).await;
            reply.assert_problem(403, "forbidden");
        }
        if has("buyer") && !has("admin") {
            let reply = shop.send(route().admin()).await;
            reply.assert_problem(403, "forbidden");
        }
    }
    shop.close().await;
}

fn bearer(call: Call, token: &str) -> Call {
    call.header("authorization", &format!("Bearer {token}"))
}

#[tokio::test]
async fn a_buyer_is_whom_the_token_names_and_never_whom_a_header_names() {
    let shop = Shop::with(&["--buyer-jwt-hs256-secret", JWT_SECRET]).await;
    let sale = shop.sell(json!({})).await;
    let buy = purchase(sale, "mallory", "k", 1);
    let order = shop.send(bearer(buy, &token("alice"))).await.assert_ok(201);
    assert_eq!(order["buyer"], "alice");
    let own = shop
        .send(bearer(get("/v1/orders"), &token("alice")))
        .await
        .assert_ok(200);
    assert_eq!(own["orders"][0]["id"], order["id"]);
    let foreign = shop
        .send(bearer(get("/v1/orders"), &token("mallory")))
        .await;
    assert_eq!(foreign.assert_ok(200)["orders"], json!([]));
    shop.close().await;
}

#[tokio::test]
async fn eddsa_tokens_are_taken_for_the_audience_and_no_other() {
    // A key pair made for this test.
    let private = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIIvYQlZpaGJlBebX0OEYyaPkjgUaesYwqU5nJ8fvsPt8\n\
        -----END PRIVATE KEY-----\n";
    let public = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAJm4wdrIFoxc+/CjAVZamD092WfXpTUkm9cvCRC1Jvfk=\n\
        -----END PUBLIC KEY-----\n";
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(public.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let flags = [
        "--buyer-jwt-eddsa-public-key",
        path,
        "--buyer-jwt-audience",
        "shop",
    ];
    let shop = Shop::with(&flags).await;

    let key = EncodingKey::from_ed_pem(private.as_bytes()).unwrap();
    let exp = get_current_timestamp() + 60;
    let sign = |claims: &Value| encode(&Header::new(Algorithm::EdDSA), claims, &key).unwrap();
    let good = sign(&json!({"sub": "alice", "exp": exp, "aud": "shop"}));
    for attempt in ["checked", "remembered"] {
        let reply = shop.send(bearer(get("/v1/orders"), &good)).await;
        assert_eq!(reply.status, 200, "{attempt}: {reply:?}");
    }
    let cut = shop
        .send(bearer(get("/v1/orders"), &good[..good.len() - 1]))
        .await;
    cut.assert_problem(401, "unauthenticated");
    let hs256 = EncodingKey::from_secret(public.as_bytes()).unwrap();
    let claims = json!({"sub": "alice", "exp": exp, "aud": "shop"});
    for (case, bad) in [
        (
            "audience",
            sign(&json!({"sub": "alice", "exp": exp, "aud": "other"})),
        ),
        ("no audience", sign(&json!({"sub": "alice", "exp": exp}))),
        (
            "expired",
            sign(&json!({"sub": "alice", "exp": exp - 120, "aud": "shop"})),
        ),
        (
            "confused",
            encode(&Header::default(), &claims, &hs256).unwrap(),
        ),
    ] {
        let reply = shop.send(bearer(get("/v1/orders"), &bad)).await;
        assert_eq!(reply.status, 401, "{case}: {reply:?}");
    }
    shop.close().await;
}

#[tokio::test]
async fn a_buyer_who_sends_too_fast_is_told_to_wait_and_nobody_else_is() {
    let shop = Shop::with(&["--trust-buyer-header", "--buyer-requests-per-second", "1"]).await;
    let sale = shop.sell(json!({"per_buyer_limit": 10})).await;
    for n in 0..2 {
        shop.buy(sale, "alice", &format!("k-{n}"), 1).await;
    }
    let third = shop.send(purchase(sale, "alice", "k-2", 1)).await;
    third.assert_problem(429, "too-many-requests");
    assert_eq!(third.header("retry-after"), Some("1"));
    shop.buy(sale, "bob", "k", 1).await;
    shop.close().await;
}
