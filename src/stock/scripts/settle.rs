//! `settle.lua`: deletes journal entries.

use redis::aio::ConnectionLike;

use super::{SETTLE, run};
use crate::stock::{Error, SegmentKeys};

/// Journal entries of one segment whose purchases are all in the ledger.
#[derive(Debug, Clone)]
pub struct Entries {
    /// Where they are.
    pub keys: SegmentKeys,
    /// Id and units of each.
    pub entries: Vec<(String, u64)>,
}

/// Deletes journal entries of one or more segments: see `settle.lua`. Returns how many were there.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn settle<C: ConnectionLike>(
    connection: &mut C,
    segments: &[Entries],
) -> Result<u64, Error> {
    let keys: Vec<&str> = segments
        .iter()
        .flat_map(|segment| [segment.keys.meta.as_str(), &segment.keys.journal])
        .collect();
    run(connection, &SETTLE, &keys, |call| {
        for segment in segments {
            call.arg(segment.entries.len());
            for (id, units) in &segment.entries {
                call.arg(id).arg(units);
            }
        }
    })
    .await
}
