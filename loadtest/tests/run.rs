//! Runs against a shop of a hundred lines, honest or with one fault: what the buyers see of it, and
//! what the judge says.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use loadtest::judge::{Verdict, Violation};
use loadtest::run::{RunReport, run_sale};
use loadtest::scenario::Scenario;
use loadtest::target::{BuyerAuth, Target};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

const NOW: &str = "2026-11-30T20:00:00.000Z";

/// What is wrong with the shop.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The first answer to each purchase is cut off after it has been acted on.
    AnswersLost,
    /// The first attempt at each purchase is turned away.
    Busy,
    /// Every tenth order is forgotten after its 201.
    Forgetful,
    /// No purchase is ever let in.
    Closed,
    /// A retry makes another order.
    Doubling,
}

#[derive(Default)]
struct Books {
    /// By buyer and key.
    orders: BTreeMap<String, Value>,
    attempts: BTreeMap<String, u32>,
}

struct Shop {
    fault: Fault,
    quantity: u64,
    books: Mutex<Books>,
}

impl Shop {
    fn sold(books: &Books) -> u64 {
        books
            .orders
            .values()
            .map(|order| order["quantity"].as_u64().unwrap())
            .sum()
    }

    fn sale(&self) -> Value {
        json!({ "id": 1, "quantity": self.quantity, "per_buyer_limit": 3, "price_minor": 5,
                "state": "open", "epoch": 1, "server_time": NOW })
    }

    fn answer(&self, path: &str, name: &str, body: &[u8]) -> Option<(u16, Value)> {
        let books = &mut self.books.lock().unwrap();
        let resource = path
            .split('?')
            .next()
            .unwrap()
            .trim_start_matches("/v1/sales");
        Some(match resource {
            "" => (201, self.sale()),
            "/1" | "/1/open" => (200, self.sale()),
            "/1/purchases" => return self.purchase(books, name, body),
            "/1/orders" => {
                let orders: Vec<_> = books.orders.values().collect();
                (200, json!({ "orders": orders, "next": null }))
            }
            "/1/audit" => {
                let sold = Self::sold(books);
                let terms = json!({
                    "quantity": self.quantity, "available": self.quantity - sold, "held": 0,
                    "in_transfer": 0, "journaled": 0, "confirmed": sold, "returning": 0 });
                let verdict = json!({
                    "verdict": "balanced", "terms": terms, "oversold": 0, "findings": [] });
                (200, verdict)
            }
            _ => (404, json!({ "status": 404, "code": "not-found" })),
        })
    }

    /// None: the connection breaks.
    fn purchase(&self, books: &mut Books, name: &str, body: &[u8]) -> Option<(u16, Value)> {
        let body: Value = serde_json::from_slice(body).unwrap();
        let quantity = body["quantity"].as_u64().unwrap();
        let attempts = books.attempts.entry(name.to_owned()).or_default();
        *attempts += 1;
        let first = *attempts == 1;
        if self.fault == Fault::Closed || (self.fault == Fault::Busy && first) {
            return Some((503, json!({ "status": 503, "code": "overloaded" })));
        }
        let name = match self.fault {
            Fault::Doubling => format!("{name} {attempts}"),
            _ => name.to_owned(),
        };
        if !books.orders.contains_key(&name) {
            let left = self.quantity - Self::sold(books);
            if left < quantity {
                let code = if left == 0 {
                    "sold-out"
                } else {
                    "insufficient"
                };
                return Some((409, json!({ "status": 409, "code": code })));
            }
            let buyer = name.split(' ').next().unwrap();
            let order = json!({
                "id": Uuid::from_u128(books.orders.len() as u128 + 1), "sale": 1, "buyer": buyer,
                "quantity": quantity, "amount_minor": 5 * quantity, "state": "confirmed" });
            if self.fault == Fault::Forgetful && books.orders.len() % 10 == 9 {
                let lost = json!({ "id": Uuid::from_u128(u128::MAX) });
                return Some((201, lost));
            }
            books.orders.insert(name.clone(), order);
        }
        let lost = self.fault == Fault::AnswersLost && first;
        (!lost).then(|| (201, books.orders[&name].clone()))
    }

