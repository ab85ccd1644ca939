//! Refusals and failures as RFC 9457 problems.
//!
//! Everything that is no success leaves as `application/problem+json` with a stable `type` and
//! `code`. There is no `instance`: the answer's `X-Request-Id` names the occurrence.

use std::borrow::Cow;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::Code;
use crate::domain::{Order, Refusal, Unavailable};
use crate::service;

/// Media type of every problem.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";
/// Bytes reserved for a problem's body: the usual one fits.
const BODY_CAPACITY: usize = 320;
/// Longest detail, in bytes: it may quote what the client sent.
const DETAIL_LENGTH_MAX: usize = 300;

/// A refusal or failure on its way to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Row of the table.
    pub code: Code,
    detail: Cow<'static, str>,
    /// Numbers and times beside the standard members; their names are part of the contract.
    members: Vec<(&'static str, Value)>,
    retry_after_seconds: Option<u32>,
    /// What broke, for the log only.
    cause: Option<String>,
}

/// Left on a response for the request's log line; never sent.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    pub(super) code: Code,
    pub(super) cause: Option<String>,
}

impl Problem {
    /// A problem with the sentence that says what is the matter in this case.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut detail = detail.into();
        if detail.len() > DETAIL_LENGTH_MAX {
            let end = detail.floor_char_boundary(DETAIL_LENGTH_MAX);
            detail = format!("{}…", &detail[..end]).into();
        }
        Self {
            code,
            detail,
            members: Vec::new(),
            retry_after_seconds: code.retry_after_seconds(),
            cause: None,
        }
    }

    /// A problem about which there is no more to say than what its code means.
    #[must_use]
    pub fn plain(code: Code) -> Self {
        Self::new(code, code.meaning())
    }

    /// Adds a member to the body.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.members.push((name, value.into()));
        self
    }

    /// Names the seconds after which to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// A defect. The cause goes into the log, under the request's id, and never to the client.
    #[must_use]
    pub fn internal(cause: String) -> Self {
        Self {
            cause: Some(cause),
            ..Self::plain(Code::Internal)
        }
    }

    /// Why an order cannot be confirmed or cancelled any more.
    #[must_use]
    pub fn order_final(order: &Order) -> Self {
        let state = order.state.as_str();
        Self::new(Code::OrderFinal, format!("The order is {state}."))
            .with("state", state)
            .with("finished_at", order.finished_at.map(|at| at.to_string()))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::SoldOut => Self::plain(Code::SoldOut),
            Refusal::Insufficient {
                requested,
                available,
            } => Self::plain(Code::Insufficient)
                .with("requested", requested)
                .with("available", available),
            Refusal::Held { available, held } => Self::plain(Code::Held)
                .with("available", available)
                .with("held", held),
            Refusal::LimitReached { limit, left } => Self::plain(Code::LimitReached)
                .with("limit", limit)
                .with("left", left),
            Refusal::NotOpen { opens_at, paused } => {
                let state = if paused { "paused" } else { "scheduled" };
                let problem = Self::plain(Code::NotOpen).with("state", state);
                match opens_at {
                    Some(at) => problem.with("opens_at", at.to_string()),
                    None => problem,
                }
            }
            Refusal::Closed => Self::plain(Code::Closed),
            Refusal::KeyReused { quantity } => {
                Self::plain(Code::KeyReused).with("quantity", quantity)
            }
            Refusal::Void => Self::plain(Code::Void),
            Refusal::Rejected => Self::plain(Code::Rejected),
        }
    }
}

impl From<Unavailable> for Problem {
    fn from(unavailable: Unavailable) -> Self {
        Self::plain(match unavailable {
            Unavailable::Overloaded => Code::Overloaded,
            Unavailable::Loading => Code::Loading,
            Unavailable::OutcomeUnknown => Code::OutcomeUnknown,
            Unavailable::Unreachable => Code::Unavailable,
        })
    }
}

impl From<service::Error> for Problem {
    fn from(error: service::Error) -> Self {
        match error {
            service::Error::NotFound => Self::plain(Code::NotFound),
            service::Error::Over => Self::plain(Code::Closed),
            service::Error::Unavailable(unavailable) => unavailable.into(),
            service::Error::Invalid(invalid) => Self::new(Code::BodyMalformed, invalid.0),
            service::Error::Internal(cause) => Self::internal(cause),
        }
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.code.uri())?;
        map.serialize_entry("title", self.code.title())?;
        map.serialize_entry("status", &self.code.status().as_u16())?;
        map.serialize_entry("detail", &self.detail)?;
        map.serialize_entry("code", self.code.as_str())?;
        for (name, value) in &self.members {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = Vec::with_capacity(BODY_CAPACITY);
        serde_json::to_writer(&mut body, &self).expect("a problem is plain JSON");
        let mut response = Response::new(body.into());
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Trace {
            code: self.code,
            cause: self.cause,
        });
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Timestamp;

    fn json(problem: impl Into<Problem>) -> Value {
        serde_json::to_value(problem.into()).unwrap()
    }

    #[test]
    fn a_refusal_carries_its_numbers_beside_the_standard_members() {
        let opens_at = Timestamp::from_millis(0).ok();
        let cases = [
            (json(Refusal::SoldOut), "sold-out", 409, Value::Null),
            (
                json(Refusal::Insufficient {
                    requested: 3,
                    available: 2,
                }),
                "insufficient",
                409,
                3.into(),
            ),
            (json(Refusal::Closed), "closed", 410, Value::Null),
            (json(Unavailable::Loading), "loading", 503, Value::Null),
        ];
        for (body, code, status, requested) in cases {
            assert_eq!(body["type"], format!("urn:stockade:problem:{code}"));
            assert_eq!(body["code"], code);
            assert_eq!(body["status"], status, "{code}");
            assert!(body["title"].is_string() && body["detail"].is_string());
            assert_eq!(body["requested"], requested, "{code}");
        }
        let not_open = json(Refusal::NotOpen {
            opens_at,
            paused: true,
        });
        assert_eq!(not_open["opens_at"], "1970-01-01T00:00:00.000Z");
        assert_eq!(not_open["state"], "paused");
    }

    #[test]
    fn the_cause_of_a_defect_is_for_the_log_only() {
        let problem = Problem::from(service::Error::Internal("secret cause".into()));
        assert!(!json(problem.clone()).to_string().contains("secret"));
        let response = problem.into_response();
        let trace = response.extensions().get::<Trace>().unwrap();
        assert_eq!(trace.cause.as_deref(), Some("secret cause"));
    }

    #[test]
    fn what_a_client_sent_is_quoted_in_part_only() {
        let problem = Problem::new(Code::BodyMalformed, "é".repeat(10_000));
        assert!(problem.detail.len() <= DETAIL_LENGTH_MAX + '…'.len_utf8());
    }
}
