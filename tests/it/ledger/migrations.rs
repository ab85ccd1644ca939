//! Migrations: repeatable, from many processes at once, and refused to an older release.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row, SqliteConnection};
use stockade::ledger::{Error, Ledger};
use tokio::task::JoinSet;

use super::{LIMITS, connect, postgres_execute, postgres_url, sqlite_execute, sqlite_url};

/// What a newer release leaves behind.
const NEWER: &str = "insert into _sqlx_migrations
           (version, description, success, checksum, execution_time)
    values (9999, 'of a newer release', true, 'x', 0)";

/// Before, once, twice, and from eight connections of their own at once.
async fn assert_migrates(url: &str, unmigrated: &str) {
    let ledger = connect(unmigrated).await;
    let before = ledger.ping().await;
    assert!(matches!(before, Err(Error::Unusable(_))), "{before:?}");
    ledger.migrate().await.unwrap();
    ledger.ping().await.unwrap();
    ledger.migrate().await.unwrap();
    ledger.close().await;

    let mut processes = JoinSet::new();
    for _ in 0..8 {
        let url = url.to_owned();
        processes.spawn(async move {
            let ledger = Ledger::connect(&url, LIMITS).await?;
            ledger.migrate().await?;
            ledger.ping().await?;
            ledger.close().await;
            Ok::<_, Error>(())
        });
    }
    for process in processes.join_all().await {
        process.expect("one of eight that migrate at once");
    }
}

async fn assert_refuses_a_newer_schema(ledger: &Ledger) {
    let refused = ledger.migrate().await;
    let Err(Error::Unusable(why)) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains("newer release"), "{why}");
    ledger
        .ping()
        .await
        .expect("an older instance goes on while a newer one has migrated");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_migrates_twice_and_from_eight_processes_at_once() {
    let (shared, alone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert_migrates(&sqlite_url(&shared), &sqlite_url(&alone)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_migrates_twice_and_from_eight_processes_at_once() {
    let (shared, alone) = (
        postgres_url("migrate8").await,
        postgres_url("migrate1").await,
    );
    assert_migrates(&shared, &alone).await;
}

#[tokio::test]
async fn sqlite_refuses_a_schema_of_a_newer_release() {
    let directory = tempfile::tempdir().unwrap();
    let url = sqlite_url(&directory);
    let ledger = connect(&url).await;
    ledger.migrate().await.unwrap();
    sqlite_execute(&url, NEWER).await;
    assert_refuses_a_newer_schema(&ledger).await;
}

#[tokio::test]
async fn postgres_refuses_a_schema_of_a_newer_release() {
    let ledger = connect(&postgres_url("newer").await).await;
    ledger.migrate().await.unwrap();
    postgres_execute("newer", NEWER).await;
    assert_refuses_a_newer_schema(&ledger).await;
}

/// A sale as the first release has left it, loaded with four segments.
const OF_0001: &str = "insert into sale (product, title, price_minor, currency, quantity, segments,
           per_buyer_limit, hold_seconds, strategy, stage, epoch, loaded_epoch, created_at_ms)
    values ('sku-1', 'A phone', 9900, 'CNY', 5, 4, 1, 0, 'segmented', 'loaded', 1, 1, 0)";

/// What a release that does not know `loaded_segments` does at the end of a load that was asked for
/// eight segments.
const FINISHED_BY_0001: &str = "update sale set segments = 8, epoch = 2, loaded_epoch = 2";

/// What stops that.
const CONSTRAINT: &str = "sale_loaded_segments_when_finished";

/// A sale that sells during the migration can be loaded after it, and by no older release in a way
/// that a later load would get wrong.
async fn assert_knows_the_segments_of_loaded_sales(ledger: &Ledger) {
    ledger.migrate().await.unwrap();
    let sale = ledger.sales(None, 9).await.unwrap().remove(0);
    assert_eq!((sale.terms.segments, sale.loaded_segments), (4, 4));
    let lease = Duration::from_secs(60);
    assert!(ledger.fence(sale.id, 1, lease).await.unwrap());
    assert!(ledger.finish_load(sale.id, 2).await.unwrap());
}

#[tokio::test]
async fn sqlite_knows_the_segments_of_sales_loaded_before() {
    let directory = tempfile::tempdir().unwrap();
    let url = sqlite_url(&directory);
    let ledger = connect(&url).await;
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let all = sqlx::migrate!("./migrations/sqlite");
    all.run_to(1, &mut connection).await.unwrap();
    sqlx::raw_sql(OF_0001)
        .execute(&mut connection)
        .await
        .unwrap();
    assert_knows_the_segments_of_loaded_sales(&ledger).await;
    let refused = sqlx::raw_sql(FINISHED_BY_0001)
        .execute(&mut connection)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains(CONSTRAINT), "{refused}");
}

#[tokio::test]
async fn postgres_knows_the_segments_of_sales_loaded_before() {
    let url = postgres_url("loaded_before").await;
    let ledger = connect(&url).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let all = sqlx::migrate!("./migrations/postgres");
    all.run_to(1, &mut connection).await.unwrap();
    sqlx::raw_sql(OF_0001)
        .execute(&mut connection)
        .await
        .unwrap();
    assert_knows_the_segments_of_loaded_sales(&ledger).await;
    let refused = sqlx::raw_sql(FINISHED_BY_0001)
        .execute(&mut connection)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains(CONSTRAINT), "{refused}");
}

