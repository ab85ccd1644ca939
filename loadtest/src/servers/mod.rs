//! Real servers for one test or one demo: private, on loopback, gone afterwards.
//!
//! Everything started here lives in its own temporary directory and listens only on a Unix socket
//! or a free loopback port. It ends when its value is dropped, also while a test panics; and when
//! this whole process dies without running a destructor, the [reaper] ends it.

mod port;
mod postgres;
mod process;
mod programs;
mod proxy;
mod reaper;
mod redis;
mod service;
mod wait;

pub use port::free_port;
pub use postgres::{PostgresOptions, PostgresServer};
pub use process::Process;
pub use proxy::{Address, Counts, Direction, HeldRequest, Proxy};
pub use redis::{Append, RedisOptions, RedisServer};
pub use service::{Service, ServiceOptions};
pub use wait::{eventually, eventually_within};

#[cfg(test)]
mod tests;
