//! One-shot faults that wait for a certain request.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::oneshot;

use super::Shared;

/// The longest pattern: as many bytes of the previous piece of traffic are remembered, so that a
/// pattern split over two pieces is found.
pub(super) const PATTERN_BYTES_MAX: usize = 64;
/// Traps that wait at the same time.
const TRAPS_MAX: usize = 64;
/// How long a handle waits for its request, and then for the server's reply to it.
const HELD_LIMIT: Duration = Duration::from_secs(20);

/// Waits for a request and decides its fate.
#[derive(Debug)]
pub(super) struct Trap {
    pattern: Vec<u8>,
    pub(super) fate: Fate,
}

/// What happens to a caught request.
#[derive(Debug)]
pub(super) enum Fate {
    /// It is delivered, its reply is not.
    DropReply,
    /// It is held until its handle releases it.
    Hold(Hold),
}

/// The proxy's ends of the wires to a [`HeldRequest`].
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) caught: oneshot::Sender<()>,
    pub(super) release: oneshot::Receiver<()>,
    pub(super) reply: oneshot::Sender<Vec<u8>>,
}

/// A request that is, or will be, held by a proxy. Dropping this loses the request.
#[derive(Debug)]
pub struct HeldRequest {
    caught: Option<oneshot::Receiver<()>>,
    release: oneshot::Sender<()>,
    reply: oneshot::Receiver<Vec<u8>>,
}

impl HeldRequest {
    /// Waits until the request has been caught and its client's connection reset.
    ///
    /// # Errors
    /// When none came within 20 seconds: the fault was not injected.
    pub async fn caught(&mut self) -> Result<()> {
        let Some(caught) = self.caught.take() else {
            return Ok(());
        };
        let caught = tokio::time::timeout(HELD_LIMIT, caught).await;
        caught
            .context("no request came to be held")?
            .context("the proxy is gone")
    }

    /// Delivers the request to the server, waits until the server has dealt with it, and gives the
    /// bytes of its reply, which no client sees.
    ///
    /// # Errors
    /// When no request was caught, or the server did not reply within 20 seconds.
    pub async fn deliver(mut self) -> Result<Vec<u8>> {
        self.caught().await?;
        // An error shows below: the same task holds the sender of the reply.
        let _ = self.release.send(());
        let reply = tokio::time::timeout(HELD_LIMIT, self.reply).await;
        reply
            .context("no reply to the held request")?
            .context("the server is gone")
    }
}

impl Trap {
    pub(super) fn drop_reply(pattern: &[u8]) -> Self {
        Self {
            pattern: pattern.to_vec(),
            fate: Fate::DropReply,
        }
    }

    pub(super) fn hold(pattern: &[u8]) -> (Self, HeldRequest) {
        let (caught_sender, caught) = oneshot::channel();
        let (release, release_receiver) = oneshot::channel();
        let (reply_sender, reply) = oneshot::channel();
        let hold = Hold {
            caught: caught_sender,
            release: release_receiver,
            reply: reply_sender,
        };
        let trap = Self {
            pattern: pattern.to_vec(),
            fate: Fate::Hold(hold),
        };
        (
            trap,
            HeldRequest {
                caught: Some(caught),
                release,
                reply,
            },
        )
    }

    fn catches(&self, traffic: &[u8]) -> bool {
        self.pattern.is_empty()
            || traffic
                .windows(self.pattern.len())
                .any(|window| window == self.pattern)
    }
}

impl Shared {
    pub(super) fn set_trap(&self, trap: Trap) {
        assert!(
            trap.pattern.len() <= PATTERN_BYTES_MAX,
            "a pattern has at most 64 bytes"
        );
        let mut traps = self.traps.lock().expect("no holder panics");
        assert!(
            traps.len() < TRAPS_MAX,
            "too many faults are waiting for a request"
        );
        traps.push(trap);
    }

    /// The first trap that catches this traffic; it catches nothing else afterwards.
    pub(super) fn spring_trap(&self, traffic: &[u8]) -> Option<Trap> {
        let mut traps = self.traps.lock().expect("no holder panics");
        let index = traps.iter().position(|trap| trap.catches(traffic))?;
        Some(traps.remove(index))
    }
}
