//! What the locks of all SQL databases share.

pub(super) mod held;

use std::fmt;
use std::time::Duration;

use super::Error;
use super::gate::{Steps, Turnstile};

/// Whoever waits looks again after this long: the database wakes nobody.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The way of every statement to a database: bounded in time, and through a gate if there is one.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    timeout: Duration,
    turnstile: Option<Turnstile>,
}

impl Calls {
    pub(super) const fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            turnstile: None,
        }
    }

    /// How long a call may take.
    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same, each statement of which waits for a permit.
    pub(super) fn gated(&self) -> (Self, Steps) {
        let (turnstile, steps) = Turnstile::new();
        let gated = Self {
            timeout: self.timeout,
            turnstile: Some(turnstile),
        };
        (gated, steps)
    }

    /// What the statement gives.
    pub(super) async fn run<T: fmt::Debug>(
        &self,
        statement: &str,
        call: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, Error> {
        self.answer(statement, call)
            .await?
            .map_err(|error| why(&error))
    }

    /// What the database says to the statement, be it a refusal.
    pub(super) async fn answer<T: fmt::Debug>(
        &self,
        statement: &str,
        call: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<Result<T, sqlx::Error>, Error> {
        let call = async {
            match &self.turnstile {
                Some(turnstile) => turnstile.pass(one_line(statement), call).await,
                None => call.await,
            }
        };
        let answer = tokio::time::timeout(self.timeout, call).await;
        answer.map_err(|_| Error::Unreachable("no answer from the database in time".into()))
    }
}

fn one_line(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the server says by itself is final, but for its own end; the rest may pass.
pub(super) fn why(error: &sqlx::Error) -> Error {
    let final_word = error.as_database_error().is_some_and(|said| {
        let code = said.code().unwrap_or_default();
        // Connection exceptions, too many connections, a deadlock that another try resolves, an operator's
        // intervention.
        !["08", "40", "53", "57"]
            .iter()
            .any(|class| code.starts_with(class))
    });
    match final_word {
        true => Error::Refused(error.to_string()),
        false => Error::Unreachable(error.to_string()),
    }
}

pub(super) fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
