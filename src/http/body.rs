//! Bodies: JSON of at most 16 KiB that arrives in time and holds no field that the route does not
//! know.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use serde::de::DeserializeOwned;

use super::{Api, Code, Problem};

/// The most bytes of a body. It bounds the depth and size of everything that is parsed.
pub const BODY_LENGTH_MAX: usize = 16 * 1024;

/// The media type that bodies have.
const JSON: &str = "application/json";

/// A body as the type that the route takes.
///
/// Types refuse unknown fields by their own attribute, so that a misspelt or forbidden field
/// (`price`, `buyer`) is never silently ignored.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::plain(Code::ContentTypeUnsupported));
        }
        let bytes = read(request.into_body(), api.body_timeout).await?;
        parse(&bytes).map(Self)
    }
}

/// The same, for routes that also take no body at all.
#[derive(Debug, Clone, Copy)]
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Api> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let json = is_json(request.headers());
        let bytes = read(request.into_body(), api.body_timeout).await?;
        if bytes.is_empty() {
            Ok(Self(T::default()))
        } else if json {
            parse(&bytes).map(Self)
        } else {
            Err(Problem::plain(Code::ContentTypeUnsupported))
        }
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Derived types would also take their fields from an array, by position.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        let detail = "The body must be a JSON object.";
        return Err(Problem::new(Code::BodyMalformed, detail));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::new(Code::BodyMalformed, error.to_string()))
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    if value == JSON {
        return true;
    }
    value
        .to_str()
        .ok()
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case(JSON))
}

/// The whole body. A purchase's arrives with its header as one frame, which is taken without a copy
/// and without a timer.
async fn read(body: Body, timeout: Duration) -> Result<Bytes, Problem> {
    let announced = body.size_hint().lower();
    if announced > BODY_LENGTH_MAX as u64 {
        return Err(Problem::plain(Code::BodyTooLarge));
    }
    let mut whole = pin!(collect(body));
    let at_once = poll_fn(|cx| Poll::Ready(whole.as_mut().poll(cx))).await;
    if let Poll::Ready(bytes) = at_once {
        return bytes;
    }
    tokio::time::timeout(timeout, whole)
        .await
        .unwrap_or_else(|_| Err(Problem::plain(Code::RequestTimeout)))
}

async fn collect(mut body: Body) -> Result<Bytes, Problem> {
    let mut whole = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame
            .map_err(|_| Problem::new(Code::BodyMalformed, "The body broke off before its end."))?;
        // Trailers are none of our business.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > BODY_LENGTH_MAX {
            return Err(Problem::plain(Code::BodyTooLarge));
        }
        if whole.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_bytes(length: usize) -> Result<usize, Code> {
        let body = Body::from(vec![b' '; length]);
        match read(body, Duration::from_secs(1)).await {
            Ok(bytes) => Ok(bytes.len()),
            Err(problem) => Err(problem.code),
        }
    }

    #[tokio::test]
    async fn a_body_of_the_greatest_length_is_read_and_a_longer_one_is_not() {
        assert_eq!(read_bytes(BODY_LENGTH_MAX).await, Ok(BODY_LENGTH_MAX));
        assert_eq!(
            read_bytes(BODY_LENGTH_MAX + 1).await,
            Err(Code::BodyTooLarge)
        );
    }

    #[test]
    fn only_an_object_is_a_body() {
        #[derive(Debug, serde::Deserialize)]
        struct Body {
            #[serde(rename = "a")]
            _a: u32,
        }
        assert!(parse::<Body>(b" \r\n{\"a\": 1} ").is_ok());
        for body in ["", " ", "[1]", "null", "1", "\"a\"", "{", "{\"a\": 1}{"] {
            let refused = parse::<Body>(body.as_bytes()).expect_err(body);
            assert_eq!(refused.code, Code::BodyMalformed, "{body}");
        }
    }

    #[test]
    fn only_json_is_json() {
        let is = |media: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, media.parse().unwrap());
            is_json(&headers)
        };
        assert!(is("application/json") && is("Application/JSON; charset=utf-8"));
        assert!(!is("text/plain") && !is("application/jsonp") && !is(""));
        assert!(!is_json(&HeaderMap::new()));
    }
}
