//! What only a connection can show: slow clients, large headers, panics of the protocol, the
//! shutdown.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Shop, get};

/// Longer than anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A shop that serves connections until it is told to stop.
struct Open {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Shop {
    fn serve(self) -> Open {
        let address = self.app.address();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            self.app.run_until(async { stopped.await.unwrap() }).await;
            drop(self.redis);
        });
        Open {
            address,
            stop,
            served,
        }
    }
}

impl Open {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        timeout(PATIENCE, self.served).await.unwrap().unwrap();
    }
}

async fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Everything until the server closes; a reset counts as its end.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    read.expect("the server keeps the connection open").ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One answer that has a length.
async fn read_answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let complete = |text: &str| {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))?;
        (body.len() >= length.parse().unwrap()).then_some(())
    };
    while complete(&text).is_none() {
        let mut buffer = [0; 4_096];
        let read = timeout(PATIENCE, stream.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        assert!(read > 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    text
}

#[tokio::test]
async fn a_client_that_sends_its_header_too_slowly_is_cut_off() {
    let shop = Shop::with(&["--trust-buyer-header", "--header-timeout-seconds", "1"]).await;
    let open = shop.serve();
    let mut silent = open.connect().await;
    let mut slow = open.connect().await;
    send(&mut slow, "GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ").await;
    let mut idle = open.connect().await;
    send(&mut idle, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(read_answer(&mut idle).await.starts_with("HTTP/1.1 200"));
    assert_eq!(read_to_end(&mut silent).await, "");
    assert_eq!(read_to_end(&mut slow).await, "");
    assert_eq!(read_to_end(&mut idle).await, "");
    open.stop().await;
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_or_breaks_off_is_refused() {
    let shop = Shop::with(&["--trust-buyer-header", "--body-timeout-ms", "100"]).await;
    let sale = shop.sell(json!({})).await;
    let open = shop.serve();
    let header = format!(
        "POST /v1/sales/{sale}/purchases HTTP/1.1\r\nHost: a\r\nX-Buyer-Id: alice\r\n\
         Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n"
    );
    let mut slow = open.connect().await;
    send(&mut slow, &format!("{header}{{\"quan")).await;
    let answer = read_answer(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"code\":\"request-timeout\""), "{answer}");

    // In two pieces, but in time.
    let mut halves = open.connect().await;
    send(&mut halves, &format!("{header}{{\"quan")).await;
    send(&mut halves, "tity\":1}").await;
    let answer = read_answer(&mut halves).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    open.stop().await;
}

#[tokio::test]
async fn headers_and_bodies_beyond_their_bounds_are_refused_without_being_read() {
    let open = Shop::open().await.serve();
    let mut large = open.connect().await;
    let padding = "x".repeat(64 * 1024);
    // The server may answer and close before it has read all of it.
    let request = format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX-Large: {padding}\r\n\r\n");
    large.write_all(request.as_bytes()).await.ok();
    let answer = read_to_end(&mut large).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );

    let mut many = open.connect().await;
    let headers: String = (0..200).map(|n| format!("X-{n}: a\r\n")).collect();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    many.write_all(request.as_bytes()).await.ok();
    let answer = read_to_end(&mut many).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");

    let mut announced = open.connect().await;
    let header = "POST /v1/sales/1/purchases HTTP/1.1\r\nHost: a\r\nX-Buyer-Id: alice\r\n\
        Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n";
    send(&mut announced, header).await;
    let answer = read_answer(&mut announced).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");

    let mut nonsense = open.connect().await;
    send(&mut nonsense, "EHLO example.org\r\n\r\n").await;
    let answer = read_to_end(&mut nonsense).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    open.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_their_turn() {
    let shop = Shop::with(&["--trust-buyer-header", "--connections-max", "1"]).await;
    let open = shop.serve();
    let mut first = open.connect().await;
    send(&mut first, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
    read_answer(&mut first).await;
    let mut second = open.connect().await;
    send(&mut second, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let early = timeout(Duration::from_millis(100), second.read_u8()).await;
    assert!(early.is_err(), "served beyond the bound");
    drop(first);
    assert!(read_answer(&mut second).await.starts_with("HTTP/1.1 200"));
    open.stop().await;
}

#[tokio::test]
async fn the_shutdown_finishes_what_is_in_flight_and_closes_what_is_idle() {
    let shop = Shop::open().await;
    let sale = shop.sell(json!({})).await;
    let edge = shop.edge.clone();
    let open = shop.serve();
    let mut idle = open.connect().await;
    send(&mut idle, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
    read_answer(&mut idle).await;
    // A reader that would wait for longer than the shutdown may take is let go at once.
    let mut waiting = open.connect().await;
    let path = format!("/v1/sales/{sale}/feed?wait_ms=30000");
    let token = super::ADMIN_TOKEN;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n");
    send(&mut waiting, &request).await;
    let waits = async || {
        let metrics = get("/metrics").send(&edge).await.text;
        // This look at the metrics is in flight itself.
        let line = "stockade_http_requests_in_flight 2";
        metrics.lines().any(|found| found == line).then_some(())
    };
    if let Err(error) = loadtest::servers::eventually("the reader", waits).await {
        let metrics = get("/metrics").send(&edge).await.text;
        let answer = timeout(Duration::from_secs(1), read_answer(&mut waiting)).await;
        panic!("{error:#}: it got {answer:?}\n{metrics}");
    }

    let address = open.address;
    let stopped = tokio::spawn(open.stop());
    let answer = read_answer(&mut waiting).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(read_to_end(&mut idle).await, "");
    stopped.await.unwrap();
    assert!(
        TcpStream::connect(address).await.is_err(),
        "it still listens"
    );
    let late = get("/readyz").send(&edge).await;
    late.assert_problem(503, "not-ready");
}
