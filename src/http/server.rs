//! Connections: accepting, bounding, draining.
//!
//! hyper is driven by hand because `axum::serve` sets no time limit for headers: a client that
//! sends a byte a minute would hold its connection for ever.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
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
            draining: CancellationToken::new(),
            cut: CancellationToken::new(),
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
    /// Finish the request in flight, then close.
    draining: CancellationToken,
    /// Close now.
    cut: CancellationToken,
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
        let edge = self.edge.clone();
        let header_timeout = self.limits.header_timeout;
        let (draining, cut) = (self.draining.clone(), self.cut.clone());
        async move {
            // Answers are written whole; waiting for more to send only delays them.
            if stream.set_nodelay(true).is_err() {
                return;
            }
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let edge = edge.clone();
                async move { Ok::<_, Infallible>(edge.respond(request.map(Body::new)).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(header_timeout)
                .max_buf_size(HEADER_LENGTH_MAX)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                // How a connection ends is the client's business: broken, idle or malformed.
                _ = connection.as_mut() => return,
                () = draining.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            tokio::select! {
                _ = connection => {}
                () = cut.cancelled() => {}
            }
        }
    }

    async fn drain(self) -> usize {
        self.draining.cancel();
        self.tracker.close();
        let finished = tokio::time::timeout(self.limits.drain_timeout, self.tracker.wait()).await;
        if finished.is_ok() {
            return 0;
        }
        let left = self.tracker.len();
        self.cut.cancel();
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
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
