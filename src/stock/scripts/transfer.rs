//! Transfers: units that one segment lends and another one receives.
//!
//! Three steps, each of which may be repeated by anyone and may come late: both sides remember the
//! transfer's id and units for the whole epoch. Between the first and the third step the donor carries a
//! note, so whoever meets an open transfer can finish it.

use std::collections::HashMap;
use std::fmt;

use redis::FromRedisValue;
use redis::aio::ConnectionLike;

use super::{LEND, Presence, RECEIVE, TRANSFER_SETTLE, run, send};
use crate::stock::{Error, SegmentKeys};

/// Begins the field of `meta` that notes an open transfer.
const NOTE: &str = "lent:";

/// The name of one transfer: random, so that no two are ever the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TransferId(String);

impl TransferId {
    /// A name that nobody has used.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A transfer that has been lent and is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTransfer {
    /// Its name.
    pub id: TransferId,
    /// The segment that borrows.
    pub borrower: u32,
    /// Units.
    pub units: u64,
}

/// First step, on the donor: see `lend.lua`. Returns the units lent, at most `wanted`.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn lend<C: ConnectionLike>(
    connection: &mut C,
    donor: &SegmentKeys,
    id: &TransferId,
    borrower: u32,
    wanted: u64,
) -> Result<Result<u64, Presence>, Error> {
    let keys = [donor.meta.as_str(), &donor.transfers];
    let (status, units): (i64, u64) = run(connection, &LEND, &keys, |call| {
        call.arg(&id.0).arg(borrower).arg(wanted);
    })
    .await?;
    Ok(match Presence::of(status)? {
        Presence::Loaded => Ok(units),
        elsewhere => Err(elsewhere),
    })
}

/// Second step, on the borrower, with the units that [`lend`] answered: see `receive.lua`.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn receive<C: ConnectionLike>(
    connection: &mut C,
    borrower: &SegmentKeys,
    id: &TransferId,
    units: u64,
) -> Result<Presence, Error> {
    let keys = [borrower.meta.as_str(), &borrower.transfers];
    let status: i64 = run(connection, &RECEIVE, &keys, |call| {
        call.arg(&id.0).arg(units);
    })
    .await?;
    Presence::of(status)
}

/// Third step, on the donor, after [`receive`] has answered [`Presence::Loaded`]: see
/// `transfer_settle.lua`.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn settle_transfer<C: ConnectionLike>(
    connection: &mut C,
    donor: &SegmentKeys,
    id: &TransferId,
) -> Result<(), Error> {
    let _: i64 = run(connection, &TRANSFER_SETTLE, &[&donor.meta], |call| {
        call.arg(&id.0);
    })
    .await?;
    Ok(())
}

/// The transfers that this donor has lent and that are not settled.
///
/// # Errors
/// See [`Error`]; [`Error::Broken`] for a note that `lend.lua` cannot have written.
pub async fn open_transfers<C: ConnectionLike>(
    connection: &mut C,
    donor: &SegmentKeys,
) -> Result<Vec<OpenTransfer>, Error> {
    let mut call = redis::cmd("HGETALL");
    call.arg(&donor.meta);
    let value = send(connection, &call).await?;
    let fields = HashMap::<String, String>::from_redis_value(value)
        .map_err(|error| Error::Broken(error.to_string()))?;
    let notes = fields
        .iter()
        .filter_map(|(field, value)| Some((field.strip_prefix(NOTE)?, value)));
    notes
        .map(|(id, note)| {
            open(id, note)
                .ok_or_else(|| Error::Broken(format!("transfer {id} is noted as {note:?}")))
        })
        .collect()
}

fn open(id: &str, note: &str) -> Option<OpenTransfer> {
    let (borrower, units) = note.split_once(':')?;
    Some(OpenTransfer {
        id: TransferId(id.to_owned()),
        borrower: borrower.parse().ok()?,
        units: units.parse().ok()?,
    })
}

/// Whether the units of a transfer have arrived at this borrower.
///
/// # Errors
/// See [`Error`].
pub async fn received<C: ConnectionLike>(
    connection: &mut C,
    borrower: &SegmentKeys,
    id: &TransferId,
) -> Result<bool, Error> {
    let mut call = redis::cmd("HEXISTS");
    call.arg(&borrower.transfers).arg(&id.0);
    let value = send(connection, &call).await?;
    bool::from_redis_value(value).map_err(|error| Error::Broken(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_the_script_writes_them() {
        let transfer = open("ab", "17:3").unwrap();
        assert_eq!((transfer.borrower, transfer.units), (17, 3));
        for broken in ["", "17", "17:", ":3", "-1:3", "1:2:3"] {
            assert_eq!(open("ab", broken), None, "{broken:?}");
        }
    }
}
