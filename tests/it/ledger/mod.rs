//! The ledger's contract on every database.
//!
//! The cases themselves are in `stockade::ledger::conformance`. Each database runs all of them at
//! once, in one database, as a service under load would. One case alone:
//! `CASE=guard:: cargo test --test it keeps_the_contract`.

mod faults;
mod migrations;

use std::time::Duration;

use loadtest::servers::PostgresServer;
use sqlx::{Connection, SqliteConnection};
use stockade::domain::BuyerId;
use stockade::ledger::conformance::{self, guard};
use stockade::ledger::{Ledger, Limits};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

const LIMITS: Limits = Limits {
    connections_max: 16,
    connect_timeout: Duration::from_secs(30),
    statement_timeout: Duration::from_secs(20),
};

async fn connect(url: &str) -> Ledger {
    Ledger::connect(url, LIMITS).await.unwrap()
}

fn sqlite_url(directory: &TempDir) -> String {
    format!("sqlite://{}", directory.path().join("ledger.db").display())
}

/// A new database of the server that all tests share.
async fn postgres_url(name: &str) -> String {
    let server = PostgresServer::shared().await.unwrap();
    server.create_database(name).await.unwrap()
}

/// Runs SQL that the ledger itself would never run.
async fn sqlite_execute(url: &str, sql: &'static str) {
    let mut connection = SqliteConnection::connect(url).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn postgres_execute(database: &str, sql: &str) {
    let server = PostgresServer::shared().await.unwrap();
    server.psql(database, sql).await.unwrap();
}

/// Runs all cases beside each other, twice at once and by connections of their own, as two
/// instances of the service would; names the cases that failed.
async fn assert_conforms(url: &str) {
    let only = std::env::var("CASE").unwrap_or_default();
    let instances = [connect(url).await, connect(url).await];
    instances[0].migrate().await.unwrap();
    let mut running = Vec::new();
    for ledger in &instances {
        for case in conformance::cases() {
            if case.name.contains(&only) {
                let (runtime, ledger) = (Handle::current(), ledger.clone());
                let thread = spawn_blocking(move || runtime.block_on((case.run)(&ledger)));
                running.push((case.name, thread));
            }
        }
    }
    let mut failed = Vec::new();
    for (name, case) in running {
        if case.await.is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "the contract is broken in {failed:#?}");
    for ledger in &instances {
        ledger.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    assert_conforms(&sqlite_url(&directory)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_the_contract() {
    assert_conforms(&postgres_url("contract").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_sqlite_refuses_is_alone_in_that() {
    let directory = tempfile::tempdir().unwrap();
    let url = sqlite_url(&directory);
    let ledger = connect(&url).await;
    ledger.migrate().await.unwrap();
    let trigger = "create trigger poison before insert on purchase_order
                     when new.buyer_id = 'poisoned' begin select raise(abort, 'poisoned'); end";
    sqlite_execute(&url, trigger).await;
    let poisoned = BuyerId::parse("poisoned").unwrap();
    guard::a_purchase_that_the_database_refuses_commits_nothing(&ledger, &poisoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_postgres_refuses_is_alone_in_that() {
    let ledger = connect(&postgres_url("poison").await).await;
    ledger.migrate().await.unwrap();
    let trigger = "create function poison() returns trigger language plpgsql as
                     $$ begin raise exception 'poisoned'; end $$;
                   create trigger poison before insert on purchase_order for each row
                     when (new.buyer_id = 'poisoned') execute function poison()";
    postgres_execute("poison", trigger).await;
    let poisoned = BuyerId::parse("poisoned").unwrap();
    guard::a_purchase_that_the_database_refuses_commits_nothing(&ledger, &poisoned).await;
}
