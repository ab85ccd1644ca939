//! Redis dies and comes back: as it was, older, or as another one.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use loadtest::servers::{Address, Proxy, RedisOptions, RedisServer};

use super::scene::{Scene, Size};
use crate::harness::redis;

/// Nothing is lost, but the process that comes back cannot know that.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_and_a_restart_it_goes_on() {
    let scene = Scene::open(redis().await).await;
    scene
        .play(async |scene| {
            scene.sold_percent(50).await;
            let before = scene.epoch().await;
            scene.deployment.redis.restart().await.unwrap();
            scene.recovers_from("kill -9", before).await;
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_restored_from_an_older_copy_sells_nothing_again() {
    let scene = Scene::open(redis().await).await;
    scene
        .play(async |scene| {
            scene.sold_percent(20).await;
            let copy = scene.deployment.redis.copy_data().unwrap();
            scene.sold_percent(60).await;
            let before = scene.epoch().await;
            scene.deployment.redis.restart_from(&copy).await.unwrap();
            scene.recovers_from("an older copy", before).await;
        })
        .await;
}

/// The machine of Redis loses power, when so much is sold; what was not synced for so long is gone.
async fn power_fails(size: Size, sold_percent: u32, lost: Duration) {
    let stamps = ["--aof-timestamp-enabled", "yes"].map(str::to_owned);
    let options = RedisOptions {
        args: stamps.to_vec(),
        ..RedisOptions::default()
    };
    let redis = RedisServer::start(&options).await.unwrap();
    let scene = Scene::open_as(size, redis, None).await;
    scene
        .play(async |scene| {
            let opened = scene.deployment.redis.data_bytes().unwrap();
            scene.sold_percent(sold_percent).await;
            let (before, crash) = (scene.epoch().await, SystemTime::now());
            let redis = &mut scene.deployment.redis;
            redis.kill9().await.unwrap();
            let cut = redis.cut_data(crash, lost).await.unwrap();
            let left = redis.data_bytes().unwrap();
            assert!(left > opened, "not the tail but the whole sale was cut off");
            redis.restart().await.unwrap();
            println!("{cut} bytes were cut off, {left} are left");
            scene.recovers_from("a cut tail", before).await;
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_second_of_redis_is_lost_and_no_order() {
    power_fails(Size::default(), 75, Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_five_seconds_of_redis_are_lost_and_no_order() {
    let longer = Size {
        buyers: 3_200,
        quantity: 2_850,
        per_second: 500,
    };
    power_fails(longer, 85, Duration::from_secs(5)).await;
}

/// A failover to a replica that had stood still for a while: the master's last writes never reached
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lagged_is_promoted_and_sells_nothing_again() {
    let master = redis().await;
    let port = SocketAddr::from((Ipv4Addr::LOCALHOST, master.tcp_port()));
    // Without it, what the master had sent would wait in the kernel for the replica to wake.
    let link = Proxy::start(Address::Tcp(port)).await.unwrap();
    let replica = RedisServer::start_replica(&RedisOptions::default(), link.address())
        .await
        .unwrap();
    let way = Proxy::start(master.address()).await.unwrap();
    let url = format!("redis://{}", way.address());
    let scene = Scene::open_as(Size::default(), master, Some(url)).await;
    scene
        .play(async |scene| {
            scene.sold_percent(25).await;
            replica.pause().unwrap();
            link.blackhole().await;
            scene.sold_percent(60).await;
            let before = scene.epoch().await;
            let master = &mut scene.deployment.redis;
            let ahead = master.replication_offset().await.unwrap();
            master.kill9().await.unwrap();
            replica.resume().unwrap();
            let behind = replica.replication_offset().await.unwrap();
            assert!(
                behind > 0 && behind < ahead,
                "the replica did not lag: {behind}, {ahead}"
            );
            replica.promote().await.unwrap();
            way.redirect(replica.address());
            println!("the replica lags by {} bytes", ahead - behind);
            scene.recovers_from("a failover", before).await;
        })
        .await;
}
