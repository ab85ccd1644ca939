//! Other people's locks, measured in the same way: rslock in this process, redis-py and npm's redlock in theirs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loadtest::servers::{RedisOptions, RedisServer, neighbour};
use redis::aio::ConnectionManager;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::contended::{self, CONTENDED_FOR, Turn};
use crate::uncontended;

const LEASE: Duration = Duration::from_secs(10);
const UNCONTENDED_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Neighbour {
    pub(crate) label: String,
    kind: Kind,
    redis: RedisServer,
}

enum Kind {
    Rslock,
    /// A program, and the script that it runs.
    Script(PathBuf, PathBuf),
}

/// Those that are installed; the others are named.
pub(crate) async fn start() -> Result<Vec<Neighbour>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/locks");
    // One that is not there cannot be run, which is said where its figures would be.
    let python = neighbour("venv/bin/python").unwrap_or_else(|_| "venv/bin/python".into());
    let mut all = Vec::new();
    for (label, kind) in [
        ("rslock", Kind::Rslock),
        ("redis-py", Kind::Script(python, here.join("redis_py.py"))),
        (
            "npm redlock",
            Kind::Script("node".into(), here.join("redlock.js")),
        ),
    ] {
        if !crate::is_wanted(label) {
            continue;
        }
        let redis = RedisServer::start(&RedisOptions::default()).await?;
        let label = label.to_owned();
        all.push(Neighbour { label, kind, redis });
    }
    Ok(all)
}

impl Neighbour {
    pub(crate) async fn uncontended(&self) -> Result<()> {
        let (locked, bare) = match &self.kind {
            Kind::Rslock => self.rslock_uncontended().await?,
            Kind::Script(program, script) => {
                let Ok(said) = self.say(program, script, 1, UNCONTENDED_FOR).await else {
                    println!("  {:<24} not installed: scripts/install test", self.label);
                    return Ok(());
                };
                let count = u32::try_from(said.turns.len())?;
                let last = said.turns.last().context("no turn")?;
                (last.3 / count, said.bare)
            }
        };
        uncontended::print(&self.label, locked, bare);
        Ok(())
    }

    pub(crate) async fn contended(&self, tasks: usize) -> Result<()> {
        let mut shares: Vec<Vec<Turn>> = Vec::new();
        shares.resize_with(tasks, Vec::new);
        match &self.kind {
            Kind::Rslock => shares = self.rslock_contended(tasks).await?,
            Kind::Script(program, script) => {
                let Ok(said) = self.say(program, script, tasks, CONTENDED_FOR).await else {
                    return Ok(());
                };
                for (task, asked, granted, freed) in said.turns {
                    shares[task].push(Turn {
                        asked,
                        granted,
                        freed,
                    });
                }
            }
        }
        contended::print(&self.label, "its default", shares, None);
        Ok(())
    }

    async fn rslock_uncontended(&self) -> Result<(Duration, Duration)> {
        let manager = rslock::LockManager::new(vec![self.redis.url()]);
        let client = redis::Client::open(self.redis.url())?;
        let mut connection = ConnectionManager::new(client).await?;
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < UNCONTENDED_FOR {
            manager.acquire("rslock", LEASE).await?.release().await;
            count += 1;
        }
        let locked = began.elapsed() / count;
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < UNCONTENDED_FOR {
            let mut set = redis::cmd("SET");
            let () = set
                .arg("bare")
                .arg("0123456789abcdef")
                .query_async(&mut connection)
                .await?;
            count += 1;
        }
        Ok((locked, began.elapsed() * 2 / count))
    }

    async fn rslock_contended(&self, tasks: usize) -> Result<Vec<Vec<Turn>>> {
        let mut manager = rslock::LockManager::new(vec![self.redis.url()]);
        // Its retries are bounded by count; here they are to last as long as the run.
        manager.set_retry(3, Duration::from_millis(200));
        let began = Instant::now();
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let manager = manager.clone();
            running.spawn(async move {
                let mut turns = Vec::new();
                while began.elapsed() < CONTENDED_FOR {
                    let asked = began.elapsed();
                    let left = CONTENDED_FOR - asked;
                    let acquiring = tokio::time::timeout(left, manager.acquire("contended", LEASE));
                    let Ok(Ok(guard)) = acquiring.await else {
                        break;
                    };
                    let granted = began.elapsed();
                    tokio::task::yield_now().await;
                    let freed = began.elapsed();
                    guard.release().await;
                    turns.push(Turn {
                        asked,
                        granted,
                        freed,
                    });
                }
                turns
            });
        }
        Ok(running.join_all().await)
    }

    /// Runs the script, which prints two bare round trips in seconds, then a line for each turn.
    async fn say(
        &self,
        program: &Path,
        script: &Path,
        tasks: usize,
        time: Duration,
    ) -> Result<Said> {
        let modules = neighbour("node/node_modules")?;
        let output = Command::new(program)
            .arg(script)
            .arg(self.redis.url())
            .arg(tasks.to_string())
            .arg(time.as_secs_f64().to_string())
            .env("NODE_PATH", modules)
            .output()
            .await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {errors}", program.display());
        Said::parse(&String::from_utf8_lossy(&output.stdout)).context("the script's lines")
    }
}

struct Said {
    bare: Duration,
    /// Task, and when it asked, was granted, and freed.
    turns: Vec<(usize, Duration, Duration, Duration)>,
}

impl Said {
    fn parse(text: &str) -> Option<Self> {
        let seconds = |text: &str| Some(Duration::from_secs_f64(text.parse().ok()?));
        let mut lines = text.lines();
        let bare = seconds(lines.next()?)?;
        let turn = |line: &str| {
            let mut words = line.split(' ');
            Some((
                words.next()?.parse().ok()?,
                seconds(words.next()?)?,
                seconds(words.next()?)?,
                seconds(words.next()?)?,
            ))
        };
        let turns = lines.map(turn).collect::<Option<_>>()?;
        Some(Self { bare, turns })
    }
}
