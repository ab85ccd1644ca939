//! Locks in etcd: a key for each acquisition, on a lease of its own. Feature `etcd`; tested on etcd 3.4.23.

mod calls;
mod exclusive;
mod lease;
mod queue;
mod session;
mod watch;

use std::fmt;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, GetOptions};

use super::gate::Steps;
use super::{Error, Kind, Lock, Terms};
use crate::env::Env;
use calls::{Calls, within};

/// What the key of every lock begins with.
const PREFIX: &str = "stockade/lock/";
/// A connection that has been silent for so long while somebody waits is asked whether it lives; etcd takes
/// it ill if that is more often than every five seconds.
const PROBE_AFTER: Duration = Duration::from_secs(6);

/// The locks of one etcd cluster.
#[derive(Clone)]
pub struct EtcdLocks {
    calls: Calls,
    env: Env,
}

impl fmt::Debug for EtcdLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLocks").finish_non_exhaustive()
    }
}

impl EtcdLocks {
    /// Locks in the cluster of this URL, `etcd://[user:password@]host:port[,host:port…]`; a call that takes
    /// longer than `timeout` is given up. User and password stand as they are, without escapes; a connection
    /// is not encrypted.
    ///
    /// # Errors
    /// [`Error::Refused`] if the URL or the user cannot be used, [`Error::Unreachable`] if no majority of the
    /// members answers.
    pub async fn connect(url: &str, timeout: Duration, env: Env) -> Result<Self, Error> {
        let (user, members) = members(url)?;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(timeout)
            .with_keep_alive(PROBE_AFTER, timeout)
            .with_keep_alive_while_idle(false)
            // A member that is cut off from the others says so, and ends the watches that it cannot serve.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = user {
            options = options.with_user(name, password);
        }
        let connecting = Client::connect(members, Some(options));
        let client = within(timeout, connecting).await?;
        let locks = Self {
            calls: Calls::new(client, timeout),
            env,
        };
        // Connecting says nothing yet.
        let count = GetOptions::new().with_prefix().with_count_only();
        let mut keys = locks.calls.client.kv_client();
        within(timeout, keys.get(PREFIX, Some(count))).await?;
        Ok(locks)
    }

    /// The same locks as another client has them, each call of which waits for a permit.
    #[must_use]
    pub fn gated(&self) -> (Self, Steps) {
        let (calls, steps) = self.calls.gated();
        let env = self.env.clone();
        (Self { calls, env }, steps)
    }

    /// The lock of this kind and name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind is not one of etcd.
    pub fn lock(&self, kind: Kind, name: &str, terms: Terms) -> Result<Lock, Error> {
        match kind {
            Kind::Etcd => {
                let queue = queue::Queue::new(self.calls.clone(), prefix(name));
                let protocol = exclusive::Exclusive::new(queue);
                Ok(Lock::new(kind, name, terms, self.env.clone(), protocol))
            }
            _ => Err(Error::Unsupported(kind, "live in etcd")),
        }
    }
}

/// What the keys of the lock of this name begin with. A slash in a name is escaped: the lock `a` would else
/// queue behind those who want the lock `a/b`.
fn prefix(name: &str) -> String {
    let name = name.replace('%', "%25").replace('/', "%2F");
    format!("{PREFIX}{name}/")
}

type User<'a> = (&'a str, &'a str);

/// The user, if there is one, and the members that a URL names.
fn members(url: &str) -> Result<(Option<User<'_>>, Vec<&str>), Error> {
    let malformed = || Error::Refused("not etcd://[user:password@]host:port[,host:port…]".into());
    let rest = url.strip_prefix("etcd://").ok_or_else(malformed)?;
    let (user, hosts) = match rest.rsplit_once('@') {
        Some((user, hosts)) => (Some(user.split_once(':').ok_or_else(malformed)?), hosts),
        None => (None, rest),
    };
    let members: Vec<_> = hosts.trim_end_matches('/').split(',').collect();
    match members.iter().all(|member| member.contains(':')) {
        true => Ok((user, members)),
        false => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::{members, prefix};

    #[test]
    fn a_url_names_a_user_and_members() {
        let one = (None, vec!["a:1"]);
        assert_eq!(members("etcd://a:1").unwrap(), one);
        assert_eq!(members("etcd://a:1/").unwrap(), one);
        let user = Some(("me", "p@ss:w"));
        let two = (user, vec!["a:1", "b:2"]);
        assert_eq!(members("etcd://me:p@ss:w@a:1,b:2").unwrap(), two);
        for malformed in [
            "etcd://",
            "etcd://a",
            "etcd://a:1,",
            "http://a:1",
            "etcd://me@a:1",
        ] {
            assert!(members(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn no_name_is_the_beginning_of_another() {
        assert_eq!(prefix("goods"), "stockade/lock/goods/");
        let names = ["a", "a/", "a/b", "a%2Fb", "", "/", "%"];
        for one in names {
            for other in names {
                let nested = prefix(other).starts_with(&prefix(one));
                assert_eq!(nested, one == other, "{one:?} {other:?}");
            }
        }
    }
}
