//! What the segments are loaded with, and writing it.

use std::collections::HashMap;

use redis::aio::ConnectionLike;

use super::{Failed, UNFINISHED_MS};
use crate::domain::{OrderId, Sale};
use crate::ledger::Snapshot;
use crate::stock::scripts::{self, Chunk};
use crate::stock::{Calls, SegmentKeys};

/// Fields that one call writes: far below what a script may unpack.
const CHUNK_FIELDS: usize = 1_000;
/// How often a segment whose counts differ is written again before the load is given up.
pub(super) const WRITE_ATTEMPTS: u32 = 3;

/// What one segment is loaded with.
#[derive(Debug, Default)]
pub(super) struct Content {
    available: u64,
    buyers: HashMap<String, u64>,
    requests: Vec<(OrderId, String)>,
}

/// Deals the snapshot out to the segments: buyers and requests to their homes, free units evenly.
pub(super) fn split(snapshot: &Snapshot) -> Vec<Content> {
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
pub(super) async fn write<C: ConnectionLike>(
    calls: Calls,
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
    let meta = meta(sale, content.available);
    for _ in 0..WRITE_ATTEMPTS {
        for chunk in chunks(&buyers, &content.requests) {
            let call = scripts::load_chunk(connection, &keys, UNFINISHED_MS, &chunk);
            calls.within(call).await?;
        }
        let counts = (buyers.len() as u64, content.requests.len() as u64);
        let finish = scripts::load_finish(connection, &keys, counts.0, counts.1, &meta);
        if calls.within(finish).await? {
            return Ok(());
        }
    }
    Err(Failed::NotWhole {
        sale: sale.id,
        segment,
    })
}

fn chunks<'a>(
    buyers: &'a [(String, u64)],
    requests: &'a [(OrderId, String)],
) -> impl Iterator<Item = Chunk> + 'a {
    let buyers = buyers.chunks(CHUNK_FIELDS).map(|buyers| Chunk {
        buyers: buyers.to_vec(),
        requests: Vec::new(),
    });
    let requests = requests.chunks(CHUNK_FIELDS).map(|requests| Chunk {
        buyers: Vec::new(),
        requests: requests.to_vec(),
    });
    buyers.chain(requests)
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
