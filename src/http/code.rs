//! The table of all problems: one row for each kind of "no" that a client can tell apart.
//!
//! Documentation, OpenAPI and answers are made from this table; a code never changes its meaning.

use axum::http::StatusCode;

/// Makes the enum and its look-ups from one table.
macro_rules! codes {
    ($($variant:ident $code:literal $status:literal $title:literal $meaning:literal)+) => {
        /// The short name of a problem; `type` is `urn:stockade:problem:` and this.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(
                #[doc = $meaning]
                $variant,
            )+
        }

        impl Code {
            /// Every code, by status.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The short name, as clients see it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            /// The `type` of the problem.
            #[must_use]
            pub const fn uri(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("urn:stockade:problem:", $code),)+
                }
            }

            const fn status_number(self) -> u16 {
                match self {
                    $(Self::$variant => $status,)+
                }
            }

            /// The same sentence for every problem of this code.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)+
                }
            }

            /// When it is answered and what the client should do.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                }
            }
        }
    };
}

codes! {
    BodyMalformed "body-malformed" 400 "The body is not what this route takes."
        "JSON is broken, a field is missing, unknown or of another type, or a value is out of \
         bounds; `detail` names it."
    KeyMissing "key-missing" 400 "Idempotency-Key is missing."
        "A purchase names itself: send a new key for a new purchase, the same key for a retry."
    KeyMalformed "key-malformed" 400 "Idempotency-Key is malformed."
        "The header takes 1 to 255 visible ASCII characters, bare or in double quotes, and \
         comes once."
    QueryMalformed "query-malformed" 400 "The query is not what this route takes."
        "A parameter is unknown or its value is out of bounds; `detail` names it."
    Unauthenticated "unauthenticated" 401 "Credentials are missing or not valid."
        "No credentials, or a token that is wrong, expired or for someone else."
    Forbidden "forbidden" 403 "These credentials may not do this."
        "Somebody else's order, a buyer on an admin's route, or an admin on a buyer's."
    NotFound "not-found" 404 "There is no such thing."
        "No such route, sale or order."
    MethodNotAllowed "method-not-allowed" 405 "The route has no such method."
        "`Allow` lists the methods that it has."
    RequestTimeout "request-timeout" 408 "The body took too long to arrive."
        "The request was not looked at; send it again."
    BelowTaken "below-taken" 409 "More units are sold than would be left."
        "Orders hold `taken` units, which cannot be withdrawn: wish for at least as many."
    Held "held" 409 "Nothing is free at this moment."
        "Orders hold units that may come back (`available`, `held`): try again later with the \
         same or a new key."
    Insufficient "insufficient" 409 "Fewer units are free than were asked for."
        "Ask for no more than `available`."
    LimitReached "limit-reached" 409 "The buyer's limit is reached."
        "One buyer may have `limit` units, of which `left` are left."
    NotOpen "not-open" 409 "The sale does not sell at this moment."
        "It is not open yet (`opens_at`, if that is fixed) or it is paused (`state`)."
    OrderFinal "order-final" 409 "The order has reached another final state."
        "Confirmation, cancellation and expiry exclude each other: `state` and `finished_at` \
         tell which came first."
    Rejected "rejected" 409 "The purchase could not be kept."
        "It was admitted and then turned out to be impossible, which only a loss of data \
         causes; nothing is owed."
    SoldOut "sold-out" 409 "Sold out."
        "Final: every unit is paid for."
    Void "void" 409 "This key is spent."
        "An earlier attempt under this key was refused after a lost connection: send a new key \
         for a new attempt."
    Closed "closed" 410 "The sale is over."
        "Final: this sale sells nothing more."
    Stale "stale" 412 "The sale has another quantity."
        "Somebody else has changed it to `quantity`: look again, and name that one."
    BodyTooLarge "body-too-large" 413 "The body is too large."
        "A body has at most 16 KiB."
    ContentTypeUnsupported "content-type-unsupported" 415 "The body's type is not supported."
        "Bodies are JSON: send `Content-Type: application/json`."
    InvalidQuantity "invalid-quantity" 422 "The quantity is not valid."
        "A quantity is a whole number from 1 to 1000000000."
    KeyReused "key-reused" 422 "This key names another purchase."
        "The key was used for `quantity` units: send that quantity to retry, or a new key."
    TooManyRequests "too-many-requests" 429 "Too many requests."
        "This buyer sends faster than the service lets one buyer send: wait `Retry-After` seconds."
    Internal "internal" 500 "The service has failed."
        "A defect; the service's log names its cause under the answer's `X-Request-Id`. A \
         purchase may be retried with the same key."
    Loading "loading" 503 "The sale's stock is being loaded."
        "Nothing was deducted: retry with the same key after `Retry-After` seconds."
    NotReady "not-ready" 503 "The service is not ready."
        "`parts` names what is not; only `/readyz` answers this."
    OutcomeUnknown "outcome-unknown" 503 "The outcome is not known."
        "A server did not answer in time: retry with the same key, and never with another one, \
         to learn the outcome."
    Overloaded "overloaded" 503 "The service is overloaded."
        "Nothing was deducted: retry with the same key after `Retry-After` seconds."
    Unavailable "unavailable" 503 "The service is not available."
        "A server behind it cannot be reached. Nothing was deducted: retry, a purchase with the \
         same key, after `Retry-After` seconds."
}

impl Code {
    /// The HTTP status of the problem.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.status_number()).expect("the table holds valid statuses")
    }

    /// Seconds after which a client should try again; none where trying again is no use.
    #[must_use]
    pub const fn retry_after_seconds(self) -> Option<u32> {
        match self {
            Self::TooManyRequests
            | Self::Loading
            | Self::NotReady
            | Self::OutcomeUnknown
            | Self::Overloaded
            | Self::Unavailable => Some(1),
            _ => None,
        }
    }

    /// The whole table as Markdown, for the documentation.
    #[must_use]
    pub fn table() -> String {
        let mut table = String::from("| status | code | meaning |\n|---|---|---|\n");
        for code in Self::ALL {
            let (status, name, meaning) = (code.status_number(), code.as_str(), code.meaning());
            table.push_str(&format!("| {status} | `{name}` | {meaning} |\n"));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_short_names() {
        assert!(
            Code::ALL.is_sorted_by_key(|code| code.status()),
            "by status"
        );
        let names: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            let name = code.as_str();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{name}"
            );
            assert_eq!(code.uri(), format!("urn:stockade:problem:{name}"));
        }
    }

    #[test]
    fn no_problem_is_a_success_and_every_temporary_one_says_when_to_retry() {
        for code in Code::ALL {
            let status = code.status();
            assert!(
                status.is_client_error() || status.is_server_error(),
                "{code:?}"
            );
            let temporary = matches!(status.as_u16(), 429 | 503);
            assert_eq!(code.retry_after_seconds().is_some(), temporary, "{code:?}");
        }
    }

    #[test]
    fn the_documented_quantity_is_the_enforced_one() {
        let meaning = Code::InvalidQuantity.meaning();
        assert!(meaning.contains(&crate::domain::QUANTITY_MAX.to_string()));
    }
}
