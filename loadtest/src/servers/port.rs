//! Free loopback ports.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

use anyhow::{Result, bail};
use rand::Rng as _;

/// Below the range from which the kernel takes the ports of outgoing connections (32768 and up on
/// Linux). A port from that range can be taken by any client while its server restarts, even by
/// the client that is trying to reach that very server: TCP then connects it to itself.
const RANGE: Range<u16> = 20_000..32_000;
/// Busy ports are looked past; this many in a row means that something else is wrong.
const ATTEMPTS: usize = 200;

/// Ports handed out by this process: a server that is not listening yet must not lose its port to
/// the next caller.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A loopback TCP port on which nothing listens, never given twice by one process.
///
/// Another process may still take it first, so whoever listens on it tries again with another.
///
/// # Errors
/// When no free port is found.
pub fn free_port() -> Result<u16> {
    for _ in 0..ATTEMPTS {
        let port = rand::rng().random_range(RANGE);
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if free && GIVEN.lock().expect("no holder panics").insert(port) {
            return Ok(port);
        }
    }
    bail!("no free loopback port in {RANGE:?} after {ATTEMPTS} attempts")
}
