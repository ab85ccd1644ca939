//! Names: of sales, buyers, keys and orders, and the home hash.
//!
//! An order's id is a function of (sale, buyer, idempotency key). Every attempt at one purchase, on every
//! instance and after every restart, therefore names the same order, and each insert of it is idempotent.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Invalid;

/// Version of the home hash and of the order id's layout. Instances of several releases run at once, so
/// both may only change together with this number and with the keys in Redis.
pub const HOME_HASH_VERSION: u32 = 1;

/// The number of a sale; positive, given by the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaleId(u32);

impl SaleId {
    /// Takes a positive number that fits 32 bits.
    ///
    /// # Errors
    /// [`Invalid`] for zero, negative and larger numbers.
    pub fn new(number: i64) -> Result<Self, Invalid> {
        match u32::try_from(number) {
            Ok(number) if number > 0 => Ok(Self(number)),
            _ => Err(Invalid::new("a sale id is a number from 1 to 4294967295")),
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for SaleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SaleId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        // Only digits: "+1" and "01" would be second names of one sale.
        let canonical = !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        Self::new(text.parse().ok().filter(|_| canonical).unwrap_or(0))
    }
}

/// Who buys, as the shop names its customers. 1 to 128 bytes of text without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuyerId(Arc<str>);

impl BuyerId {
    /// The longest buyer id, in bytes.
    pub const LENGTH_MAX: usize = 128;

    /// Takes a buyer's id as it came.
    ///
    /// # Errors
    /// [`Invalid`] when empty, too long, or with control characters (databases refuse NUL, logs break
    /// on new lines).
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || text.len() > Self::LENGTH_MAX || text.chars().any(char::is_control) {
            return Err(Invalid::new(
                "a buyer id is 1 to 128 bytes without control characters",
            ));
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BuyerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The buyer's name for one purchase: 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    /// The longest key, in characters.
    pub const LENGTH_MAX: usize = 255;

    /// Takes the value of an `Idempotency-Key` header, bare (as Stripe writes it) or as the quoted string
    /// of the IETF draft; both spellings of one key are one key.
    ///
    /// # Errors
    /// [`Invalid`] when empty, too long, badly quoted, or not visible ASCII.
    pub fn parse(value: &str) -> Result<Self, Invalid> {
        let value = value.trim_matches([' ', '\t']);
        let key = match value.strip_prefix('"') {
            Some(rest) => unquote(rest)?,
            None => value.to_owned(),
        };
        let visible = key.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
        if key.is_empty() || key.len() > Self::LENGTH_MAX || !visible {
            return Err(Invalid::new(
                "Idempotency-Key takes 1 to 255 visible ASCII characters, bare or in double quotes",
            ));
        }
        Ok(Self(key.into()))
    }

    /// The key of the second purchase that a payment after expiry may cause. It holds a control
    /// character, so no buyer's key can be equal to it.
    #[must_use]
    pub fn reacquire(expired: OrderId) -> Self {
        Self(format!("\u{1}reacquire:{expired}").into())
    }
}

/// The inside of a structured-field string whose opening quote is already gone.
fn unquote(rest: &str) -> Result<String, Invalid> {
    let malformed = || Invalid::new("Idempotency-Key has an opening quote without its end");
    let inner = rest.strip_suffix('"').ok_or_else(malformed)?;
    let mut key = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(next) = chars.next() {
        match next {
            '\\' => key.push(
                chars
                    .next()
                    .filter(|c| matches!(c, '"' | '\\'))
                    .ok_or_else(malformed)?,
            ),
            '"' => return Err(malformed()),
            other => key.push(other),
        }
    }
    Ok(key)
}

/// The name of an order: a version 8 UUID that says which sale, which home segment and which buyer.
///
/// Layout, most significant first: 32 bits sale · 16 bits home hash · 4 bits version · 12 bits buyer ·
/// 2 bits variant · 20 bits buyer · 42 bits key. The 48 buyer bits (home included) come from the hash of
/// (sale, buyer), the 42 key bits from the hash of (sale, buyer, key). So an order that is admitted but
/// not yet in the ledger can be found, and its owner recognised, from the id alone.
///
/// Two keys of *one* buyer in *one* sale share an id with probability 2⁻⁴² and are then taken for one
/// key; two buyers with 2⁻⁹⁰.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderId([u8; 16]);

impl OrderId {
    /// The order of this buyer and key in this sale; the same on every attempt.
    #[must_use]
    pub fn of(sale: SaleId, buyer: &BuyerId, key: &IdempotencyKey) -> Self {
        let buyer_bits = buyer_hash(sale, buyer);
        let mut hash = Sha256::new_with_prefix(b"stockade/order/1");
        hash.update(sale.0.to_be_bytes());
        hash.update((buyer.0.len() as u64).to_be_bytes());
        hash.update(buyer.0.as_bytes());
        hash.update(key.0.as_bytes());
        let key_bits = first_u64(&hash.finalize()) >> 22;
        Self::pack(sale, buyer_bits, key_bits)
    }

