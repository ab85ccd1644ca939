//! Load for Stockade, judged: truth before speed.
//!
//! This crate knows of the service only what any HTTP client knows. [`servers`] starts the real
//! thing on private servers.

pub mod servers;
