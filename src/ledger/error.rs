//! What a ledger could not do, told apart by what the caller may do next.

/// What a ledger could not do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was changed, and the same call may succeed later: no connection, deadlock, timeout
    /// before the commit.
    #[error("the ledger did not answer: {0}")]
    Transient(sqlx::Error),
    /// The commit was sent and its answer was lost: the change may have happened. Calls are
    /// idempotent unless they say otherwise: repeat them.
    #[error("the ledger's answer to a commit was lost: {0}")]
    Unknown(sqlx::Error),
    /// The database refuses this change however often it is tried.
    #[error("the ledger refuses: {0}")]
    Permanent(sqlx::Error),
    /// What is stored contradicts itself or its type: the wrong database, an old backup, or a
    /// schema changed by hand. Nothing was changed; stop and look.
    #[error("the ledger is corrupt: {0}")]
    Corrupt(String),
    /// The URL, the server or the schema cannot be used at all; someone must mend that first.
    #[error("{0}")]
    Unusable(String),
}

/// The sentence for a schema that is not there or not complete.
pub(super) const MIGRATE_FIRST: &str =
    "the database does not have the schema of this release: run `stockade migrate`";

impl Error {
    /// Sorts what went wrong before a commit was sent, and everything that no database has said:
    /// the connection, the pool, or a value that does not decode.
    pub(super) fn outside_database(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        match error {
            E::ColumnDecode { .. }
            | E::ColumnNotFound(_)
            | E::ColumnIndexOutOfBounds { .. }
            | E::Decode(_)
            | E::TypeNotFound { .. } => Self::Corrupt(error.to_string()),
            E::Encode(_) | E::InvalidArgument(_) => Self::Permanent(error),
            E::Configuration(_) | E::Tls(_) => Self::Unusable(error.to_string()),
            _ => Self::Transient(error),
        }
    }

    /// The error of a migration; `sort` is the database's own way to sort errors.
    pub(super) fn of_migration(
        error: sqlx::migrate::MigrateError,
        sort: fn(sqlx::Error) -> Self,
    ) -> Self {
        use sqlx::migrate::MigrateError as M;
        match error {
            M::Execute(error) | M::ExecuteMigration(error, _) => sort(error),
            M::VersionMissing(version) => Self::Unusable(format!(
                "the schema is of a newer release: it has migration {version}, unknown to this one"
            )),
            other => Self::Unusable(other.to_string()),
        }
    }

    pub(super) fn no_such_sale(sale: crate::domain::SaleId) -> Self {
        Self::Corrupt(format!(
            "there is no sale {sale}, yet there are purchases of it"
        ))
    }
}

impl From<crate::domain::Invalid> for Error {
    fn from(invalid: crate::domain::Invalid) -> Self {
        Self::Corrupt(invalid.to_string())
    }
}