    fn pack(sale: SaleId, buyer_bits: u64, key_bits: u64) -> Self {
        let high = (u64::from(sale.0) << 32)
            | ((buyer_bits >> 32) << 16)
            | 0x8000
            | ((buyer_bits >> 20) & 0xfff);
        let low = (0b10 << 62) | ((buyer_bits & 0xf_ffff) << 42) | key_bits;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        Self(bytes)
    }

    /// Takes sixteen bytes as Redis or the ledger stored them.
    ///
    /// # Errors
    /// [`Invalid`] when the length or the layout is not that of an order id.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Invalid> {
        let bytes: [u8; 16] = bytes
            .try_into()
            .map_err(|_| Invalid::new("an order id is 16 bytes"))?;
        let layout = bytes[6] >> 4 == 8 && bytes[8] >> 6 == 0b10;
        let id = Self(bytes);
        if !layout || id.sale_number() == 0 {
            return Err(Invalid::new("not an order id of this service"));
        }
        Ok(id)
    }

    /// The sixteen bytes that Redis and the ledger store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The same bytes as a UUID.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        Uuid::from_bytes(self.0)
    }

    fn sale_number(self) -> u32 {
        u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    /// The sale that the order belongs to.
    #[must_use]
    pub fn sale(self) -> SaleId {
        SaleId(self.sale_number())
    }

    /// The buyer's home segment in a sale of `segments` segments.
    ///
    /// Multiplication instead of remainder spreads 65,536 hash values over any number of segments with
    /// sizes that differ by one value at the most.
    #[must_use]
    pub fn home(self, segments: u32) -> u32 {
        let home_hash = u32::from(u16::from_be_bytes([self.0[4], self.0[5]]));
        (home_hash * segments) >> 16
    }

    /// Whether the id could be one of this buyer's: false for all but one in 2⁴⁸ strangers.
    #[must_use]
    pub fn may_belong_to(self, buyer: &BuyerId) -> bool {
        let own = Self::pack(self.sale(), buyer_hash(self.sale(), buyer), 0);
        let mask = u64::MAX << 42;
        own.0[..8] == self.0[..8] && first_u64(&own.0[8..]) == first_u64(&self.0[8..]) & mask
    }
}

/// 48 bits of the hash of (sale, buyer); the upper 16 are the home hash. The sale is in it, so that a
/// buyer who shares a crowded home in one sale does not in the next.
fn buyer_hash(sale: SaleId, buyer: &BuyerId) -> u64 {
    let mut hash = Sha256::new_with_prefix(b"stockade/home/1");
    hash.update(sale.0.to_be_bytes());
    hash.update(buyer.0.as_bytes());
    first_u64(&hash.finalize()) >> 16
}

fn first_u64(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    u64::from_be_bytes(first)
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uuid().fmt(f)
    }
}

impl fmt::Debug for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uuid().fmt(f)
    }
}

