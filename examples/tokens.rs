//! Prints tokens of random buyers, one a line, for `scripts/bench/purchase.lua`:
//! `cargo run --release --example tokens -- SECRET COUNT > tokens.txt`

use anyhow::Context as _;
use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use serde_json::json;

/// How long the tokens are good for: a day of benchmarks.
const LIFETIME_SECONDS: u64 = 86_400;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: tokens SECRET COUNT";
    let secret = arguments.next().context(usage)?;
    let count: u32 = arguments.next().context(usage)?.parse().context(usage)?;
    let key = EncodingKey::from_secret(secret.as_bytes())?;
    let exp = get_current_timestamp() + LIFETIME_SECONDS;
    for number in 1..=count {
        let claims = json!({"sub": format!("buyer-{number}"), "exp": exp});
        println!("{}", encode(&Header::default(), &claims, &key)?);
    }
    Ok(())
}
