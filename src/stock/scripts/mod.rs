//! The Lua scripts, each with one typed function. Nobody else calls Redis' scripting.
//!
//! The functions are generic over the connection, so that a wrapper may hold back, record or break each
//! command. Each call is one round trip; the script text is sent only after `NOSCRIPT`.

mod purchase;
mod settle;
mod transfer;

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Script};

pub use purchase::{Answer, Batch, Copies, Decided, Decision, purchase};
pub use settle::{Entries, settle};
pub use transfer::{
    OpenTransfer, TransferId, lend, open_transfers, receive, received, settle_transfer,
};

use super::redis::send;
use super::{Error, SegmentKeys};
use crate::domain::{OrderId, Sale};

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("../../../scripts/redis/", $file))));)*
    };
}

scripts! {
    PURCHASE = "purchase.lua";
    SETTLE = "settle.lua";
    RETURN = "return.lua";
    CONTROL = "control.lua";
    SEAL = "seal.lua";
    LOAD_CHUNK = "load_chunk.lua";
    LOAD_FINISH = "load_finish.lua";
    FIGURES = "figures.lua";
    LEND = "lend.lua";
    RECEIVE = "receive.lua";
    TRANSFER_SETTLE = "transfer_settle.lua";
}

/// Runs a script; sends its text and runs it again if the server does not know it. A server that
/// forgets its scripts again in between answers `NOSCRIPT`, which is known not to have run.
async fn run<C: ConnectionLike, T: FromRedisValue>(
    connection: &mut C,
    script: &Script,
    keys: &[&str],
    arguments: impl Fn(&mut Cmd),
) -> Result<T, Error> {
    let mut call = redis::cmd("EVALSHA");
    call.arg(script.get_hash()).arg(keys.len()).arg(keys);
    arguments(&mut call);
    let value = match send(connection, &call).await {
        Err(error) if error.code() == Some("NOSCRIPT") => {
            // Loading is idempotent: an error here is an error of a call that did not run.
            script.load_async(connection).await.map_err(Error::NotRun)?;
            send(connection, &call).await?
        }
        other => other?,
    };
    // A reply of another shape than the script's contract: it has run, and what it did is not known.
    T::from_redis_value(value).map_err(|error| Error::Broken(error.to_string()))
}

/// Whether a segment is there under this epoch, in this Redis process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Loaded and serving.
    Loaded,
    /// Not loaded here: lost, restored from elsewhere, or never written.
    Absent,
    /// A newer epoch has begun.
    Sealed,
}

impl Presence {
    fn of(status: i64) -> Result<Self, Error> {
        match status {
            0 => Ok(Self::Loaded),
            1 => Ok(Self::Absent),
            2 => Ok(Self::Sealed),
            other => Err(Error::Broken(format!("status {other}"))),
        }
    }
}

/// What became of the return of one order's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// Back in the stock, now or before.
    Back,
    /// This load has no mark of the order: what is in Redis is not what was loaded.
    Unmarked,
}

/// Puts back the units of ended orders: see `return.lua`.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn give_back<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    orders: &[(OrderId, &str, u32)],
) -> Result<Result<Vec<Returned>, Presence>, Error> {
    let reply: Vec<i64> = run(
        connection,
        &RETURN,
        &[&keys.meta, &keys.buyers, &keys.requests],
        |call| {
            for (order, buyer, quantity) in orders {
                call.arg(order.as_bytes().as_slice())
                    .arg(*buyer)
                    .arg(*quantity);
            }
        },
    )
    .await?;
    let Some((status, answers)) = reply.split_first() else {
        return Err(Error::Broken("an empty reply".into()));
    };
    match Presence::of(*status)? {
        Presence::Loaded if answers.len() == orders.len() => {}
        Presence::Loaded => return Err(Error::Broken("too few answers".into())),
        elsewhere => return Ok(Err(elsewhere)),
    }
    let answers = answers.iter().map(|answer| match answer {
        -1 => Returned::Unmarked,
        _ => Returned::Back,
    });
    Ok(Ok(answers.collect()))
}

