//! What a private Redis loses, and what it keeps, when a test says so.

use std::time::{Duration, SystemTime};

use redis::AsyncCommands as _;

use super::{Append, RedisOptions, RedisServer};
use crate::servers::{Address, Proxy, eventually};

async fn set(server: &RedisServer, value: &str) {
    let mut connection = server.connection().await.unwrap();
    connection.set::<_, _, ()>("key", value).await.unwrap();
}

async fn get(server: &RedisServer) -> Option<String> {
    let mut connection = server.connection().await.unwrap();
    connection.get("key").await.unwrap()
}

#[tokio::test]
async fn an_older_copy_brings_back_the_older_state() {
    let mut server = RedisServer::start(&RedisOptions::default()).await.unwrap();
    set(&server, "early").await;
    let copy = server.copy_data().unwrap();
    set(&server, "late").await;
    let url = server.url();
    server.restart_from(&copy).await.unwrap();
    assert_eq!(get(&server).await.as_deref(), Some("early"));
    assert_eq!(server.url(), url);
}

#[tokio::test]
async fn what_was_written_in_the_last_second_can_be_cut_off() {
    let stamps = ["--aof-timestamp-enabled", "yes"].map(str::to_owned);
    let options = RedisOptions {
        append: Append::Always,
        args: stamps.to_vec(),
        ..RedisOptions::default()
    };
    let mut server = RedisServer::start(&options).await.unwrap();
    set(&server, "kept").await;
    let began = SystemTime::now();
    // What is to be lost must lie in a later second than what is kept, and what is kept before
    // both.
    let later = async || (began.elapsed().ok()? > Duration::from_secs(4)).then_some(());
    eventually("four seconds to pass", later).await.unwrap();
    set(&server, "lost").await;
    let crash = SystemTime::now();
    server.kill9().await.unwrap();
    let cut = server
        .cut_data(crash, Duration::from_secs(1))
        .await
        .unwrap();
    assert!(cut > 0 && server.data_bytes().unwrap() > 0);
    server.restart().await.unwrap();
    assert_eq!(get(&server).await.as_deref(), Some("kept"));
    server.kill9().await.unwrap();
    let again = server.cut_data(crash, Duration::from_secs(1)).await;
    assert!(again.is_err(), "nothing is left to cut: {again:?}");
}

#[tokio::test]
async fn a_replica_that_was_cut_off_is_promoted_without_the_last_writes() {
    let mut master = RedisServer::start(&RedisOptions::default()).await.unwrap();
    set(&master, "early").await;
    let port = std::net::SocketAddr::from(([127, 0, 0, 1], master.tcp_port()));
    let link = Proxy::start(Address::Tcp(port)).await.unwrap();
    let replica = RedisServer::start_replica(&RedisOptions::default(), link.address())
        .await
        .unwrap();
    let clients = Proxy::start(master.address()).await.unwrap();
    link.blackhole().await;
    set(&master, "late").await;
    let (ahead, behind) = (
        master.replication_offset().await.unwrap(),
        replica.replication_offset().await.unwrap(),
    );
    assert!(ahead > behind, "{ahead}, {behind}");
    master.kill9().await.unwrap();
    replica.promote().await.unwrap();
    clients.redirect(replica.address());
    let client = redis::Client::open(format!("redis://{}", clients.address())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let value: String = connection.get("key").await.unwrap();
    assert_eq!(value, "early");
    connection.set::<_, _, ()>("key", "new").await.unwrap();
}
