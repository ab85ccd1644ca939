//! What happens to every request, once, around the router: its id, its log line, its count, and the
//! end of a panic.
//!
//! This is one function instead of a stack of layers, but for the end of a panic: what it costs is
//! printed by `cargo run --release --example layers`.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use tokio::time::Instant;
use tower_http::catch_panic::CatchPanic;
use tower_service::Service as _;
use tracing::{Level, debug, error, info, warn};
use uuid::{Builder, Uuid};

use super::problem::Trace;
use super::route::{self, Templates};
use super::{Api, Problem};
use crate::metrics::Metrics;

/// Names the request in answers and logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is taken from a client, in characters.
const REQUEST_ID_LENGTH_MAX: usize = 64;

/// The whole HTTP face as one function from request to response. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Edge {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    router: Router,
    metrics: Arc<Metrics>,
    templates: Templates,
}

impl Edge {
    /// The routes over this context.
    #[must_use]
    pub fn new(api: Api) -> Self {
        let document = super::document();
        let paths = document.paths.paths.keys().map(String::as_str);
        let templates = Templates::new(paths.chain([route::NULL]));
        let metrics = Arc::clone(api.service.metrics());
        let router = super::router(api);
        let inner = Arc::new(Inner {
            router,
            metrics,
            templates,
        });
        Self { inner }
    }

    /// The same around any routes, to measure what it costs.
    #[must_use]
    pub fn around(router: Router) -> Self {
        let inner = Arc::new(Inner {
            router,
            metrics: Arc::new(Metrics::new()),
            templates: Templates::new(std::iter::empty()),
        });
        Self { inner }
    }

    /// Answers one request; it never fails and never panics.
    pub async fn respond(&self, request: Request) -> Response {
        let started = Instant::now();
        let _in_flight = self.inner.metrics.request_begins();
        let id = request_id(request.headers());
        let line = Line::new(&request);
        let mut response = self.run(request).await;
        self.finish(&line, &id, started.elapsed(), &response);
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        if line.method == Method::GET {
            // Stock, orders and lists are true for a moment, and some for one reader.
            headers
                .entry(CACHE_CONTROL)
                .or_insert(HeaderValue::from_static("no-store"));
        }
        response
    }

    /// Runs the router; a panic in a handler becomes a 500.
    async fn run(&self, request: Request) -> Response {
        let mut router = CatchPanic::custom(self.inner.router.clone(), after_panic);
        match router.call(request).await {
            Ok(response) => response.map(Body::new),
            Err(never) => match never {},
        }
    }

    /// Counts the request and writes its log line.
    fn finish(&self, line: &Line, id: &HeaderValue, took: Duration, response: &Response) {
        let status = response.status();
        if line.purchase {
            self.inner.metrics.purchase_answered(status.as_u16());
            if !status.is_server_error() && !tracing::enabled!(target: "http", Level::DEBUG) {
                return;
            }
        }
        let path = line.uri.path();
        let (template, known) = self.inner.templates.find(path);
        if !line.purchase {
            self.inner
                .metrics
                .request(template, method_label(&line.method), status.as_u16());
        }
        let path = if known { path } else { template };
        let quiet = line.purchase || !path.starts_with("/v1/");
        let trace = response.extensions().get::<Trace>();
        log(&line.method, path, id, took, status, trace, quiet);
    }
}

/// What counting and logging need of a request that the router has consumed.
struct Line {
    method: Method,
    uri: Uri,
    purchase: bool,
}

impl Line {
    fn new(request: &Request) -> Self {
        let path = request.uri().path();
        Self {
            method: request.method().clone(),
            purchase: *request.method() == Method::POST && route::is_purchase(path),
            uri: request.uri().clone(),
        }
    }
}

