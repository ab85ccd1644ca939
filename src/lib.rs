//! A flash-sale stock service that neither oversells nor undersells.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod app;
pub mod config;
pub mod domain;
pub mod http;
pub mod ledger;
pub mod metrics;
pub mod service;
pub mod stock;
pub mod telemetry;
