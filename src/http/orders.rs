//! Orders: reading, listing, confirming, cancelling.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::openapi::{
    AdminProblems, BodyProblems, BuyerProblems, ConfirmProblems, FinalProblems, OrderProblems,
    QueryProblems, SaleProblems, ServerProblems,
};
use super::{Admin, Api, Buyer, Caller, Code, Id, OptionalJson, Page, Problem, Query};
use crate::domain::{Order, OrderId, OrderState, Sale, SaleId, Timestamp};
use crate::ledger::{OrderPage, Transition};
use crate::service::{Confirmation, OrderView};

/// An order.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Order)]
pub(super) struct OrderBody<'a> {
    /// Names the order.
    id: Uuid,
    /// The sale's number.
    sale: u32,
    /// Who bought.
    buyer: &'a str,
    /// Units.
    quantity: u32,
    /// Price of a unit in minor units.
    price_minor: i64,
    /// ISO 4217.
    currency: &'a str,
    /// Price of all units in minor units.
    amount_minor: i64,
    /// Where it stands.
    state: OrderState,
    /// When it was committed.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Until when its units are held; null when the sale has no holds.
    #[schema(value_type = Option<String>, format = DateTime)]
    hold_expires_at: Option<Timestamp>,
    /// When it became confirmed, cancelled, expired or rejected.
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
}

impl<'a> OrderBody<'a> {
    /// The order as clients see it; its price is the sale's.
    pub(super) fn new(order: &'a Order, sale: &'a Sale) -> Self {
        let price_minor = sale.terms.price_minor;
        Self {
            id: order.id.uuid(),
            sale: order.id.sale().get(),
            buyer: order.buyer.as_str(),
            quantity: order.quantity,
            price_minor,
            currency: &sale.terms.currency,
            // Both factors are at most 10⁹.
            amount_minor: price_minor * i64::from(order.quantity),
            state: order.state,
            created_at: order.created_at,
            hold_expires_at: order.hold_expires_at,
            finished_at: order.finished_at,
        }
    }
}

impl OrderBody<'_> {
    /// Appends the same JSON as `Serialize` makes. The purchase's answer is written so: the names
    /// are known to need no escapes, and looking for them took a tenth of the handler's time.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        fn put(out: &mut Vec<u8>, name: &str, value: &impl Serialize) {
            out.extend_from_slice(name.as_bytes());
            serde_json::to_writer(out, value).expect("a value of an order is plain JSON");
        }
        put(out, "{\"id\":", &self.id);
        put(out, ",\"sale\":", &self.sale);
        put(out, ",\"buyer\":", &self.buyer);
        put(out, ",\"quantity\":", &self.quantity);
        put(out, ",\"price_minor\":", &self.price_minor);
        put(out, ",\"currency\":", &self.currency);
        put(out, ",\"amount_minor\":", &self.amount_minor);
        put(out, ",\"state\":", &self.state);
        put(out, ",\"created_at\":", &self.created_at);
        put(out, ",\"hold_expires_at\":", &self.hold_expires_at);
        put(out, ",\"finished_at\":", &self.finished_at);
        out.push(b'}');
    }
}

/// A purchase that is admitted and will be an order.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PendingOrder)]
pub(super) struct PendingBody {
    /// Names the order to come.
    id: Uuid,
    /// The sale's number.
    sale: u32,
    /// Units.
    quantity: u32,
    /// Always `pending`.
    #[schema(value_type = String, pattern = "^pending$")]
    state: &'static str,
}

impl PendingBody {
    pub(super) fn new(order: OrderId, quantity: u32) -> Self {
        Self {
            id: order.uuid(),
            sale: order.sale().get(),
            quantity,
            state: "pending",
        }
    }
}

/// A purchase that was refused for good under its key: there is no order, and never will be.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RefusedOrder)]
pub(super) struct RefusedBody {
    /// Names the order that there is not.
    id: Uuid,
    /// The sale's number.
    sale: u32,
    /// Always `refused`.
    #[schema(value_type = String, pattern = "^refused$")]
    state: &'static str,
}

impl RefusedBody {
    fn new(order: OrderId) -> Self {
        Self {
            id: order.uuid(),
            sale: order.sale().get(),
            state: "refused",
        }
    }
}

/// What an order's path answers with.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum OrderOrPending<'a> {
    Order(OrderBody<'a>),
    Pending(PendingBody),
    Refused(RefusedBody),
}

/// A page of orders.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OrderList<'a> {
    /// The page's orders.
    orders: Vec<OrderBody<'a>>,
    /// The next page's `after`; null at the end.
    next: Option<Uuid>,
}

