//! Load for Stockade, judged: truth before speed.
//!
//! This crate knows of the service only what any HTTP client knows. [`servers`] starts the real
//! thing on private servers; [`run::run_sale`] lets buyers at it and [`judge`]s what they were
//! told against what the service has on its books.

pub mod api;
pub mod bench;
pub mod client;
pub mod demo;
pub mod http;
pub mod judge;
pub mod latency;
pub mod outcome;
pub mod pace;
pub mod picture;
pub mod report;
pub mod run;
pub mod scenario;
pub mod servers;
pub mod target;
pub mod worker;
