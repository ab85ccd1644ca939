//! Writing a sale's stock into Redis under a new epoch.
//!
//! One procedure for every cause: first opening, a lost or foreign Redis, a changed quantity. The caller
//! has fenced the old epoch in the ledger; what follows here is seal, adopt, load and finish. Every step
//! may be repeated, and a loader that was overtaken changes nothing that anyone reads: the ledger
//! refuses it, and its keys carry its own epoch.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::ConnectionLike;

use super::redis::send;
use super::scripts::{self, Chunk};
use super::{Error, SegmentKeys, journal};
use crate::domain::{Purchase, Sale, SaleId};
use crate::ledger::{self, Adopted, COMMIT_MAX, Ledger, Snapshot};

/// How long the ledger keeps others from loading after the loader's last sign of life.
pub const LEASE: Duration = Duration::from_secs(3);
/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Keys of an unfinished load run out after this.
const UNFINISHED_MS: u64 = 600_000;
/// Fields that one call writes: far below what a script may unpack.
const CHUNK_FIELDS: usize = 1_000;
/// How often a segment whose counts differ is written again before the load is given up.
const WRITE_ATTEMPTS: u32 = 3;
/// Epochs before the last loaded one whose keys are deleted again, in case that failed before.
const EPOCHS_SWEPT: u64 = 4;

/// A load did not end.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Another loader began after this one; its load counts.
    #[error("another loader has taken over")]
    Overtaken,
    /// Redis did not take it.
    #[error(transparent)]
    Redis(#[from] Error),
    /// The ledger did not answer.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// Redis loses what is written to it.
    #[error("segment {segment} of sale {sale} was not whole after {WRITE_ATTEMPTS} attempts")]
    NotWhole {
        /// The sale.
        sale: SaleId,
        /// The segment.
        segment: u32,
    },
}

/// Loads `sale`, which this caller has fenced under its current epoch. Returns what was adopted from the
/// epoch before.
///
/// # Errors
/// [`Failed`]; the sale stays in stage loading until the lease runs out or someone tries again.
pub async fn load<C: ConnectionLike>(
    connection_of: impl Fn(u32) -> C,
    ledger: &Ledger,
    sale: &Sale,
) -> Result<Adopted, Failed> {
    tokio::select! {
        loaded = load_once(connection_of, ledger, sale) => loaded,
        failed = keep_lease(ledger, sale) => Err(failed),
    }
}

/// Renews the lease until this loader is overtaken.
async fn keep_lease(ledger: &Ledger, sale: &Sale) -> Failed {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        match ledger.renew_load(sale.id, sale.epoch, LEASE).await {
            Ok(true) => {}
            Ok(false) => return Failed::Overtaken,
            Err(error) => tracing::debug!(sale.id = %sale.id, error = %error, "lease not renewed"),
        }
    }
}

async fn load_once<C: ConnectionLike>(
    connection_of: impl Fn(u32) -> C,
    ledger: &Ledger,
    sale: &Sale,
) -> Result<Adopted, Failed> {
    let adopted = adopt(&connection_of, ledger, sale).await?;
    crate::crash_point!("load:adopted");
    let snapshot = ledger
        .snapshot(sale.id, sale.epoch)
        .await?
        .ok_or(Failed::Overtaken)?;
    crate::crash_point!("load:read");
    fill(&connection_of, &snapshot).await?;
    crate::crash_point!("load:written");
    if !ledger.finish_load(sale.id, sale.epoch).await? {
        return Err(Failed::Overtaken);
    }
    crate::crash_point!("load:finished");
    for segment in 0..snapshot.sale.terms.segments {
        sweep(&mut connection_of(segment), sale, segment).await;
    }
    Ok(adopted)
}

