//! A connection to Redis that counts its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, Value};

#[derive(Clone)]
pub(crate) struct Counted<C> {
    pub(crate) inner: C,
    pub(crate) calls: Arc<AtomicU64>,
}

impl<C: ConnectionLike + Send> ConnectionLike for Counted<C> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}
