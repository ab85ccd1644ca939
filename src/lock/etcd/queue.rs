//! The keys of one lock: whoever has created the first of them holds it.
//!
//! Names are those of etcd's own `concurrency.Mutex`, prefix, slash and the lease's number in hexadecimal, and
//! so are order and watches, so that both queue together
//! (<https://github.com/etcd-io/etcd/blob/v3.4.23/clientv3/concurrency/mutex.go>).

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};

use super::calls::{Calls, NOT_FOUND, status, why};
use super::lease::Lease;
use crate::lock::Error;

/// The keys of one lock.
#[derive(Clone)]
pub(super) struct Queue {
    pub(super) calls: Calls,
    prefix: String,
}

/// A key as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// The revision of the cluster that created it.
    pub(super) created: i64,
    /// The lease it is on.
    pub(super) lease: i64,
    /// The revision at which it was seen.
    pub(super) at: i64,
}

/// How an acquisition stands in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// The revision that created its key.
    pub(super) created: i64,
    /// Whether no key is older.
    pub(super) first: bool,
    /// The revision at which that was so.
    pub(super) at: i64,
}

/// Who is to be waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nobody: it is worth trying again, or the own key is gone.
    Try,
    /// This key, as it was at this revision.
    After(String, i64),
}

impl Queue {
    pub(super) const fn new(calls: Calls, prefix: String) -> Self {
        Self { calls, prefix }
    }

    /// The key of the acquisition that began with this lease.
    pub(super) fn key(&self, lease: Lease) -> String {
        format!("{}{:x}", self.prefix, lease.id)
    }

    /// Puts the key at the end of the queue unless it is in it already, and says how it stands; none if its
    /// lease has ended. May be repeated: whoever has a place keeps it.
    pub(super) async fn enter(&self, key: &str, lease: Lease) -> Result<Option<Entry>, Error> {
        let on_lease = PutOptions::new().with_lease(lease.id);
        let oldest = || self.one_by_age(SortOrder::Ascend, i64::MAX);
        let txn = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, "", Some(on_lease)), oldest()])
            .or_else([TxnOp::get(key, None), oldest()]);
        let mut keys = self.calls.client.kv_client();
        let entering = async move { keys.txn(txn).await };
        let answer = self.calls.answer(format!("enter {key}"), entering);
        let answer = match answer.await? {
            Ok(answer) => answer,
            Err(said) if status(&said) == Some(NOT_FOUND) => return Ok(None),
            Err(said) => return Err(why(&said)),
        };
        let at = revision(&answer)?;
        let created = match answer.succeeded() {
            true => at,
            false => created(&answer, 0).ok_or_else(|| incomplete("enter"))?,
        };
        let oldest = self::created(&answer, 1).ok_or_else(|| incomplete("enter"))?;
        Ok(Some(Entry {
            created,
            first: oldest == created,
            at,
        }))
    }

    /// Whom the key that was created at this revision is to wait for: the next older one alone, so that an end
    /// wakes one waiter and not all.
    pub(super) async fn turn(&self, key: &str, created: i64) -> Result<Turn, Error> {
        let older = self.one_by_age(SortOrder::Descend, created - 1);
        let txn = Txn::new().when([is(key, created)]).and_then([older]);
        let answer = self.transact(format!("turn {key}"), txn).await?;
        let older = match answer.succeeded() {
            true => got(&answer, 0),
            false => None,
        };
        let older = older.as_ref().and_then(|got| got.kvs().first());
        Ok(match older {
            Some(older) => {
                let key = String::from_utf8_lossy(older.key()).into_owned();
                Turn::After(key, revision(&answer)?)
            }
            None => Turn::Try,
        })
    }

    /// The key, if it is there. The answer is a majority's.
    pub(super) async fn look(&self, key: &str) -> Result<Option<Seen>, Error> {
        let mut keys = self.calls.client.kv_client();
        let words = format!("look {key}");
        let key = key.to_owned();
        let getting = async move { keys.get(key, None).await };
        let got = self.calls.run(words, getting).await?;
        let at = got.header().map(etcd_client::ResponseHeader::revision);
        let at = at.ok_or_else(|| incomplete("look"))?;
        Ok(got.kvs().first().map(|key| seen(key, at)))
    }

    /// Puts the key that was created at this revision on another lease, where it keeps its place, if it is on the
    /// one it is believed to be on: a copy that comes late would else put it back on a lease that nobody keeps.
    /// Gives where it is then; none if it is gone.
    pub(super) async fn carry(
        &self,
        key: &str,
        created: i64,
        from: Lease,
        to: Lease,
    ) -> Result<Option<Seen>, Error> {
        let on_lease = PutOptions::new().with_lease(to.id);
        let txn = Txn::new()
            .when([
                is(key, created),
                Compare::lease(key, CompareOp::Equal, from.id),
            ])
            .and_then([TxnOp::put(key, "", Some(on_lease)), TxnOp::get(key, None)])
            .or_else([TxnOp::get(key, None)]);
        let answer = self.transact(format!("carry {key}"), txn).await?;
        let number = usize::from(answer.succeeded());
        let at = revision(&answer)?;
        let got = got(&answer, number).ok_or_else(|| incomplete("carry"))?;
        Ok(got.kvs().first().map(|key| seen(key, at)))
    }

    /// Takes the key that was created at this revision out of the queue; false if it is gone.
    pub(super) async fn leave(&self, key: &str, created: i64) -> Result<bool, Error> {
        let txn = Txn::new()
            .when([is(key, created)])
            .and_then([TxnOp::delete(key, None)]);
        let answer = self.transact(format!("leave {key}"), txn).await?;
        Ok(answer.succeeded())
    }

    async fn transact(&self, words: String, txn: Txn) -> Result<TxnResponse, Error> {
        let mut keys = self.calls.client.kv_client();
        let transacting = async move { keys.txn(txn).await };
        self.calls.run(words, transacting).await
    }

    /// The oldest or the youngest key among those that are not younger than `created`.
    fn one_by_age(&self, order: SortOrder, created: i64) -> TxnOp {
        let one = GetOptions::new()
            .with_prefix()
            .with_sort(SortTarget::Create, order)
            .with_max_create_revision(created)
            .with_limit(1);
        TxnOp::get(self.prefix.as_str(), Some(one))
    }
}

/// Whether the key is the one that was created at this revision.
fn is(key: &str, created: i64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, created)
}

fn seen(key: &KeyValue, at: i64) -> Seen {
    Seen {
        created: key.create_revision(),
        lease: key.lease(),
        at,
    }
}

fn revision(answer: &TxnResponse) -> Result<i64, Error> {
    let header = answer.header().ok_or_else(|| incomplete("header"))?;
    Ok(header.revision())
}

/// What the operation of this number found.
fn got(answer: &TxnResponse, number: usize) -> Option<GetResponse> {
    match answer.op_responses().into_iter().nth(number) {
        Some(TxnOpResponse::Get(got)) => Some(got),
        _ => None,
    }
}

fn created(answer: &TxnResponse, number: usize) -> Option<i64> {
    let got = got(answer, number)?;
    Some(got.kvs().first()?.create_revision())
}

/// Nothing that etcd says; of a server that is none, nothing is known.
fn incomplete(what: &str) -> Error {
    Error::Unreachable(format!("etcd's answer is incomplete: {what}"))
}
