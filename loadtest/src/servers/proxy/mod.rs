//! A TCP proxy that stands between any two and does what networks do: delay, cut, lose, and
//! deliver late.
//!
//! What it did is [counted](Proxy::counts): a fault that left no trace was not injected, and a
//! test that asked for it has shown nothing.

mod connection;
mod listener;
mod trap;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use trap::HeldRequest;
use trap::Trap;

use super::free_port;

/// How many ports are tried when others take them first.
const PORT_ATTEMPTS: usize = 5;

/// Where the server behind a [`Proxy`] listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// One of the two ways through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
}

/// What a proxy has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Client connections reset, for whatever reason.
    pub resets: u64,
    /// Pieces of traffic that were delayed.
    pub delayed: u64,
    /// Bytes swallowed by the black hole.
    pub swallowed_bytes: u64,
    /// Replies the server gave that no client saw. A request that the server never answered does
    /// not count.
    pub replies_dropped: u64,
    /// Requests caught on their way and held.
    pub requests_held: u64,
    /// Held requests that were delivered after all, and answered by the server.
    pub requests_delivered: u64,
}

/// What happens to all traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forward,
    Blackhole,
    Cut,
}

/// What the proxy, its listener and its connections share.
#[derive(Debug)]
struct Shared {
    /// Where new connections lead.
    server: Mutex<Address>,
    /// Set by the proxy's user, followed by listener and connections.
    wanted: watch::Sender<Mode>,
    /// Set by the listener when it has followed.
    applied: watch::Sender<Mode>,
    delay_to_server_ms: AtomicU64,
    delay_to_client_ms: AtomicU64,
    traps: Mutex<Vec<Trap>>,
    counts: Mutex<Counts>,
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().expect("no holder panics"));
    }

    fn server(&self) -> Address {
        self.server.lock().expect("no holder panics").clone()
    }

    fn delay_ms(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::ToServer => &self.delay_to_server_ms,
            Direction::ToClient => &self.delay_to_client_ms,
        }
    }
}

/// A proxy on a loopback port of its own; dropping it closes everything.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: JoinHandle<()>,
}

impl Proxy {
    /// Starts to forward to `server`, which need not be there yet.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(server: Address) -> Result<Self> {
        let listener = bind().await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            wanted: watch::Sender::new(Mode::Forward),
            applied: watch::Sender::new(Mode::Forward),
            delay_to_server_ms: AtomicU64::new(0),
            delay_to_client_ms: AtomicU64::new(0),
            traps: Mutex::default(),
            counts: Mutex::default(),
        });
        let listener = tokio::spawn(listener::run(listener, address, Arc::clone(&shared)));
        Ok(Self {
            shared,
            address,
            listener,
        })
    }

    /// Where clients connect; it stays the same.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of [`address`](Self::address).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on new connections lead to `server`; those that there are stay where they are.
    pub fn redirect(&self, server: Address) {
        *self.shared.server.lock().expect("no holder panics") = server;
    }

    /// From now on every piece of traffic in this direction arrives `delay` later, in order.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.shared
            .delay_ms(direction)
            .store(delay_ms, Ordering::Relaxed);
    }

    /// Resets all connections and refuses new ones, until [`restore`](Self::restore). When it
    /// returns, that has happened.
    pub async fn cut(&self) {
        self.set(Mode::Cut).await;
    }

    /// Swallows everything in both directions while connections seem to be fine, new ones too,
    /// until [`restore`](Self::restore).
    pub async fn blackhole(&self) {
        self.set(Mode::Blackhole).await;
    }

    /// Forwards again. Connections that lost bytes in the black hole are reset.
    pub async fn restore(&self) {
        self.set(Mode::Forward).await;
    }

    async fn set(&self, mode: Mode) {
        let mut applied = self.shared.applied.subscribe();
        self.shared.wanted.send_replace(mode);
        // An error means that the listener has ended: then nothing is forwarded anyway.
        drop(applied.wait_for(|applied| *applied == mode).await);
    }

    /// The next request whose bytes contain `pattern` (any request if that is empty) is executed
    /// by the server, its reply is swallowed, then the client's connection is reset.
    ///
    /// Whatever else that connection was waiting for is lost with it, as it is in life.
    ///
    /// # Panics
    /// When the pattern is longer than 64 bytes.
    pub fn drop_next_reply(&self, pattern: &[u8]) {
        self.shared.set_trap(Trap::drop_reply(pattern));
    }

    /// The next request whose bytes contain `pattern` (any request if that is empty) is held and
    /// the client's connection is reset. The request reaches the server when the handle says so,
    /// or never.
    ///
    /// # Panics
    /// When the pattern is longer than 64 bytes.
    #[must_use = "dropping the handle loses the request"]
    pub fn hold_next_request(&self, pattern: &[u8]) -> HeldRequest {
        let (trap, held) = Trap::hold(pattern);
        self.shared.set_trap(trap);
        held
    }

    /// What it has done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.shared.counts.lock().expect("no holder panics")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It owns the connections' tasks.
        self.listener.abort();
    }
}

async fn bind() -> Result<TcpListener> {
    let mut last = None;
    for _ in 0..PORT_ATTEMPTS {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, free_port()?)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("there was at least one attempt")).context("the proxy found no free port")
}

#[cfg(test)]
mod tests;
