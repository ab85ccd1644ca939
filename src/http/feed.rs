//! The feed: every change of a sale's orders, for the shop's own systems.

use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{PAGE_MAX, bounded, parameter};
use super::openapi::{AdminProblems, QueryProblems, SaleProblems, ServerProblems};
use super::orders::OrderBody;
use super::{Admin, Api, Id, Problem, Query};
use crate::domain::{OrderState, SaleId, Timestamp};
use crate::service::{Cursor, Feed};

/// Events of an answer when the client does not say.
const LIMIT_DEFAULT: u32 = 100;
/// The longest wait for the next event, in milliseconds: shorter than proxies wait.
const WAIT_MS_MAX: u32 = 30_000;

/// Which events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FeedQuery {
    /// Go on after this event: the `next` of the answer before. Without it: from the beginning.
    after: Option<String>,
    /// At most this many events.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u32>,
    /// How long to wait if there is no event yet, in milliseconds.
    #[param(minimum = 0, maximum = 30_000, default = 0)]
    wait_ms: Option<u32>,
}

/// Events in the order in which they were committed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Feed)]
pub(super) struct FeedBody<'a> {
    /// The events; none when nothing happened in time.
    events: Vec<EventBody<'a>>,
    /// Where to go on; the same as `after` when there was none.
    next: String,
}

/// One change of one order.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub(super) struct EventBody<'a> {
    /// The event's place in the feed.
    cursor: String,
    /// The state that the order took.
    r#type: OrderState,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The order as it is now, which may be later than the event.
    order: OrderBody<'a>,
}

/// Reads every change of every order of the sale, in one order for all readers, at least once.
#[utoipa::path(get, path = "/v1/sales/{sale}/feed", tag = "orders", security(("admin" = [])),
    params(("sale" = u32, Path, minimum = 1, description = "The sale's number."), FeedQuery),
    responses((status = 200, description = "Events.", body = FeedBody<'_>),
        AdminProblems, SaleProblems, QueryProblems, ServerProblems))]
pub(super) async fn get_feed(
    _: Admin,
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
    Query(query): Query<FeedQuery>,
) -> Result<Response, Problem> {
    let after: Cursor = parameter("after", query.after.as_deref())?.unwrap_or_default();
    let limit = bounded("limit", query.limit.unwrap_or(LIMIT_DEFAULT), 1, PAGE_MAX)?;
    let wait_ms = bounded("wait_ms", query.wait_ms.unwrap_or(0), 0, WAIT_MS_MAX)?;
    let wait = Duration::from_millis(wait_ms.into());
    let feed = async |wait| api.service.feed(sale, after, limit, wait).await;
    let feed = tokio::select! {
        feed = feed(wait) => feed?,
        // A reader that waits for nothing would hold up the shutdown.
        () = api.draining.cancelled() => feed(Duration::ZERO).await?,
    };
    let terms = api.service.terms(sale).await?;
    let Feed { events, next } = &feed;
    let events = events.iter().map(|event| EventBody {
        cursor: event.cursor.to_string(),
        r#type: event.state,
        at: event.at,
        order: OrderBody::new(&event.order, &terms),
    });
    Ok(Answer(FeedBody {
        events: events.collect(),
        next: next.to_string(),
    })
    .into_response())
}
