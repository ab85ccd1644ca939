//! The way of every call to etcd.

use std::fmt;
use std::time::Duration;

use etcd_client::{Client, Error as Said};

use crate::lock::Error;
use crate::lock::gate::{Steps, Turnstile};

/// Statuses of gRPC (<https://grpc.io/docs/guides/status-codes/>) as etcd uses them.
pub(super) const NOT_FOUND: i32 = 5;
pub(super) const FAILED_PRECONDITION: i32 = 9;
/// Another try is answered alike: a request or a user that is not as it should be, a full disk, a function
/// that is not there.
const FINAL: [i32; 6] = [3, 7, 8, FAILED_PRECONDITION, 12, 16];

/// The way of every call: bounded in time, and through a gate if there is one.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) client: Client,
    timeout: Duration,
    turnstile: Option<Turnstile>,
}

impl Calls {
    pub(super) const fn new(client: Client, timeout: Duration) -> Self {
        Self {
            client,
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

    /// What the call gives.
    pub(super) fn run<T: fmt::Debug + Send + 'static>(
        &self,
        words: String,
        call: impl Future<Output = Result<T, Said>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        let answer = self.answer(words, call);
        async move { answer.await?.map_err(|said| why(&said)) }
    }

    /// What etcd says to the call, be it a refusal.
    pub(super) fn answer<T: fmt::Debug + Send + 'static>(
        &self,
        words: String,
        call: impl Future<Output = Result<T, Said>> + Send + 'static,
    ) -> impl Future<Output = Result<Result<T, Said>, Error>> + Send {
        // A call of this client is many kilobytes large: too much to be part of all that waits for it.
        let call = Box::pin(call);
        async move {
            let call = async {
                match &self.turnstile {
                    Some(turnstile) => turnstile.post(words, call).await,
                    None => call.await,
                }
            };
            let answer = tokio::time::timeout(self.timeout, call).await;
            answer.map_err(|_| late())
        }
    }
}

/// What a call gives that has no gate.
pub(super) fn within<T: Send>(
    timeout: Duration,
    call: impl Future<Output = Result<T, Said>> + Send,
) -> impl Future<Output = Result<T, Error>> + Send {
    let answer = tokio::time::timeout(timeout, Box::pin(call));
    async { answer.await.map_err(|_| late())?.map_err(|said| why(&said)) }
}

fn late() -> Error {
    Error::Unreachable("no answer from etcd in time".into())
}

/// The status that etcd answered with, if it did answer.
pub(super) fn status(said: &Said) -> Option<i32> {
    match said {
        Said::GRpcStatus(status) => Some(status.code() as i32),
        _ => None,
    }
}

pub(super) fn why(said: &Said) -> Error {
    let final_word = match said {
        Said::InvalidArgs(_) | Said::InvalidUri(_) | Said::InvalidMetadataValue(_) => true,
        said => status(said).is_some_and(|status| FINAL.contains(&status)),
    };
    // The words for people, not how the client came by them.
    let words = match said {
        Said::GRpcStatus(status) => status.message().to_owned(),
        said => said.to_string(),
    };
    match final_word {
        true => Error::Refused(words),
        false => Error::Unreachable(words),
    }
}
