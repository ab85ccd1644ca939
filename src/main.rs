//! The program: `serve`, `migrate`, `audit`, `recover`, `locks`, `lock`.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use stockade::app::{self, App, StartError};
use stockade::config::{LogConfig, MigrateConfig, Misconfigured, SalesConfig, ServeConfig};
use stockade::domain::{SaleId, Stage};
use stockade::service::{AuditVerdict, Limits, Service};
use stockade::telemetry;
use stockade::under_lock::{self, CatalogueConfig, LockConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// Exit status for a command line or configuration that cannot be used (sysexits.h).
const EXIT_USAGE: u8 = 64;

/// Sells limited stock to a crowd, exactly once.
#[derive(Debug, Parser)]
#[command(name = "stockade", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sell: the HTTP service.
    Serve(ServeConfig),
    /// Bring the database's schema up to date; harmless twice and from several processes at once.
    Migrate(MigrateConfig),
    /// Count the units of sales and say whether the books balance: exit status 0 if they do, 1 if
    /// not, 2 if that cannot be told.
    Audit(SalesConfig),
    /// Load the stock of sales into Redis anew from the ledger, whatever is there: for whoever
    /// trusts nothing that Redis says. What was admitted is kept, and the sales go on selling. Lost or
    /// foreign data is noticed without this: exit status 0 if all are loaded, 1 if not.
    Recover(SalesConfig),
    /// List the kinds of locks: what each promises, what breaks it, and where it comes from.
    Locks(CatalogueConfig),
    /// Run a command under a lock, as flock(1) does on one machine: `stockade lock NAME -- COMMAND…`. The
    /// lock is renewed while the command runs; if it is lost, the command is ended. The command finds
    /// `STOCKADE_LOCK_NAME` and, if the kind has one, `STOCKADE_LOCK_FENCE` in its environment. Exit status:
    /// the command's, or 69 if the lock's server does not answer, 75 if the lock was not free in time,
    /// 76 if it was lost.
    Lock(LockConfig),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let result = match arguments.command {
        Command::Serve(config) => serve(&config),
        Command::Migrate(config) => migrate(&config),
        Command::Audit(config) => audit(&config),
        Command::Recover(config) => recover(&config),
        Command::Locks(config) => locks(&config),
        Command::Lock(config) => lock(&config),
    };
    match result {
        Ok(status) => status,
        Err(error) => {
            eprintln!("stockade: {error:#}");
            if error.is::<Misconfigured>()
                || matches!(error.downcast_ref(), Some(StartError::Misconfigured(_)))
            {
                EXIT_USAGE.into()
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Help and version go to standard output; a bad command line is one line on standard error.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that closed the pipe has seen enough.
            error.print().ok();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprintln!("stockade: no command is given; try `stockade --help`");
            EXIT_USAGE.into()
        }
        _ => {
            let text = error.render().to_string();
            let why = text.split("\n\n").next().unwrap_or_default();
            let words: Vec<_> = why.split_whitespace().collect();
            let line = words.join(" ");
            let line = line.strip_prefix("error: ").unwrap_or(&line);
            eprintln!("stockade: {line}; try `stockade --help`");
            EXIT_USAGE.into()
        }
    }
}

fn start_log(config: &LogConfig) -> Result<(), Misconfigured> {
    telemetry::start(config.log_format, &config.log)
        .map_err(|why| Misconfigured(format!("--log {}: {why}", config.log)))
}

fn runtime(worker_threads: u32) -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if worker_threads > 0 {
        builder.worker_threads(worker_threads as usize);
    }
    builder
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn serve(config: &ServeConfig) -> anyhow::Result<ExitCode> {
    start_log(&config.log)?;
    runtime(config.worker_threads)?.block_on(async {
        // Before anything that takes time: a signal during the start must end it too.
        let shutdown = shutdown_signal().context("cannot listen to signals")?;
        tokio::pin!(shutdown);
        let app = tokio::select! {
            app = App::build(config) => app?,
            () = &mut shutdown => return Ok(ExitCode::SUCCESS),
        };
        let mut stdout = std::io::stdout();
        writeln!(stdout, "listening on http://{}", app.address())?;
        stdout.flush()?;
        app.run_until(shutdown).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Completes at SIGTERM or SIGINT.
fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn migrate(config: &MigrateConfig) -> anyhow::Result<ExitCode> {
    start_log(&config.log)?;
    runtime(1)?.block_on(async {
        let ledger = app::open_ledger(&config.database, true).await?;
        println!("the schema in {} is up to date", ledger.name());
        ledger.close().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Balances the books of the sales asked for, or of all. What cannot be told outweighs a balance, and
/// an imbalance outweighs both.
fn audit(config: &SalesConfig) -> anyhow::Result<ExitCode> {
    start_log(&config.log)?;
    runtime(1)?.block_on(async {
        match audit_sales(config).await {
            Ok(verdict) => Ok(ExitCode::from(match verdict {
                AuditVerdict::Balanced => 0,
                AuditVerdict::Unbalanced => 1,
                AuditVerdict::Unknown => 2,
            })),
            Err(error) if error.is::<Misconfigured>() => Err(error),
            Err(error) => {
                eprintln!("stockade: the books cannot be read: {error:#}");
                Ok(ExitCode::from(2))
            }
        }
    })
}

/// An instance that does nothing by itself, and the sales asked for, or all.
async fn open(config: &SalesConfig) -> anyhow::Result<(Service, Vec<SaleId>)> {
    let ledger = app::open_ledger(&config.database, false).await?;
    let redis = app::open_redis(&config.redis, config.database.startup_wait()).await?;
    let service = Service::without_upkeep(ledger, redis, Limits::default(), Arc::default());
    let sales = if config.sales.is_empty() {
        all_sales(&service).await?
    } else {
        config.sales.clone()
    };
    Ok((service, sales))
}

fn recover(config: &SalesConfig) -> anyhow::Result<ExitCode> {
    start_log(&config.log)?;
    runtime(1)?.block_on(async {
        let (service, sales) = open(config).await?;
        let mut failed = false;
        for id in sales {
            match service.recover(id).await {
                Ok(sale) if sale.stage == Stage::Loaded => {
                    println!("sale {id}: loaded under epoch {}", sale.epoch);
                }
                Ok(_) => println!("sale {id}: nothing of it belongs into Redis"),
                Err(error) => {
                    failed = true;
                    eprintln!("stockade: sale {id} is not loaded: {error}; try again");
                }
            }
        }
        Ok(ExitCode::from(u8::from(failed)))
    })
}

fn locks(config: &CatalogueConfig) -> anyhow::Result<ExitCode> {
    // A reader that closed the pipe has seen enough.
    write!(std::io::stdout(), "{}", under_lock::catalogue(config)).ok();
    Ok(ExitCode::SUCCESS)
}

fn lock(config: &LockConfig) -> anyhow::Result<ExitCode> {
    Ok(runtime(1)?.block_on(under_lock::run(config))?)
}

async fn audit_sales(config: &SalesConfig) -> anyhow::Result<AuditVerdict> {
    let (service, sales) = open(config).await?;
    let mut worst = AuditVerdict::Balanced;
    for sale in sales {
        let audit = service
            .audit(sale)
            .await
            .with_context(|| format!("sale {sale}"))?;
        println!("{audit}");
        worst = match (worst, audit.verdict) {
            (AuditVerdict::Unbalanced, _) | (_, AuditVerdict::Unbalanced) => {
                AuditVerdict::Unbalanced
            }
            (AuditVerdict::Unknown, _) | (_, AuditVerdict::Unknown) => AuditVerdict::Unknown,
            _ => AuditVerdict::Balanced,
        };
    }
    Ok(worst)
}

async fn all_sales(service: &Service) -> anyhow::Result<Vec<SaleId>> {
    let mut ids: Vec<SaleId> = Vec::new();
    loop {
        let page = service
            .sales(ids.last().copied(), stockade::ledger::PAGE_MAX)
            .await?;
        if page.is_empty() {
            return Ok(ids);
        }
        ids.extend(page.iter().map(|sale| sale.id));
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
