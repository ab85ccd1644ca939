//! Typed calls of the service's API over one connection.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::api::{
    Audit, FeedPage, NewSale, Order, OrderPage, Problem, Sale, Segment, SegmentList, Stock,
};
use crate::http::{Answer, Connection, Failure};
use crate::outcome::Outcome;
use crate::target::Target;

/// How long an administrator's call may take, and a buyer's unless set otherwise.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Orders asked for at once.
const PAGE_ORDERS: usize = 500;
/// Pages read of one list: a list that never ends is an error.
const PAGES_MAX: usize = 10_000;

/// Why a call has no result.
#[derive(Debug, Clone)]
pub enum CallError {
    /// The service refused, or reports an error.
    Problem(Problem),
    /// There was no answer.
    Failed(Failure),
    /// The answer is not what the API promises.
    Malformed(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => problem.fmt(formatter),
            Self::Failed(failure) => failure.fmt(formatter),
            Self::Malformed(what) => write!(formatter, "not what the API promises: {what}"),
        }
    }
}

impl std::error::Error for CallError {}

/// A change that the shop makes to a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaleAction {
    /// Put the stock into Redis.
    Load,
    /// Sell from now.
    Open,
    /// Stop selling for a while.
    Pause,
    /// Go on selling.
    Resume,
    /// Stop selling for good.
    Close,
}

/// One purchase, ready to be sent, again if need be.
#[derive(Debug, Clone, Copy)]
pub struct PurchaseRequest<'a> {
    /// The sale.
    pub sale: u32,
    /// Who buys.
    pub buyer: &'a str,
    /// The idempotency key: a retry sends the same.
    pub key: &'a str,
    /// Units.
    pub quantity: u32,
    /// Whether 202 will do.
    pub respond_async: bool,
}

/// Who makes a call.
#[derive(Debug, Clone, Copy)]
pub enum As<'a> {
    /// The shop.
    Admin,
    /// A buyer.
    Buyer(&'a str),
    /// Anybody.
    Anonymous,
}

/// A client of one process of the service, with one connection.
#[derive(Debug)]
pub struct Client {
    target: Target,
    connection: Connection,
}

impl Client {
    /// A client of the target's process number `instance`, counted round and round.
    #[must_use]
    pub fn new(target: &Target, instance: usize) -> Self {
        Self::with_timeout(target, instance, CALL_TIMEOUT)
    }

    /// As [`new`](Self::new), with its own bound on each call.
    #[must_use]
    pub fn with_timeout(target: &Target, instance: usize, timeout: Duration) -> Self {
        let connection = Connection::new(target.address(instance), timeout);
        Self {
            target: target.clone(),
            connection,
        }
    }

