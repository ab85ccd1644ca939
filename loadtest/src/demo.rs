//! The demo: a real flash sale on private servers, judged before your eyes.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rand::Rng as _;
use tempfile::TempDir;

use crate::api::NewSale;
use crate::client::Client;
use crate::judge::Verdict;
use crate::picture::Picture;
use crate::run::{RunReport, open_sale, run_opened};
use crate::scenario::Scenario;
use crate::servers::{RedisOptions, RedisServer, Service, ServiceOptions, directory};
use crate::target::{BuyerAuth, Target};
use crate::worker::Progress;

/// How often the progress bar is redrawn.
const REDRAW: Duration = Duration::from_millis(50);
/// The database, beside Redis in a temporary directory.
const DATABASE: &str = "stockade.db";
/// Into how many segments the stock is split.
const SEGMENTS: u32 = 8;

/// What the demo shall show.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// How many buyers come at once.
    pub buyers: u32,
    /// Units on sale.
    pub stock: u32,
    /// Seconds for which an order waits for its payment; 0 confirms at once.
    pub hold_seconds: u32,
    /// Whether buyers are known by the header `X-Buyer-Id` instead of a signed token.
    pub trust_buyer_header: bool,
    /// The service's program; beside this one's if not given.
    pub stockade_binary: Option<PathBuf>,
}

/// A demo after its sale: everything still runs, until this is dropped.
#[derive(Debug)]
pub struct Demo {
    // In the order in which they are to end.
    service: Service,
    redis: RedisServer,
    directory: TempDir,
    secrets: Secrets,
    /// How the sale went.
    pub report: RunReport,
}

/// What was chosen for this one demo.
#[derive(Debug)]
struct Secrets {
    admin_token: String,
    /// None if the service trusts the header.
    buyer_secret: Option<String>,
}

impl Secrets {
    fn choose(options: &DemoOptions) -> Self {
        let buyer_secret = (!options.trust_buyer_header).then(random_secret);
        Self {
            admin_token: random_secret(),
            buyer_secret,
        }
    }

    fn buyer_auth(&self) -> BuyerAuth {
        self.buyer_secret
            .clone()
            .map_or(BuyerAuth::TrustedHeader, BuyerAuth::Hs256)
    }
}