impl FromStr for OrderId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let uuid = Uuid::try_parse(text).map_err(|_| Invalid::new("an order id is a UUID"))?;
        Self::from_bytes(uuid.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sale: i64, buyer: &str, key: &str) -> OrderId {
        OrderId::of(
            SaleId::new(sale).unwrap(),
            &BuyerId::parse(buyer).unwrap(),
            &IdempotencyKey::parse(key).unwrap(),
        )
    }

    #[test]
    fn order_ids_never_change_between_releases() {
        // Test vectors: instances of different releases must name the same order and home.
        let vectors = [
            (
                order(1, "alice", "k-1"),
                "00000001-6dda-8221-9e5f-d7f82a46b46a",
                27,
            ),
            (
                order(1, "alice", "k-2"),
                "00000001-6dda-8221-9e5f-d42682306283",
                27,
            ),
            (
                order(4_294_967_295, "買家-7", "\"quoted\""),
                "ffffffff-58c6-84c2-943f-64ff93404b6a",
                22,
            ),
        ];
        for (id, expected, home) in vectors {
            assert_eq!(id.to_string(), expected);
            assert_eq!(id.home(64), home, "home of {id}");
        }
    }

    #[test]
    fn an_order_id_names_its_sale_and_home_and_survives_text_and_bytes() {
        let id = order(77, "bob", "a");
        assert_eq!(id.sale().get(), 77);
        assert_eq!(id.to_string().parse::<OrderId>(), Ok(id));
        assert_eq!(OrderId::from_bytes(id.as_bytes()), Ok(id));
        for segments in 1..=256 {
            assert!(id.home(segments) < segments, "home in {segments} segments");
        }
        assert_eq!(id.home(16), order(77, "bob", "another-key").home(16));
    }

    #[test]
    fn an_order_id_recognises_its_owner_and_nobody_else() {
        let id = order(3, "carol", "k");
        assert!(id.may_belong_to(&BuyerId::parse("carol").unwrap()));
        for n in 0..1_000 {
            let stranger = BuyerId::parse(&format!("stranger-{n}")).unwrap();
            assert!(
                !id.may_belong_to(&stranger),
                "{stranger} taken for the owner"
            );
        }
    }

    #[test]
    fn homes_are_spread_evenly() {
        let mut buyers = [0_u32; 8];
        for n in 0..8_000 {
            buyers[order(9, &format!("buyer-{n}"), "k").home(8) as usize] += 1;
        }
        // 1,000 expected each, standard deviation 30: five of them either way.
        assert!(
            buyers.iter().all(|n| (850..1_150).contains(n)),
            "{buyers:?}"
        );
    }

    #[test]
    fn foreign_uuids_are_not_order_ids() {
        for text in [
            "00000000-0000-0000-0000-000000000000",
            "00000001-0000-4000-8000-000000000000", // version 4
            "00000000-0000-8000-8000-000000000000", // sale 0
            "not-a-uuid",
        ] {
            assert!(text.parse::<OrderId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_is_the_same_bare_and_quoted() {
        assert_eq!(
            IdempotencyKey::parse("abc"),
            IdempotencyKey::parse("\"abc\"")
        );
        let escaped = IdempotencyKey::parse(r#""a\"b\\c""#).unwrap();
        assert_eq!(&*escaped.0, r#"a"b\c"#);
    }

    #[test]
    fn bad_keys_are_refused() {
        let long = "x".repeat(256);
        let controls = "a\u{7f}";
        for key in [
            "", "\"\"", "\"", "\"open", "\"a\"b\"", "a b", "é", controls, &long, r#""a\x""#,
        ] {
            assert!(IdempotencyKey::parse(key).is_err(), "{key:?}");
        }
        assert!(IdempotencyKey::parse(&"x".repeat(255)).is_ok());
    }

    #[test]
    fn bad_buyers_and_sales_are_refused() {
        for buyer in ["", "a\0b", "a\nb", &"x".repeat(129)] {
            assert!(BuyerId::parse(buyer).is_err(), "{buyer:?}");
        }
        for sale in ["", "0", "-1", "+1", "01", "1.0", "4294967296", "x"] {
            assert!(sale.parse::<SaleId>().is_err(), "{sale:?}");
        }
        assert_eq!(
            "4294967295".parse::<SaleId>().map(SaleId::get),
            Ok(u32::MAX)
        );
    }
}
