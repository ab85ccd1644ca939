//! What a lock costs: `cargo run --release --all-features --example locks [-- PART…]`.
//!
//! *Uncontended*: acquire and release beside two bare round trips to the same server, in turns, medians.
//! *Handed over*: so many tasks take, hold and release one lock in a loop: grants per second, how long a free
//! lock waits for its next holder, how even the shares are (Jain's index), the longest wait in medians, and
//! calls to Redis for each grant. Neighbours do the same beside ours: `rslock`, redis-py, npm's `redlock`.
//!
//! With PART, only locks and neighbours whose line begins with it.

mod backends;
mod contended;
mod counted;
mod neighbours;
mod uncontended;

use anyhow::Result;

/// Whether the command line asks for this line.
fn is_wanted(label: &str) -> bool {
    let mut parts = std::env::args().skip(1).peekable();
    parts.peek().is_none() || parts.any(|part| label.starts_with(&part))
}

#[tokio::main]
async fn main() -> Result<()> {
    let (backends, _servers) = backends::start().await?;
    let neighbours = neighbours::start().await?;
    println!("uncontended: acquire and release, against two bare round trips");
    for backend in backends.iter().filter(|it| is_wanted(&it.label)) {
        uncontended::measure(backend).await?;
    }
    for neighbour in neighbours.iter().filter(|it| is_wanted(&it.label)) {
        neighbour.uncontended().await?;
    }
    contended::header();
    for waiters in [2, 16, 64] {
        for backend in backends.iter().filter(|it| is_wanted(&it.label)) {
            for (waiting, words) in &backend.waitings {
                contended::measure(backend, *waiting, words, waiters).await?;
            }
        }
        for neighbour in neighbours.iter().filter(|it| is_wanted(&it.label)) {
            neighbour.contended(waiters).await?;
        }
    }
    Ok(())
}

fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    values[values.len() / 2]
}
