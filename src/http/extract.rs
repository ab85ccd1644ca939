//! Parts of a request, parsed into the words of the domain once; what is no such part is a problem.

use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::extract::rejection::QueryRejection;
use axum::http::header::{HeaderMap, HeaderName};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Api, Code, Problem};
use crate::domain::{self, Invalid};
use crate::ledger;
use crate::service::AnswerWhen;

/// Where ids are in a path that is split at its slashes: `/v1/sales/{sale}/…`.
const ID_SEGMENT: usize = 3;
/// The header that names a purchase.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// The header by which a client asks not to wait (RFC 7240).
const PREFER_HEADER: HeaderName = HeaderName::from_static("prefer");
/// The preference that is understood.
pub(super) const RESPOND_ASYNC: &str = "respond-async";
/// Rows of a page when the client does not say.
const PAGE_DEFAULT: u32 = 50;
/// The most rows of a page, and events of an answer of the feed.
pub(super) const PAGE_MAX: u32 = 500;
const _: () = assert!(
    PAGE_MAX <= ledger::PAGE_MAX,
    "a page comes from the ledger in one go"
);

/// The one id in the path, which is the third segment in all of our paths. What is no id names
/// nothing:
/// 404. An id has one spelling, so percent signs are not decoded.
#[derive(Debug, Clone, Copy)]
pub struct Id<T>(pub T);

impl<T: FromStr<Err = Invalid>> FromRequestParts<Api> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        let segment = parts
            .uri
            .path()
            .as_bytes()
            .split(|byte| *byte == b'/')
            .nth(ID_SEGMENT);
        let text = segment.and_then(|segment| std::str::from_utf8(segment).ok());
        match text.unwrap_or_default().parse() {
            Ok(id) => Ok(Self(id)),
            Err(Invalid(why)) => Err(Problem::new(Code::NotFound, why)),
        }
    }
}

/// The parameters after the question mark; unknown ones are refused (by the type's own attribute).
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|rejection: QueryRejection| {
                Problem::new(Code::QueryMalformed, rejection.body_text())
            })
    }
}

/// Which page of a list.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// Go on after this one: the `next` of the page before.
    after: Option<String>,
    /// At most this many rows.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

impl Page {
    /// Where the page begins.
    ///
    /// # Errors
    /// [`Code::QueryMalformed`] when it is no such place.
    pub fn after<T: FromStr<Err = Invalid>>(&self) -> Result<Option<T>, Problem> {
        parameter("after", self.after.as_deref())
    }

    /// How many rows it may have.
    ///
    /// # Errors
    /// [`Code::QueryMalformed`] when out of bounds.
    pub fn limit(&self) -> Result<u32, Problem> {
        bounded("limit", self.limit.unwrap_or(PAGE_DEFAULT), 1, PAGE_MAX)
    }
}

/// A parameter as a word of the domain.
pub(super) fn parameter<T: FromStr<Err = Invalid>>(
    name: &str,
    text: Option<&str>,
) -> Result<Option<T>, Problem> {
    text.map(str::parse)
        .transpose()
        .map_err(|Invalid(why)| Problem::new(Code::QueryMalformed, format!("`{name}`: {why}")))
}

/// A number of the query within its bounds.
pub(super) fn bounded(name: &str, value: u32, least: u32, most: u32) -> Result<u32, Problem> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let detail = format!("`{name}` is a whole number from {least} to {most}");
    Err(Problem::new(Code::QueryMalformed, detail))
}

/// The purchase's name.
#[derive(Debug, Clone)]
pub struct IdempotencyKey(pub domain::IdempotencyKey);

impl FromRequestParts<Api> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        idempotency_key(&parts.headers).map(Self)
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<domain::IdempotencyKey, Problem> {
    let mut values = headers.get_all(KEY_HEADER).iter();
    let value = values
        .next()
        .ok_or_else(|| Problem::plain(Code::KeyMissing))?;
    if values.next().is_some() {
        return Err(Problem::plain(Code::KeyMalformed));
    }
    let text = value
        .to_str()
        .map_err(|_| Problem::plain(Code::KeyMalformed))?;
    domain::IdempotencyKey::parse(text)
        .map_err(|Invalid(why)| Problem::new(Code::KeyMalformed, why))
}

/// When the client wants its answer: after the commit, or with `Prefer: respond-async` at once.
#[derive(Debug, Clone, Copy)]
pub struct Prefer(pub AnswerWhen);

impl FromRequestParts<Api> for Prefer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        Ok(Self(if prefers_async(&parts.headers) {
            AnswerWhen::Admitted
        } else {
            AnswerWhen::Committed
        }))
    }
}

/// Preferences that are not understood are ignored, as their RFC demands.
fn prefers_async(headers: &HeaderMap) -> bool {
    headers
        .get_all(PREFER_HEADER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|preference| preference.split([';', '=']).next())
        .any(|name| name.trim().eq_ignore_ascii_case(RESPOND_ASYNC))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        values
            .iter()
            .map(|value| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn every_path_has_its_id_where_it_is_looked_for() {
        for path in crate::http::document().paths.paths.keys() {
            let params = path
                .split('/')
                .enumerate()
                .filter(|(_, part)| part.starts_with('{'));
            let places: Vec<_> = params.map(|(place, _)| place).collect();
            assert!(places.is_empty() || places == [ID_SEGMENT], "{path}");
        }
    }

    #[test]
    fn a_key_comes_once_and_well_formed() {
        let key = |values: &[&str]| {
            idempotency_key(&headers("idempotency-key", values)).map_err(|problem| problem.code)
        };
        assert!(key(&["abc"]).is_ok());
        assert_eq!(key(&["abc"]), key(&["\"abc\""]));
        assert_eq!(key(&[]), Err(Code::KeyMissing));
        for bad in [&["a", "a"][..], &[""], &["a b"], &["\"a"], &["é"]] {
            assert_eq!(key(bad), Err(Code::KeyMalformed), "{bad:?}");
        }
    }

    #[test]
    fn the_preference_is_found_among_others() {
        for yes in [
            "respond-async",
            "wait=10, respond-async",
            "Respond-Async; foo=bar",
        ] {
            assert!(prefers_async(&headers("prefer", &[yes])), "{yes}");
        }
        for no in ["", "wait=10", "respond-asynchronously", "x=respond-async"] {
            assert!(!prefers_async(&headers("prefer", &[no])), "{no}");
        }
        assert!(prefers_async(&headers(
            "prefer",
            &["wait=1", "respond-async"]
        )));
    }
}