/// What to do with a payment that comes after the hold.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConfirmRequest {
    /// Buy again, under a new order, if the order has expired and stock remains.
    #[schema(default = false)]
    reacquire: bool,
}

/// The path of an order.
pub(super) fn location(id: Uuid) -> HeaderValue {
    const PREFIX: &[u8] = b"/v1/orders/";
    const LENGTH: usize = PREFIX.len() + uuid::fmt::Hyphenated::LENGTH;
    let mut path = [0; LENGTH];
    path[..PREFIX.len()].copy_from_slice(PREFIX);
    id.hyphenated().encode_lower(&mut path[PREFIX.len()..]);
    HeaderValue::from_bytes(&path).expect("a path of visible ASCII")
}

/// Whether the caller may know of the order at all, as far as its id tells.
fn may_see(caller: &Caller, id: OrderId) -> Result<(), Problem> {
    match caller {
        Caller::Buyer(buyer) if !id.may_belong_to(buyer) => Err(foreign()),
        _ => Ok(()),
    }
}

/// Whether the order is the caller's.
fn owns(caller: &Caller, order: &Order) -> Result<(), Problem> {
    match caller {
        Caller::Buyer(buyer) if *buyer != order.buyer => Err(foreign()),
        _ => Ok(()),
    }
}

fn foreign() -> Problem {
    Problem::new(Code::Forbidden, "This order is not yours.")
}

async fn body(api: &Api, order: &Order) -> Result<Response, Problem> {
    let sale = api.service.terms(order.id.sale()).await?;
    Ok(Answer(OrderBody::new(order, &sale)).into_response())
}

async fn list(api: &Api, page: &OrderPage) -> Result<Response, Problem> {
    let mut sales = Vec::with_capacity(page.orders.len());
    for order in &page.orders {
        sales.push(api.service.terms(order.id.sale()).await?);
    }
    let rows = page.orders.iter().zip(&sales);
    let orders = rows.map(|(order, sale)| OrderBody::new(order, sale));
    Ok(Answer(OrderList {
        orders: orders.collect(),
        next: page.next.map(OrderId::uuid),
    })
    .into_response())
}

/// Reads an order.
#[utoipa::path(get, path = "/v1/orders/{order}", tag = "orders",
    security(("buyer" = []), ("trusted-buyer" = []), ("admin" = [])),
    params(("order" = Uuid, Path, description = "The order's id.")),
    responses((status = 200, description = "The order, or that it is still to come, or will not.",
        body = OrderOrPending<'_>), OrderProblems, ServerProblems))]
pub(super) async fn get_order(
    caller: Caller,
    State(api): State<Api>,
    Id(id): Id<OrderId>,
) -> Result<Response, Problem> {
    may_see(&caller, id)?;
    match api.service.order(id).await? {
        OrderView::Known(order) => {
            owns(&caller, &order)?;
            body(&api, &order).await
        }
        OrderView::Pending { id, quantity } => {
            Ok(Answer(PendingBody::new(id, quantity)).into_response())
        }
        OrderView::Refused { id } => Ok(Answer(RefusedBody::new(id)).into_response()),
    }
}

/// Lists the calling buyer's orders, those of the newest sale first.
#[utoipa::path(get, path = "/v1/orders", tag = "orders",
    security(("buyer" = []), ("trusted-buyer" = [])), params(Page),
    responses((status = 200, description = "A page of orders.", body = OrderList<'_>),
        BuyerProblems, QueryProblems, ServerProblems))]
pub(super) async fn list_orders(
    Buyer(buyer): Buyer,
    State(api): State<Api>,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let (after, limit) = (page.after()?, page.limit()?);
    let orders = api.service.buyer_orders(&buyer, after, limit).await?;
    list(&api, &orders).await
}

/// Lists a sale's orders by id.
#[utoipa::path(get, path = "/v1/sales/{sale}/orders", tag = "orders",
    security(("admin" = [])),
    params(("sale" = u32, Path, minimum = 1, description = "The sale's number."), Page),
    responses((status = 200, description = "A page of orders.", body = OrderList<'_>),
        AdminProblems, SaleProblems, QueryProblems, ServerProblems))]
pub(super) async fn list_sale_orders(
    _: Admin,
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let (after, limit) = (page.after()?, page.limit()?);
    let orders = api.service.sale_orders(sale, after, limit).await?;
    list(&api, &orders).await
}

