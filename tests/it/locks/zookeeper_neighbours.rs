//! Apache Curator and kazoo in one queue with ours.

use std::time::Duration;

use loadtest::servers::{ZookeeperServer, neighbour};
use stockade::lock::Kind;
use tokio::process::Command;

use super::holder::Wanted;
use super::neighbours::{contend, script};

const CURATOR: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar";

async fn queue_with(kind: Kind, name: &str, theirs: impl Fn() -> Command) {
    let server = ZookeeperServer::shared().await.unwrap();
    let wanted = Wanted {
        kind,
        server: format!("zookeeper://{}/neighbours", server.servers()),
        lease: Duration::from_secs(10),
        name: name.into(),
    };
    contend(&wanted, &[], |file| {
        let mut command = theirs();
        command
            .args([server.servers(), format!("/neighbours/{name}")])
            .arg(file);
        command
    })
    .await;
}

/// Real Curator, from its source by Java's launcher.
fn curator(lock: &str) -> Command {
    let mut java = Command::new("java");
    java.args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-cp", CURATOR])
        .arg(script("Curator.java"))
        .arg(lock);
    java
}

fn kazoo(names: &str) -> Command {
    let mut python = Command::new(neighbour("venv/bin/python").unwrap());
    python.arg(script("kazoo_lock.py")).arg(names);
    python
}

#[tokio::test]
async fn ours_and_curators_mutex_exclude_each_other() {
    queue_with(Kind::Zookeeper, "mutex", || curator("mutex")).await;
}

#[tokio::test]
async fn ours_and_curators_write_lock_exclude_each_other() {
    queue_with(Kind::ZookeeperReadWrite, "write", || curator("write")).await;
}

/// Under kazoo's own node names: ours waits for them unasked, kazoo has to be told of ours.
#[tokio::test]
async fn ours_and_kazoos_lock_exclude_each_other() {
    queue_with(Kind::Zookeeper, "kazoo", || kazoo("mixed")).await;
}
