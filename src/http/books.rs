//! Where a sale's units are: the public stock, and the admin's audit.

use axum::Json as Answer;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::{AdminProblems, SaleProblems, ServerProblems};
use super::sales::SaleState;
use super::{Admin, Api, Id, Problem};
use crate::domain::{SaleId, Timestamp};
use crate::service::{Audit, AuditVerdict, Stock};

/// Where a sale's units are, as the servers say at this moment; made to be polled.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stock)]
pub(super) struct StockBody {
    /// The sale's number.
    sale: u32,
    /// Units for sale.
    quantity: u32,
    /// Free in Redis.
    available: u64,
    /// On the way between segments.
    in_transfer: u64,
    /// Admitted, and not yet in the ledger.
    journaled: u64,
    /// In orders that wait for payment.
    held: u64,
    /// In paid orders.
    confirmed: u64,
    /// Of ended orders, on their way back.
    returning: u64,
    /// Where the sale stands.
    state: SaleState,
    /// The service's clock at this answer.
    #[schema(value_type = String, format = DateTime)]
    server_time: Timestamp,
}

impl StockBody {
    fn new(stock: &Stock, server_time: Timestamp) -> Self {
        Self {
            sale: stock.sale.id.get(),
            quantity: stock.sale.terms.quantity,
            available: stock.available,
            in_transfer: stock.in_transfer,
            journaled: stock.journaled,
            held: stock.held,
            confirmed: stock.confirmed,
            returning: stock.returning,
            state: SaleState::of(&stock.sale, server_time),
            server_time,
        }
    }
}

/// The books of a sale.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Audit)]
pub(super) struct AuditBody {
    /// The sale's number.
    sale: u32,
    /// Number of the load of stock that was counted.
    epoch: u64,
    /// Whether the terms add up.
    verdict: VerdictBody,
    /// What was counted.
    terms: AuditTerms,
    /// Units in active orders beyond the quantity.
    oversold: u64,
    /// What is wrong or could not be counted, in words.
    findings: Vec<String>,
}

/// Whether the books balance.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = AuditVerdict)]
#[serde(rename_all = "lowercase")]
pub(super) enum VerdictBody {
    /// Every unit is in exactly one place.
    Balanced,
    /// Units are missing or there are too many.
    Unbalanced,
    /// Not everything could be counted.
    Unknown,
}

/// The terms of the equation: quantity is the sum of the others.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditTerms {
    /// Units for sale.
    quantity: u64,
    /// Free in Redis.
    available: u64,
    /// On the way between segments.
    in_transfer: u64,
    /// Admitted, and not yet in the ledger.
    journaled: u64,
    /// In orders that wait for payment.
    held: u64,
    /// In paid orders.
    confirmed: u64,
    /// Of ended orders, on their way back.
    returning: u64,
}

impl From<Audit> for AuditBody {
    fn from(audit: Audit) -> Self {
        Self {
            sale: audit.sale.get(),
            epoch: audit.epoch,
            verdict: match audit.verdict {
                AuditVerdict::Balanced => VerdictBody::Balanced,
                AuditVerdict::Unbalanced => VerdictBody::Unbalanced,
                AuditVerdict::Unknown => VerdictBody::Unknown,
            },
            terms: AuditTerms {
                quantity: audit.quantity,
                available: audit.available,
                in_transfer: audit.in_transfer,
                journaled: audit.journaled,
                held: audit.held,
                confirmed: audit.confirmed,
                returning: audit.returning,
            },
            oversold: audit.oversold,
            findings: audit.findings,
        }
    }
}

/// Reads where the sale's units are.
#[utoipa::path(get, path = "/v1/sales/{sale}/stock", tag = "sales",
    params(("sale" = u32, Path, minimum = 1, description = "The sale's number.")),
    responses((status = 200, description = "The stock.", body = StockBody),
        SaleProblems, ServerProblems))]
pub(super) async fn get_stock(
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
) -> Result<Answer<StockBody>, Problem> {
    let stock = api.service.stock(sale).await?;
    Ok(Answer(StockBody::new(&stock, api.service.clock(sale))))
}

/// Audits the sale: counts its units in every place, and says whether they add up.
#[utoipa::path(get, path = "/v1/sales/{sale}/audit", tag = "sales", security(("admin" = [])),
    params(("sale" = u32, Path, minimum = 1, description = "The sale's number.")),
    responses((status = 200, description = "The books.", body = AuditBody),
        AdminProblems, SaleProblems, ServerProblems))]
pub(super) async fn get_audit(
    _: Admin,
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
) -> Result<Answer<AuditBody>, Problem> {
    Ok(Answer(api.service.audit(sale).await?.into()))
}
