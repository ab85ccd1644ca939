//! Deletes journal entries whose purchases are in the ledger. Lazily: nobody waits for it, and an entry
//! that stays behind is only committed once more, which changes nothing.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::live::LiveSale;
use crate::stock::scripts::{self, Entries};

/// A call deletes no more than about this many entries.
const SETTLED_MAX: usize = 256;

/// A journal entry that has done its duty.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) epoch: u64,
    pub(super) segment: u32,
    pub(super) entry: String,
    pub(super) units: u64,
}

/// Deletes a sale's settled journal entries.
#[derive(Debug)]
pub(super) struct Settler {
    live: Arc<LiveSale>,
}

impl Settler {
    pub(super) fn new(live: Arc<LiveSale>) -> Self {
        Self { live }
    }

    /// Serves the queue until the service stops.
    pub(super) async fn run(self, mut queue: mpsc::UnboundedReceiver<Vec<Settled>>) {
        let env = self.live.core.env.clone();
        let mut gathered: Vec<Settled> = Vec::new();
        loop {
            tokio::select! {
                biased;
                Some(settled) = queue.recv() => gathered.extend(settled),
                () = env.stopping() => return,
            }
            while gathered.len() < SETTLED_MAX
                && let Ok(settled) = queue.try_recv()
            {
                gathered.extend(settled);
            }
            crate::crash_point!("settle:before");
            self.delete(&mut gathered).await;
            self.live.forget_all(gathered.drain(..));
        }
    }

    async fn delete(&self, settled: &mut [Settled]) {
        settled.sort_by_key(|one| (one.epoch, one.segment));
        let segments = settled.chunk_by(|a, b| (a.epoch, a.segment) == (b.epoch, b.segment));
        let entries = |same: &[Settled]| Entries {
            keys: self.live.keys(same[0].segment, same[0].epoch),
            entries: same
                .iter()
                .map(|one| (one.entry.clone(), one.units))
                .collect(),
        };
        let segments: Vec<Entries> = segments.map(entries).collect();
        let mut connection = self.live.connection(0);
        let call = scripts::settle(&mut connection, &segments);
        if self.live.within(call).await.is_err() {
            tracing::debug!(sale.id = %self.live.id, "settled journal entries are left to the sweep");
        }
    }
}
