//! The session with the servers that all locks of a process share, and calls with a bound.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use zookeeper_client::{Client, Error as ZkError};

use crate::lock::Error;

/// The servers, and the session with them. A session that has ended is followed by another one; nothing that
/// belonged to the old one is ever taken for the new one's.
#[derive(Debug, Clone)]
pub(super) struct Ensemble {
    servers: Arc<str>,
    session_timeout: Duration,
    call_timeout: Duration,
    session: Arc<Mutex<Option<Client>>>,
}

impl Ensemble {
    pub(super) fn new(servers: &str, session_timeout: Duration, call_timeout: Duration) -> Self {
        Self {
            servers: servers.into(),
            session_timeout,
            call_timeout,
            session: Arc::default(),
        }
    }

    /// The session of now.
    pub(super) async fn session(&self) -> Result<Client, Error> {
        let mut session = self.session.lock().await;
        if let Some(client) = &*session
            && !client.state().is_terminated()
        {
            return Ok(client.clone());
        }
        let connector = Client::connector()
            .with_session_timeout(self.session_timeout)
            .with_fail_eagerly();
        let client = self.call(connector.connect(&self.servers)).await?;
        *session = Some(client.clone());
        Ok(client)
    }

    /// What the servers say.
    pub(super) async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, ZkError>>,
    ) -> Result<T, Error> {
        self.answer(call).await?.map_err(|error| why(&error))
    }

    /// What the servers say, be it a refusal.
    pub(super) async fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, ZkError>>,
    ) -> Result<Result<T, ZkError>, Error> {
        let answer = tokio::time::timeout(self.call_timeout, call).await;
        answer.map_err(|_| Error::Unreachable("no answer from ZooKeeper in time".into()))
    }
}

/// What the servers say by themselves is final; the rest may pass.
pub(super) fn why(error: &ZkError) -> Error {
    let words = error.to_string();
    match error {
        ZkError::NoAuth
        | ZkError::AuthFailed
        | ZkError::InvalidAcl
        | ZkError::BadArguments(_)
        | ZkError::NoChildrenForEphemerals
        | ZkError::QuotaExceeded
        | ZkError::Unimplemented => Error::Refused(words),
        _ => Error::Unreachable(words),
    }
}

/// Whether the session is over, and with it all its nodes.
pub(super) const fn is_over(error: &ZkError) -> bool {
    matches!(
        error,
        ZkError::SessionExpired | ZkError::ClientClosed | ZkError::AuthFailed
    )
}
