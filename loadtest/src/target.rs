//! Whom the load is for, and by what right.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::header::HeaderValue;
use sha2::Sha256;
use time::OffsetDateTime;

/// How long the buyers' tokens are good: longer than any run.
const TOKEN_LIFE: time::Duration = time::Duration::hours(24);

/// How a buyer proves who they are.
#[derive(Clone)]
pub enum BuyerAuth {
    /// By a JSON Web Token signed with this secret (HS256).
    Hs256(String),
    /// By their word: the service trusts the header `X-Buyer-Id`.
    TrustedHeader,
}

impl BuyerAuth {
    /// The request header, name and value, by which `buyer` is known.
    ///
    /// # Panics
    /// When the name of the buyer is not visible ASCII.
    #[must_use]
    pub fn header(&self, buyer: &str) -> (&'static str, HeaderValue) {
        let (name, value) = match self {
            Self::Hs256(secret) => ("authorization", format!("Bearer {}", token(secret, buyer))),
            Self::TrustedHeader => ("x-buyer-id", buyer.to_owned()),
        };
        (
            name,
            HeaderValue::from_str(&value).expect("buyers have plain names"),
        )
    }
}

impl fmt::Debug for BuyerAuth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Hs256(_) => "Hs256(secret)",
            Self::TrustedHeader => "TrustedHeader",
        })
    }
}

fn token(secret: &str, buyer: &str) -> String {
    let expires = (OffsetDateTime::now_utc() + TOKEN_LIFE).unix_timestamp();
    let claims = serde_json::json!({ "sub": buyer, "exp": expires });
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length will do");
    mac.update(format!("{header}.{claims}").as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
    format!("{header}.{claims}.{signature}")
}

/// A deployment of the service on this machine: one or more processes that share their servers.
#[derive(Clone)]
pub struct Target {
    addresses: Vec<SocketAddr>,
    admin_token: String,
    buyer_auth: BuyerAuth,
}

impl Target {
    /// The processes at these URLs (`http://127.0.0.1:PORT`); load is spread over them evenly.
    ///
    /// # Errors
    /// When there is none, or one is not on loopback: load must not hit strangers.
    pub fn new(urls: &[String], admin_token: &str, buyer_auth: BuyerAuth) -> Result<Self> {
        ensure!(!urls.is_empty(), "there is no URL to send load to");
        let addresses = urls
            .iter()
            .map(|url| loopback(url))
            .collect::<Result<_>>()?;
        Ok(Self {
            addresses,
            admin_token: admin_token.to_owned(),
            buyer_auth,
        })
    }

    /// Where the process number `index` listens, counted round and round.
    #[must_use]
    pub fn address(&self, index: usize) -> SocketAddr {
        self.addresses[index % self.addresses.len()]
    }

    /// How many processes there are.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.addresses.len()
    }

    /// The request header, name and value, of the administrator.
    ///
    /// # Panics
    /// When the token is not visible ASCII.
    #[must_use]
    pub fn admin_header(&self) -> (&'static str, HeaderValue) {
        let value = HeaderValue::from_str(&format!("Bearer {}", self.admin_token));
        ("authorization", value.expect("tokens are plain"))
    }

    /// The request header, name and value, of a buyer.
    #[must_use]
    pub fn buyer_header(&self, buyer: &str) -> (&'static str, HeaderValue) {
        self.buyer_auth.header(buyer)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is left out on purpose.
        let mut target = formatter.debug_struct("Target");
        target
            .field("addresses", &self.addresses)
            .field("buyer_auth", &self.buyer_auth);
        target.finish_non_exhaustive()
    }
}

fn loopback(url: &str) -> Result<SocketAddr> {
    let host = url
        .strip_prefix("http://")
        .with_context(|| format!("`{url}` is not http://"))?;
    let host = host.trim_end_matches('/');
    let address = match host.strip_prefix("localhost:") {
        Some(port) => port
            .parse()
            .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .ok(),
        None => host.parse().ok(),
    };
    let address: SocketAddr = address.with_context(|| format!("`{url}` is not http://IP:PORT"))?;
    ensure!(
        address.ip().is_loopback(),
        "`{url}` is not on this machine; only loopback is allowed"
    );
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_a_target() {
        let target = |url: &str| Target::new(&[url.to_owned()], "t", BuyerAuth::TrustedHeader);
        for url in [
            "http://127.0.0.1:80",
            "http://localhost:80/",
            "http://[::1]:80",
        ] {
            assert!(target(url).is_ok(), "{url}");
        }
        for url in [
            "http://10.0.0.1:80",
            "https://127.0.0.1:80",
            "http://shop.example:80",
            "x",
        ] {
            assert!(target(url).is_err(), "{url}");
        }
        assert!(Target::new(&[], "t", BuyerAuth::TrustedHeader).is_err());
    }

    #[test]
    fn a_token_is_signed_as_the_standard_says() {
        // RFC 7515, appendix A.1, has fixed bytes; here the claims vary, so the parts are checked.
        let token = token("secret", "buyer-1");
        let parts: Vec<&str> = token.split('.').collect();
        let [header, claims, signature] = parts[..] else {
            panic!("{token}")
        };
        let claims: serde_json::Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        assert_eq!(claims["sub"], "buyer-1");
        assert_eq!(header, "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9");
        assert_eq!(URL_SAFE_NO_PAD.decode(signature).unwrap().len(), 32);
    }

    #[test]
    fn secrets_stay_out_of_debug_output() {
        let auth = BuyerAuth::Hs256("hidden".to_owned());
        let target = Target::new(&["http://127.0.0.1:80".to_owned()], "hidden", auth).unwrap();
        assert!(!format!("{target:?}").contains("hidden"), "{target:?}");
    }
}