/// Seals every epoch that may have sold since the last finished load, and takes what the journals hold
/// into the ledger.
///
/// A loader may have died between its fence and its adoption: the epoch before this one can be its
/// empty one, and the one that sold lies further back. All are sealed before the first is adopted: a
/// segment that still sells could write entries behind the reader.
async fn adopt<C: ConnectionLike>(
    connection_of: &impl Fn(u32) -> C,
    ledger: &Ledger,
    sale: &Sale,
) -> Result<Adopted, Failed> {
    let epochs = sale.loaded_epoch.max(1)..sale.epoch;
    let mut left = Vec::new();
    for epoch in epochs {
        for segment in 0..sale.terms.segments {
            let keys = SegmentKeys::new(sale.id, segment, epoch);
            let (_, entries) = scripts::seal(&mut connection_of(segment), &keys).await?;
            if entries > 0 {
                left.push((segment, keys));
            }
        }
    }
    crate::crash_point!("load:sealed");
    let mut total = Adopted::default();
    for (segment, keys) in left {
        adopt_journal(&mut connection_of(segment), ledger, sale, &keys, &mut total).await?;
    }
    Ok(total)
}

async fn adopt_journal<C: ConnectionLike>(
    connection: &mut C,
    ledger: &Ledger,
    sale: &Sale,
    keys: &SegmentKeys,
    total: &mut Adopted,
) -> Result<(), Failed> {
    let mut after: Option<String> = None;
    loop {
        let entries = journal::read(connection, keys, after.as_deref()).await?;
        let Some(last) = entries.last() else {
            return Ok(());
        };
        after = Some(last.id.clone());
        let found: Vec<Purchase> = entries
            .into_iter()
            .flat_map(|entry| entry.purchases)
            .collect();
        for group in found.chunks(COMMIT_MAX) {
            adopt_group(ledger, sale, group, total).await?;
        }
    }
}