/// One line for a request. The route of purchases and the operators' routes are quiet: they come by
/// the thousand, or every second from a machine, and metrics count them; their failures are not.
fn log(
    method: &Method,
    path: &str,
    id: &HeaderValue,
    took: Duration,
    status: StatusCode,
    trace: Option<&Trace>,
    quiet: bool,
) {
    let id = id.to_str().unwrap_or_default();
    let code = trace.map(|trace| trace.code.as_str());
    let cause = trace.and_then(|trace| trace.cause.as_deref());
    let status = status.as_u16();
    let duration_ms = took.as_secs_f64() * 1e3;
    macro_rules! line {
        ($level:ident) => {
            $level!(
target: "http",
                {
                    request.id = id,
                    request.method = method.as_str(),
                    request.path = path,
                    response.status = status,
                    duration_ms = (duration_ms * 1e3).round() / 1e3,
                    problem.code = code,
                    problem.cause = cause,
                },
"{method} {path} -> {status} ({duration_ms:.1} ms)",
            )
        };
    }
    match status {
        500 => line!(error),
        501.. => line!(warn),
        _ if quiet => line!(debug),
        _ => line!(info),
    }
}

/// The client's id if it is fit to be logged, or a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|value| {
        let bytes = value.as_bytes();
        let visible = bytes.iter().all(|byte| (0x21..=0x7e).contains(byte));
        (1..=REQUEST_ID_LENGTH_MAX).contains(&bytes.len()) && visible
    });
    given.cloned().unwrap_or_else(new_request_id)
}

/// A UUID of version 7. Its random half comes from this thread's generator: `Uuid::now_v7` would
/// ask the system for every request.
fn new_request_id() -> HeaderValue {
    let millis = super::now().millis().unsigned_abs();
    let id = Builder::from_unix_timestamp_millis(millis, &rand::random()).into_uuid();
    let mut text = Uuid::encode_buffer();
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).expect("hex digits and hyphens")
}

/// A label for the method: clients may invent methods, and labels must be few.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature of CatchPanic's handler"
)]
fn after_panic(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let cause = format!("a handler panicked: {}", text.unwrap_or("no message"));
    Problem::internal(cause).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_for(given: &str) -> HeaderValue {
        let mut headers = HeaderMap::new();
        headers.insert(
            REQUEST_ID,
            HeaderValue::from_bytes(given.as_bytes()).unwrap(),
        );
        request_id(&headers)
    }

    #[test]
    fn a_fit_request_id_is_kept_and_any_other_replaced() {
        for fit in ["a", "7f3-x/Y=", &"x".repeat(REQUEST_ID_LENGTH_MAX)] {
            assert_eq!(id_for(fit), fit);
        }
        for unfit in ["", "a b", "é", &"x".repeat(REQUEST_ID_LENGTH_MAX + 1)] {
            let id = id_for(unfit);
            let id = Uuid::try_parse(id.to_str().unwrap()).unwrap();
            assert_eq!(id.get_version_num(), 7, "{unfit}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_its_message_is_for_the_log_only() {
        async fn broken() -> Response {
            panic!("a planted panic");
        }
        let edge = Edge::around(Router::new().fallback(broken));
        let metrics = Arc::clone(&edge.inner.metrics);
        let response = edge.respond(Request::default()).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(response.headers().contains_key(REQUEST_ID));
        let cause = response.extensions().get::<Trace>().unwrap().cause.clone();
        assert_eq!(cause.unwrap(), "a handler panicked: a planted panic");
        let body = axum::body::to_bytes(response.into_body(), 1_024)
            .await
            .unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(
            body.contains("internal") && !body.contains("planted"),
            "{body}"
        );
        let text = metrics.encode();
        assert!(
            text.contains("stockade_http_requests_in_flight 0"),
            "{text}"
        );
    }

    #[test]
    fn methods_that_clients_invent_share_a_label() {
        assert_eq!(method_label(&Method::GET), "GET");
        assert_eq!(method_label(&"BREW".parse().unwrap()), "other");
    }
}
