//! The HTTP face: every answer of its contract, every bad input, who may do what.
//!
//! Requests go through the app in this process, without a connection, to a real redis-server and a
//! real SQLite file; what only a connection can show is in [`server`].

mod answers;
mod auth;
mod bad_input;
mod documents;
mod logs;
mod orders;
mod server;
mod start;
mod trouble;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use clap::Parser;
use loadtest::servers::{RedisOptions, RedisServer, eventually};
use serde_json::{Value, json};
use stockade::app::App;
use stockade::config::ServeConfig;
use stockade::http::Edge;
use tempfile::TempDir;

const ADMIN_TOKEN: &str = "admin-token-of-the-http-tests";
const JWT_SECRET: &str = "a secret that buyers' tokens are signed with";
/// The longest answer that a test reads.
const ANSWER_LENGTH_MAX: usize = 1 << 20;

/// The service's command line, without the program's.
#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    serve: ServeConfig,
}

/// An app on servers of its own.
struct Shop {
    app: App,
    edge: Edge,
    redis: RedisServer,
    _folder: TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The answer must be this problem, whole.
    #[track_caller]
    fn assert_problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{code}: {self:?}");
        let media = self.header("content-type");
        assert_eq!(media, Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["code"], code, "{self:?}");
        assert_eq!(body["type"], format!("urn:stockade:problem:{code}"));
        assert_eq!(body["status"], status);
        assert!(
            body["title"].is_string() && body["detail"].is_string(),
            "{self:?}"
        );
        let retry = self.header("retry-after").is_some();
        assert_eq!(retry, matches!(status, 429 | 503), "Retry-After: {self:?}");
        body
    }

    #[track_caller]
    fn assert_ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }
}

/// A request in the making.
struct Call(axum::http::request::Builder, Body);

fn call(method: &str, path: &str) -> Call {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    Call(Request::builder().method(method).uri(path), Body::empty())
}

fn get(path: &str) -> Call {
    call("GET", path)
}

fn post(path: &str) -> Call {
    call("POST", path)
}

impl Call {
    fn header(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value), self.1)
    }

    fn admin(self) -> Self {
        self.header("authorization", &format!("Bearer {ADMIN_TOKEN}"))
    }

    fn buyer(self, buyer: &str) -> Self {
        self.header("x-buyer-id", buyer)
    }

    fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    fn json(self, body: &Value) -> Self {
        let call = self.header("content-type", "application/json");
        Self(call.0, body.to_string().into())
    }

    fn body(self, body: impl Into<Body>) -> Self {
        Self(self.0, body.into())
    }

    async fn send(self, edge: &Edge) -> Reply {
        let response = edge.respond(self.0.body(self.1).unwrap()).await;
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, ANSWER_LENGTH_MAX).await.unwrap();
        Reply {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }
}

/// A purchase by a trusted gateway.
fn purchase(sale: u64, buyer: &str, key: &str, quantity: u64) -> Call {
    post(&format!("/v1/sales/{sale}/purchases"))
        .buyer(buyer)
        .key(key)
        .json(&json!({"quantity": quantity}))
}

impl Shop {
    /// Buyers are named by a trusted gateway.
    async fn open() -> Self {
        Self::with(&["--trust-buyer-header"]).await
    }

    async fn with(flags: &[&str]) -> Self {
        let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = config(&redis, &folder, flags);
        let app = App::build(&config).await.unwrap();
        Self {
            edge: app.edge(),
            app,
            redis,
            _folder: folder,
        }
    }

    async fn send(&self, call: Call) -> Reply {
        call.send(&self.edge).await
    }

    /// Creates a sale of these terms beside the defaults, without opening it.
    async fn create(&self, terms: Value) -> u64 {
        let mut body = json!({
            "product": "sku-1", "title": "A phone", "price_minor": 9_900, "currency": "CNY",
            "quantity": 10,
        });
        for (name, value) in terms.as_object().unwrap() {
            body[name] = value.clone();
        }
        let sale = self.send(post("/v1/sales").admin().json(&body)).await;
        sale.assert_ok(201)["id"].as_u64().unwrap()
    }

    /// As [`Shop::create`], and sells from now on.
    async fn sell(&self, terms: Value) -> u64 {
        let sale = self.create(terms).await;
        self.verb(sale, "open").await;
        sale
    }

    async fn verb(&self, sale: u64, verb: &str) -> Value {
        let call = post(&format!("/v1/sales/{sale}/{verb}")).admin();
        self.send(call).await.assert_ok(200)
    }

    /// Buys, and returns the order.
    async fn buy(&self, sale: u64, buyer: &str, key: &str, quantity: u64) -> Value {
        let reply = self.send(purchase(sale, buyer, key, quantity)).await;
        reply.assert_ok(201)
    }

    /// Asks again until the answer is as wished.
    async fn until(
        &self,
        what: &str,
        ask: impl Fn() -> Call,
        wish: impl Fn(&Reply) -> bool,
    ) -> Reply {
        let probe = async || Some(self.send(ask()).await).filter(&wish);
        eventually(what, probe).await.unwrap()
    }

    async fn close(self) {
        self.app.run_until(std::future::ready(())).await;
    }
}

fn config(redis: &RedisServer, folder: &TempDir, flags: &[&str]) -> ServeConfig {
    let database = format!("sqlite://{}", folder.path().join("ledger.db").display());
    let redis = redis.url();
    let fixed = [
        "test",
        "--listen=127.0.0.1:0",
        "--migrate",
        "--admin-token",
        ADMIN_TOKEN,
        "--redis-url",
        &redis,
        "--database-url",
        &database,
    ];
    let line = fixed.iter().chain(flags);
    Flags::try_parse_from(line).unwrap().serve
}

/// A buyer's token, good for an hour.
fn token(buyer: &str) -> String {
    use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
    let claims = json!({"sub": buyer, "exp": get_current_timestamp() + 3_600});
    let key = EncodingKey::from_secret(JWT_SECRET.as_bytes()).unwrap();
    encode(&Header::default(), &claims, &key).unwrap()
}