/// Adopts purchases; those that the database refuses for good are found by halving, and recorded as
/// rejected.
async fn adopt_group(
    ledger: &Ledger,
    sale: &Sale,
    group: &[Purchase],
    total: &mut Adopted,
) -> Result<(), Failed> {
    match ledger.adopt(sale.id, sale.epoch, group).await {
        Ok(Some(one)) => {
            total.committed += one.committed;
            total.rejected += one.rejected;
            total.known += one.known;
            Ok(())
        }
        Ok(None) => Err(Failed::Overtaken),
        Err(ledger::Error::Permanent(_)) if group.len() > 1 => {
            let (first, second) = group.split_at(group.len() / 2);
            Box::pin(adopt_group(ledger, sale, first, total)).await?;
            Box::pin(adopt_group(ledger, sale, second, total)).await
        }
        Err(ledger::Error::Permanent(_)) => {
            ledger.reject(sale.id, &group[0], None).await?;
            total.rejected += 1;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes all segments of a snapshot, under its epoch, and checks that they arrived whole.
///
/// # Errors
/// [`Failed::Redis`] and [`Failed::NotWhole`]; idempotent.
pub async fn fill<C: ConnectionLike>(
    connection_of: &impl Fn(u32) -> C,
    snapshot: &Snapshot,
) -> Result<(), Failed> {
    for (segment, content) in (0..).zip(split(snapshot)) {
        let mut connection = connection_of(segment);
        write(&mut connection, &snapshot.sale, segment, &content).await?;
    }
    Ok(())
}

/// What one segment is loaded with.
#[derive(Debug, Default)]
struct Content {
    available: u64,
    buyers: HashMap<String, u64>,
    requests: Vec<(crate::domain::OrderId, String)>,
}

/// Deals the snapshot out to the segments: buyers and requests to their homes, free units evenly.
fn split(snapshot: &Snapshot) -> Vec<Content> {
    let segments = snapshot.sale.terms.segments;
    let free = snapshot.sale.free();
    let (share, rest) = (free / u64::from(segments), free % u64::from(segments));
    let mut contents: Vec<Content> = (0..u64::from(segments))
        .map(|n| Content {
            available: share + u64::from(n < rest),
            ..Content::default()
        })
        .collect();
    for order in &snapshot.orders {
        let content = &mut contents[order.id.home(segments) as usize];
        let ended = if order.active { "" } else { "r" };
        content
            .requests
            .push((order.id, format!("{}{ended}", order.quantity)));
        if order.active {
            let units = content.buyers.entry(order.buyer.to_string()).or_default();
            *units += u64::from(order.quantity);
        }
    }
    contents
}

/// Writes one segment and checks that it arrived whole.
async fn write<C: ConnectionLike>(
    connection: &mut C,
    sale: &Sale,
    segment: u32,
    content: &Content,
) -> Result<(), Failed> {
    let keys = SegmentKeys::new(sale.id, segment, sale.epoch);
    let buyers: Vec<(String, u64)> = content
        .buyers
        .iter()
        .map(|(buyer, units)| (buyer.clone(), *units))
        .collect();
    for _ in 0..WRITE_ATTEMPTS {
        for buyers in buyers.chunks(CHUNK_FIELDS) {
            let chunk = Chunk {
                buyers: buyers.to_vec(),
                requests: Vec::new(),
            };
            scripts::load_chunk(connection, &keys, UNFINISHED_MS, &chunk).await?;
        }
        for requests in content.requests.chunks(CHUNK_FIELDS) {
            let chunk = Chunk {
                buyers: Vec::new(),
                requests: requests.to_vec(),
            };
            scripts::load_chunk(connection, &keys, UNFINISHED_MS, &chunk).await?;
        }
        let (buyers, requests) = (buyers.len() as u64, content.requests.len() as u64);
        let meta = meta(sale, content.available);
        if scripts::load_finish(connection, &keys, buyers, requests, &meta).await? {
            return Ok(());
        }
    }
    Err(Failed::NotWhole {
        sale: sale.id,
        segment,
    })
}

/// The fields of `meta` at the end of a load; `load_finish.lua` adds the token.
fn meta(sale: &Sale, available: u64) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("available", available.to_string()),
        ("filled", available.to_string()),
        ("per_buyer_limit", sale.terms.per_buyer_limit.to_string()),
        ("control", sale.control.to_string()),
    ];
    let times = [
        ("opens_at_ms", sale.terms.opens_at),
        ("closes_at_ms", sale.terms.closes_at),
    ];
    fields.extend(
        times
            .into_iter()
            .filter_map(|(name, at)| Some((name, at?.millis().to_string()))),
    );
    let switches = [
        ("paused", sale.paused),
        ("closed", sale.closed),
        ("sold_out", sale.is_sold_out()),
    ];
    fields.extend(
        switches
            .into_iter()
            .filter(|(_, on)| *on)
            .map(|(name, _)| (name, "1".to_owned())),
    );
    fields
}

/// Deletes what older epochs left; all of it is adopted. A failure is left to the next load: the keys
/// are only memory.
async fn sweep<C: ConnectionLike>(connection: &mut C, sale: &Sale, segment: u32) {
    for epoch in sale.loaded_epoch.saturating_sub(EPOCHS_SWEPT)..sale.epoch {
        let keys = SegmentKeys::new(sale.id, segment, epoch);
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(&keys.all());
        if let Err(error) = send(connection, &unlink).await {
            tracing::debug!(sale.id = %sale.id, segment, error = %error, "old epoch not deleted");
        }
    }
}

/// Lets a segment's keys run out after `retention`: nothing in them is needed any more.
///
/// # Errors
/// See [`Error`]; idempotent, and each call begins the time anew.
pub async fn expire<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    retention: Duration,
) -> Result<(), Error> {
    let millis = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let mut pipeline = redis::pipe();
    for key in keys.all() {
        pipeline.cmd("PEXPIRE").arg(key).arg(millis).ignore();
    }
    pipeline.query_async::<()>(connection).await?;
    Ok(())
}