    /// The process it talks to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.connection.address()
    }

    /// Connects now rather than with the first call.
    ///
    /// # Errors
    /// When nobody accepts in time.
    pub async fn connect(&mut self) -> Result<(), Failure> {
        self.connection.connect().await
    }

    /// Sends any request. A body is sent as JSON.
    ///
    /// # Errors
    /// See [`Failure`].
    ///
    /// # Panics
    /// When the path is none, or a header is not plain.
    pub async fn send(
        &mut self,
        who: As<'_>,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<Answer, Failure> {
        let mut request = Request::builder().method(method).uri(path);
        match who {
            As::Admin => {
                let (name, value) = self.target.admin_header();
                request = request.header(name, value);
            }
            As::Buyer(buyer) => {
                let (name, value) = self.target.buyer_header(buyer);
                request = request.header(name, value);
            }
            As::Anonymous => {}
        }
        for &(name, value) in headers {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let request = request.body(body).expect("path and headers are plain");
        self.connection.send(request).await
    }

    async fn call<T: DeserializeOwned>(
        &mut self,
        who: As<'_>,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, CallError> {
        let answer = self
            .send(who, method, path, &[], body)
            .await
            .map_err(CallError::Failed)?;
        parse(&answer)
    }

    /// Tries to buy, once.
    ///
    /// # Panics
    /// When the key is not visible ASCII.
    pub async fn purchase(&mut self, purchase: &PurchaseRequest<'_>) -> Outcome {
        let path = format!("/v1/sales/{}/purchases", purchase.sale);
        let body = format!(r#"{{"quantity":{}}}"#, purchase.quantity).into_bytes();
        let headers = [
            ("idempotency-key", purchase.key),
            ("prefer", "respond-async"),
        ];
        let headers = if purchase.respond_async {
            &headers[..]
        } else {
            &headers[..1]
        };
        let who = As::Buyer(purchase.buyer);
        Outcome::of(
            self.send(who, Method::POST, &path, headers, Some(body))
                .await,
        )
    }

    /// Creates a sale.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn create_sale(&mut self, sale: &NewSale) -> Result<Sale, CallError> {
        self.call(As::Admin, Method::POST, "/v1/sales", Some(json(sale)))
            .await
    }

    /// Changes the state of a sale.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn change_sale(&mut self, sale: u32, action: SaleAction) -> Result<Sale, CallError> {
        let action = match action {
            SaleAction::Load => "load",
            SaleAction::Open => "open",
            SaleAction::Pause => "pause",
            SaleAction::Resume => "resume",
            SaleAction::Close => "close",
        };
        let path = format!("/v1/sales/{sale}/{action}");
        self.call(As::Admin, Method::POST, &path, None).await
    }

    /// Reads a sale.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn sale(&mut self, sale: u32) -> Result<Sale, CallError> {
        self.call(
            As::Anonymous,
            Method::GET,
            &format!("/v1/sales/{sale}"),
            None,
        )
        .await
    }

    /// Reads the stock of a sale.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn stock(&mut self, sale: u32) -> Result<Stock, CallError> {
        self.call(
            As::Anonymous,
            Method::GET,
            &format!("/v1/sales/{sale}/stock"),
            None,
        )
        .await
    }

    /// Has the books of a sale audited.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn audit(&mut self, sale: u32) -> Result<Audit, CallError> {
        self.call(
            As::Admin,
            Method::GET,
            &format!("/v1/sales/{sale}/audit"),
            None,
        )
        .await
    }

    /// Splits a sale's stock into this many segments.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn change_segments(&mut self, sale: u32, segments: u32) -> Result<Sale, CallError> {
        let path = format!("/v1/sales/{sale}/segments");
        let body = format!(r#"{{"segments":{segments}}}"#).into_bytes();
        self.call(As::Admin, Method::POST, &path, Some(body)).await
    }

    /// Changes a sale's quantity from what the caller believes it is.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn change_quantity(
        &mut self,
        sale: u32,
        from: u32,
        to: u32,
    ) -> Result<Sale, CallError> {
        let path = format!("/v1/sales/{sale}/quantity");
        let body = format!(r#"{{"from":{from},"to":{to}}}"#).into_bytes();
        self.call(As::Admin, Method::POST, &path, Some(body)).await
    }

    /// Reads the figures of a sale's segments.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn segments(&mut self, sale: u32) -> Result<Vec<Segment>, CallError> {
        let path = format!("/v1/sales/{sale}/segments");
        let list: SegmentList = self.call(As::Admin, Method::GET, &path, None).await?;
        Ok(list.segments)
    }

    /// Reads all orders of a sale.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn sale_orders(&mut self, sale: u32) -> Result<Vec<Order>, CallError> {
        self.all_orders(As::Admin, &format!("/v1/sales/{sale}/orders"))
            .await
    }

    /// Reads all orders of a buyer, newest first.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn buyer_orders(&mut self, buyer: &str) -> Result<Vec<Order>, CallError> {
        self.all_orders(As::Buyer(buyer), "/v1/orders").await
    }

    async fn all_orders(&mut self, who: As<'_>, path: &str) -> Result<Vec<Order>, CallError> {
        let mut orders = Vec::new();
        let mut after = String::new();
        for _ in 0..PAGES_MAX {
            let path = format!("{path}?limit={PAGE_ORDERS}{after}");
            let page: OrderPage = self.call(who, Method::GET, &path, None).await?;
            orders.extend(page.orders);
            let Some(next) = page.next else {
                return Ok(orders);
            };
            after = format!("&after={}", plain(&next));
        }
        Err(CallError::Malformed(format!(
            "{path} does not end after {PAGES_MAX} pages"
        )))
    }

    /// Reads changes of a sale's orders after `cursor`, waiting for the first up to `wait_ms`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn feed(
        &mut self,
        sale: u32,
        cursor: Option<&serde_json::Value>,
        limit: usize,
        wait_ms: u64,
    ) -> Result<FeedPage, CallError> {
        let after = cursor
            .map(|cursor| format!("&after={}", plain(cursor)))
            .unwrap_or_default();
        let path = format!("/v1/sales/{sale}/feed?limit={limit}&wait_ms={wait_ms}{after}");
        self.call(As::Admin, Method::GET, &path, None).await
    }

    /// Reads an order. One that is still `pending` is malformed here: see [`send`](Self::send).
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn order(&mut self, who: As<'_>, order: Uuid) -> Result<Order, CallError> {
        self.call(who, Method::GET, &format!("/v1/orders/{order}"), None)
            .await
    }

    /// Confirms an order as paid; an expired one is bought again if `reacquire` says so.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn confirm(&mut self, order: Uuid, reacquire: bool) -> Result<Order, CallError> {
        let body = reacquire.then(|| br#"{"reacquire":true}"#.to_vec());
        self.call(
            As::Admin,
            Method::POST,
            &format!("/v1/orders/{order}/confirm"),
            body,
        )
        .await
    }

    /// Cancels an order.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn cancel(&mut self, who: As<'_>, order: Uuid) -> Result<Order, CallError> {
        self.call(
            who,
            Method::POST,
            &format!("/v1/orders/{order}/cancel"),
            None,
        )
        .await
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain structs have a JSON form")
}

/// A cursor as it goes into a query: it is opaque, a number or a string without special characters.
fn plain(cursor: &serde_json::Value) -> String {
    cursor
        .as_str()
        .map_or_else(|| cursor.to_string(), str::to_owned)
}

fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, CallError> {
    let malformed = |error: serde_json::Error| {
        let body = String::from_utf8_lossy(&answer.body);
        CallError::Malformed(format!("{error}: {} {body}", answer.status))
    };
    if answer.status.is_success() {
        serde_json::from_slice(&answer.body).map_err(malformed)
    } else {
        let problem = serde_json::from_slice(&answer.body).map_err(malformed)?;
        Err(CallError::Problem(problem))
    }
}
