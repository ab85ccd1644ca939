//! Sales: what an admin does with them and what everybody may see.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::openapi::{AdminProblems, BodyProblems, QueryProblems, SaleProblems, ServerProblems};
use super::{Admin, Api, Id, Json, Page, Problem, Query};
use crate::domain::{NewSale, Sale, SaleId, Stage, Strategy, Timestamp};
use crate::service;

/// Of a sale that leaves the choice to the service: at most this many segments, each with this many
/// units. Eight spread a sale over the nodes of a Redis Cluster, and cost next to nothing on one
/// Redis; a segment with few units would only borrow.
const SEGMENTS_AUTO_MAX: u32 = 8;
const SEGMENT_AUTO_UNITS: u32 = 100;
/// How long units are held for payment when the admin does not say.
const HOLD_SECONDS_DEFAULT: u32 = 900;

/// A sale to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SaleRequest {
    /// The product's name or number in the shop.
    #[schema(min_length = 1, max_length = 200, example = "sku-1")]
    product: String,
    /// What buyers read.
    #[schema(min_length = 1, max_length = 200, example = "A phone")]
    title: String,
    /// Price of a unit in minor units.
    #[schema(minimum = 0, maximum = 1_000_000_000, example = 9900)]
    price_minor: i64,
    /// ISO 4217.
    #[schema(pattern = "^[A-Z]{3}$", example = "CNY")]
    currency: String,
    /// Units for sale.
    #[schema(minimum = 1, maximum = 1_000_000_000, example = 100)]
    quantity: u32,
    /// Segments that the stock is split into, 1 to 256, or `"auto"`: one for each 100 units, at most 8.
    #[serde(default = "one_segment")]
    #[schema(value_type = Option<SegmentsSchema>)]
    segments: Segments,
    /// Units that one buyer may hold or own.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1_000_000_000, default = 1)]
    per_buyer_limit: u32,
    /// When selling begins; null: when an admin opens the sale.
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Timestamp>,
    /// When selling ends; null: when an admin closes the sale.
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Timestamp>,
    /// Seconds that units are held for payment; 0: confirmed at once.
    #[serde(default = "hold_seconds_default")]
    #[schema(minimum = 0, maximum = 2_592_000, default = 900)]
    hold_seconds: u32,
    /// How stock is deducted.
    #[schema(default = "segmented")]
    strategy: Option<String>,
}

/// A number, or the service's choice.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "segments is a number from 1 to 256 or \"auto\"")]
pub(super) enum Segments {
    Count(u32),
    Word(Auto),
}

impl Segments {
    /// How many, for a sale of this quantity.
    pub(super) fn count(self, quantity: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Word(Auto::Auto) => (quantity / SEGMENT_AUTO_UNITS).clamp(1, SEGMENTS_AUTO_MAX),
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Auto {
    Auto,
}

/// A number from 1 to 256, or `"auto"`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum SegmentsSchema {
    Count(u32),
    Word(String),
}

const fn one() -> u32 {
    1
}

const fn one_segment() -> Segments {
    Segments::Count(1)
}

const fn hold_seconds_default() -> u32 {
    HOLD_SECONDS_DEFAULT
}

impl SaleRequest {
    fn terms(self) -> Result<NewSale, Problem> {
        let segments = self.segments.count(self.quantity);
        let strategy = match self.strategy {
            Some(word) => Strategy::parse(&word).map_err(service::Error::Invalid)?,
            None => Strategy::Segmented,
        };
        let terms = NewSale {
            product: self.product,
            title: self.title,
            price_minor: self.price_minor,
            currency: self.currency,
            quantity: self.quantity,
            segments,
            per_buyer_limit: self.per_buyer_limit,
            opens_at: self.opens_at,
            closes_at: self.closes_at,
            hold_seconds: self.hold_seconds,
            strategy,
        };
        Ok(terms.checked().map_err(service::Error::Invalid)?)
    }
}

/// Where a sale stands for a buyer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SaleState {
    /// Not open yet.
    Scheduled,
    /// Its stock is being loaded; buyers are asked to retry.
    Loading,
    /// It sells.
    Open,
    /// The shop has stopped it for now.
    Paused,
    /// It is over.
    Closed,
}

impl SaleState {
    /// What the shop decided comes before what the machinery does.
    pub(super) fn of(sale: &Sale, now: Timestamp) -> Self {
        let past = |instant: Option<Timestamp>| instant.is_some_and(|instant| instant <= now);
        if sale.closed || past(sale.terms.closes_at) {
            Self::Closed
        } else if sale.paused {
            Self::Paused
        } else if sale.stage == Stage::Loading {
            Self::Loading
        } else if sale.stage == Stage::Loaded && past(sale.terms.opens_at) {
            Self::Open
        } else {
            Self::Scheduled
        }
    }
}

