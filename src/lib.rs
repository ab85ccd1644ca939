//! A flash-sale stock service that neither oversells nor undersells.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod domain;
pub mod ledger;
