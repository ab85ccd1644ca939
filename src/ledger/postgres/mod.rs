//! The ledger in a PostgreSQL server.
//!
//! Every transaction runs at READ COMMITTED. What must not change under it is locked by it, in the
//! order that migrations/postgres states; a higher isolation level would add nothing but retries.
//!
//! Every write is in an explicit transaction, single statements too. Then an error before the
//! COMMIT is known to have changed nothing, and only an error of the COMMIT itself leaves the
//! outcome open. A dropped future rolls back: the connection does that before it is used again.

mod change;
mod commit;
mod ending;
mod error;
mod load;
mod order;
mod sale;
mod stock_change;

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{Connection, PgPool};

use super::error::MIGRATE_FIRST;
use super::{Error, Limits};

static MIGRATOR: Migrator = sqlx::migrate!("./migrations/postgres");

/// How long a migration may take, the wait for another process that migrates included.
const MIGRATE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long one statement of a load or an audit may take: they read all orders of a sale.
const READ_ALL_TIMEOUT: &str = "set local statement_timeout = '300s'";
/// A connection idle for longer is asked whether it still lives before it is used: a server that
/// was restarted meanwhile would cost the next caller an error.
const IDLE_UNCHECKED: Duration = Duration::from_secs(1);

type Tx = sqlx::Transaction<'static, sqlx::Postgres>;

/// A pool of connections to the server.
#[derive(Debug, Clone)]
pub struct Postgres {
    pool: PgPool,
}

impl Postgres {
    pub(super) async fn connect(url: &str, limits: Limits) -> Result<Self, Error> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| Error::Unusable(format!("the database URL is malformed: {error}")))?
            .application_name("stockade")
            .options(session(limits.statement_timeout));
        let pool = PgPoolOptions::new()
            .max_connections(limits.connections_max.max(1))
            .acquire_timeout(limits.connect_timeout)
            // Asking every connection before every use would be a round trip per transaction.
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > IDLE_UNCHECKED {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_with(options)
            .await
            .map_err(error::sort_connect)?;
        Ok(Self { pool })
    }

    pub(super) async fn migrate(&self) -> Result<(), Error> {
        // Apart from the pool, whose statement timeout is meant for purchases. The migrator takes
        // an advisory lock, so that of several processes one migrates and the others find it done.
        // The later of two values for one setting counts.
        let options = self.pool.connect_options().as_ref().clone();
        let options = options.options(session(MIGRATE_TIMEOUT));
        let mut connection = PgConnection::connect_with(&options)
            .await
            .map_err(error::sort)?;
        let done = MIGRATOR.run_direct(None, &mut connection, false).await;
        // Not only dropped: the lock lives as long as the connection does on the server.
        let closed = connection.close().await;
        done.map_err(|error| Error::of_migration(error, error::sort))?;
        closed.map_err(error::sort)
    }

    pub(super) async fn ping(&self) -> Result<(), Error> {
        let newest = MIGRATOR.iter().map(|migration| migration.version).max();
        let applied: Option<i64> =
            sqlx::query_scalar("select max(version) from _sqlx_migrations where success")
                .fetch_one(&self.pool)
                .await
                .map_err(error::sort)?;
        if applied < newest {
            Err(Error::Unusable(MIGRATE_FIRST.into()))
        } else {
            Ok(())
        }
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    async fn begin(&self) -> Result<Tx, Error> {
        self.pool.begin().await.map_err(error::sort)
    }

    /// A transaction that may take its time, since the statement timeout is meant for purchases.
    async fn begin_reading_all(&self) -> Result<Tx, Error> {
        let mut tx = self.begin().await?;
        sqlx::query(READ_ALL_TIMEOUT)
            .execute(&mut *tx)
            .await
            .map_err(error::sort)?;
        Ok(tx)
    }
}

/// What every session is told when it connects.
fn session(statement_timeout: Duration) -> [(&'static str, String); 5] {
    let statement_ms = statement_timeout.as_millis().max(1);
    [
        ("statement_timeout", statement_ms.to_string()),
        // An instance that stops between two statements must not keep the sale's row locked.
        (
            "idle_in_transaction_session_timeout",
            (2 * statement_ms).to_string(),
        ),
        // What "committed" means here, whatever the server's default is.
        ("synchronous_commit", "on".into()),
        ("default_transaction_isolation", "read committed".into()),
        // Compiling a plan takes longer than any of these statements.
        ("jit", "off".into()),
    ]
}

/// Commits; only from here on an outcome can be unknown.
async fn commit(tx: Tx) -> Result<(), Error> {
    tx.commit().await.map_err(error::sort_commit)
}
