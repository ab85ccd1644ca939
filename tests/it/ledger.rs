//! The ledger's contract on every database, and its migrations.
//!
//! The cases themselves are in `stockade::ledger::conformance`. Each database runs all of them at
//! once, in one database, as a service under load would.

use std::time::Duration;

use loadtest::servers::PostgresServer;
use stockade::ledger::{Ledger, Limits, conformance};
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

async fn postgres_url(name: &str) -> String {
    PostgresServer::shared()
        .await
        .unwrap()
        .create_database(name)
        .await
        .unwrap()
}

/// Runs all cases beside each other and names those that failed.
async fn assert_conforms(ledger: &Ledger) {
    let only = std::env::var("CASE").unwrap_or_default();
    let cases = conformance::cases()
        .into_iter()
        .filter(|case| case.name.contains(&only));
    let running: Vec<_> = cases
        .map(|case| {
            let (runtime, ledger) = (Handle::current(), ledger.clone());
            let thread = spawn_blocking(move || runtime.block_on((case.run)(&ledger)));
            (case.name, thread)
        })
        .collect();
    let mut failed = Vec::new();
    for (name, case) in running {
        if case.await.is_err() {
            failed.push(name);
        }
    }
    assert!(
        failed.is_empty(),
        "{} breaks the contract in {failed:#?}",
        ledger.name()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = connect(&sqlite_url(&directory)).await;
    ledger.migrate().await.unwrap();
    assert_conforms(&ledger).await;
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_the_contract() {
    let ledger = connect(&postgres_url("contract").await).await;
    ledger.migrate().await.unwrap();
    assert_conforms(&ledger).await;
    ledger.close().await;
}
