//! One HTTP/1.1 connection, kept alive, one request at a time.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// An HTTP answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No connection: the request was not sent, so nothing has happened.
    NotSent(String),
    /// The request was sent, at least in part: it may have been acted on, or be yet.
    Unknown(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => write!(formatter, "not sent: {why}"),
            Self::Unknown(why) => write!(formatter, "sent, outcome unknown: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

/// A connection to one process; it is made when it is needed, and again after it broke.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    timeout: Duration,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Otherwise it would wait for an answer that nobody wants any more.
        self.driver.abort();
    }
}

impl Connection {
    /// Prepares a connection. `timeout` bounds connecting, and each exchange.
    #[must_use]
    pub fn new(address: SocketAddr, timeout: Duration) -> Self {
        Self {
            address,
            timeout,
            open: None,
        }
    }

    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects now, if it is not connected.
    ///
    /// # Errors
    /// When nobody accepts in time.
    pub async fn connect(&mut self) -> Result<(), Failure> {
        if let Some(open) = &mut self.open
            && open.sender.ready().await.is_ok()
        {
            return Ok(());
        }
        self.open = None;
        let connecting = tokio::time::timeout(self.timeout, handshake(self.address)).await;
        let opened = connecting
            .map_err(|_| "timeout".to_owned())
            .and_then(|opened| opened);
        self.open = Some(opened.map_err(Failure::NotSent)?);
        Ok(())
    }

    /// Sends a request, whose URI is a path, and reads the answer.
    ///
    /// # Errors
    /// See [`Failure`]. After one the connection is closed.
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        self.connect().await?;
        let host = HeaderValue::from_str(&self.address.to_string());
        request
            .headers_mut()
            .insert(HOST, host.expect("an address is plain"));
        // Taken, so that it is closed if this is cancelled half-way.
        let mut open = self.open.take().expect("connect leaves an open connection");
        let exchange = tokio::time::timeout(self.timeout, exchange(&mut open.sender, request));
        let answer = exchange
            .await
            .map_err(|_| Failure::Unknown("timeout".to_owned()))?;
        self.open = Some(open);
        answer.inspect_err(|_| self.open = None)
    }
}

async fn handshake(address: SocketAddr) -> Result<Open, String> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| error.to_string())?;
    let driver = tokio::spawn(async move {
        // Its error is also that of the request, which tells it.
        drop(connection.await);
    });
    Ok(Open { sender, driver })
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Answer, Failure> {
    let response = sender
        .try_send_request(request)
        .await
        .map_err(|mut error| {
            // The server had closed an idle connection: hyper gives the request back, unsent.
            let unsent = error.take_message().is_some();
            let why = error.into_error().to_string();
            if unsent {
                Failure::NotSent(why)
            } else {
                Failure::Unknown(why)
            }
        })?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body
        .map_err(|error| Failure::Unknown(error.to_string()))?
        .to_bytes();
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
    })
}
