//! Logs of the real program: request lines with ids, and nothing that must not be in them.

use loadtest::servers::{RedisOptions, RedisServer, Service, ServiceOptions, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{JWT_SECRET, token};

const PLANTED: [&str; 6] = [
    "planted-admin-token",
    "planted-buyer",
    "planted-key",
    "planted-query",
    "planted-path",
    "planted-title",
];

/// One request over a connection of its own.
async fn request(service: &Service, line: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut stream = TcpStream::connect(service.address()).await.unwrap();
    let mut text = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let length = body.len();
    text.push_str(&format!("Content-Length: {length}\r\n\r\n{body}"));
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn options(redis: &RedisServer, folder: &tempfile::TempDir, more: &[&str]) -> ServiceOptions {
    let database = format!("sqlite://{}", folder.path().join("ledger.db").display());
    let redis = redis.url();
    let fixed = [
        "serve",
        "--listen=127.0.0.1:0",
        "--migrate",
        "--redis-url",
        &redis,
        "--database-url",
        &database,
        "--log",
        "trace",
        "--log-format",
        "json",
    ];
    ServiceOptions {
        binary: env!("CARGO_BIN_EXE_stockade").into(),
        args: fixed.iter().chain(more).map(ToString::to_string).collect(),
        env: vec![
            ("STOCKADE_ADMIN_TOKEN".to_owned(), PLANTED[0].to_owned()),
            (
                "STOCKADE_BUYER_JWT_HS256_SECRET".to_owned(),
                JWT_SECRET.to_owned(),
            ),
        ],
    }
}

#[tokio::test]
async fn secrets_and_buyers_never_reach_the_log_even_at_its_most_talkative() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(&options(&redis, &folder, &[]))
        .await
        .unwrap();
    let admin = format!("Bearer {}", PLANTED[0]);
    let buyer = format!("Bearer {}", token("planted-buyer"));
    let json = ("content-type", "application/json");
    let sale = json!({"product": "p", "title": "planted-title", "price_minor": 1,
        "currency": "CNY", "quantity": 3})
    .to_string();

    let create = [("authorization", &*admin), json];
    let created = request(&service, "POST /v1/sales", &create, &sale).await;
    assert!(created.starts_with("HTTP/1.1 201"));
    let open = [
        ("authorization", &*admin),
        ("x-request-id", "asked-by-a-test"),
    ];
    let opened = request(&service, "POST /v1/sales/1/open", &open, "").await;
    assert!(opened.contains("x-request-id: asked-by-a-test"), "{opened}");
    let keyed = [
        ("authorization", &*buyer),
        ("idempotency-key", "planted-key"),
        json,
    ];
    let path = "POST /v1/sales/1/purchases?q=planted-query";
    let bought = request(&service, path, &keyed, "{\"quantity\":1}").await;
    assert!(bought.starts_with("HTTP/1.1 201"), "{bought}");
    for line in [
        "GET /v1/orders?after=planted-query",
        "GET /planted-path",
        "GET /v1/sales/planted-path",
    ] {
        request(&service, line, &[("authorization", &buyer)], "").await;
    }
    let malformed = "{\"quantity\":1,\"planted-title\":1}";
    request(&service, path, &keyed, malformed).await;
    service.terminate().await.unwrap();

    let log = std::fs::read_to_string(service.log_path()).unwrap();
    for secret in PLANTED
        .iter()
        .chain(&[JWT_SECRET, buyer.trim_start_matches("Bearer ")])
    {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
    let lines: Vec<Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let line = lines
        .iter()
        .find(|line| line["request.id"] == "asked-by-a-test");
    let line = line.unwrap_or_else(|| panic!("no line for the request:\n{log}"));
    assert_eq!(
        (&line["target"], &line["level"]),
        (&json!("http"), &json!("INFO"))
    );
    assert_eq!(line["request.path"], "/v1/sales/1/open");
    assert_eq!(line["response.status"], 200);
    let message = line["message"].as_str().unwrap();
    assert!(
        message.starts_with("POST /v1/sales/1/open -> 200 ("),
        "{message}"
    );
    let purchase = lines
        .iter()
        .find(|line| line["request.path"] == "/v1/sales/1/purchases");
    assert_eq!(purchase.unwrap()["level"], "DEBUG");
    let metrics = lines
        .iter()
        .any(|line| line["problem.code"] == "body-malformed");
    assert!(metrics, "a refusal's line names its code:\n{log}");
}

#[tokio::test]
async fn the_program_says_where_it_listens_and_ends_in_order_when_told_to() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(&options(&redis, &folder, &[]))
        .await
        .unwrap();
    let healthy = async || {
        let answer = request(&service, "GET /readyz", &[], "").await;
        answer.starts_with("HTTP/1.1 200").then_some(())
    };
    eventually("readiness", healthy).await.unwrap();
    let status = service.terminate().await.unwrap();
    assert!(status.success(), "{status}: {}", service.log_tail());
}
