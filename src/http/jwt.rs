//! Buyers' tokens: JSON Web Tokens of one algorithm with one key.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, get_current_timestamp};
use serde::Deserialize;

use super::verified::{self, Verified};
use crate::domain::{BuyerId, Invalid};

/// How far the issuer's clock may be from ours, in seconds.
const CLOCK_LEEWAY_SECONDS: u64 = 5;
/// Shortest secret for HS256, in bytes: RFC 7518 demands at least the length of the hash.
pub const HS256_SECRET_LENGTH_MIN: usize = 32;

/// Checks tokens and reads the buyer from them.
///
/// The algorithm is the key's, never the token's choice: a token that says `none`, or HS256 where
/// the public key of `EdDSA` is configured, is refused. `sub` and `exp` must be there; `nbf` is
/// honoured. A token that names audiences is refused unless the configured one is among them, and
/// with a configured audience a token must name it (RFC 7519, 4.1.3).
pub struct JwtVerifier {
    key: DecodingKey,
    validation: Validation,
    verified: Option<Verified>,
}

impl std::fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtVerifier")
            .field("validation", &self.validation)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// Seconds since 1970, which may have a fraction.
    exp: f64,
}

impl JwtVerifier {
    /// Tokens signed with a secret that the issuer and the service share.
    ///
    /// # Errors
    /// [`Invalid`] when the secret is shorter than [`HS256_SECRET_LENGTH_MIN`].
    pub fn hs256(secret: &str, audience: Option<&str>) -> Result<Self, Invalid> {
        if secret.len() < HS256_SECRET_LENGTH_MIN {
            return Err(Invalid(format!(
                "the HS256 secret has {} bytes; it needs at least {HS256_SECRET_LENGTH_MIN}",
                secret.len()
            )));
        }
        let key = DecodingKey::from_secret(secret.as_bytes())
            .map_err(|error| Invalid(format!("the HS256 secret cannot be used: {error}")))?;
        Ok(Self::new(key, Algorithm::HS256, audience))
    }

    /// Tokens signed with the private key that belongs to this public one (PEM).
    ///
    /// # Errors
    /// [`Invalid`] when this is no Ed25519 public key.
    pub fn eddsa(public_key_pem: &[u8], audience: Option<&str>) -> Result<Self, Invalid> {
        let key = DecodingKey::from_ed_pem(public_key_pem)
            .map_err(|error| Invalid(format!("not an Ed25519 public key in PEM: {error}")))?;
        let mut verifier = Self::new(key, Algorithm::EdDSA, audience);
        verifier.verified = Some(Verified::default());
        Ok(verifier)
    }

