//! Connections: accepting, bounding, draining.
//!
//! hyper is driven by hand because `axum::serve` sets no time limit for headers: a client that
//! sends a byte a minute would hold its connection for ever.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::Edge;

/// Connections that the kernel keeps for us while we do not accept; it may keep fewer.
const LISTEN_BACKLOG: u32 = 4_096;
/// Bytes of a request's header, and of the buffer that bodies pass through.
const HEADER_LENGTH_MAX: usize = 32 * 1024;
/// Pause after a failed accept: it fails when this process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What clients may take.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Connections at once; more wait in the kernel's queue.
    pub connections_max: usize,
    /// How long a connection may take to send the next request's header; also how long it may idle.
    pub header_timeout: Duration,
    /// How long requests in flight may take to finish at the shutdown.
    pub drain_timeout: Duration,
}

/// A bound listener.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes the address. Connections wait until [`Server::run`].
    ///
    /// # Errors
    /// When the address is taken, foreign or forbidden.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // A restart must not wait for the last connections of the process before.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(LISTEN_BACKLOG)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The address that was taken; its port is the system's choice if none was asked for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` completes; then accepts nothing more and lets requests in flight
    /// finish within the drain timeout. Returns the number of connections that had to be cut.
    pub async fn run(
        self,
        edge: Edge,
        limits: ServerLimits,
        shutdown: impl Future<Output = ()>,
    ) -> usize {
        let connections = Connections {
            edge,
            limits,
            tracker: TaskTracker::new(),
            phase: watch::Sender::new(Phase::Serving),
        };
        tokio::select! {
            never = connections.accept(&self.listener) => match never {},
            () = shutdown => {}
        }
        drop(self.listener);
        connections.drain().await
    }
}

struct Connections {
    edge: Edge,
    limits: ServerLimits,
    tracker: TaskTracker,
    phase: watch::Sender<Phase>,
}

/// What connections are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Serve on.
    Serving,
    /// Finish the request in flight, then close.
    Draining,
    /// Close now.
    Cut,
}

/// One connection's state.
struct Connection {
    edge: Edge,
    began: Instant,
    /// Milliseconds from the beginning to when the last request was answered; [`BUSY`] while one is
    /// in flight.
    idle_since_ms: AtomicU64,
}

/// No connection lives that long.
const BUSY: u64 = u64::MAX;

impl Connection {
    async fn respond(&self, request: hyper::Request<Incoming>) -> Response {
        self.idle_since_ms.store(BUSY, Ordering::Relaxed);
        let response = self.edge.respond(request.map(Body::new)).await;
        let idle_since_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0);
        self.idle_since_ms.store(idle_since_ms, Ordering::Relaxed);
        response
    }

    /// When the client must have sent its next header; none if that has passed.
    fn deadline(&self, timeout: Duration) -> Option<Instant> {
        let now = Instant::now();
        let deadline = match self.idle_since_ms.load(Ordering::Relaxed) {
            BUSY => now + timeout,
            since => self.began + Duration::from_millis(since) + timeout,
        };
        (deadline > now).then_some(deadline)
    }
}

impl Connections {
    async fn accept(&self, listener: &TcpListener) -> Infallible {
        let permits = Arc::new(Semaphore::new(self.limits.connections_max));
        loop {
            let permit = Arc::clone(&permits)
                .acquire_owned()
                .await
                .expect("nobody closes the semaphore");
            let stream = next(listener).await;
            let connection = self.serve(stream);
            self.tracker.spawn(async move {
                connection.await;
                drop(permit);
            });
        }
    }

    fn serve(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let connection = Arc::new(Connection {
            edge: self.edge.clone(),
            began: Instant::now(),
            idle_since_ms: AtomicU64::new(0),
        });
        let timeout = self.limits.header_timeout;
        let mut phase = self.phase.subscribe();
        async move {
            // Answers are written whole; waiting for more to send only delays them.
            if stream.set_nodelay(true).is_err() {
                return;
            }
            let shared = Arc::clone(&connection);
            let service = service_fn(move |request| {
                let connection = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(connection.respond(request).await) }
            });
            let http = http1::Builder::new()
                .max_buf_size(HEADER_LENGTH_MAX)
                .serve_connection(TokioIo::new(stream), service);
            let mut http = pin!(http);
            // One timer for the connection's life: hyper's own would be set anew for each request.
            let mut alarm = pin!(sleep(timeout));
            loop {
                tokio::select! {
                    biased;
                    // How a connection ends is the client's business: broken, idle or malformed.
                    _ = http.as_mut() => return,
                    _ = phase.changed() => match *phase.borrow_and_update() {
                        Phase::Serving => {}
                        Phase::Draining => http.as_mut().graceful_shutdown(),
                        Phase::Cut => return,
                    },
                    () = alarm.as_mut() => match connection.deadline(timeout) {
                        Some(deadline) => alarm.as_mut().reset(deadline),
                        None => return,
                    },
                }
            }
        }
    }

    async fn drain(self) -> usize {
        self.phase.send_replace(Phase::Draining);
        self.tracker.close();
        let finished = timeout(self.limits.drain_timeout, self.tracker.wait()).await;
        if finished.is_ok() {
            return 0;
        }
        let left = self.tracker.len();
        self.phase.send_replace(Phase::Cut);
        self.tracker.wait().await;
        left
    }
}

/// The next connection. Errors are either of one connection that broke before we took it, or of a
/// lack of file descriptors, which passes.
async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(target: "http", cause = %error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
