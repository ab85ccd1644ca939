//! A gate in front of a server, Redis or a database: nothing passes without a permit.
//!
//! Whoever holds the other end sees each command of a client before it is sent, and decides when it goes and
//! whether its answer comes back. With it a test writes a schedule down, step by step, without sleeping.

use std::fmt;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisFuture, Value};
use tokio::sync::{mpsc, oneshot};

/// The client's side: a connection to Redis whose commands wait for a permit.
#[derive(Clone)]
pub struct Gate<C> {
    inner: C,
    turnstile: Turnstile,
}

/// Where each call of a client waits for its permit.
#[derive(Debug, Clone)]
pub(super) struct Turnstile(mpsc::UnboundedSender<Step>);

/// The other side: the commands of a client, in order.
#[derive(Debug)]
pub struct Steps {
    queue: mpsc::UnboundedReceiver<Step>,
}

/// A command that waits for its permit.
#[derive(Debug)]
pub struct Step {
    command: String,
    permit: oneshot::Sender<Permit>,
    done: oneshot::Receiver<String>,
}

#[derive(Debug)]
enum Permit {
    Run,
    LoseAnswer,
}

impl<C: fmt::Debug> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<C> Gate<C> {
    /// Puts a gate in front of a connection.
    #[must_use]
    pub fn new(inner: C) -> (Self, Steps) {
        let (turnstile, steps) = Turnstile::new();
        (Self { inner, turnstile }, steps)
    }
}

impl Turnstile {
    pub(super) fn new() -> (Self, Steps) {
        let (steps, queue) = mpsc::unbounded_channel();
        (Self(steps), Steps { queue })
    }

    /// Makes the call when it is permitted, and hands on its answer unless that is to be lost.
    pub(super) async fn pass<T: fmt::Debug>(
        &self,
        command: String,
        call: impl Future<Output = T>,
    ) -> T {
        let (permit, permitted) = oneshot::channel();
        let (done, answered) = oneshot::channel();
        let step = Step {
            command,
            permit,
            done: answered,
        };
        // A gate that nobody watches any more lets nothing through: its client is dead.
        let _ = self.0.send(step);
        let Ok(permit) = permitted.await else {
            return std::future::pending().await;
        };
        let answer = call.await;
        let _ = done.send(format!("{answer:?}"));
        match permit {
            Permit::Run => answer,
            Permit::LoseAnswer => std::future::pending().await,
        }
    }

    /// Makes the call when it is permitted, be its client gone: a step that is kept back for longer than its
    /// client waits reaches the server late, as a request on a network may.
    #[cfg(feature = "etcd")]
    pub(super) async fn post<T: fmt::Debug + Send + 'static>(
        &self,
        command: String,
        call: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (sender, answer) = oneshot::channel();
        let turnstile = self.clone();
        tokio::spawn(async move {
            let answer = turnstile.pass(command, call).await;
            // An error means that the client has gone on.
            let _ = sender.send(answer);
        });
        match answer.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Steps {
    /// The client's next command; it waits until it is told what to do. None: the client is gone.
    pub async fn next(&mut self) -> Option<Step> {
        self.queue.recv().await
    }
}

impl Step {
    /// The command, in words.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Lets it go, and returns the server's answer when it has come.
    pub async fn pass(self) -> String {
        let _ = self.permit.send(Permit::Run);
        self.done.await.unwrap_or_else(|_| "no answer".into())
    }

    /// Lets it go; the client never hears the answer.
    pub async fn lose_answer(self) -> String {
        let _ = self.permit.send(Permit::LoseAnswer);
        self.done.await.unwrap_or_else(|_| "no answer".into())
    }
}

/// A command as a person reads it.
fn words(command: &Cmd) -> String {
    let words = command.args_iter().map(|arg| match arg {
        Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => "?".into(),
    });
    words.collect::<Vec<_>>().join(" ")
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> ConnectionLike for Gate<C> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let Self { inner, turnstile } = self;
        Box::pin(turnstile.pass(words(command), inner.req_packed_command(command)))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.inner.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}