    fn new(key: DecodingKey, algorithm: Algorithm, audience: Option<&str>) -> Self {
        let mut validation = Validation::new(algorithm);
        validation.leeway = CLOCK_LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "sub"]);
        if let Some(audience) = audience {
            validation.set_audience(&[audience]);
            validation.set_required_spec_claims(&["exp", "sub", "aud"]);
        }
        Self {
            key,
            validation,
            verified: None,
        }
    }

    /// The buyer whom the token names.
    ///
    /// # Errors
    /// A sentence for the client that does not help to guess.
    pub fn buyer(&self, token: &str) -> Result<BuyerId, &'static str> {
        let Some(verified) = &self.verified else {
            return self.verify(token).map(|(buyer, _)| buyer);
        };
        let hash = verified::hash(token);
        if let Some(buyer) = verified.buyer(&hash, get_current_timestamp()) {
            return Ok(buyer);
        }
        let (buyer, good_until) = self.verify(token)?;
        verified.remember(hash, buyer.clone(), good_until);
        Ok(buyer)
    }

    /// The buyer, and until when the token is good.
    fn verify(&self, token: &str) -> Result<(BuyerId, u64), &'static str> {
        let decoded = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation);
        let claims = decoded
            .map_err(|error| match error.kind() {
                ErrorKind::ExpiredSignature => "The buyer's token has expired.",
                _ => "The buyer's token is not valid.",
            })?
            .claims;
        let buyer = BuyerId::parse(&claims.sub);
        let buyer = buyer.map_err(|_| "The buyer's token names no buyer.")?;
        Ok((
            buyer,
            (claims.exp as u64).saturating_add(CLOCK_LEEWAY_SECONDS),
        ))
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &str = "a secret of at least thirty-two bytes";

    fn hour() -> u64 {
        get_current_timestamp() + 3_600
    }

    fn signed(claims: &Value, algorithm: Algorithm) -> String {
        let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
        encode(&Header::new(algorithm), claims, &key).unwrap()
    }

    fn verifier(audience: Option<&str>) -> JwtVerifier {
        JwtVerifier::hs256(SECRET, audience).unwrap()
    }

    #[test]
    fn a_good_token_names_its_buyer() {
        let claims = json!({"sub": "alice", "exp": hour(), "role": "admin"});
        let buyer = verifier(None).buyer(&signed(&claims, Algorithm::HS256));
        assert_eq!(buyer.unwrap().as_str(), "alice");
        let claims = json!({"sub": "alice", "exp": hour(), "aud": ["other", "shop"]});
        let token = signed(&claims, Algorithm::HS256);
        assert!(verifier(Some("shop")).buyer(&token).is_ok());
    }

    #[test]
    fn every_other_token_is_refused() {
        let past = get_current_timestamp() - CLOCK_LEEWAY_SECONDS - 2;
        let cases = [
            ("expired", json!({"sub": "alice", "exp": past})),
            ("no expiry", json!({"sub": "alice"})),
            ("no subject", json!({"exp": hour()})),
            ("subject of another type", json!({"sub": 7, "exp": hour()})),
            ("empty subject", json!({"sub": "", "exp": hour()})),
            ("line break", json!({"sub": "a\nb", "exp": hour()})),
            (
                "not yet valid",
                json!({"sub": "alice", "exp": hour(), "nbf": hour()}),
            ),
            (
                "unexpected audience",
                json!({"sub": "alice", "exp": hour(), "aud": "other"}),
            ),
        ];
        for (case, claims) in cases {
            let token = signed(&claims, Algorithm::HS256);
            assert!(verifier(None).buyer(&token).is_err(), "{case}");
        }
        let endless = json!({"sub": "alice", "exp": 1e300});
        let token = signed(&endless, Algorithm::HS256);
        // Refused or good for ever, but no overflow.
        verifier(None).buyer(&token).ok();
        let good = json!({"sub": "alice", "exp": hour()});
        let wrong_algorithm = signed(&good, Algorithm::HS512);
        assert!(verifier(None).buyer(&wrong_algorithm).is_err());
        let token = signed(&good, Algorithm::HS256);
        assert!(verifier(Some("shop")).buyer(&token).is_err(), "no audience");
        let other = JwtVerifier::hs256(&SECRET.to_uppercase(), None).unwrap();
        assert!(other.buyer(&token).is_err(), "another secret");
        let signature = token.rfind('.').unwrap() + 1;
        assert!(verifier(None).buyer(&token[..signature]).is_err(), "cut");
    }

    #[test]
    fn a_token_cannot_choose_to_be_unsigned() {
        use base64_url as encode;
        let header = encode(br#"{"alg":"none","typ":"JWT"}"#);
        let claims = encode(
            json!({"sub": "alice", "exp": hour()})
                .to_string()
                .as_bytes(),
        );
        for token in [format!("{header}.{claims}."), format!("{header}.{claims}")] {
            assert!(verifier(None).buyer(&token).is_err(), "{token}");
        }
    }

    #[test]
    fn a_public_key_is_no_shared_secret() {
        // The classic confusion: a token signed by HS256 with the text of the public key.
        let pem = "-----BEGIN PUBLIC KEY-----\n\
                   MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                   -----END PUBLIC KEY-----\n";
        let verifier = JwtVerifier::eddsa(pem.as_bytes(), None).unwrap();
        let key = EncodingKey::from_secret(pem.as_bytes()).unwrap();
        let claims = json!({"sub": "alice", "exp": hour()});
        let token = encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
        assert!(verifier.buyer(&token).is_err());
    }

    #[test]
    fn a_short_secret_is_refused() {
        assert!(JwtVerifier::hs256("short", None).is_err());
    }

    /// Base64url without padding, enough for a test.
    fn base64_url(bytes: &[u8]) -> String {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let mut padded = [0; 4];
            padded[1..=chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes(padded);
            for n in 0..=chunk.len() {
                let index = (bits >> (18 - 6 * n)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
        text
    }
}