    async fn handle(&self, request: Request<Incoming>) -> Option<Response<Full<Bytes>>> {
        let header = |name: &str| {
            let value = request.headers().get(name);
            value
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default()
        };
        let name = format!("{} {}", header("x-buyer-id"), header("idempotency-key"));
        let path = request.uri().to_string();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let (status, body) = self.answer(&path, &name, &body)?;
        let body = Full::new(Bytes::from(body.to_string()));
        Some(Response::builder().status(status).body(body).unwrap())
    }
}

async fn open(fault: Fault, quantity: u64) -> Target {
    let shop = Arc::new(Shop {
        fault,
        quantity,
        books: Mutex::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let shop = Arc::clone(&shop);
            let serve = service_fn(move |request| {
                let shop = Arc::clone(&shop);
                async move { shop.handle(request).await.ok_or("the connection breaks") }
            });
            let builder = hyper::server::conn::http1::Builder::new();
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), serve));
        }
    });
    Target::new(&[url], "admin", BuyerAuth::TrustedHeader).unwrap()
}

/// 300 buyers, one to three units each, for 100 units.
async fn run(fault: Fault) -> RunReport {
    let target = open(fault, 100).await;
    let mut scenario = Scenario {
        buyers: 300,
        quantities: 1..=3,
        ..Scenario::default()
    };
    scenario.sale.quantity = 100;
    scenario.connections = 32;
    scenario.replay = true;
    scenario.patience = Duration::from_secs(if fault == Fault::Closed { 0 } else { 60 });
    run_sale(&target, &scenario).await.unwrap()
}

#[tokio::test]
async fn an_honest_shop_is_valid_to_the_last_unit() {
    let report = tokio::spawn(run(Fault::None)).await.unwrap();
    let judgement = &report.judgement;
    assert_eq!(judgement.verdict, Verdict::Valid, "{report}");
    let tally = &judgement.tally;
    assert_eq!(
        (tally.sold, tally.oversold, tally.undersold),
        (100, 0, 0),
        "{report}"
    );
    let refused: usize = tally.refused.values().sum();
    assert_eq!(tally.committed + refused, 300, "{report}");
    assert_eq!(report.replays.len(), tally.committed);
    assert_eq!(
        report.accepted_latency.response.len(),
        tally.committed as u64
    );
    assert_eq!(report.refused_latency.service.len(), refused as u64);
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_under_the_same_key() {
    let report = run(Fault::AnswersLost).await;
    assert_eq!(report.judgement.verdict, Verdict::Valid, "{report}");
    let accepted = report
        .purchases
        .iter()
        .filter(|one| one.outcome.order().is_some());
    assert!(accepted.clone().count() > 0 && accepted.clone().all(|one| one.attempts == 2));
    assert_eq!(report.judgement.tally.unknown, 0, "{report}");
}

#[tokio::test]
async fn a_buyer_who_is_turned_away_comes_back() {
    let report = run(Fault::Busy).await;
    assert_eq!(report.judgement.verdict, Verdict::Valid, "{report}");
    assert!(report.purchases.iter().all(|one| one.attempts == 2));
}

#[tokio::test]
async fn a_shop_that_forgets_orders_is_caught() {
    let report = run(Fault::Forgetful).await;
    assert_eq!(report.judgement.verdict, Verdict::Violated, "{report}");
    assert!(report.judgement.found(Violation::Lost), "{report}");
}

#[tokio::test]
async fn a_shop_that_makes_another_order_of_a_retry_is_caught() {
    let report = run(Fault::Doubling).await;
    assert_eq!(report.judgement.verdict, Verdict::Violated, "{report}");
    let violations = [Violation::Duplicate, Violation::Contradiction];
    assert!(
        violations.iter().any(|&kind| report.judgement.found(kind)),
        "{report}"
    );
}

#[tokio::test]
async fn a_shop_that_lets_nobody_in_shows_nothing() {
    let report = run(Fault::Closed).await;
    assert_eq!(report.judgement.verdict, Verdict::Unknown, "{report}");
    assert_eq!(report.judgement.tally.turned_away, 300, "{report}");
}

#[tokio::test]
async fn a_service_that_is_not_there_is_an_error() {
    let urls = ["http://127.0.0.1:1".to_owned()];
    let target = Target::new(&urls, "admin", BuyerAuth::TrustedHeader).unwrap();
    let error = run_sale(&target, &Scenario::default()).await.unwrap_err();
    assert!(
        format!("{error:#}").contains("cannot create the sale: not sent"),
        "{error:#}"
    );
}
