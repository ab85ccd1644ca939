//! Reading the journal: what was admitted and may not be in the ledger yet.

use redis::FromRedisValue;
use redis::aio::ConnectionLike;

use super::redis::send;
use super::{Error, SegmentKeys};
use crate::domain::{BuyerId, OrderId, Purchase};

/// Entries that one read returns at the most; each holds at most one batch of purchases.
pub const READ_MAX: usize = 16;

/// One call of the purchase script that admitted something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id in the stream; begins with Redis' time in milliseconds.
    pub id: String,
    /// What was admitted.
    pub purchases: Vec<Purchase>,
}

impl Entry {
    /// Units in it.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.purchases
            .iter()
            .map(|purchase| u64::from(purchase.quantity))
            .sum()
    }

    /// When it was written, by Redis' clock in milliseconds.
    #[must_use]
    pub fn written_ms(&self) -> i64 {
        let millis = self
            .id
            .split_once('-')
            .map_or(self.id.as_str(), |(millis, _)| millis);
        millis.parse().unwrap_or(0)
    }
}

/// Reads entries after the id `after`, oldest first, at most [`READ_MAX`].
///
/// # Errors
/// See [`Error`]; [`Error::Broken`] for an entry that `purchase.lua` cannot have written.
pub async fn read<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    after: Option<&str>,
) -> Result<Vec<Entry>, Error> {
    let from = after.map_or_else(|| "-".to_owned(), |id| format!("({id}"));
    let mut call = redis::cmd("XRANGE");
    call.arg(&keys.journal)
        .arg(from)
        .arg("+")
        .arg("COUNT")
        .arg(READ_MAX);
    let value = send(connection, &call).await?;
    let broken = |error: redis::ParsingError| Error::Broken(error.to_string());
    let entries = Vec::<(String, Vec<Vec<u8>>)>::from_redis_value(value).map_err(broken)?;
    entries
        .into_iter()
        .map(|(id, fields)| entry(id, &fields))
        .collect()
}

fn entry(id: String, fields: &[Vec<u8>]) -> Result<Entry, Error> {
    let purchases = fields.chunks(2).map(|pair| match pair {
        [field, value] => purchase(field, value),
        _ => None,
    });
    match purchases.collect::<Option<Vec<_>>>() {
        Some(purchases) => Ok(Entry { id, purchases }),
        None => Err(Error::Broken(format!(
            "journal entry {id} is not one of purchase.lua"
        ))),
    }
}

/// One field and value of an entry: the order's id, and `quantity:buyer`.
fn purchase(field: &[u8], value: &[u8]) -> Option<Purchase> {
    let order = OrderId::from_bytes(field).ok()?;
    let (quantity, buyer) = std::str::from_utf8(value).ok()?.split_once(':')?;
    Some(Purchase {
        order,
        buyer: BuyerId::parse(buyer).ok()?,
        quantity: quantity.parse().ok().filter(|quantity| *quantity > 0)?,
    })
}