/// Confirms an order: it is paid. Repeatable.
///
/// With `reacquire`, an order that has expired is bought again if stock remains; the answer is then
/// the new order, and `Content-Location` its path. A refusal means that the payment must be
/// returned.
#[utoipa::path(post, path = "/v1/orders/{order}/confirm", tag = "orders",
    security(("admin" = [])),
    params(("order" = Uuid, Path, description = "The order's id.")),
    request_body = Option<ConfirmRequest>,
    responses((status = 200, description = "The confirmed order.", body = OrderBody<'_>,
        headers(("Content-Location" = Option<String>,
            description = "The new order's path, if it was bought again."))),
        AdminProblems, OrderProblems, BodyProblems, FinalProblems, ConfirmProblems,
        ServerProblems))]
pub(super) async fn confirm_order(
    _: Admin,
    State(api): State<Api>,
    Id(id): Id<OrderId>,
    OptionalJson(request): OptionalJson<ConfirmRequest>,
) -> Result<Response, Problem> {
    match api.service.confirm(id, request.reacquire).await? {
        Confirmation::Confirmed(order) => body(&api, &order).await,
        Confirmation::Final(order) => Err(Problem::order_final(&order)),
        Confirmation::Reacquired(order) => {
            let mut response = body(&api, &order).await?;
            let path = location(order.id.uuid());
            response
                .headers_mut()
                .insert(header::CONTENT_LOCATION, path);
            Ok(response)
        }
        Confirmation::Refused(refusal) => Err(refusal.into()),
    }
}

/// Cancels an order that is not paid; its units are sold again. Repeatable.
#[utoipa::path(post, path = "/v1/orders/{order}/cancel", tag = "orders",
    security(("buyer" = []), ("trusted-buyer" = []), ("admin" = [])),
    params(("order" = Uuid, Path, description = "The order's id.")),
    responses((status = 200, description = "The cancelled order.", body = OrderBody<'_>),
        OrderProblems, FinalProblems, ServerProblems))]
pub(super) async fn cancel_order(
    caller: Caller,
    State(api): State<Api>,
    Id(id): Id<OrderId>,
) -> Result<Response, Problem> {
    may_see(&caller, id)?;
    if let (Caller::Buyer(_), OrderView::Known(order)) = (&caller, api.service.order(id).await?) {
        owns(&caller, &order)?;
    }
    match api.service.cancel(id).await? {
        Transition::Done(order) => body(&api, &order).await,
        Transition::Final(order) => Err(Problem::order_final(&order)),
        Transition::Missing => Err(Problem::plain(Code::NotFound)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{BuyerId, IdempotencyKey};

    fn order(buyer: &str) -> Order {
        let buyer = BuyerId::parse(buyer).unwrap();
        let key = IdempotencyKey::parse("k").unwrap();
        Order {
            id: OrderId::of(SaleId::new(7).unwrap(), &buyer, &key),
            buyer,
            quantity: 1,
            state: OrderState::Reserved,
            created_at: Timestamp::from_millis(0).unwrap(),
            hold_expires_at: None,
            finished_at: None,
        }
    }

    #[test]
    fn an_order_is_its_buyers_and_the_admins_only() {
        let order = order("alice");
        let alice = Caller::Buyer(order.buyer.clone());
        let mallory = Caller::Buyer(BuyerId::parse("mallory").unwrap());
        for caller in [&alice, &Caller::Admin] {
            assert!(may_see(caller, order.id).is_ok() && owns(caller, &order).is_ok());
        }
        assert!(may_see(&mallory, order.id).is_err() && owns(&mallory, &order).is_err());
    }

    #[test]
    fn both_ways_to_write_an_order_write_the_same() {
        let mut sale = crate::http::purchases::NullAnswer::new().sale;
        sale.terms.price_minor = 1_000_000_000;
        let finished_at = Timestamp::from_millis(1).ok();
        for (state, finished_at) in [
            (OrderState::Reserved, None),
            (OrderState::Cancelled, finished_at),
        ] {
            let order = Order {
                quantity: 1_000_000_000,
                state,
                hold_expires_at: finished_at,
                finished_at,
                ..order("買家 \"7\" \\")
            };
            let body = OrderBody::new(&order, &sale);
            let mut written = Vec::new();
            body.write(&mut written);
            assert_eq!(written, serde_json::to_vec(&body).unwrap());
        }
    }

    #[test]
    fn an_orders_path_is_made_of_its_id() {
        let id = order("alice").id;
        assert_eq!(location(id.uuid()), format!("/v1/orders/{id}"));
    }
}
