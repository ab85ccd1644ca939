//! Reading the marks that the purchase script left for orders.

use redis::FromRedisValue;
use redis::aio::ConnectionLike;

use super::redis::send;
use super::{Error, SegmentKeys};
use crate::domain::OrderId;

/// What the segment knows of one order id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Admitted, with these units.
    Admitted(u32),
    /// Its units have come back.
    Ended(u32),
    /// Refused for good under its key.
    Void,
}

/// Reads the marks of orders, in their order; none: this load never decided it.
///
/// # Errors
/// See [`Error`].
pub async fn marks<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    orders: &[OrderId],
) -> Result<Vec<Option<Mark>>, Error> {
    let mut call = redis::cmd("HMGET");
    call.arg(&keys.requests);
    for order in orders {
        call.arg(order.as_bytes().as_slice());
    }
    let value = send(connection, &call).await?;
    let texts = Vec::<Option<String>>::from_redis_value(value);
    let texts = texts.map_err(|error| Error::Broken(error.to_string()))?;
    let mark = |text: String| parse(&text).ok_or_else(|| Error::Broken(format!("mark {text:?}")));
    texts
        .into_iter()
        .map(|text| text.map(mark).transpose())
        .collect()
}

fn parse(mark: &str) -> Option<Mark> {
    match (mark, mark.strip_suffix('r')) {
        ("v", _) => Some(Mark::Void),
        (_, Some(units)) => units.parse().ok().map(Mark::Ended),
        (units, None) => units.parse().ok().map(Mark::Admitted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_the_scripts_write_them() {
        assert_eq!(parse("3"), Some(Mark::Admitted(3)));
        assert_eq!(parse("3r"), Some(Mark::Ended(3)));
        assert_eq!(parse("v"), Some(Mark::Void));
        for broken in ["", "r", "x", "-1", "3x"] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }
}
