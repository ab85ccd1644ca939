//! Leases of etcd: they end by the server's clock, and take the keys on them along.

use std::time::Duration;

use etcd_client::{Error as Said, LeaseGrantOptions};

use super::calls::{Calls, FAILED_PRECONDITION, NOT_FOUND, status, why};
use crate::lock::Error;

/// The shortest lease that can be asked for; a cluster may give more.
const TTL_MIN_SECONDS: i64 = 1;

/// A lease, granted or to be granted.
///
/// Its number is drawn here and not by the server: so a grant whose answer was lost can be asked for again,
/// and revoked, and the key that is to be on it has a name before anything is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// In whole seconds, as etcd counts.
    pub(super) ttl_seconds: i64,
}

impl Lease {
    /// A lease of at least this time whose number nobody has had: one of 2^63.
    pub(super) fn of(time: Duration) -> Self {
        Self {
            // Zero would leave the choice to the server.
            id: rand::random_range(1..=i64::MAX),
            ttl_seconds: whole_seconds(time),
        }
    }

    /// A third of its time: kept alive so often, it survives an answer that is lost.
    pub(super) fn third(self) -> Duration {
        Duration::from_secs(self.ttl_seconds.unsigned_abs()) / 3
    }
}

/// Rounded up: what the server keeps is never shorter than what the client counts on.
pub(super) fn whole_seconds(time: Duration) -> i64 {
    let up = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i64::try_from(up).unwrap_or(i64::MAX).max(TTL_MIN_SECONDS)
}

/// Asks for the lease; false if there is one of this number already.
pub(super) async fn grant(calls: &Calls, lease: Lease) -> Result<bool, Error> {
    let mut leases = calls.client.lease_client();
    let options = LeaseGrantOptions::new().with_id(lease.id);
    let granting = async move { leases.grant(lease.ttl_seconds, Some(options)).await };
    let words = format!("lease grant {:x} {}", lease.id, lease.ttl_seconds);
    match calls.answer(words, granting).await? {
        Ok(_) => Ok(true),
        Err(said) if status(&said) == Some(FAILED_PRECONDITION) && exists(&said) => Ok(false),
        Err(said) => Err(why(&said)),
    }
}

/// The words of etcd's `ErrGRPCLeaseExist`, which shares its status with others.
fn exists(said: &Said) -> bool {
    said.to_string().contains("lease already exists")
}

/// Has the lease's time begin anew; false if it has ended.
///
/// One question and one answer on a stream of their own: no stream lives on that could keep the lease of an
/// acquisition that nobody remembers (<https://github.com/etcd-io/etcd/issues/17470>).
pub(super) async fn keep_alive(calls: &Calls, id: i64) -> Result<bool, Error> {
    let mut leases = calls.client.lease_client();
    let words = format!("lease keep-alive {id:x}");
    let keeping = async move { leases.keep_alive(id).await };
    match calls.answer(words, keeping).await? {
        Ok(_) => Ok(true),
        // What the client makes of an answer without time left.
        Err(Said::LeaseKeepAliveError(_)) => Ok(false),
        Err(said) if status(&said) == Some(NOT_FOUND) => Ok(false),
        Err(said) => Err(why(&said)),
    }
}

/// Ends the lease and with it what is on it, if it has not ended by itself.
pub(super) async fn revoke(calls: &Calls, id: i64) -> Result<(), Error> {
    let mut leases = calls.client.lease_client();
    let words = format!("lease revoke {id:x}");
    let revoking = async move { leases.revoke(id).await };
    match calls.answer(words, revoking).await? {
        Ok(_) => Ok(()),
        Err(said) if status(&said) == Some(NOT_FOUND) => Ok(()),
        Err(said) => Err(why(&said)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::whole_seconds;

    #[test]
    fn a_lease_is_rounded_up_to_whole_seconds() {
        for (ms, seconds) in [(1, 1), (1_000, 1), (1_001, 2), (10_000, 10)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds, "{ms} ms");
        }
    }
}
