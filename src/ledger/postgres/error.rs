//! Which SQLSTATE means what to a caller.

use crate::ledger::Error;
use crate::ledger::error::MIGRATE_FIRST;

/// Sorts an error that came before a COMMIT was sent: nothing has changed.
pub(super) fn sort(error: sqlx::Error) -> Error {
    let Some(code) = sqlstate(&error) else {
        return Error::outside_database(error);
    };
    match (&code[..2], code.as_str()) {
        // A value, a constraint, or a trigger that raises: the same the next time.
        ("22" | "23" | "44" | "P0", _) => Error::Permanent(error),
        // No such table, column or function.
        (_, "42P01" | "42703" | "42883") => Error::Unusable(MIGRATE_FIRST.into()),
        // No such user, wrong password, no such database, no privilege.
        ("28" | "3D", _) | (_, "42501") => Error::Unusable(error.to_string()),
        // Deadlock, timeout, too many connections, shutdown, standby, disk full: may pass. So may
        // whatever is not listed, since to call it permanent would cost a buyer the order.
        _ => Error::Transient(error),
    }
}

/// Sorts the error of a first connection: what no repetition mends is in the URL or in the server.
pub(super) fn sort_connect(error: sqlx::Error) -> Error {
    match sort(error) {
        Error::Permanent(error) => Error::Unusable(error.to_string()),
        other => other,
    }
}

/// Sorts the error of a COMMIT.
pub(super) fn sort_commit(error: sqlx::Error) -> Error {
    match sqlstate(&error) {
        // The server says that it has rolled back.
        Some(code) if matches!(&code[..2], "22" | "23" | "40" | "44" | "P0") => sort(error),
        _ => Error::Unknown(error),
    }
}

/// The five characters, if the server has sent any.
fn sqlstate(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error()?.code()?;
    (code.len() == 5 && code.is_ascii()).then(|| code.into_owned())
}