/// The schema after all migrations, for review. `INSTA_UPDATE=always cargo test` renews it.
#[tokio::test]
async fn the_schema_of_sqlite_is_the_one_reviewed() {
    let directory = tempfile::tempdir().unwrap();
    let url = sqlite_url(&directory);
    connect(&url).await.migrate().await.unwrap();
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let statements = sqlx::query(
        "select sql from sqlite_schema
          where sql is not null and name not like '\\_sqlx%' escape '\\'
            and name not like 'sqlite\\_%' escape '\\' order by tbl_name, type desc, name",
    );
    let rows = statements.fetch_all(&mut connection).await.unwrap();
    // SQLite keeps the text of each statement, comments included.
    let lines = rows.iter().flat_map(|row| {
        let sql: String = row.get(0);
        let lines: Vec<_> = sql.lines().map(str::to_owned).collect();
        lines
    });
    let schema: Vec<_> = lines
        .filter(|line| !line.trim_start().starts_with("--"))
        .collect();
    insta::with_settings!({
        snapshot_path => "../../../migrations/sqlite",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("schema", schema.join("\n")) });
}

#[tokio::test]
async fn the_schema_of_postgres_is_the_one_reviewed() {
    connect(&postgres_url("schema").await)
        .await
        .migrate()
        .await
        .unwrap();
    let server = loadtest::servers::PostgresServer::shared().await.unwrap();
    let schema = server.psql("schema", POSTGRES_SCHEMA).await.unwrap();
    insta::with_settings!({
        snapshot_path => "../../../migrations/postgres",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("schema", schema) });
}

/// Tables with their columns, constraints, indexes and settings, one per line; functions.
const POSTGRES_SCHEMA: &str = "
    with relation as (
        select oid, relname, reloptions from pg_class
         where relnamespace = 'public'::regnamespace and relkind = 'r'
           and relname not like '\\_sqlx%'
    ), line (sort, text) as (
        select format('%s 1 %s', relname, lpad(attnum::text, 3, '0')),
               concat_ws(' ', relname || '.' || attname, format_type(atttypid, atttypmod),
                   case when attnotnull then 'not null' end,
                   case attidentity when 'a' then 'generated always as identity' end,
                   'default ' || pg_get_expr(adbin, adrelid),
                   case when attstorage <> typstorage then 'storage ' || attstorage::text end)
          from relation join pg_attribute on attrelid = relation.oid and attnum > 0
          join pg_type on pg_type.oid = atttypid
          left join pg_attrdef on adrelid = attrelid and adnum = attnum
        union all
        select format('%s 2 %s', relname, conname),
               format('%s constraint %s %s', relname, conname, pg_get_constraintdef(c.oid))
          from relation join pg_constraint c on conrelid = relation.oid
        union all
        select format('%s 3 %s', relname, indexrelid::regclass), pg_get_indexdef(indexrelid)
          from relation join pg_index on indrelid = relation.oid
        union all
        select format('%s 4', relname),
               format('%s with (%s)', relname, array_to_string(reloptions, ', '))
          from relation where reloptions is not null
        union all
        select '0', pg_get_functiondef(oid) from pg_proc
         where pronamespace = 'public'::regnamespace
    )
    select text from line order by sort collate \"C\"";
