//! The OpenAPI document: made from the handlers' own attributes and the table of problems.
//!
//! A route is put into router and document by the same line (`routes!`), so neither can know one
//! that the other does not. A handler names groups of problems; they are merged here into one
//! response for each status.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response};
use utoipa::{IntoResponses, OpenApi as _, ToSchema};

use super::Code;
use super::problem::MEDIA_TYPE;

/// What is said about the whole API.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Stockade",
        description = "A flash-sale stock service that neither oversells nor undersells.\n\n\
            Refusals and failures are RFC 9457 problems; `code` says which. Every answer carries \
            `X-Request-Id`: the client's own if it sent one of at most 64 visible ASCII \
            characters. A path with a method that it does not have answers 405, with `Allow`.",
        license(name = "MIT", identifier = "MIT"),
    ),
    components(schemas(ProblemSchema)),
    tags(
        (name = "sales", description = "Sales, and where their units are."),
        (name = "purchases", description = "Buying."),
        (name = "orders", description = "What was bought."),
        (name = "operations", description = "For operators and their machines."),
    ),
)]
struct Base;

/// A refusal or failure (RFC 9457). Some codes add numbers and times of their own.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
struct ProblemSchema {
    /// `urn:stockade:problem:` and the code.
    r#type: String,
    /// The same sentence for every problem of this code.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What is the matter in this case.
    detail: String,
    /// The short name; it never changes its meaning.
    code: String,
    /// Units free (`held`, `insufficient`).
    available: Option<u64>,
    /// Units that orders hold without payment, or that are on their way (`held`).
    held: Option<u64>,
    /// Units asked for (`insufficient`).
    requested: Option<u32>,
    /// Units that one buyer may have (`limit-reached`).
    limit: Option<u32>,
    /// Units that this buyer may still take (`limit-reached`).
    left: Option<u32>,
    /// The quantity that the key names (`key-reused`) or that the sale has (`stale`).
    quantity: Option<u32>,
    /// Units that orders hold (`below-taken`).
    taken: Option<u64>,
    /// When the sale opens, if that is known (`not-open`).
    #[schema(format = DateTime)]
    opens_at: Option<String>,
    /// `scheduled` or `paused` (`not-open`), or the state that the order has (`order-final`).
    state: Option<String>,
    /// When the order ended (`order-final`).
    #[schema(format = DateTime)]
    finished_at: Option<String>,
    /// What is not ready (`not-ready`): objects with `part`, `ready` and `detail`.
    parts: Option<Vec<serde_json::Value>>,
}

/// Makes groups of problems that a handler can name among its responses.
macro_rules! problems {
    ($($(#[doc = $doc:literal])+ $name:ident: $($code:ident)+;)+) => {$(
        $(#[doc = $doc])+
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                [$(Code::$code),+].into_iter().map(unmerged).collect()
            }
        }
    )+};
}

problems! {
    /// Routes of the admin.
    AdminProblems: Unauthenticated Forbidden;
    /// Routes of buyers.
    BuyerProblems: Unauthenticated Forbidden;
    /// Routes with a body.
    BodyProblems: BodyMalformed RequestTimeout BodyTooLarge ContentTypeUnsupported;
    /// Routes with a query.
    QueryProblems: QueryMalformed;
    /// Routes of one sale.
    SaleProblems: NotFound;
    /// Routes of one order, for its buyer and the admin.
    OrderProblems: Unauthenticated Forbidden NotFound;
    /// What an admin does with a sale that may be over.
    OverProblems: Closed;
    /// Changes of a sale's stock.
    ChangeProblems: BelowTaken Closed Stale;
    /// Changes of an order that exclude each other.
    FinalProblems: OrderFinal;
    /// A purchase that a confirmation makes.
    ConfirmProblems: SoldOut Insufficient Held LimitReached NotOpen Closed Void Rejected KeyReused;
    /// The purchase.
    PurchaseProblems: KeyMissing KeyMalformed NotFound SoldOut Insufficient Held LimitReached
        NotOpen Void Rejected Closed KeyReused InvalidQuantity TooManyRequests;
    /// Routes that ask Redis or the ledger.
    ServerProblems: Internal Loading OutcomeUnknown Overloaded Unavailable;
    /// Readiness.
    ReadyProblems: NotReady Internal;
}

/// A problem as a response under a key of its own, which [`merge`] resolves.
fn unmerged(code: Code) -> (String, RefOr<Response>) {
    let status = code.status().as_u16();
    let key = format!("{status} {}", code.as_str());
    (key, Response::new(code.meaning()).into())
}

/// The document without its paths.
pub(super) fn base() -> OpenApi {
    let mut document = Base::openapi();
    let schemes = &mut document.components.get_or_insert_default().security_schemes;
    let mut add =
        |name: &str, scheme: SecurityScheme| schemes.insert(name.to_owned(), scheme.into());
    let admin = Http::new(HttpAuthScheme::Bearer);
    add("admin", SecurityScheme::Http(admin));
    let mut buyer = Http::new(HttpAuthScheme::Bearer);
    buyer.bearer_format = Some("JWT".to_owned());
    add("buyer", SecurityScheme::Http(buyer));
    let trusted = ApiKeyValue::with_description(
        "X-Buyer-Id",
        "Only where a trusted gateway sets it (`--trust-buyer-header`).",
    );
    add(
        "trusted-buyer",
        SecurityScheme::ApiKey(ApiKey::Header(trusted)),
    );
    document
}

/// Turns the problems that handlers named into one response for each status.
pub(super) fn merge(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        operations.into_iter().flatten().for_each(merge_operation);
    }
}

fn merge_operation(operation: &mut Operation) {
    let responses = std::mem::take(&mut operation.responses.responses);
    let mut problems: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for (key, response) in responses {
        let name = key.split_once(' ').map(|(_, name)| name);
        let code = Code::ALL.iter().find(|code| Some(code.as_str()) == name);
        match code {
            Some(&code) => problems
                .entry(code.status().as_u16())
                .or_default()
                .push(code),
            None => {
                operation.responses.responses.insert(key, response);
            }
        }
    }
    for (status, codes) in problems {
        let response = problem_response(&codes).into();
        operation
            .responses
            .responses
            .insert(status.to_string(), response);
    }
}

fn problem_response(codes: &[Code]) -> Response {
    let line = |code: &Code| format!("* `{}`: {}", code.as_str(), code.meaning());
    let lines: Vec<_> = codes.iter().map(line).collect();
    let names = codes.iter().map(|code| code.as_str());
    let code = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(names));
    let members = ObjectBuilder::new().property("code", code);
    let schema = AllOfBuilder::new()
        .item(Ref::from_schema_name("Problem"))
        .item(members);
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new()
        .description(lines.join("\n"))
        .content(MEDIA_TYPE, content);
    if codes
        .iter()
        .all(|code| code.retry_after_seconds().is_none())
    {
        return response.build();
    }
    let retry_after = HeaderBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::Integer)))
        .description(Some("Seconds to wait before trying again."))
        .build();
    response.header("Retry-After", retry_after).build()
}
