//! The proxy between a client and an echo server, and between a client and a real Redis.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::{Address, Direction, Proxy};
use crate::servers::{RedisOptions, RedisServer, eventually};

/// Sends back what it gets, until its client closes.
async fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = client.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    address
}

async fn echo_proxy() -> Proxy {
    Proxy::start(Address::Tcp(echo_server().await))
        .await
        .unwrap()
}

async fn client(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn exchange(client: &mut TcpStream, text: &str) -> std::io::Result<String> {
    client.write_all(text.as_bytes()).await?;
    let mut reply = vec![0; text.len()];
    client.read_exact(&mut reply).await?;
    Ok(String::from_utf8(reply).unwrap())
}

fn is_broken(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

#[tokio::test]
async fn bytes_pass_both_ways_and_the_end_of_one_side_reaches_the_other() {
    let proxy = echo_proxy().await;
    let mut client = client(&proxy).await;
    let large = "x".repeat(1_000_000);
    let (mut read, mut write) = client.split();
    let mut reply = String::new();
    let send = async {
        write.write_all(large.as_bytes()).await.unwrap();
        write.shutdown().await.unwrap();
    };
    tokio::join!(send, async {
        read.read_to_string(&mut reply).await.unwrap()
    });
    assert!(reply == large, "{} bytes came back", reply.len());
    let counts = proxy.counts();
    assert_eq!(
        (counts.connections, counts.resets, counts.delayed),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn a_delay_is_added_once_however_many_pieces_are_under_way() {
    let proxy = echo_proxy().await;
    let mut client = client(&proxy).await;
    let delay = Duration::from_millis(100);
    proxy.delay(Direction::ToServer, delay);
    let start = Instant::now();
    for _ in 0..20 {
        client.write_all(b"piece").await.unwrap();
        tokio::task::yield_now().await;
    }
    client.read_exact(&mut [0; 100]).await.unwrap();
    let taken = start.elapsed();
    assert!(
        taken >= delay && taken < 5 * delay,
        "20 pieces took {taken:?}"
    );
    assert!(proxy.counts().delayed >= 1);
}

#[tokio::test]
async fn a_cut_resets_connections_and_refuses_new_ones_until_it_is_restored() {
    let proxy = echo_proxy().await;
    let mut before = client(&proxy).await;
    assert_eq!(exchange(&mut before, "one").await.unwrap(), "one");
    proxy.cut().await;
    let error = exchange(&mut before, "two").await.unwrap_err();
    assert!(is_broken(&error), "{error}");
    let error = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    proxy.restore().await;
    let mut after = client(&proxy).await;
    assert_eq!(exchange(&mut after, "three").await.unwrap(), "three");
    assert_eq!(proxy.counts().resets, 1);
}

#[tokio::test]
async fn a_black_hole_takes_everything_and_answers_nothing() {
    let proxy = echo_proxy().await;
    let mut before = client(&proxy).await;
    assert_eq!(exchange(&mut before, "one").await.unwrap(), "one");
    proxy.blackhole().await;
    let mut during = client(&proxy).await;
    before.write_all(b"two").await.unwrap();
    during.write_all(b"three").await.unwrap();
    let swallowed = async || (proxy.counts().swallowed_bytes == 8).then_some(());
    eventually("8 bytes to be swallowed", swallowed)
        .await
        .unwrap();
    proxy.restore().await;
    for client in [&mut before, &mut during] {
        let error = client.read_exact(&mut [0]).await.unwrap_err();
        assert!(is_broken(&error), "{error}");
    }
    assert_eq!(
        exchange(&mut client(&proxy).await, "four").await.unwrap(),
        "four"
    );
}

#[tokio::test]
async fn a_pattern_that_arrives_in_two_pieces_is_found() {
    let proxy = echo_proxy().await;
    let mut client = client(&proxy).await;
    proxy.drop_next_reply(b"PATTERN");
    assert_eq!(exchange(&mut client, "PAT").await.unwrap(), "PAT");
    let error = exchange(&mut client, "TERN").await.unwrap_err();
    assert!(is_broken(&error), "{error}");
    assert_eq!(proxy.counts().replies_dropped, 1);
}

#[tokio::test]
async fn a_reply_that_never_came_does_not_count_as_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(Address::Tcp(listener.local_addr().unwrap()))
        .await
        .unwrap();
    proxy.drop_next_reply(b"");
    let mut client = client(&proxy).await;
    client.write_all(b"anybody there?").await.unwrap();
    drop(listener.accept().await.unwrap());
    client.read_exact(&mut [0]).await.unwrap_err();
    assert_eq!(proxy.counts().replies_dropped, 0);
}

/// A proxy before a real Redis, and the server behind it.
async fn redis_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    (server, proxy)
}

async fn redis_client(proxy: &Proxy) -> redis::aio::MultiplexedConnection {
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    redis::Client::open(url)
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap()
}

async fn counter(server: &RedisServer) -> Option<i64> {
    let mut direct = server.connection().await.unwrap();
    redis::cmd("GET")
        .arg("counter")
        .query_async(&mut direct)
        .await
        .unwrap()
}

#[tokio::test]
async fn the_server_executes_the_command_whose_reply_is_dropped() {
    let (server, proxy) = redis_proxy().await;
    let mut client = redis_client(&proxy).await;
    proxy.drop_next_reply(b"INCR");
    // Does not contain the pattern, so it passes.
    redis::cmd("PING")
        .query_async::<String>(&mut client)
        .await
        .unwrap();
    let answer = redis::cmd("INCR")
        .arg("counter")
        .query_async::<i64>(&mut client)
        .await;
    let error = answer.expect_err("the reply must not arrive");
    assert!(
        error.is_io_error() || error.is_connection_dropped(),
        "{error}"
    );
    assert_eq!(counter(&server).await, Some(1));
    assert_eq!(proxy.counts().replies_dropped, 1);
    let mut next = redis_client(&proxy).await;
    let second: i64 = redis::cmd("INCR")
        .arg("counter")
        .query_async(&mut next)
        .await
        .unwrap();
    assert_eq!(second, 2, "only one reply is dropped");
}

#[tokio::test]
async fn a_held_command_arrives_after_its_client_has_gone_on() {
    let (server, proxy) = redis_proxy().await;
    let mut client = redis_client(&proxy).await;
    let mut held = proxy.hold_next_request(b"INCRBY");
    let answer = redis::cmd("INCRBY")
        .arg("counter")
        .arg(10)
        .query_async::<i64>(&mut client)
        .await;
    answer.expect_err("the command is held");
    held.caught().await.unwrap();
    let mut second = redis_client(&proxy).await;
    let one: i64 = redis::cmd("INCR")
        .arg("counter")
        .query_async(&mut second)
        .await
        .unwrap();
    assert_eq!(one, 1, "the held command has not arrived yet");
    assert_eq!(held.deliver().await.unwrap(), b":11\r\n");
    assert_eq!(counter(&server).await, Some(11));
    let counts = proxy.counts();
    assert_eq!((counts.requests_held, counts.requests_delivered), (1, 1));
}

#[tokio::test]
async fn a_held_command_outlives_a_cut_and_is_lost_with_its_handle() {
    let (server, proxy) = redis_proxy().await;
    let mut client = redis_client(&proxy).await;
    let mut held = proxy.hold_next_request(b"INCR");
    redis::cmd("INCR")
        .arg("counter")
        .query_async::<i64>(&mut client)
        .await
        .unwrap_err();
    held.caught().await.unwrap();
    proxy.cut().await;
    proxy.restore().await;
    drop(held);
    assert_eq!(counter(&server).await, None);
    assert_eq!(proxy.counts().requests_delivered, 0);
}
