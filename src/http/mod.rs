//! The HTTP face: parses requests into words of the domain, calls the service, writes answers.
//!
//! One file for each noun. Handlers name what they need as arguments (who calls, which sale, which
//! body), so that a request that lacks it never reaches their bodies. Everything that is no success
//! is a [`Problem`].

mod auth;
mod body;
mod books;
mod code;
mod edge;
mod extract;
mod feed;
mod jwt;
mod openapi;
mod ops;
mod orders;
mod problem;
mod purchases;
mod rate;
mod route;
mod sales;
mod segments;
mod server;
mod verified;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use tokio_util::sync::CancellationToken;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use auth::{Access, Admin, Buyer, Buyers, Caller, Purchaser};
pub use body::{BODY_LENGTH_MAX, Json, OptionalJson};
pub use code::Code;
pub use edge::Edge;
pub use extract::{Id, IdempotencyKey, Page, Prefer, Query};
pub use jwt::{HS256_SECRET_LENGTH_MIN, JwtVerifier};
pub use problem::Problem;
pub use rate::BuyerRate;
pub use server::{Server, ServerLimits};

use crate::domain::Timestamp;
use crate::service::Service;

/// What handlers share.
pub type Api = Arc<Context>;

/// See [`Api`].
#[derive(Debug)]
pub struct Context {
    /// Does the work.
    pub service: Service,
    /// Who may do what.
    pub access: Access,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Cancelled when the shutdown begins.
    pub draining: CancellationToken,
    /// The OpenAPI document as JSON.
    document: Bytes,
    /// What the null handler answers with, if there is one.
    null: Option<purchases::NullAnswer>,
}

impl Context {
    /// What handlers need; `null_handler` adds the benchmarks' route.
    #[must_use]
    pub fn new(
        service: Service,
        access: Access,
        body_timeout: Duration,
        null_handler: bool,
    ) -> Self {
        let json = serde_json::to_vec(&document()).expect("the document is plain JSON");
        Self {
            service,
            access,
            body_timeout,
            draining: CancellationToken::new(),
            document: json.into(),
            null: null_handler.then(purchases::NullAnswer::new),
        }
    }
}

/// The OpenAPI document of this release.
#[must_use]
pub fn document() -> OpenApi {
    let mut document = routes().into_openapi();
    openapi::merge(&mut document);
    document
}

/// Every route, with its documentation. Grouped by who calls it.
fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::base())
        // Everybody
        .routes(routes!(sales::get_sale))
        .routes(routes!(books::get_stock))
        // Buyers
        .routes(routes!(purchases::create_purchase))
        .routes(routes!(orders::list_orders))
        // Buyers, for their own orders, and the admin
        .routes(routes!(orders::get_order))
        .routes(routes!(orders::cancel_order))
        // The admin
        .routes(routes!(sales::list_sales, sales::create_sale))
        .routes(routes!(sales::load_sale))
        .routes(routes!(sales::open_sale))
        .routes(routes!(sales::pause_sale))
        .routes(routes!(sales::resume_sale))
        .routes(routes!(sales::close_sale))
        .routes(routes!(segments::get_segments, segments::change_segments))
        .routes(routes!(segments::change_quantity))
        .routes(routes!(orders::list_sale_orders))
        .routes(routes!(orders::confirm_order))
        .routes(routes!(feed::get_feed))
        .routes(routes!(books::get_audit))
        // Operators and their machines
        .routes(routes!(ops::get_health))
        .routes(routes!(ops::get_readiness))
        .routes(routes!(ops::get_metrics))
        .routes(routes!(ops::get_openapi))
}

fn router(api: Api) -> Router {
    let (mut router, _) = routes().split_for_parts();
    if api.null.is_some() {
        router = router.route(route::NULL, post(purchases::create_null_purchase));
    }
    router
        .fallback(async || Problem::new(Code::NotFound, "There is no such route."))
        .method_not_allowed_fallback(async || Problem::plain(Code::MethodNotAllowed))
        .with_state(api)
}

/// The process's clock.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Timestamp::from_millis(millis).expect("the clock lies between 1970 and 9999")
}
