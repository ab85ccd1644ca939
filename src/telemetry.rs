//! Logs: where they go and in which form.
//!
//! Messages can be read alone; what they name is there as fields too, with dotted names by entity
//! (`request.id`, `sale.id`) and units (`duration_ms`). `error` means that someone must act, `warn`
//! that the service carries on, degraded. Each failure is logged once, where it leaves the service.
//! Never logged: tokens, secrets, idempotency keys, buyers' ids, bodies, query strings.
//!
//! One line a request, target `http`: at `info` for admins' and readers' routes, at `debug` for
//! purchases and for the operators' own routes, which come by the thousand and are counted by
//! metrics; their failures (5xx) are at `warn` all the same.

use std::io;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Sends the process's logs to standard error. Call once, from `main`.
///
/// # Errors
/// A sentence when `filter` is no filter, as `info,stockade=debug`.
pub fn start(format: LogFormat, filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    let lines = fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| error.to_string())
}
