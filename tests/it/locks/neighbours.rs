//! Processes of ours and of other people's that contend for one lock: none loses an addition.

use std::path::{Path, PathBuf};

use stockade::env::Env;
use stockade::lock::Released;
use stockade::under_lock::lock;
use tokio::process::Command;

use super::holder::Wanted;
use super::processes::{Contender, ours};
use super::support::take;

/// Of each side.
const PROCESSES: usize = 3;
/// Critical sections of each process: a thousand in all.
const TURNS: u64 = 167;

pub(super) fn script(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/neighbours").join(file)
}

/// Three of ours and three of a neighbour's, all of which have asked before the first one gets it.
pub(super) async fn contend(wanted: &Wanted, flags: &[&str], theirs: impl Fn(&Path) -> Command) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sum");
    std::fs::write(&file, "0").unwrap();
    let env = Env::default();
    let held = take(&lock(&wanted.config(), &env).await.unwrap()).await;
    let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
    for _ in 0..PROCESSES {
        let mut command = ours(wanted, &file, TURNS).await;
        command.args(flags);
        of_ours.push(Contender::ready(command).await);
        let mut command = theirs(&file);
        command.arg(TURNS.to_string());
        of_theirs.push(Contender::ready(command).await);
    }
    assert_eq!(held.release().await, Released::Released);
    let (ours, theirs) = (span(of_ours).await, span(of_theirs).await);
    let all = 2 * PROCESSES as u64 * TURNS;
    let sum = std::fs::read_to_string(&file).unwrap();
    assert_eq!(sum, all.to_string(), "some are lost");
    // They were at it at the same time.
    println!("ours {ours:?}, theirs {theirs:?}");
    assert!(ours.0 < theirs.1 && theirs.0 < ours.1);
}

/// The first and the last number that any of them wrote.
async fn span(contenders: Vec<Contender>) -> (u64, u64) {
    let mut span = (u64::MAX, 0);
    for contender in contenders {
        let (first, last) = contender.ends().await;
        span = (span.0.min(first), span.1.max(last));
    }
    span
}
