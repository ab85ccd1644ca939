//! For operators and their machines: health, readiness, metrics, the OpenAPI document.

use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::openapi::ReadyProblems;
use super::{Api, Code, Problem};
use crate::service::Readiness;

/// How long the parts may take to say that they are ready: load balancers do not wait longer.
const READINESS_TIMEOUT: Duration = Duration::from_secs(2);
/// Media type of the metrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// That the service works.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// Always `ok`; an unhealthy process does not answer.
    status: &'static str,
}

/// Says that the process answers. It asks no other server: a restart would not mend those.
#[utoipa::path(get, path = "/healthz", tag = "operations",
    responses((status = 200, description = "The process answers.", body = Health)))]
pub(super) async fn get_health() -> Answer<Health> {
    Answer(Health { status: "ok" })
}

/// Says whether buyers can be served, and if not, what is not ready.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, description = "Buyers can be served.", body = Health), ReadyProblems))]
pub(super) async fn get_readiness(State(api): State<Api>) -> Result<Answer<Health>, Problem> {
    if api.draining.is_cancelled() {
        return Err(Problem::new(
            Code::NotReady,
            "The service is shutting down.",
        ));
    }
    let parts = tokio::time::timeout(READINESS_TIMEOUT, api.service.readiness())
        .await
        .map_err(|_| {
            Problem::new(
                Code::NotReady,
                "The service's parts did not answer in time.",
            )
        })?;
    if parts.iter().all(|part| part.ready) {
        return Ok(Answer(Health { status: "ok" }));
    }
    let row = |Readiness {
                   part,
                   ready,
                   detail,
               }: &Readiness| {
        json!({"part": part.to_string(), "ready": ready, "detail": detail})
    };
    let rows: Vec<_> = parts.iter().map(row).collect();
    Err(Problem::plain(Code::NotReady).with("parts", rows))
}

/// Metrics in the `OpenMetrics` text format, which Prometheus reads.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "Metrics.", body = String,
        content_type = "application/openmetrics-text")))]
pub(super) async fn get_metrics(State(api): State<Api>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, OPEN_METRICS)],
        api.service.metrics().encode(),
    )
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "operations",
    responses((status = 200, description = "The OpenAPI document.", body = serde_json::Value)))]
pub(super) async fn get_openapi(State(api): State<Api>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], api.document.clone())
}