/// 256 random bits.
fn random_secret() -> String {
    let bytes: [u8; 32] = rand::rng().random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts everything, runs the sale, and prints how it went.
///
/// # Errors
/// When something does not start; what goes wrong in the sale is a matter of the verdict.
pub async fn run(options: &DemoOptions) -> Result<Demo> {
    let binary = options.stockade_binary.clone().map_or_else(beside_us, Ok)?;
    ensure!(
        binary.is_file(),
        "{} is not there; build it with `cargo build --release --workspace`",
        binary.display()
    );
    let secrets = Secrets::choose(options);
    let directory = directory("stockade-demo-")?;
    let redis = RedisServer::start(&RedisOptions {
        tcp: false,
        ..RedisOptions::default()
    })
    .await?;
    let service = start_service(&binary, &redis, directory.path(), &secrets).await?;
    println!("service      {} (process {})", service.url(), service.pid());
    println!("redis        {} (process {})", redis.url(), redis.pid());
    println!("database     {}", directory.path().join(DATABASE).display());
    println!("admin token  {}", secrets.admin_token);
    match &secrets.buyer_secret {
        Some(secret) => println!("buyers       sign their tokens (HS256) with {secret}"),
        None => println!("buyers       are trusted by their header X-Buyer-Id"),
    }
    let target = Target::new(&[service.url()], &secrets.admin_token, secrets.buyer_auth())?;
    let report = sell(options, &target)
        .await
        .with_context(|| format!("the end of the service's log:\n{}", service.log_tail()))?;
    println!("{report}");
    let mut client = Client::new(&target, 0);
    let segments = client.segments(report.books.sale.id).await;
    println!(
        "{}",
        Picture(&segments.context("cannot read the segments")?)
    );
    Ok(Demo {
        service,
        redis,
        directory,
        secrets,
        report,
    })
}

/// Where the service's program is when nothing else is said: beside this one.
///
/// # Errors
/// When this program cannot be found.
pub fn beside_us() -> Result<PathBuf> {
    let us = std::env::current_exe().context("cannot find out where this program is")?;
    Ok(us.with_file_name("stockade"))
}

async fn start_service(
    binary: &Path,
    redis: &RedisServer,
    directory: &Path,
    secrets: &Secrets,
) -> Result<Service> {
    let database = directory.join(DATABASE);
    let database = format!("sqlite://{}", database.display());
    let args = ["serve", "--listen", "127.0.0.1:0", "--migrate"]
        .map(str::to_owned)
        .to_vec();
    let mut env = vec![
        ("STOCKADE_REDIS_URL".to_owned(), redis.url()),
        ("STOCKADE_DATABASE_URL".to_owned(), database),
        (
            "STOCKADE_ADMIN_TOKEN".to_owned(),
            secrets.admin_token.clone(),
        ),
    ];
    env.push(match &secrets.buyer_secret {
        Some(secret) => ("STOCKADE_BUYER_JWT_HS256_SECRET".to_owned(), secret.clone()),
        None => ("STOCKADE_TRUST_BUYER_HEADER".to_owned(), "true".to_owned()),
    });
    Service::start(&ServiceOptions {
        binary: binary.to_path_buf(),
        args,
        env,
    })
    .await
}

async fn sell(options: &DemoOptions, target: &Target) -> Result<RunReport> {
    let sale = NewSale {
        quantity: options.stock,
        hold_seconds: options.hold_seconds,
        segments: SEGMENTS.min(options.stock),
        ..NewSale::default()
    };
    let seed: u64 = rand::rng().random();
    let scenario = Scenario {
        sale,
        buyers: options.buyers,
        seed,
        ..Scenario::default()
    };
    scenario.check()?;
    let sale = open_sale(target, &scenario).await?;
    let (buyers, stock) = (options.buyers, options.stock);
    println!(
        "
sale {}: {buyers} buyers at once, {stock} units, seed {seed}
",
        sale.id
    );
    let progress = Arc::new(Progress::default());
    let run = run_opened(target, &scenario, sale.id, Arc::clone(&progress));
    let bar = std::io::stderr()
        .is_terminal()
        .then(|| progress_bar(options.buyers));
    let watch = async {
        let Some(bar) = &bar else {
            return std::future::pending().await;
        };
        loop {
            bar.set_position(progress.finished() as u64);
            tokio::time::sleep(REDRAW).await;
        }
    };
    let report = tokio::select! { report = run => report, () = watch => unreachable!("endless") };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    report
}

fn progress_bar(buyers: u32) -> ProgressBar {
    let template = "  {bar:40} {human_pos} of {human_len} buyers answered, {per_sec}";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::new(buyers.into()).with_style(style)
}

impl Demo {
    /// The verdict on the sale.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.report.judgement.verdict
    }

    /// Three requests to try while the service stays up, ready for a shell.
    ///
    /// # Errors
    /// When the service's URL cannot be a target, which would be a defect.
    pub fn things_to_try(&self) -> Result<String> {
        let (url, sale) = (self.service.url(), self.report.books.sale.id);
        let auth = self.secrets.buyer_auth();
        let mut text = format!(
            "# where the units are\ncurl -s {url}/v1/sales/{sale}/stock\n\n\
             # the books, audited (as the shop)\ncurl -s {url}/v1/sales/{sale}/audit \
             -H 'Authorization: Bearer {}'\n",
            self.secrets.admin_token
        );
        let accepted = self
            .report
            .purchases
            .iter()
            .find(|one| one.outcome.order().is_some());
        if let Some(purchase) = accepted {
            let (name, value) = auth.header(&purchase.wish.buyer);
            let value = value.to_str().context("a header is not plain")?;
            text += &format!(
                "\n# a purchase of the sale, sent once more: the same order, replayed (as {})\n\
                 curl -si {url}/v1/sales/{sale}/purchases -H '{name}: {value}' \
                 -H 'Idempotency-Key: {}' \
                 -H 'Content-Type: application/json' -d '{{\"quantity\":{}}}'\n",
                purchase.wish.buyer, purchase.wish.key, purchase.wish.quantity
            );
        }
        Ok(text)
    }

    /// Ends everything in order; the service may finish what is in flight.
    ///
    /// # Errors
    /// When the service does not end by itself.
    pub async fn end(mut self) -> Result<()> {
        let status = self.service.terminate().await?;
        ensure!(
            status.success(),
            "the service ended with {status}:\n{}",
            self.service.log_tail()
        );
        drop(self.redis);
        self.directory
            .close()
            .context("cannot remove the temporary directory")
    }
}
