//! `purchase.lua`: decides purchases.

use redis::aio::ConnectionLike;
use redis::{FromRedisValue, Value};

use super::{PURCHASE, Presence, run};
use crate::domain::Purchase;
use crate::stock::{Error, SegmentKeys};

/// What is known of other copies of a call, and so what its refusals must leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// This is the only one: refusals leave no trace.
    One,
    /// A lost one may still arrive: refusals are written down as void under their key, but for lack of
    /// stock, which other segments may have.
    LateOnePossible,
    /// As [`Self::LateOnePossible`], and lack of stock is final too.
    LastWord,
}

impl Copies {
    const fn argument(self) -> &'static str {
        match self {
            Self::One => "0",
            Self::LateOnePossible => "1",
            Self::LastWord => "2",
        }
    }
}

/// Purchases of one segment.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Where they are decided.
    pub keys: &'a SegmentKeys,
    /// The purchases, of which the first is decided first.
    pub purchases: &'a [&'a Purchase],
}

/// The answer to the batches of one call.
#[derive(Debug)]
pub enum Decision {
    /// Redis has looked at every batch.
    Decided {
        /// Redis' clock at that moment.
        now_ms: i64,
        /// One for each batch, in their order; nothing was done where the segment is not there.
        batches: Vec<Result<Decided, Presence>>,
    },
    /// Nothing was done: this copy came after its time.
    TooLate {
        /// Redis' clock at that moment.
        now_ms: i64,
    },
}

/// The answer to one batch.
#[derive(Debug)]
pub struct Decided {
    /// The journal entry of those that were admitted.
    pub entry: Option<String>,
    /// Whether the ledger has said that every unit is confirmed.
    pub sold_out: bool,
    /// One for each purchase, in their order.
    pub answers: Vec<Answer>,
}

impl Decided {
    /// Reads what `purchase.lua` returns for one segment.
    fn of(value: Value, purchases: usize) -> Result<Result<Self, Presence>, Error> {
        type Head = (i64, String, i64);
        let broken = |why: String| Error::Broken(why);
        let parts = Vec::<Value>::from_redis_value(value).map_err(|e| broken(e.to_string()))?;
        if let [Value::Int(status)] = parts[..] {
            return Ok(Err(Presence::of(status)?));
        }
        let Some((head, rest)) = parts.split_at_checked(3) else {
            return Err(broken("an answer without a head".into()));
        };
        let head = Value::Array(head.to_vec());
        let (_, entry, sold_out) =
            Head::from_redis_value(head).map_err(|e| broken(e.to_string()))?;
        let answers = rest.chunks(2).map(|pair| match pair {
            [Value::Int(code), Value::Int(number)] => Answer::of(*code, *number),
            other => Err(broken(format!("answer {other:?}"))),
        });
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        if answers.len() != purchases {
            let answers = answers.len();
            return Err(broken(format!("{answers} answers to {purchases}")));
        }
        Ok(Ok(Self {
            entry: (!entry.is_empty()).then_some(entry),
            sold_out: sold_out == 1,
            answers,
        }))
    }
}

/// The answer to one purchase of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Deducted and journaled now.
    Admitted,
    /// Admitted before.
    Replay,
    /// Refused for good under this key.
    Void,
    /// The key names a purchase of another quantity.
    KeyReused(u32),
    /// The buyer may take only this many more.
    LimitReached(u32),
    /// Only this many units are available in the segment.
    Short(u64),
    /// Opens at this time, in milliseconds, if it is known.
    NotOpen(Option<i64>),
    /// Paused by the shop.
    Paused,
    /// Over.
    Closed,
}

impl Answer {
    fn of(code: i64, number: i64) -> Result<Self, Error> {
        let broken = || Error::Broken(format!("answer {code} with {number}"));
        let units = || u32::try_from(number).map_err(|_| broken());
        Ok(match code {
            1 => Self::Admitted,
            2 => Self::Replay,
            3 => Self::Void,
            4 => Self::KeyReused(units()?),
            5 => Self::LimitReached(units()?),
            6 => Self::Short(u64::try_from(number).map_err(|_| broken())?),
            7 => Self::NotOpen((number >= 0).then_some(number)),
            8 => Self::Paused,
            9 => Self::Closed,
            _ => return Err(broken()),
        })
    }
}

/// Decides purchases of one or more segments, of each at most one batch: see `purchase.lua`. A copy that
/// Redis runs after `act_before_ms` (by its own clock) does nothing.
///
/// # Errors
/// See [`Error`]; after an unknown outcome call it again, with [`Copies`] that say so.
pub async fn purchase<C: ConnectionLike>(
    connection: &mut C,
    copies: Copies,
    act_before_ms: i64,
    batches: &[Batch<'_>],
) -> Result<Decision, Error> {
    let keys: Vec<&str> = batches
        .iter()
        .flat_map(|batch| batch.keys.purchase())
        .collect();
    let reply: Vec<Value> = run(connection, &PURCHASE, &keys, |call| {
        call.arg(copies.argument()).arg(act_before_ms);
        for batch in batches {
            call.arg(batch.purchases.len());
            for purchase in batch.purchases {
                call.arg(purchase.order.as_bytes().as_slice())
                    .arg(purchase.buyer.as_str())
                    .arg(purchase.quantity);
            }
        }
    })
    .await?;
    let mut reply = reply.into_iter();
    let Some(Value::Int(now_ms)) = reply.next() else {
        return Err(Error::Broken("a reply without Redis' clock".into()));
    };
    if reply.len() == 0 {
        return Ok(Decision::TooLate { now_ms });
    }
    if reply.len() != batches.len() {
        let why = format!("{} answers to {} batches", reply.len(), batches.len());
        return Err(Error::Broken(why));
    }
    let decided = reply
        .zip(batches)
        .map(|(value, batch)| Decided::of(value, batch.purchases.len()));
    Ok(Decision::Decided {
        now_ms,
        batches: decided.collect::<Result<_, _>>()?,
    })
}