/// A sale.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sale)]
pub(super) struct SaleBody {
    /// Its number.
    id: u32,
    /// The product's name or number in the shop.
    product: String,
    /// What buyers read.
    title: String,
    /// Price of a unit in minor units.
    price_minor: i64,
    /// ISO 4217.
    currency: String,
    /// Units for sale.
    quantity: u32,
    /// Segments that the stock is split into.
    segments: u32,
    /// Units that one buyer may hold or own.
    per_buyer_limit: u32,
    /// When selling begins; null: when an admin opens the sale.
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Timestamp>,
    /// When selling ends; null: when an admin closes the sale.
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Timestamp>,
    /// Seconds that units are held for payment; 0: confirmed at once.
    hold_seconds: u32,
    /// How stock is deducted.
    strategy: Strategy,
    /// Where it stands.
    state: SaleState,
    /// Whether its stock is in Redis.
    loaded: bool,
    /// Number of the current load of its stock into Redis.
    epoch: u64,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// The service's clock at this answer, to count down by.
    #[schema(value_type = String, format = DateTime)]
    server_time: Timestamp,
}

impl SaleBody {
    /// The sale as clients see it, by the clock that judges its window.
    pub(super) fn new(api: &Api, sale: Sale) -> Self {
        let server_time = api.service.clock(sale.id);
        Self {
            id: sale.id.get(),
            state: SaleState::of(&sale, server_time),
            loaded: sale.stage == Stage::Loaded,
            product: sale.terms.product,
            title: sale.terms.title,
            price_minor: sale.terms.price_minor,
            currency: sale.terms.currency,
            quantity: sale.terms.quantity,
            segments: sale.terms.segments,
            per_buyer_limit: sale.terms.per_buyer_limit,
            opens_at: sale.terms.opens_at,
            closes_at: sale.terms.closes_at,
            hold_seconds: sale.terms.hold_seconds,
            strategy: sale.terms.strategy,
            epoch: sale.epoch,
            created_at: sale.created_at,
            server_time,
        }
    }
}

/// A page of sales.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SaleList {
    /// By number.
    sales: Vec<SaleBody>,
    /// The next page's `after`; null at the end.
    next: Option<u32>,
}

/// Creates a sale. It sells nothing before it is opened, or before `opens_at`.
#[utoipa::path(post, path = "/v1/sales", tag = "sales", security(("admin" = [])),
    request_body = SaleRequest,
    responses((status = 201, description = "The sale.", body = SaleBody,
        headers(("Location" = String, description = "The sale's path."))),
        AdminProblems, BodyProblems, ServerProblems))]
pub(super) async fn create_sale(
    _: Admin,
    State(api): State<Api>,
    Json(request): Json<SaleRequest>,
) -> Result<impl IntoResponse, Problem> {
    let sale = api.service.create_sale(request.terms()?).await?;
    let location = [(header::LOCATION, format!("/v1/sales/{}", sale.id))];
    Ok((
        StatusCode::CREATED,
        location,
        Answer(SaleBody::new(&api, sale)),
    ))
}

/// Lists sales by number.
#[utoipa::path(get, path = "/v1/sales", tag = "sales", security(("admin" = [])), params(Page),
    responses((status = 200, description = "A page of sales.", body = SaleList),
        AdminProblems, QueryProblems, ServerProblems))]
pub(super) async fn list_sales(
    _: Admin,
    State(api): State<Api>,
    Query(page): Query<Page>,
) -> Result<Answer<SaleList>, Problem> {
    let limit = page.limit()?;
    let sales = api.service.sales(page.after::<SaleId>()?, limit).await?;
    let full = sales.len() >= limit as usize;
    let next = sales.last().map(|sale| sale.id.get()).filter(|_| full);
    let sales = sales
        .into_iter()
        .map(|sale| SaleBody::new(&api, sale))
        .collect();
    Ok(Answer(SaleList { sales, next }))
}

/// Reads a sale.
#[utoipa::path(get, path = "/v1/sales/{sale}", tag = "sales",
    params(("sale" = u32, Path, minimum = 1, description = "The sale's number.")),
    responses((status = 200, description = "The sale.", body = SaleBody),
        SaleProblems, ServerProblems))]
pub(super) async fn get_sale(
    State(api): State<Api>,
    Id(sale): Id<SaleId>,
) -> Result<Answer<SaleBody>, Problem> {
    Ok(Answer(SaleBody::new(&api, api.service.sale(sale).await?)))
}

