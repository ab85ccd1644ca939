//! The ledger in a file of this machine.
//!
//! SQLite lets one transaction write at a time. Each takes the right to write when it begins (BEGIN
//! IMMEDIATE), so it may read, decide, and write without anybody between. One connection writes;
//! others read beside it from the snapshot that the write-ahead log gives them. Several processes
//! may share the file; they wait for each other inside SQLite, at most the statement timeout.
//!
//! A commit is on disk before it is answered (`synchronous = full`).

mod change;
mod commit;
mod ending;
mod error;
mod json;
mod load;
mod order;
mod sale;
mod stock_change;

use std::str::FromStr;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::error::MIGRATE_FIRST;
use super::{Error, Limits};

static MIGRATOR: Migrator = sqlx::migrate!("./migrations/sqlite");

/// Readers gain nothing from more connections than this: they compete for two cores and one file.
const READERS_MAX: u32 = 4;
/// Pages of the log before they are folded into the file. SQLite's own 1,000 are one group of
/// orders: nearly every commit would write each page twice and wait for the disk three times.
/// Measured with groups of 500: 14,000 orders a second with 1,000 pages, 25,000 with these 32 MB.
const CHECKPOINT_PAGES: &str = "8000";
/// Memory of the writing connection for pages, in KiB if negative, as SQLite wants it. Order ids are
/// hashes: an insert goes to any page of the indexes.
const WRITER_CACHE: &str = "-65536";
/// How often a new file is asked to keep a write-ahead log, while other processes ask for the same.
const OPEN_ATTEMPTS: u32 = 50;
/// Pause between two such attempts.
const OPEN_PAUSE: Duration = Duration::from_millis(20);

type Tx = sqlx::Transaction<'static, sqlx::Sqlite>;

/// The connection that writes and those that read.
#[derive(Debug, Clone)]
pub struct Sqlite {
    writer: SqlitePool,
    readers: SqlitePool,
}

impl Sqlite {
    pub(super) async fn connect(url: &str, limits: Limits) -> Result<Self, Error> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|error| Error::Unusable(format!("the database URL is malformed: {error}")))?
            .create_if_missing(true)
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(limits.statement_timeout);
        if url.contains(":memory:") || url.contains("mode=memory") {
            let why = "the ledger must be in a file, as sqlite:///path/to/file.db";
            return Err(Error::Unusable(why.into()));
        }
        let pool = SqlitePoolOptions::new()
            .acquire_timeout(limits.connect_timeout)
            .test_before_acquire(false);
        let writing = options
            .clone()
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            .pragma("cache_size", WRITER_CACHE);
        let writer = open(pool.clone().max_connections(1), writing).await?;
        let readers = pool
            .max_connections(limits.connections_max.clamp(1, READERS_MAX))
            .connect_lazy_with(options.pragma("query_only", "on"));
        Ok(Self { writer, readers })
    }

    pub(super) async fn migrate(&self) -> Result<(), Error> {
        // The migrator takes no lock on SQLite: two of them would both find a table missing and
        // both create it. Inside one exclusive transaction, which it then divides by savepoints,
        // each process finds the schema of the one before it.
        let mut tx = self
            .writer
            .begin_with("begin exclusive")
            .await
            .map_err(error::sort)?;
        MIGRATOR
            .run_direct(None, &mut *tx, false)
            .await
            .map_err(|error| Error::of_migration(error, error::sort))?;
        commit(tx).await
    }

    pub(super) async fn ping(&self) -> Result<(), Error> {
        let newest = MIGRATOR.iter().map(|migration| migration.version).max();
        let applied: Option<i64> =
            sqlx::query_scalar("select max(version) from _sqlx_migrations where success")
                .fetch_one(&self.readers)
                .await
                .map_err(error::sort)?;
        if applied < newest {
            Err(Error::Unusable(MIGRATE_FIRST.into()))
        } else {
            Ok(())
        }
    }

    pub(super) async fn close(&self) {
        self.readers.close().await;
        // Last: the last connection to close folds the log into the file, which a reader cannot.
        self.writer.close().await;
    }

    async fn begin(&self) -> Result<Tx, Error> {
        self.writer
            .begin_with("begin immediate")
            .await
            .map_err(error::sort)
    }
}

/// Opens the file, once more and again while another process is opening it for the first time: to
/// change a file to a write-ahead log takes a lock for which SQLite does not wait.
async fn open(pool: SqlitePoolOptions, options: SqliteConnectOptions) -> Result<SqlitePool, Error> {
    let mut attempt = 1;
    loop {
        match pool
            .clone()
            .connect_with(options.clone())
            .await
            .map_err(error::sort)
        {
            Err(Error::Transient(sqlx::Error::Database(_))) if attempt < OPEN_ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(OPEN_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Commits; only from here on an outcome can be unknown.
async fn commit(tx: Tx) -> Result<(), Error> {
    tx.commit().await.map_err(error::sort_commit)
}
