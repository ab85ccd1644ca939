//! A flash-sale stock service that neither oversells nor undersells.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod app;
pub mod config;
#[cfg(feature = "crash-points")]
pub mod crash;
#[cfg(not(feature = "crash-points"))]
mod crash;
pub mod domain;
pub mod env;
pub mod http;
pub mod ledger;
pub mod lock;
pub mod metrics;
pub mod service;
pub mod stock;
pub mod telemetry;
pub mod under_lock;
