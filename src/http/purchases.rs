//! The purchase: the one route that has to be fast.
//!
//! Per request there is one parse of the body, one buffer for the answer, and no middleware;
//! counters are resolved before the first request.

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde::de::{Deserializer, Unexpected, Visitor};
use tokio::time::Instant;
use utoipa::ToSchema;
use uuid::Uuid;

use super::openapi::{BodyProblems, BuyerProblems, PurchaseProblems, ServerProblems};
use super::orders::{OrderBody, PendingBody, location};
use super::{Api, Code, Id, IdempotencyKey, Json, Prefer, Problem, Purchaser};
use crate::domain::{Admission, BuyerId, Order, Outcome, QUANTITY_MAX, Sale, SaleId};
use crate::metrics::PurchaseOutcome;
use crate::service::AnswerWhen;

/// Bytes reserved for an order's body: all but those with very long buyer ids fit.
const BODY_CAPACITY: usize = 384;
/// Seconds after which a pending order is worth a look.
const PENDING_RETRY_SECONDS: u32 = 1;
/// Says that the answer is that of an earlier attempt.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Says which preference was honoured.
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// What is bought.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PurchaseRequest {
    /// Units.
    #[schema(value_type = u32, minimum = 1, maximum = 1_000_000_000, example = 1)]
    quantity: Quantity,
}

/// A quantity as it came. Numbers that are no quantity are kept apart from what is no number at
/// all: they have their own problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Valid(u32),
    Invalid,
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number as `quantity`")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Quantity, E> {
        Ok(match u32::try_from(number) {
            Ok(quantity @ 1..=QUANTITY_MAX) => Quantity::Valid(quantity),
            _ => Quantity::Invalid,
        })
    }

    fn visit_i64<E>(self, _: i64) -> Result<Quantity, E> {
        Ok(Quantity::Invalid)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Quantity, E> {
        Ok(Quantity::Invalid)
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Quantity, E> {
        Err(E::invalid_type(Unexpected::Other("a string"), &self))
    }
}

impl PurchaseRequest {
    fn quantity(self) -> Result<u32, Problem> {
        match self.quantity {
            Quantity::Valid(quantity) => Ok(quantity),
            Quantity::Invalid => Err(Problem::plain(Code::InvalidQuantity)),
        }
    }
}

/// Buys units of a sale for the calling buyer.
///
/// The answer follows the commit; with `Prefer: respond-async` it follows the admission, and the
/// same happens when the database is slow. A retry with the same key gets the same order.
#[utoipa::path(post, path = "/v1/sales/{sale}/purchases", tag = "purchases",
    security(("buyer" = []), ("trusted-buyer" = [])),
    params(
        ("sale" = u32, Path, minimum = 1, description = "The sale's number."),
        ("Idempotency-Key" = String, Header,
            description = "Names the purchase: 1 to 255 visible ASCII characters, bare or quoted."),
        ("Prefer" = Option<String>, Header,
            description = "`respond-async`: do not wait for the commit."),
    ),
    request_body = PurchaseRequest,
    responses(
        (status = 201, description = "The order is committed.", body = OrderBody<'_>, headers(
            ("Location" = String, description = "The order's path."),
            ("Idempotent-Replayed" = Option<String>,
                description = "`true` when an earlier attempt had made the order."))),
        (status = 202, description = "Admitted; the order will follow.", body = PendingBody,
            headers(("Location" = String, description = "The order's path."),
            ("Retry-After" = u32, description = "Seconds after which to look."),
            ("Preference-Applied" = Option<String>, description = "`respond-async`."),
            ("Idempotent-Replayed" = Option<String>,
                description = "`true` when an earlier attempt had been admitted."))),
        BuyerProblems, BodyProblems, PurchaseProblems, ServerProblems))]
pub(super) async fn create_purchase(
    Purchaser(buyer): Purchaser,
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
    IdempotencyKey(key): IdempotencyKey,
    Prefer(when): Prefer,
    Json(request): Json<PurchaseRequest>,
) -> Result<Response, Problem> {
    let quantity = request.quantity()?;
    let started = Instant::now();
    let result = api
        .service
        .purchase(sale, &buyer, &key, quantity, when)
        .await;
    let metrics = api.service.metrics();
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => {
            let problem = Problem::from(error);
            metrics.purchase(PurchaseOutcome::Failed, started.elapsed());
            return Err(problem);
        }
    };
    metrics.purchase(PurchaseOutcome::of(&outcome), started.elapsed());
    match outcome {
        Outcome::Committed { order, replayed } => {
            let sale = api.service.terms(order.id.sale()).await?;
            Ok(committed(&order, &sale, replayed))
        }
        Outcome::Admitted(admission) => Ok(admitted(&admission, when)),
        Outcome::Refused(refusal) => Err(refusal.into()),
        Outcome::Unavailable(unavailable) => Err(unavailable.into()),
    }
}

/// The answer to a purchase that is an order now.
pub(super) fn committed(order: &Order, sale: &Sale, replayed: bool) -> Response {
    let mut body = Vec::with_capacity(BODY_CAPACITY);
    OrderBody::new(order, sale).write(&mut body);
    answer(StatusCode::CREATED, order.id.uuid(), body, replayed)
}

