//! What a buyer knows after an answer, or after none.

use std::fmt;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use serde::Deserialize;
use uuid::Uuid;

use crate::api::Problem;
use crate::http::{Answer, Failure};

/// The outcome of one attempt to buy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// 201: there is an order, and it stays.
    Committed {
        /// The order.
        order: Uuid,
        /// Whether the answer says that it is an older purchase's.
        replayed: bool,
    },
    /// 202: there will be an order.
    Admitted {
        /// The order.
        order: Uuid,
    },
    /// A final no: under this key nothing was bought, and nothing will be.
    Refused {
        /// The reason's code.
        code: String,
    },
    /// Not now: nothing was deducted, and the same request may be sent again.
    Shed {
        /// The reason's code.
        code: String,
        /// How long the service asks to wait.
        retry_after: Option<Duration>,
    },
    /// It may have been bought, or be yet. Only the same request, sent again, can tell.
    Unknown {
        /// What happened instead of an answer.
        why: String,
    },
}

/// The part of an accepted purchase's answer that matters.
#[derive(Deserialize)]
struct Accepted {
    id: Uuid,
}

impl Outcome {
    /// Reads an answer, or the lack of one, to a purchase.
    #[must_use]
    pub fn of(answer: Result<Answer, Failure>) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(Failure::NotSent(_)) => {
                return Self::Shed {
                    code: "not-connected".to_owned(),
                    retry_after: None,
                };
            }
            Err(Failure::Unknown(why)) => return Self::Unknown { why },
        };
        match answer.status {
            StatusCode::CREATED | StatusCode::ACCEPTED => Self::accepted(&answer),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Self::shed(&answer),
            status if status.is_client_error() => Self::Refused {
                code: code(&answer),
            },
            status => Self::Unknown {
                why: format!("{status} {}", code(&answer)),
            },
        }
    }

    fn accepted(answer: &Answer) -> Self {
        let Ok(Accepted { id: order }) = serde_json::from_slice(&answer.body) else {
            return Self::Unknown {
                why: "an accepting answer without an order".to_owned(),
            };
        };
        if answer.status == StatusCode::ACCEPTED {
            return Self::Admitted { order };
        }
        Self::Committed {
            order,
            replayed: answer.headers.contains_key("idempotent-replayed"),
        }
    }

    fn shed(answer: &Answer) -> Self {
        let code = code(answer);
        if code == "outcome-unknown" {
            return Self::Unknown { why: code };
        }
        let seconds = answer
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let retry_after = seconds
            .and_then(|text| text.parse().ok())
            .map(Duration::from_secs);
        Self::Shed { code, retry_after }
    }

    /// Whether nothing is left to ask.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Shed { .. } | Self::Unknown { .. })
    }

    /// The order that an accepting answer names.
    #[must_use]
    pub fn order(&self) -> Option<Uuid> {
        match self {
            Self::Committed { order, .. } | Self::Admitted { order } => Some(*order),
            Self::Refused { .. } | Self::Shed { .. } | Self::Unknown { .. } => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Committed { order, .. } => write!(formatter, "201 for order {order}"),
            Self::Admitted { order } => write!(formatter, "202 for order {order}"),
            Self::Refused { code } => write!(formatter, "refused: {code}"),
            Self::Shed { code, .. } => write!(formatter, "not now: {code}"),
            Self::Unknown { why } => write!(formatter, "unknown: {why}"),
        }
    }
}

/// The code of a problem; of an answer that is none, its status.
fn code(answer: &Answer) -> String {
    let problem = serde_json::from_slice::<Problem>(&answer.body);
    problem.map_or_else(
        |_| answer.status.as_u16().to_string(),
        |problem| problem.code,
    )
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;
    use hyper::header::HeaderValue;

    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("2"))]);
        Answer {
            status,
            headers,
            body: body.to_owned().into(),
        }
    }

    fn problem(status: u16, code: &str) -> Answer {
        answer(
            status,
            &format!(r#"{{"type":"t","status":{status},"code":"{code}","left":0}}"#),
        )
    }

    #[test]
    fn every_answer_has_one_reading() {
        let order = Uuid::from_u128(7);
        let accepted = format!(r#"{{"id":"{order}","sale":1}}"#);
        let refused = |code: &str| Outcome::Refused {
            code: code.to_owned(),
        };
        let shed = |code: &str| {
            let retry_after = Some(Duration::from_secs(2));
            Outcome::Shed {
                code: code.to_owned(),
                retry_after,
            }
        };
        let unknown = |why: &str| Outcome::Unknown {
            why: why.to_owned(),
        };
        let cases = [
            (
                answer(201, &accepted),
                Outcome::Committed {
                    order,
                    replayed: false,
                },
            ),
            (answer(202, &accepted), Outcome::Admitted { order }),
            (
                answer(201, "{}"),
                unknown("an accepting answer without an order"),
            ),
            (problem(409, "sold-out"), refused("sold-out")),
            (problem(410, "closed"), refused("closed")),
            (problem(422, "key-reused"), refused("key-reused")),
            (answer(404, "no JSON"), refused("404")),
            (problem(429, "too-many-requests"), shed("too-many-requests")),
            (problem(503, "overloaded"), shed("overloaded")),
            (problem(503, "outcome-unknown"), unknown("outcome-unknown")),
            (
                problem(500, "internal"),
                unknown("500 Internal Server Error internal"),
            ),
            (answer(200, &accepted), unknown("200 OK 200")),
        ];
        for (answer, expected) in cases {
            assert_eq!(Outcome::of(Ok(answer.clone())), expected, "{answer:?}");
        }
        let timeout = Outcome::of(Err(Failure::Unknown("timeout".to_owned())));
        assert_eq!(timeout, unknown("timeout"));
        let Outcome::Shed { .. } = Outcome::of(Err(Failure::NotSent("refused".to_owned()))) else {
            panic!("what was not sent has not happened");
        };
    }
}
