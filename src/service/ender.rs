//! The third natural batcher: confirmations and cancellations of one sale on their way to the ledger.
//!
//! A lane of its own, so that whoever pays does not queue behind those who want to buy; and many ends in
//! one transaction, because each transaction keeps the sale's row until it is on disk.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::live::LiveSale;
use super::{Error, Service};
use crate::domain::{OrderId, Unavailable};
use crate::ledger::{COMMIT_MAX, End, Ended, StockReturn, Transition};

/// An order that somebody wants to end, and who waits for it.
#[derive(Debug)]
pub(super) struct Wish {
    order: OrderId,
    end: End,
    reply: oneshot::Sender<Result<Transition, Error>>,
}

/// Ends a sale's orders.
#[derive(Debug)]
pub(super) struct Ender {
    live: Arc<LiveSale>,
    service: Service,
}

impl Ender {
    pub(super) fn new(live: Arc<LiveSale>, service: Service) -> Self {
        Self { live, service }
    }

    /// Serves the queue until the service stops.
    pub(super) async fn run(self, mut queue: mpsc::Receiver<Wish>) {
        let env = self.live.core.env.clone();
        let mut wishes = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = queue.recv_many(&mut wishes, COMMIT_MAX) => {}
                () = env.stopping() => return,
            }
            self.end(std::mem::take(&mut wishes)).await;
        }
    }

    async fn end(&self, wishes: Vec<Wish>) {
        let ends: Vec<(OrderId, End)> = wishes.iter().map(|wish| (wish.order, wish.end)).collect();
        let ended = self.live.core.ledger.end(self.live.id, &ends).await;
        let ended: Result<Vec<Ended>, Error> = ended.map_err(Error::from);
        let mut returns: Vec<StockReturn> = Vec::new();
        match ended {
            Ok(ended) => {
                for (wish, (transition, returned)) in wishes.into_iter().zip(ended) {
                    returns.extend(returned);
                    // Whoever hung up may ask again: the end is in the ledger.
                    let _ = wish.reply.send(Ok(transition));
                }
            }
            Err(error) => {
                for wish in wishes {
                    let _ = wish.reply.send(Err(error.clone()));
                }
            }
        }
        if !returns.is_empty() {
            crate::crash_point!("return:before");
            self.service.apply_returns(&returns).await;
        }
    }
}

impl LiveSale {
    /// Ends an order, together with whatever else is to end.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if too many wait or the ledger does not answer; idempotent.
    pub(super) async fn end(&self, order: OrderId, end: End) -> Result<Transition, Error> {
        let (reply, answer) = oneshot::channel();
        let overloaded = |_| Error::Unavailable(Unavailable::Overloaded);
        self.ender
            .try_send(Wish { order, end, reply })
            .map_err(overloaded)?;
        answer
            .await
            .unwrap_or(Err(Error::Unavailable(Unavailable::OutcomeUnknown)))
    }
}
