//! Which result code of SQLite means what to a caller.

use crate::ledger::Error;
use crate::ledger::error::MIGRATE_FIRST;

// Primary result codes; the extended ones have them in their lowest byte.
const ERROR: u32 = 1;
const PERM: u32 = 3;
const READONLY: u32 = 8;
const CORRUPT: u32 = 11;
const CANTOPEN: u32 = 14;
const TOOBIG: u32 = 18;
const CONSTRAINT: u32 = 19;
const MISMATCH: u32 = 20;
const NOTADB: u32 = 26;
const BUSY: u32 = 5;

/// Sorts an error that came before a COMMIT was sent: nothing has changed.
pub(super) fn sort(error: sqlx::Error) -> Error {
    let Some(code) = primary(&error) else {
        return Error::outside_database(error);
    };
    match code {
        // A value, a constraint, or a trigger that raises: the same the next time.
        TOOBIG | CONSTRAINT | MISMATCH => Error::Permanent(error),
        ERROR if error.to_string().contains("no such") => Error::Unusable(MIGRATE_FIRST.into()),
        PERM | READONLY | CANTOPEN | NOTADB => Error::Unusable(error.to_string()),
        CORRUPT => Error::Corrupt(error.to_string()),
        // Busy, locked, disk full, out of memory: may pass. So may whatever is not listed, since to
        // call it permanent would cost a buyer the order.
        _ => Error::Transient(error),
    }
}

/// Sorts the error of a COMMIT. One that SQLite refuses to begin has changed nothing; after a write
/// that failed half-way, the log may or may not hold the whole transaction.
pub(super) fn sort_commit(error: sqlx::Error) -> Error {
    match primary(&error) {
        Some(BUSY | CONSTRAINT) => sort(error),
        _ => Error::Unknown(error),
    }
}

fn primary(error: &sqlx::Error) -> Option<u32> {
    let code: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
