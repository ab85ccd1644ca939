//! A loader that falls asleep between two commands to Redis, and wakes when the test says so.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};
use tokio::sync::watch;

/// When a loader sleeps, and what it did afterwards.
#[derive(Debug)]
pub(super) struct Nap {
    /// The command before which it falls asleep, counted from 0.
    before: usize,
    sent: AtomicUsize,
    late: AtomicUsize,
    asleep: watch::Sender<bool>,
    awake: watch::Sender<bool>,
}

impl Nap {
    pub(super) fn before(command: usize) -> Arc<Self> {
        Arc::new(Self {
            before: command,
            sent: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
            asleep: watch::Sender::new(false),
            awake: watch::Sender::new(false),
        })
    }

    /// Runs `loader` until it sleeps; its result if it comes to its end before. Then nothing of it
    /// runs any more, its signs of life included, until it is polled again.
    pub(super) async fn asleep<T>(&self, loader: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let mut asleep = self.asleep.subscribe();
        tokio::select! {
            biased;
            _ = asleep.wait_for(|asleep| *asleep) => None,
            ended = loader => Some(ended),
        }
    }

    pub(super) fn wake(&self) {
        self.awake.send_replace(true);
    }

    /// Commands that it sent after it had slept.
    pub(super) fn late(&self) -> usize {
        self.late.load(Ordering::SeqCst)
    }
}

/// A connection of that loader.
#[derive(Clone)]
pub(super) struct Drowsy {
    pub(super) inner: MultiplexedConnection,
    pub(super) nap: Arc<Nap>,
}

impl ConnectionLike for Drowsy {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        let (mut inner, nap, cmd) = (self.inner.clone(), Arc::clone(&self.nap), cmd.clone());
        Box::pin(async move {
            let number = nap.sent.fetch_add(1, Ordering::SeqCst);
            if number >= nap.before {
                nap.asleep.send_replace(true);
                let mut awake = nap.awake.subscribe();
                let awake = awake.wait_for(|awake| *awake).await.map(drop);
                awake.expect("the nap outlives its connections");
                nap.late.fetch_add(1, Ordering::SeqCst);
            }
            // As a task of its own: what was sent arrives, also if its sender hears that it was
            // overtaken.
            let sent = tokio::spawn(async move { inner.req_packed_command(&cmd).await });
            sent.await.expect("sending does not panic")
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.inner.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}
