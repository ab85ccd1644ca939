//! Reading all segments of a sale at about one time.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::live::LiveSale;
use super::loading::LoadCause;
use crate::domain::Sale;
use crate::stock::Error;
use crate::stock::collect::Reading;
use crate::stock::scripts::{self, Figures, Presence};

impl LiveSale {
    /// The figures of all segments under the row's epoch, each of one instant.
    ///
    /// # Errors
    /// See [`Error`].
    pub(super) async fn read_segments(&self, row: &Sale) -> Result<Reading, Error> {
        let all = (0..row.terms.segments).map(|segment| self.read_segment(row, segment));
        try_join_all(all).await.map(Reading::of)
    }

    /// The figures of one segment.
    ///
    /// # Errors
    /// See [`Error`].
    pub(super) async fn read_segment(&self, row: &Sale, segment: u32) -> Result<Figures, Error> {
        let (mut connection, keys) = (self.connection(segment), self.keys(segment, row.epoch));
        self.within(scripts::figures(&mut connection, &keys)).await
    }

    /// Takes note that a segment is not there under this epoch.
    pub(super) async fn not_there(self: &Arc<Self>, epoch: u64, presence: Presence) {
        match presence {
            Presence::Loaded => {}
            // Gone because a newer epoch has begun: nothing is lost.
            _ if self.refresh().await.is_ok_and(|row| row.epoch > epoch) => {}
            Presence::Absent => self.mark_lost(epoch, LoadCause::NotLoaded),
            // The ledger has not moved: a restored Redis, or a fence under way.
            Presence::Sealed => self.mark_lost(epoch, LoadCause::Sealed),
        }
    }
}
