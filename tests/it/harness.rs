//! A deployment for one test: private Redis, private database, and the service as processes of its own.

use std::time::Duration;

use loadtest::client::Client;
use loadtest::judge::Verdict;
use loadtest::run::RunReport;
use loadtest::servers::{
    PostgresServer, RedisOptions, RedisServer, Service, ServiceOptions, free_port,
};
use loadtest::target::{BuyerAuth, Target};
use redis::aio::ConnectionLike;
use stockade::domain::Purchase;
use stockade::stock::scripts::{self, Batch, Copies, Decided, Decision, Presence};
use stockade::stock::{self, SegmentKeys};

const ADMIN_TOKEN: &str = "admin-token-of-a-test-deployment";

/// Which database a deployment's ledger is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

/// How to set up a [`Deployment`].
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) database: Database,
    pub(crate) instances: usize,
    /// Flags of `stockade serve` beside those that every deployment needs.
    pub(crate) flags: Vec<String>,
    /// Redis as the instances see it, if not directly: one URL each.
    pub(crate) redis_urls: Option<Vec<String>>,
    /// The database as the instances see it, if not directly.
    pub(crate) database_url: Option<String>,
}

impl Plan {
    pub(crate) fn new(database: Database, instances: usize) -> Self {
        Self {
            database,
            instances,
            flags: Vec::new(),
            redis_urls: None,
            database_url: None,
        }
    }

    pub(crate) fn flag(mut self, name: &str, value: u64) -> Self {
        self.flags.extend([format!("--{name}"), value.to_string()]);
        self
    }
}

/// Servers and processes; all end when it is dropped.
#[derive(Debug)]
pub(crate) struct Deployment {
    pub(crate) services: Vec<Service>,
    pub(crate) options: Vec<ServiceOptions>,
    pub(crate) target: Target,
    pub(crate) redis: RedisServer,
    _folder: tempfile::TempDir,
}

/// A Redis for a deployment whose network a test wants to disturb.
pub(crate) async fn redis() -> RedisServer {
    RedisServer::start(&RedisOptions::default()).await.unwrap()
}

/// A fresh database on the PostgreSQL server that all tests share.
pub(crate) async fn database() -> String {
    let name = format!("test_{}", uuid::Uuid::now_v7().simple());
    PostgresServer::shared()
        .await
        .unwrap()
        .create_database(&name)
        .await
        .unwrap()
}

impl Deployment {
    pub(crate) async fn start(plan: Plan) -> Self {
        Self::start_on(plan, redis().await).await
    }

    pub(crate) async fn start_on(plan: Plan, redis: RedisServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database_url = match (&plan.database_url, plan.database) {
            (Some(url), _) => url.clone(),
            (None, Database::Sqlite) => {
                format!("sqlite://{}", folder.path().join("ledger.db").display())
            }
            (None, Database::Postgres) => database().await,
        };
        let mut options = Vec::new();
        for instance in 0..plan.instances {
            let redis_url = match &plan.redis_urls {
                Some(urls) => urls[instance % urls.len()].clone(),
                None => redis.url(),
            };
            options.push(service_options(&plan, &redis_url, &database_url));
        }
        let mut services = Vec::new();
        for one in &options {
            services.push(Service::start(one).await.unwrap());
        }
        let urls: Vec<String> = services.iter().map(Service::url).collect();
        let target = Target::new(&urls, ADMIN_TOKEN, BuyerAuth::TrustedHeader).unwrap();
        Self {
            services,
            options,
            target,
            redis,
            _folder: folder,
        }
    }

    /// A client of one of the processes.
    pub(crate) fn client(&self, instance: usize) -> Client {
        Client::new(&self.target, instance)
    }

    /// The end of every process' log, for failure messages.
    pub(crate) fn logs(&self) -> String {
        self.services
            .iter()
            .map(Service::log_tail)
            .collect::<Vec<_>>()
            .join("\n----\n")
    }
}

fn service_options(plan: &Plan, redis_url: &str, database_url: &str) -> ServiceOptions {
    // A port of its own, so that a restarted process is found where it was.
    let listen = format!("127.0.0.1:{}", free_port().unwrap());
    let fixed = [
        "serve",
        "--listen",
        &listen,
        "--redis-url",
        redis_url,
        "--database-url",
        database_url,
        "--migrate",
        "--trust-buyer-header",
        "--buyer-requests-per-second",
        "0",
    ];
    let fixed = fixed.into_iter().map(str::to_owned);
    ServiceOptions {
        binary: env!("CARGO_BIN_EXE_stockade").into(),
        args: fixed.chain(plan.flags.iter().cloned()).collect(),
        env: vec![("STOCKADE_ADMIN_TOKEN".to_owned(), ADMIN_TOKEN.to_owned())],
    }
}

/// The run must be valid, and must have sold this many units.
pub(crate) fn assert_valid(report: &RunReport, sold: i64, deployment: &Deployment) {
    let judgement = &report.judgement;
    assert_eq!(
        judgement.verdict,
        Verdict::Valid,
        "{:#?}\n{:?}\nlogs:\n{}",
        judgement.findings,
        report.books.audit,
        deployment.logs()
    );
    assert_eq!(judgement.tally.sold, sold, "{:?}", judgement.tally);
}

/// How often a test that depends on timing repeats its scene; `scripts/test --full` raises it.
pub(crate) fn repeats() -> u32 {
    std::env::var("STOCKADE_TEST_REPEATS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1)
}

/// Long enough for a busy machine, short enough for a person.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The value of `probe` as soon as it has one, asking one of the processes each time.
pub(crate) async fn until<T>(
    deployment: &Deployment,
    what: &str,
    mut probe: impl AsyncFnMut(&mut Client) -> Option<T>,
) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut client = deployment.client(deployment.services.len() - 1);
    loop {
        if let Some(value) = probe(&mut client).await {
            return value;
        }
        let late = tokio::time::Instant::now() >= deadline;
        assert!(!late, "gave up waiting for {what}\n{}", deployment.logs());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Lets one segment decide purchases.
pub(crate) async fn purchase_at<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    copies: Copies,
    purchases: &[&Purchase],
) -> Result<Result<Decided, Presence>, stock::Error> {
    let batches = [Batch { keys, purchases }];
    match scripts::purchase(connection, copies, 0, &batches).await? {
        Decision::Decided { mut batches, .. } => Ok(batches.pop().expect("one batch, one answer")),
        Decision::TooLate { .. } => panic!("a copy without a time came too late"),
    }
}
