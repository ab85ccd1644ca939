//! Who is calling: the admin, or a buyer.
//!
//! A handler names the caller that it serves as an argument: [`Admin`], [`Buyer`], [`Purchaser`] or
//! [`Caller`]. No credentials, or bad ones, are 401; good ones of the wrong kind are 403. The buyer
//! is taken from the credentials only, never from a body or a path.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderName};
use axum::http::request::Parts;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::jwt::JwtVerifier;
use super::{Api, BuyerRate, Code, Problem};
use crate::domain::BuyerId;

/// The header by which a trusted gateway names the buyer.
const BUYER_HEADER: HeaderName = HeaderName::from_static("x-buyer-id");

/// Everything that decides who may do what.
#[derive(Debug)]
pub struct Access {
    admin: AdminToken,
    buyers: Buyers,
    rate: Option<BuyerRate>,
}

/// How buyers prove who they are.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one value in a process")]
pub enum Buyers {
    /// By a signed token.
    Jwt(JwtVerifier),
    /// By a header that a gateway in front of the service sets; whoever reaches the service is
    /// believed.
    TrustedHeader,
}

/// The admin's token. Only its hash is kept: hashes of equal length are compared in constant time,
/// so that neither content nor length of the token can be measured.
struct AdminToken([u8; 32]);

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

impl AdminToken {
    fn matches(&self, token: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(token).into();
        given.ct_eq(&self.0).into()
    }
}

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The shop.
    Admin,
    /// One of its customers.
    Buyer(BuyerId),
}

impl Access {
    /// The admin's token, the buyers' credentials, and how often one buyer may purchase (none: as
    /// often as they like).
    #[must_use]
    pub fn new(admin_token: &str, buyers: Buyers, rate: Option<BuyerRate>) -> Self {
        let admin = AdminToken(Sha256::digest(admin_token).into());
        Self {
            admin,
            buyers,
            rate,
        }
    }

    fn is_admin(&self, headers: &HeaderMap) -> bool {
        bearer(headers).is_some_and(|token| self.admin.matches(token))
    }

    fn authenticated_buyer(&self, headers: &HeaderMap) -> Result<BuyerId, Problem> {
        match &self.buyers {
            Buyers::Jwt(verifier) => {
                let token = bearer(headers).ok_or_else(|| {
                    unauthenticated("Send `Authorization: Bearer` with the buyer's token.")
                })?;
                verifier.buyer(token).map_err(unauthenticated)
            }
            Buyers::TrustedHeader => trusted_buyer(headers),
        }
    }

    fn admin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.is_admin(headers) {
            Ok(())
        } else if self.authenticated_buyer(headers).is_ok() {
            Err(forbidden("This route is the admin's."))
        } else {
            let detail = "Send `Authorization: Bearer` with the admin's token.";
            Err(unauthenticated(detail))
        }
    }

    fn buyer(&self, headers: &HeaderMap) -> Result<BuyerId, Problem> {
        self.authenticated_buyer(headers).map_err(|problem| {
            if self.is_admin(headers) {
                forbidden("This route is for buyers; the admin is none.")
            } else {
                problem
            }
        })
    }

    fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.is_admin(headers) {
            return Ok(Caller::Admin);
        }
        self.authenticated_buyer(headers).map(Caller::Buyer)
    }

    fn purchaser(&self, headers: &HeaderMap) -> Result<BuyerId, Problem> {
        let buyer = self.buyer(headers)?;
        if let Some(rate) = &self.rate {
            rate.admit(&buyer)?;
        }
        Ok(buyer)
    }
}

/// The token of an `Authorization: Bearer` header that comes once.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (scheme, token) = values.next()?.to_str().ok()?.split_once(' ')?;
    let valid = scheme.eq_ignore_ascii_case("bearer") && values.next().is_none();
    valid.then(|| token.trim_matches(' '))
}