/// Brings a segment's switches to the sale's: see `control.lua`. False: not loaded.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn control<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    sale: &Sale,
) -> Result<bool, Error> {
    let status: i64 = run(connection, &CONTROL, &[&keys.meta], |call| {
        call.arg(sale.control)
            .arg(
                sale.terms
                    .opens_at
                    .map(|at| at.millis())
                    .map_or_else(String::new, |ms| ms.to_string()),
            )
            .arg(
                sale.terms
                    .closes_at
                    .map(|at| at.millis())
                    .map_or_else(String::new, |ms| ms.to_string()),
            )
            .arg(i32::from(sale.paused))
            .arg(i32::from(sale.closed))
            .arg(i32::from(sale.is_sold_out()));
    })
    .await?;
    Ok(status == 0)
}

/// Seals a segment: see `seal.lua`. Returns whether it was there, and the length of its journal.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn seal<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
) -> Result<(bool, u64), Error> {
    let (sealed, entries): (i64, u64) =
        run(connection, &SEAL, &[&keys.meta, &keys.journal], |_| {}).await?;
    Ok((sealed == 1, entries))
}

/// A part of a segment that is being loaded.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Buyer and units.
    pub buyers: Vec<(String, u64)>,
    /// Order id and mark.
    pub requests: Vec<(OrderId, String)>,
}

/// Writes a part of a segment that is being loaded: see `load_chunk.lua`.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn load_chunk<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    lease_ms: u64,
    chunk: &Chunk,
) -> Result<(), Error> {
    let keys = [keys.meta.as_str(), &keys.buyers, &keys.requests];
    let _: i64 = run(connection, &LOAD_CHUNK, &keys, |call| {
        call.arg(lease_ms).arg(chunk.buyers.len() * 2);
        for (buyer, units) in &chunk.buyers {
            call.arg(buyer).arg(units);
        }
        for (order, mark) in &chunk.requests {
            call.arg(order.as_bytes().as_slice()).arg(mark);
        }
    })
    .await?;
    Ok(())
}

/// Checks a written segment and opens it: see `load_finish.lua`. False: it is not whole, load again.
///
/// # Errors
/// See [`Error`]; idempotent.
pub async fn load_finish<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
    buyers: u64,
    requests: u64,
    meta: &[(&str, String)],
) -> Result<bool, Error> {
    let status: i64 = run(connection, &LOAD_FINISH, &keys.all(), |call| {
        call.arg(buyers).arg(requests);
        for (field, value) in meta {
            call.arg(field).arg(value);
        }
    })
    .await?;
    Ok(status == 0)
}

/// What a segment shows at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Whether it is there; if not, the other figures mean nothing.
    pub presence: Presence,
    /// Redis' clock.
    pub now_ms: i64,
    /// Units that a purchase could take.
    pub available: u64,
    /// Units in journal entries, those included whose deletion after the commit is still to come.
    pub journaled: u64,
    /// Raised whenever units are lent, received or come back.
    pub version: u64,
    /// Number of the newest settings that were applied.
    pub control: u64,
    /// Length of the journal.
    pub entries: u64,
    /// Units lent to other segments in transfers that are not settled.
    pub in_transfer: u64,
    /// Units that the load brought.
    pub filled: u64,
    /// Units lent to other segments since the load.
    pub lent: u64,
    /// Units borrowed from other segments since the load.
    pub borrowed: u64,
}

/// Reads a segment's figures: see `figures.lua`.
///
/// # Errors
/// See [`Error`].
pub async fn figures<C: ConnectionLike>(
    connection: &mut C,
    keys: &SegmentKeys,
) -> Result<Figures, Error> {
    let figures: Vec<i64> = run(connection, &FIGURES, &keys.all(), |_| {}).await?;
    let broken = || Error::Broken(format!("figures {figures:?}"));
    let [status, now_ms, units @ ..] = figures.as_slice() else {
        return Err(broken());
    };
    let units: Vec<u64> = units
        .iter()
        .map(|figure| u64::try_from(*figure).map_err(|_| broken()))
        .collect::<Result<_, _>>()?;
    let &[
        available,
        journaled,
        version,
        control,
        entries,
        in_transfer,
        filled,
        lent,
        borrowed,
    ] = units.as_slice()
    else {
        return Err(broken());
    };
    Ok(Figures {
        presence: Presence::of(*status)?,
        now_ms: *now_ms,
        available,
        journaled,
        version,
        control,
        entries,
        in_transfer,
        filled,
        lent,
        borrowed,
    })
}
