//! A sale's segments and its quantity: where units lie, and changing both while the sale sells.

use axum::Json as Answer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::openapi::{AdminProblems, BodyProblems, ChangeProblems, SaleProblems, ServerProblems};
use super::sales::{SaleBody, Segments, SegmentsSchema};
use super::{Admin, Api, Code, Id, Json, Problem};
use crate::domain::{Sale, SaleId};
use crate::ledger::{ChangeAnswer, QuantityChange, StockChange};
use crate::service::{Changed, SegmentFigures};

/// Another number of units.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QuantityRequest {
    /// The quantity that the sale has now, as the caller believes.
    #[schema(minimum = 1, maximum = 1_000_000_000, example = 100)]
    from: u32,
    /// The quantity that it is to have: more adds stock, fewer withdraws what is not sold.
    #[schema(minimum = 1, maximum = 1_000_000_000, example = 150)]
    to: u32,
}

/// Another number of segments.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SegmentsRequest {
    /// 1 to 256, or `"auto"`.
    #[schema(value_type = SegmentsSchema)]
    segments: Segments,
}

/// The segments of a sale.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SegmentList {
    /// The sale's number.
    sale: u32,
    /// Number of the load that filled them.
    epoch: u64,
    /// By number; empty before the first load.
    segments: Vec<SegmentBody>,
}

/// What one segment has and has done since the load.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Segment)]
pub(super) struct SegmentBody {
    /// Its number.
    segment: u32,
    /// Whether its data is in Redis and selling.
    loaded: bool,
    /// Units that the load brought.
    filled: u64,
    /// Units borrowed from other segments since.
    borrowed: u64,
    /// Units lent to other segments since.
    lent: u64,
    /// Units free now.
    available: u64,
    /// Of those lent, units that have not arrived.
    in_transfer: u64,
    /// Units admitted and not yet settled with the ledger.
    journaled: u64,
}

impl From<&SegmentFigures> for SegmentBody {
    fn from(one: &SegmentFigures) -> Self {
        Self {
            segment: one.segment,
            loaded: one.loaded,
            filled: one.filled,
            borrowed: one.borrowed,
            lent: one.lent,
            available: one.available,
            in_transfer: one.in_transfer,
            journaled: one.journaled,
        }
    }
}

/// Reads the figures of each segment.
#[utoipa::path(get, path = "/v1/sales/{sale}/segments", tag = "sales", security(("admin" = [])),
    params(("sale" = u32, Path, minimum = 1, description = "The sale's number.")),
    responses((status = 200, description = "The segments.", body = SegmentList),
        AdminProblems, SaleProblems, ServerProblems))]
pub(super) async fn get_segments(
    _: Admin,
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
) -> Result<Answer<SegmentList>, Problem> {
    let (epoch, segments) = api.service.segments(sale).await?;
    Ok(Answer(SegmentList {
        sale: sale.get(),
        epoch,
        segments: segments.iter().map(SegmentBody::from).collect(),
    }))
}

/// Splits the stock anew, also while the sale sells: buyers wait for a moment, nothing is lost.
#[utoipa::path(post, path = "/v1/sales/{sale}/segments", tag = "sales", security(("admin" = [])),
    params(("sale" = u32, Path, minimum = 1, description = "The sale's number.")),
    request_body = SegmentsRequest,
    responses((status = 200, description = "The sale as it is now.", body = SaleBody),
        AdminProblems, SaleProblems, BodyProblems, ChangeProblems, ServerProblems))]
pub(super) async fn change_segments(
    _: Admin,
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
    Json(request): Json<SegmentsRequest>,
) -> Result<Answer<SaleBody>, Problem> {
    let now = api.service.sale(sale).await?;
    let change = StockChange {
        quantity: None,
        segments: Some(request.segments.count(now.terms.quantity)),
    };
    apply(&api, sale, change).await
}

/// Adds stock, or withdraws stock that is not sold, also while the sale sells: buyers wait for a moment,
/// nothing is lost. The caller names the quantity that it believes in, so that two callers never undo or
/// repeat each other's change.
#[utoipa::path(post, path = "/v1/sales/{sale}/quantity", tag = "sales", security(("admin" = [])),
    params(("sale" = u32, Path, minimum = 1, description = "The sale's number.")),
    request_body = QuantityRequest,
    responses((status = 200, description = "The sale as it is now.", body = SaleBody),
        AdminProblems, SaleProblems, BodyProblems, ChangeProblems, ServerProblems))]
pub(super) async fn change_quantity(
    _: Admin,
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
    Json(request): Json<QuantityRequest>,
) -> Result<Answer<SaleBody>, Problem> {
    let QuantityRequest { from, to } = request;
    let change = StockChange {
        quantity: Some(QuantityChange { from, to }),
        segments: None,
    };
    apply(&api, sale, change).await
}

async fn apply(api: &Api, id: SaleId, change: StockChange) -> Result<Answer<SaleBody>, Problem> {
    let sale: Sale = match api.service.change_stock(id, change).await? {
        Changed::Done(sale) => sale,
        Changed::Closed => return Err(Problem::plain(Code::Closed)),
        Changed::Refused(ChangeAnswer::BelowTaken { taken }) => {
            return Err(Problem::plain(Code::BelowTaken).with("taken", taken));
        }
        Changed::Refused(ChangeAnswer::Stale { quantity }) => {
            return Err(Problem::plain(Code::Stale).with("quantity", quantity));
        }
        Changed::Refused(ChangeAnswer::Applied) => api.service.sale(id).await?,
    };
    Ok(Answer(SaleBody::new(api, sale)))
}
