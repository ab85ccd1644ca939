//! Redis runs on, but keys are gone, or there is no room for new ones.

use std::time::Duration;

use redis::AsyncCommands as _;
use stockade::domain::SaleId;
use stockade::stock::SegmentKeys;

use super::scene::{SEGMENTS, Scene};
use crate::harness::redis;

const OUT_OF_MEMORY: Duration = Duration::from_secs(2);

impl Scene {
    async fn keys(&self, segment: u32) -> (SegmentKeys, u64) {
        let epoch = self.epoch().await;
        let sale = SaleId::new(self.sale.into()).unwrap();
        (SegmentKeys::new(sale, segment, epoch), epoch)
    }

    /// All three processes notice the fault, and they do not duel.
    async fn recovers_with_one_load_from(&self, what: &str, before: u64) {
        self.recovers_from(what, before).await;
        let loads = self.epoch().await - before;
        self.is_so(loads <= 1, what, &format!("loaded {loads} times"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_it_sells_the_rest_to_other_buyers() {
    let scene = Scene::open(redis().await).await;
    scene
        .play(async |scene| {
            scene.sold_percent(50).await;
            let before = scene.epoch().await;
            let mut redis = scene.deployment.redis.connection().await.unwrap();
            redis.flushall::<()>().await.unwrap();
            scene.recovers_with_one_load_from("FLUSHALL", before).await;
        })
        .await;
}

/// One by one, as an eviction or a slip would take them: the segment as a whole is not believed
/// then.
#[tokio::test(flavor = "multi_thread")]
async fn each_key_of_a_segment_is_missed_and_the_sale_loaded_again() {
    let scene = Scene::open(redis().await).await;
    scene
        .play(async |scene| {
            let names = ["buyers", "requests", "journal", "meta", "transfers"];
            for (number, name) in (0_u32..).zip(names) {
                scene.sold_percent(15 * (number + 1)).await;
                let (keys, before) = scene.keys(number % SEGMENTS).await;
                let all = keys.all();
                let key = all.into_iter().find(|key| key.ends_with(name)).unwrap();
                let mut redis = scene.deployment.redis.connection().await.unwrap();
                let deleted: u32 = redis.del(key).await.unwrap();
                assert_eq!(
                    deleted, 1,
                    "{key} was not there: the fault was not injected"
                );
                scene.recovers_with_one_load_from(key, before).await;
            }
        })
        .await;
}

/// A slip of somebody who has the same Redis for other things.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_or_without_its_figures_is_missed_and_the_sale_loaded_again() {
    let scene = Scene::open(redis().await).await;
    scene
        .play(async |scene| {
            let names = ["meta", "journal", "transfers", "buyers", "requests"];
            for (number, name) in (0_u32..).zip(names) {
                scene.sold_percent(12 * (number + 1)).await;
                let (keys, before) = scene.keys(number % SEGMENTS).await;
                let all = keys.all();
                let key = all.into_iter().find(|key| key.ends_with(name)).unwrap();
                let mut redis = scene.deployment.redis.connection().await.unwrap();
                redis.set::<_, _, ()>(key, "foreign").await.unwrap();
                let what = format!("{key} of another type");
                scene.recovers_with_one_load_from(&what, before).await;
            }
            scene.sold_percent(75).await;
            let (keys, before) = scene.keys(4).await;
            let mut redis = scene.deployment.redis.connection().await.unwrap();
            let deleted: u32 = redis.hdel(&keys.meta, "available").await.unwrap();
            assert_eq!(deleted, 1, "the fault was not injected");
            let what = "a segment without its units";
            scene.recovers_with_one_load_from(what, before).await;
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_one_of_eight_segments_is_gone_the_whole_sale_is_loaded_again() {
    let scene = Scene::open(redis().await).await;
    scene
        .play(async |scene| {
            scene.sold_percent(50).await;
            let (keys, before) = scene.keys(5).await;
            let mut redis = scene.deployment.redis.connection().await.unwrap();
            let deleted: u32 = redis.del(&keys.all()).await.unwrap();
            assert_eq!(deleted, 5, "the fault was not injected");
            scene
                .recovers_with_one_load_from("the loss of segment 5", before)
                .await;
        })
        .await;
}

/// Nothing is lost then, so nothing is loaded again: scripts are refused whole until there is room.
#[tokio::test(flavor = "multi_thread")]
async fn two_seconds_without_memory_delay_purchases_and_lose_nothing() {
    let scene = Scene::open(redis().await).await;
    scene
        .play(async |scene| {
            scene.sold_percent(40).await;
            let before = scene.epoch().await;
            let server = &scene.deployment.redis;
            let used = server.info("used_memory").await.unwrap();
            let mut redis = server.connection().await.unwrap();
            let mut bound = async |bytes: &str| {
                let mut set = redis::cmd("CONFIG");
                set.arg("SET").arg("maxmemory").arg(bytes);
                set.query_async::<()>(&mut redis).await.unwrap();
            };
            bound(&used).await;
            tokio::time::sleep(OUT_OF_MEMORY).await;
            bound("0").await;
            let refused = server.info("errorstat_OOM").await;
            let refused = refused.expect("no script was refused: the fault was not injected");
            println!("at {used} bytes, Redis refused scripts: {refused}");
            scene.sold_percent(60).await;
            assert_eq!(scene.epoch().await, before, "loaded again without need");
        })
        .await;
}