fn trusted_buyer(headers: &HeaderMap) -> Result<BuyerId, Problem> {
    let mut values = headers.get_all(BUYER_HEADER).iter();
    let value = values
        .next()
        .ok_or_else(|| unauthenticated("Send `X-Buyer-Id` with the buyer's id."))?;
    // Two values: one of them is not the gateway's.
    if values.next().is_some() {
        return Err(unauthenticated("`X-Buyer-Id` came more than once."));
    }
    std::str::from_utf8(value.as_bytes())
        .ok()
        .and_then(|text| BuyerId::parse(text).ok())
        .ok_or_else(|| {
            unauthenticated("`X-Buyer-Id` takes 1 to 128 bytes of text without control characters.")
        })
}

fn unauthenticated(detail: &'static str) -> Problem {
    Problem::new(Code::Unauthenticated, detail)
}

fn forbidden(detail: &'static str) -> Problem {
    Problem::new(Code::Forbidden, detail)
}

/// The caller is the admin.
#[derive(Debug, Clone, Copy)]
pub struct Admin;

/// The caller is this buyer.
#[derive(Debug, Clone)]
pub struct Buyer(pub BuyerId);

/// The caller is this buyer and has not sent too many purchases lately.
#[derive(Debug, Clone)]
pub struct Purchaser(pub BuyerId);

impl FromRequestParts<Api> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        api.access.admin(&parts.headers).map(|()| Self)
    }
}

impl FromRequestParts<Api> for Buyer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        api.access.buyer(&parts.headers).map(Self)
    }
}

impl FromRequestParts<Api> for Purchaser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        api.access.purchaser(&parts.headers).map(Self)
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        api.access.caller(&parts.headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: &str = "an-admin-token-of-32-characters.";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn access() -> Access {
        Access::new(ADMIN, Buyers::TrustedHeader, None)
    }

    #[test]
    fn the_admin_is_known_by_the_whole_token_only() {
        let authorised = format!("Bearer {ADMIN}");
        assert!(access().is_admin(&headers(&[("authorization", &authorised)])));
        for other in [
            "Bearer ",
            "Bearer",
            ADMIN,
            &format!("Basic {ADMIN}"),
            &authorised[..authorised.len() - 1],
            &format!("{authorised}x"),
        ] {
            let headers = headers(&[("authorization", other)]);
            assert!(!access().is_admin(&headers), "{other}");
        }
        let twice = headers(&[
            ("authorization", &authorised),
            ("authorization", "Bearer x"),
        ]);
        assert!(!access().is_admin(&twice));
    }

    #[test]
    fn good_credentials_of_the_wrong_kind_are_forbidden_and_bad_ones_unauthenticated() {
        let buyer = headers(&[("x-buyer-id", "alice")]);
        let admin = headers(&[("authorization", &format!("Bearer {ADMIN}"))]);
        let nobody = headers(&[("authorization", "Bearer wrong")]);
        let code = |result: Result<(), Problem>| result.expect_err("refused").code;
        assert_eq!(code(access().admin(&buyer)), Code::Forbidden);
        assert_eq!(code(access().admin(&nobody)), Code::Unauthenticated);
        assert_eq!(code(access().buyer(&admin).map(drop)), Code::Forbidden);
        assert_eq!(
            code(access().buyer(&nobody).map(drop)),
            Code::Unauthenticated
        );
        assert_eq!(access().caller(&admin), Ok(Caller::Admin));
        assert!(matches!(access().caller(&buyer), Ok(Caller::Buyer(_))));
    }

    #[test]
    fn a_buyer_header_that_comes_twice_names_nobody() {
        let twice = headers(&[("x-buyer-id", "alice"), ("x-buyer-id", "mallory")]);
        assert!(access().buyer(&twice).is_err());
        assert!(access().buyer(&headers(&[("x-buyer-id", "")])).is_err());
        assert!(
            access()
                .buyer(&headers(&[("x-buyer-id", "買家-7")]))
                .is_ok()
        );
    }
}
