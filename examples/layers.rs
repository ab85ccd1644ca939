//! What the way around the router costs: this service's own function, and a stack of tower-http layers that
//! does about the same (request id in and out, a line for each request, a header on the answer, the end
//! of a panic), each around one handler that does nothing. Prints medians of alternating rounds.
//!
//!     cargo run --release --example layers

use std::hint::black_box;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderName, HeaderValue};
use axum::routing::get;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt as _};
use tower_http::ServiceBuilderExt as _;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::MakeRequestUuid;
use tower_http::trace::TraceLayer;

const ROUNDS: usize = 9;
const REQUESTS: u32 = 200_000;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let handler = || Router::new().route("/", get(async || "nothing"));
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .set_request_id(REQUEST_ID, MakeRequestUuid)
        .layer(TraceLayer::new_for_http())
        .propagate_request_id(REQUEST_ID)
        .override_response_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .service(handler());
    let alone = handler();
    let edge = stockade::http::Edge::around(handler());
    let (mut bare, mut layers, mut function) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(nanoseconds(async || call(alone.clone()).await).await);
        layers.push(nanoseconds(async || call(stack.clone()).await).await);
        function.push(
            nanoseconds(async || {
                black_box(edge.respond(Request::new(Body::empty())).await);
            })
            .await,
        );
    }
    println!("nanoseconds for each request, medians of {ROUNDS} rounds of {REQUESTS}");
    println!("  the router alone     {:>6.0}", median(bare));
    println!("  tower-http layers    {:>6.0}", median(layers));
    println!("  one function         {:>6.0}", median(function));
}

async fn call<S>(service: S)
where
    S: Service<Request>,
    S::Response: Send,
    S::Error: std::fmt::Debug,
{
    let answer = service.oneshot(Request::new(Body::empty())).await;
    black_box(answer.expect("the handler cannot fail"));
}

async fn nanoseconds(mut request: impl AsyncFnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..REQUESTS {
        request().await;
    }
    let took: Duration = started.elapsed();
    took.as_secs_f64() * 1e9 / f64::from(REQUESTS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
