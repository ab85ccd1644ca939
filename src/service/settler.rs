//! Deletes journal entries whose purchases are in the ledger. Lazily: nobody waits for it, and an entry
//! that stays behind is only committed once more, which changes nothing.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::live::LiveSale;
use crate::stock::scripts;

/// The most entries that one call deletes.
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
    pub(super) async fn run(self, mut queue: mpsc::UnboundedReceiver<Settled>) {
        let env = self.live.core.env.clone();
        let mut gathered: Vec<Settled> = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = queue.recv_many(&mut gathered, SETTLED_MAX) => {}
                () = env.stopping() => return,
            }
            crate::crash_point!("settle:before");
            gathered.sort_by_key(|settled| (settled.epoch, settled.segment));
            for same in gathered.chunk_by(|a, b| (a.epoch, a.segment) == (b.epoch, b.segment)) {
                self.delete(same).await;
            }
            gathered.clear();
        }
    }

    async fn delete(&self, settled: &[Settled]) {
        let Some(Settled { epoch, segment, .. }) = settled.first() else {
            return;
        };
        let mut connection = self.live.connection(*segment);
        let keys = self.live.keys(*segment, *epoch);
        let entries: Vec<(String, u64)> = settled
            .iter()
            .map(|one| (one.entry.clone(), one.units))
            .collect();
        let call = scripts::settle(&mut connection, &keys, &entries);
        if self.live.within(call).await.is_err() {
            tracing::debug!(sale.id = %self.live.id, "settled journal entries are left to the sweep");
        }
        for one in settled {
            self.live.forget(one.epoch, one.segment, &one.entry);
        }
    }
}
