//! The way of every call to MongoDB.

use std::fmt;
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error as Said, ErrorKind};
use mongodb::options::ReturnDocument;

use crate::lock::Error;
use crate::lock::gate::{Steps, Turnstile};

/// MongoDB's `E11000`: there is a document of this `_id`.
const DUPLICATE_KEY: i32 = 11_000;
/// Codes of MongoDB that another try is answered alike: a request or a user that is not as it should be, a
/// document that a validator refuses.
const FINAL: [i32; 9] = [2, 9, 13, 14, 18, 52, 59, 121, 8_000];

/// A document of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) token: String,
    pub(super) fence: u64,
}

/// The way of every call: bounded in time, and through a gate if there is one.
#[derive(Clone)]
pub(super) struct Calls {
    documents: Collection<Document>,
    timeout: Duration,
    turnstile: Option<Turnstile>,
}

impl Calls {
    pub(super) const fn new(documents: Collection<Document>, timeout: Duration) -> Self {
        Self {
            documents,
            timeout,
            turnstile: None,
        }
    }

    /// The same, each call of which waits for a permit.
    pub(super) fn gated(&self) -> (Self, Steps) {
        let (turnstile, steps) = Turnstile::new();
        let gated = Self {
            turnstile: Some(turnstile),
            ..self.clone()
        };
        (gated, steps)
    }

    /// The primary's clock, in milliseconds since 1970.
    ///
    /// A pipeline could read it inside the update, as `$$NOW`, and save this call; but what stands in for MongoDB
    /// in the tests knows no pipelines, and a lock that is not tested is worth less than a round trip. What is
    /// read is a little old when it is used, which only makes a lease end earlier and be found ended later.
    pub(super) async fn now_ms(&self) -> Result<i64, Error> {
        let database = self.documents.client().database("admin");
        let asking = database.run_command(doc! { "hello": 1 });
        let hello = self.answer("hello".into(), asking.into_future()).await?;
        let hello = hello.map_err(|said| why(&said))?;
        let now_ms = hello
            .get_datetime("localTime")
            .map(|now| now.timestamp_millis());
        now_ms.map_err(|_| Error::Unreachable("a hello without localTime".into()))
    }

    /// Changes the document that the filter finds, and gives what it is then; none if it finds none, or would
    /// insert one of a name that is there.
    pub(super) async fn find_one_and_update(
        &self,
        filter: Document,
        update: Document,
        upsert: bool,
    ) -> Result<Option<Held>, Error> {
        let words = format!("findAndModify {filter} {update}");
        let updating = self
            .documents
            .find_one_and_update(filter, update)
            .upsert(upsert)
            .return_document(ReturnDocument::After);
        match self.answer(words, updating.into_future()).await? {
            Ok(found) => found.as_ref().map(held).transpose(),
            Err(said) if code(&said) == Some(DUPLICATE_KEY) => Ok(None),
            Err(said) => Err(why(&said)),
        }
    }

    async fn answer<T: fmt::Debug>(
        &self,
        words: String,
        call: impl Future<Output = Result<T, Said>>,
    ) -> Result<Result<T, Said>, Error> {
        let call = async {
            match &self.turnstile {
                Some(turnstile) => turnstile.pass(words, call).await,
                None => call.await,
            }
        };
        let answer = tokio::time::timeout(self.timeout, call).await;
        answer.map_err(|_| late())
    }
}

/// What a call gives that has no gate.
pub(super) async fn within<T>(
    timeout: Duration,
    call: impl IntoFuture<Output = Result<T, Said>>,
) -> Result<T, Error> {
    let answer = tokio::time::timeout(timeout, call).await;
    answer.map_err(|_| late())?.map_err(|said| why(&said))
}

fn late() -> Error {
    Error::Unreachable("no answer from MongoDB in time".into())
}

fn held(document: &Document) -> Result<Held, Error> {
    let token = document.get_str("token").map(str::to_owned).ok();
    let fence = match document.get("fence") {
        Some(Bson::Int64(fence)) => u64::try_from(*fence).ok(),
        // A server may keep a small number in less.
        Some(Bson::Int32(fence)) => u64::try_from(*fence).ok(),
        _ => None,
    };
    match (token, fence) {
        (Some(token), Some(fence)) => Ok(Held { token, fence }),
        _ => Err(Error::Refused(format!("not a lock: {document}"))),
    }
}

fn code(said: &Said) -> Option<i32> {
    match said.kind.as_ref() {
        ErrorKind::Command(said) => Some(said.code),
        _ => None,
    }
}

/// What the server says by itself and will say again is final; so is what the driver refuses to send. The rest may
/// pass: an election, a majority that does not answer in time.
pub(super) fn why(said: &Said) -> Error {
    let final_word = match said.kind.as_ref() {
        ErrorKind::InvalidArgument { .. } | ErrorKind::Authentication { .. } => true,
        _ => code(said).is_some_and(|code| FINAL.contains(&code)),
    };
    // The words for people, without all that the driver knows of the servers.
    let words = match said.kind.as_ref() {
        ErrorKind::ServerSelection { .. } => "no primary could be found in time".into(),
        ErrorKind::Command(said) => said.message.clone(),
        kind => kind.to_string(),
    };
    match final_word {
        true => Error::Refused(words),
        false => Error::Unreachable(words),
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{deserialize_from_document, doc};
    use mongodb::error::{Error as Said, ErrorKind};

    use super::{DUPLICATE_KEY, code, why};
    use crate::lock::Error;

    fn command(code: i32) -> Said {
        let said = doc! { "code": code, "codeName": "a name", "errmsg": "words" };
        ErrorKind::Command(deserialize_from_document(said).unwrap()).into()
    }

    /// What MongoDB itself says to the loser of two upserts; the stand-in of the tests does not.
    #[test]
    fn a_duplicate_key_is_known_by_its_code() {
        assert_eq!(code(&command(DUPLICATE_KEY)), Some(11_000));
    }

    #[test]
    fn a_user_without_rights_is_final_and_an_election_is_not() {
        assert!(matches!(why(&command(13)), Error::Refused(_)));
        let (not_primary, write_concern_failed) = (10_107, 64);
        for passing in [not_primary, write_concern_failed] {
            assert!(matches!(why(&command(passing)), Error::Unreachable(_)));
        }
    }
}