/// The answer to a purchase that will be an order.
fn admitted(admission: &Admission, when: AnswerWhen) -> Response {
    let body = PendingBody::new(admission.order, admission.quantity);
    let id = admission.order.uuid();
    let body = serde_json::to_vec(&body).expect("a pending order is plain JSON");
    let mut response = answer(StatusCode::ACCEPTED, id, body, admission.replayed);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, PENDING_RETRY_SECONDS.into());
    if when == AnswerWhen::Admitted {
        let applied = HeaderValue::from_static(super::extract::RESPOND_ASYNC);
        headers.insert(PREFERENCE_APPLIED, applied);
    }
    response
}

fn answer(status: StatusCode, id: Uuid, body: Vec<u8>, replayed: bool) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    headers.insert(header::LOCATION, location(id));
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// The same parsing, authentication and shape of answer, and no work: the ceiling that benchmarks
/// compare with. Only with `--null-handler`, and not in the OpenAPI document.
pub(super) async fn create_null_purchase(
    Purchaser(buyer): Purchaser,
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
    IdempotencyKey(_): IdempotencyKey,
    Prefer(_): Prefer,
    Json(request): Json<PurchaseRequest>,
) -> Result<Response, Problem> {
    let quantity = request.quantity()?;
    let started = Instant::now();
    let null = api.null.as_ref().expect("the route exists with its data");
    let order = null.order(sale, buyer, quantity);
    api.service
        .metrics()
        .purchase(PurchaseOutcome::Committed, started.elapsed());
    Ok(committed(&order, &null.sale, false))
}

/// What the null handler answers with.
#[derive(Debug)]
pub(super) struct NullAnswer {
    pub(super) sale: Sale,
}

impl NullAnswer {
    pub(super) fn new() -> Self {
        use crate::domain::{NewSale, Stage, Strategy};
        let terms = NewSale {
            product: "null".into(),
            title: "null".into(),
            price_minor: 9_900,
            currency: "CNY".into(),
            quantity: QUANTITY_MAX,
            segments: 1,
            per_buyer_limit: QUANTITY_MAX,
            opens_at: None,
            closes_at: None,
            hold_seconds: 900,
            strategy: Strategy::Segmented,
        };
        Self {
            sale: Sale {
                id: SaleId::new(1).expect("one is positive"),
                terms,
                stage: Stage::Loaded,
                paused: false,
                closed: false,
                epoch: 1,
                loaded_epoch: 1,
                loaded_segments: 1,
                control: 0,
                taken: 0,
                confirmed: 0,
                created_at: super::now(),
                drained: false,
            },
        }
    }

    /// An order with a fixed key half: hashing is the real handler's work.
    fn order(&self, sale: SaleId, buyer: BuyerId, quantity: u32) -> Order {
        use crate::domain::{OrderId, OrderState};
        let mut id = [0; 16];
        id[..4].copy_from_slice(&sale.get().to_be_bytes());
        (id[6], id[8]) = (0x80, 0x80);
        Order {
            id: OrderId::from_bytes(&id).expect("the layout is that of an order id"),
            buyer,
            quantity,
            state: OrderState::Reserved,
            created_at: self.sale.created_at,
            hold_expires_at: Some(self.sale.created_at),
            finished_at: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(body: &str) -> Result<Result<u32, Code>, String> {
        serde_json::from_str::<PurchaseRequest>(body)
            .map(|request| request.quantity().map_err(|problem| problem.code))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn whole_numbers_in_range_are_quantities() {
        assert_eq!(quantity(r#"{"quantity":1}"#), Ok(Ok(1)));
        let most = format!(r#"{{"quantity": {QUANTITY_MAX}}}"#);
        assert_eq!(quantity(&most), Ok(Ok(QUANTITY_MAX)));
    }

    #[test]
    fn other_numbers_are_invalid_quantities() {
        for number in [
            "0",
            "-1",
            "1.0",
            "1.5",
            "1e3",
            "1000000001",
            "4294967297",
            "18446744073709551616",
            "-9223372036854775809",
        ] {
            let body = format!(r#"{{"quantity":{number}}}"#);
            assert_eq!(quantity(&body), Ok(Err(Code::InvalidQuantity)), "{number}");
        }
    }

    #[test]
    fn everything_else_is_a_malformed_body_that_is_named() {
        for (body, named) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("{}", "quantity"),
            (r#"{"quantity":null}"#, "quantity"),
            (r#"{"quantity":"1"}"#, "quantity"),
            (r#"{"quantity":[1]}"#, "quantity"),
            (r#"{"quantity":true}"#, "quantity"),
            (r#"{"quantity":1,"price_minor":1}"#, "price_minor"),
            (r#"{"quantity":1,"quantity":2}"#, "quantity"),
            (r#"{"quantity":1}x"#, "trailing"),
            (r#"{"quantity":NaN}"#, "column"),
        ] {
            let why = quantity(body).expect_err(body);
            assert!(why.contains(named), "{body}: {why}");
        }
    }
}
