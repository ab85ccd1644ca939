//! Locks in MongoDB: a document with a lease and a fence. Feature `mongodb`; tested on a stand-in that speaks
//! MongoDB's protocol, not on MongoDB itself.

mod calls;
mod find_and_modify;

use std::fmt;
use std::time::Duration;

use mongodb::Client;
use mongodb::options::{Acknowledgment, ClientOptions, CollectionOptions, WriteConcern};

use super::gate::Steps;
use super::{Error, Kind, Lock, Terms};
use crate::env::Env;
use calls::{Calls, within};

/// The database, if the URL names none.
const DATABASE: &str = "stockade";
/// The collection of the locks: a document for each name, never deleted.
const COLLECTION: &str = "lock";

/// The locks of one MongoDB database.
#[derive(Clone)]
pub struct MongodbLocks {
    calls: Calls,
    env: Env,
}

impl fmt::Debug for MongodbLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongodbLocks").finish_non_exhaustive()
    }
}

impl MongodbLocks {
    /// Locks in the database of this URL; a call that takes longer than `timeout` is given up.
    ///
    /// Whatever the URL says: a lock is granted when a majority has it in its journal. With less, a primary that
    /// is deposed takes the grant back, and two hold the lock.
    ///
    /// # Errors
    /// [`Error::Refused`] if the URL cannot be used, [`Error::Unreachable`] if no primary answers.
    pub async fn connect(url: &str, timeout: Duration, env: Env) -> Result<Self, Error> {
        let mut options = within(timeout, ClientOptions::parse(url)).await?;
        options.server_selection_timeout = Some(timeout);
        options.connect_timeout = Some(timeout);
        let client = Client::with_options(options).map_err(|said| calls::why(&said))?;
        let database = client
            .default_database()
            .unwrap_or_else(|| client.database(DATABASE));
        let concern = WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .w_timeout(timeout)
            .journal(true)
            .build();
        let options = CollectionOptions::builder().write_concern(concern).build();
        let documents = database.collection_with_options(COLLECTION, options);
        let locks = Self {
            calls: Calls::new(documents, timeout),
            env,
        };
        // Connecting says nothing yet.
        locks.calls.now_ms().await?;
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
    /// [`Error::Unsupported`] if the kind is not one of MongoDB.
    pub fn lock(&self, kind: Kind, name: &str, terms: Terms) -> Result<Lock, Error> {
        match kind {
            Kind::FindAndModify => {
                let protocol = find_and_modify::FindAndModify::new(self.calls.clone(), name);
                Ok(Lock::new(kind, name, terms, self.env.clone(), protocol))
            }
            _ => Err(Error::Unsupported(kind, "live in MongoDB")),
        }
    }
}