/// Makes a handler for each verb that an admin has for a sale. All are repeatable and answer with
/// the sale.
macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $handler:ident = $path:literal => $call:ident;)+) => {$(
        $(#[doc = $doc])+
        #[utoipa::path(post, path = $path, tag = "sales", security(("admin" = [])),
            params(("sale" = u32, Path, minimum = 1, description = "The sale's number.")),
            responses((status = 200, description = "The sale as it is now.", body = SaleBody),
                AdminProblems, SaleProblems, super::openapi::OverProblems, ServerProblems))]
        pub(super) async fn $handler(
            _: Admin,
            State(api): State<Api>,
            Id(sale): Id<SaleId>,
        ) -> Result<Answer<SaleBody>, Problem> {
            Ok(Answer(SaleBody::new(&api, api.service.$call(sale).await?)))
        }
    )+};
}

verbs! {
    /// Puts the sale's stock into Redis; it sells from `opens_at` on.
    load_sale = "/v1/sales/{sale}/load" => load;
    /// Loads the sale if need be, and sells from now on.
    open_sale = "/v1/sales/{sale}/open" => open;
    /// Stops selling for now.
    pause_sale = "/v1/sales/{sale}/pause" => pause;
    /// Goes on selling after a pause.
    resume_sale = "/v1/sales/{sale}/resume" => resume;
    /// Ends the sale for good; its orders live on.
    close_sale = "/v1/sales/{sale}/close" => close;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Result<NewSale, String> {
        let request: SaleRequest = serde_json::from_str(body).map_err(|e| e.to_string())?;
        request.terms().map_err(|problem| format!("{problem:?}"))
    }

    const LEAST: &str =
        r#""product":"p","title":"t","price_minor":1,"currency":"CNY","quantity":5"#;

    fn sale(stage: Stage, opens_at: Option<i64>) -> Sale {
        let mut terms = request(&format!("{{{LEAST}}}")).unwrap();
        terms.opens_at = opens_at.map(|millis| Timestamp::from_millis(millis).unwrap());
        Sale {
            id: SaleId::new(1).unwrap(),
            terms,
            stage,
            paused: false,
            closed: false,
            epoch: 1,
            loaded_epoch: 1,
            loaded_segments: 1,
            control: 0,
            taken: 0,
            confirmed: 0,
            created_at: Timestamp::from_millis(0).unwrap(),
            drained: false,
        }
    }

    #[test]
    fn a_sale_needs_five_fields_and_the_others_have_defaults() {
        let terms = request(&format!("{{{LEAST}}}")).unwrap();
        assert_eq!((terms.segments, terms.per_buyer_limit), (1, 1));
        assert_eq!(terms.hold_seconds, HOLD_SECONDS_DEFAULT);
        assert_eq!((terms.opens_at, terms.closes_at), (None, None));
        let auto = request(&format!(r#"{{{LEAST},"segments":"auto"}}"#)).unwrap();
        assert_eq!(auto.segments, 1);
        assert_eq!(Segments::Word(Auto::Auto).count(350), 3);
        assert_eq!(
            Segments::Word(Auto::Auto).count(u32::MAX),
            SEGMENTS_AUTO_MAX
        );
    }

    #[test]
    fn a_field_that_is_unknown_or_out_of_bounds_is_refused_by_name() {
        for (field, value) in [
            ("id", "7"),
            ("epoch", "7"),
            ("segments", "257"),
            ("segments", "\"many\""),
            ("strategy", "\"naive\""),
            ("opens_at", "\"tomorrow\""),
            ("hold_seconds", "-1"),
        ] {
            let body = format!(r#"{{{LEAST},"{field}":{value}}}"#);
            let why = request(&body).expect_err(&body);
            let named = why.contains(field) || why.contains("time") || why.contains("u32");
            assert!(named, "{field}: {why}");
        }
    }

    #[test]
    fn what_the_shop_decided_shows_before_what_the_machinery_does() {
        let now = Timestamp::from_millis(1_000).unwrap();
        let state = |sale: Sale| SaleState::of(&sale, now);
        assert_eq!(state(sale(Stage::Scheduled, None)), SaleState::Scheduled);
        assert_eq!(
            state(sale(Stage::Loaded, Some(1_001))),
            SaleState::Scheduled
        );
        assert_eq!(state(sale(Stage::Loaded, Some(1_000))), SaleState::Open);
        assert_eq!(state(sale(Stage::Loading, Some(1))), SaleState::Loading);
        let paused = Sale {
            paused: true,
            ..sale(Stage::Loading, Some(1))
        };
        assert_eq!(state(paused.clone()), SaleState::Paused);
        let closed = Sale {
            closed: true,
            ..paused
        };
        assert_eq!(state(closed), SaleState::Closed);
    }
}
