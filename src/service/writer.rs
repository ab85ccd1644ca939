//! The second natural batcher: admitted purchases of one sale on their way to the ledger.
//!
//! As in the first one there is no timer: while transactions are under way, what Redis admits gathers,
//! and leaves as the next transaction. A Redis answer means admitted, never committed: buyers hear "yes"
//! from here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::attempt::Attempt;
use super::live::LiveSale;
use super::loading::LoadCause;
use super::settler::Settled;
use crate::domain::{Order, OrderState, Outcome, Purchase, Refusal};
use crate::ledger::{COMMIT_MAX, Commit, Error};

/// Transactions of one sale that this instance has under way at once. The second one is inserted while
/// the first one waits for the disk; more only queue for the sale's row.
const IN_FLIGHT_MAX: usize = 2;
/// Between two tries at a ledger that does not answer: grows from the first to the second.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);

/// What one call of the purchase script admitted or found admitted before.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) epoch: u64,
    pub(super) segment: u32,
    /// The journal entry, with its units, that may go when all of the group is in the ledger.
    pub(super) entry: Option<(String, u64)>,
    pub(super) attempts: Vec<Attempt>,
}

/// What became of one purchase in the ledger.
#[derive(Debug)]
enum Fate {
    /// It is there.
    Committed { order: Order, fresh: bool },
    /// It can never be there; that is written down.
    Rejected,
    /// It can never be there, and not even that could be written down.
    Stuck,
    /// Its epoch is over: it must be bought again.
    Fenced,
}

/// Commits a sale's admitted purchases.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    live: Arc<LiveSale>,
}

impl Writer {
    pub(super) fn new(live: Arc<LiveSale>) -> Self {
        Self { live }
    }

    /// Serves the queue until the service stops.
    pub(super) async fn run(self, mut queue: mpsc::UnboundedReceiver<Vec<Group>>) {
        let env = self.live.core.env.clone();
        let mut waiting: VecDeque<Group> = VecDeque::new();
        let mut under_way = JoinSet::new();
        loop {
            while let Ok(groups) = queue.try_recv() {
                waiting.extend(groups);
            }
            while under_way.len() < IN_FLIGHT_MAX && !waiting.is_empty() {
                let writer = self.clone();
                let groups = next_transaction(&mut waiting);
                self.live.committing(groups.len());
                under_way.spawn(async move { writer.settle(groups).await });
            }
            tokio::select! {
                biased;
                Some(_) = under_way.join_next() => {}
                Some(groups) = queue.recv() => waiting.extend(groups),
                () = env.stopping(), if under_way.is_empty() => return,
            }
        }
    }

    /// Commits the groups of one transaction, answers their buyers, and lets the journal entries go.
    async fn settle(&self, groups: Vec<Group>) {
        let Some(epoch) = groups.first().map(|group| group.epoch) else {
            return;
        };
        let purchases: Vec<Purchase> = groups
            .iter()
            .flat_map(|group| {
                group
                    .attempts
                    .iter()
                    .map(|attempt| attempt.purchase.clone())
            })
            .collect();
        let started = self.live.core.env.now();
        let mut fates = self.commit(epoch, &purchases).await.into_iter();
        self.live
            .core
            .metrics
            .committed(purchases.len(), self.live.core.env.now() - started);
        let settled = groups.into_iter().filter_map(|group| {
            let fates: Vec<Fate> = fates.by_ref().take(group.attempts.len()).collect();
            self.conclude(group, fates)
        });
        self.live.settle(settled.collect());
    }

    /// Answers the buyers of one group; returns its journal entry if that may go.
    fn conclude(&self, group: Group, fates: Vec<Fate>) -> Option<Settled> {
        let Group {
            epoch,
            segment,
            entry,
            attempts,
        } = group;
        let all_there = fates
            .iter()
            .all(|fate| matches!(fate, Fate::Committed { .. } | Fate::Rejected));
        for (mut attempt, fate) in attempts.into_iter().zip(fates) {
            match fate {
                Fate::Committed { order, .. } if order.state == OrderState::Rejected => {
                    attempt.answer(Outcome::Refused(Refusal::Rejected));
                }
                Fate::Committed { order, fresh } => {
                    let replayed = attempt.replayed || !fresh;
                    attempt.answer(Outcome::Committed { order, replayed });
                }
                Fate::Rejected => {
                    attempt.answer(Outcome::Refused(Refusal::Rejected));
                }
                Fate::Stuck => {}
                Fate::Fenced => {
                    self.live.core.metrics.fenced();
                    self.live.submit(attempt);
                }
            }
        }
        let (entry, units) = entry?;
        if !all_there {
            self.live.forget(epoch, segment, &entry);
            return None;
        }
        Some(Settled {
            epoch,
            segment,
            entry,
            units,
        })
    }

    /// Tries until the ledger has given each purchase its fate.
    async fn commit(&self, epoch: u64, purchases: &[Purchase]) -> Vec<Fate> {
        let core = &self.live.core;
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let began = core.env.now();
            crate::crash_point!("commit:before");
            let answer = core.ledger.commit(self.live.id, epoch, purchases).await;
            crate::crash_point!("commit:done");
            match answer {
                Ok(Commit::Committed(committed)) => {
                    return committed
                        .into_iter()
                        .map(|one| Fate::Committed {
                            order: one.order,
                            fresh: one.fresh,
                        })
                        .collect();
                }
                Ok(Commit::Fenced(row)) => {
                    self.live.learn(row, began);
                    return purchases.iter().map(|_| Fate::Fenced).collect();
                }
                Ok(Commit::Full(row)) => {
                    self.live.learn(row, began);
                    self.live.mark_lost(epoch, LoadCause::GuardRefused);
                    return purchases.iter().map(|_| Fate::Fenced).collect();
                }
                Err(error @ (Error::Permanent(_) | Error::Corrupt(_) | Error::Unusable(_))) => {
                    return Box::pin(self.isolate(epoch, purchases, &error)).await;
                }
                Err(error) => {
                    core.metrics.commit_retried();
                    tracing::debug!(sale.id = %self.live.id, error = %error, "the commit is tried again");
                }
            }
            if core.env.sleep_or_stop(core.env.jittered(pause)).await {
                return purchases.iter().map(|_| Fate::Stuck).collect();
            }
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Finds the purchases that the database refuses by halving, so that nobody else is harmed.
    async fn isolate(&self, epoch: u64, purchases: &[Purchase], why: &Error) -> Vec<Fate> {
        if let [purchase] = purchases {
            return vec![self.reject(epoch, purchase, why).await];
        }
        let (first, second) = purchases.split_at(purchases.len() / 2);
        let mut fates = self.commit(epoch, first).await;
        fates.extend(self.commit(epoch, second).await);
        fates
    }

    async fn reject(&self, epoch: u64, purchase: &Purchase, why: &Error) -> Fate {
        tracing::error!(sale.id = %self.live.id, order.id = %purchase.order, error = %why,
            "an admitted purchase cannot be committed; it is recorded as rejected");
        match self
            .live
            .core
            .ledger
            .reject(self.live.id, purchase, Some(epoch))
            .await
        {
            Ok(_) => {
                self.live.core.metrics.rejected();
                Fate::Rejected
            }
            Err(error) => {
                tracing::error!(sale.id = %self.live.id, order.id = %purchase.order, error = %error,
                    "not even the rejection can be recorded; the journal keeps the purchase");
                Fate::Stuck
            }
        }
    }
}

/// Takes as many groups of one epoch from the front as one transaction may hold.
fn next_transaction(waiting: &mut VecDeque<Group>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut purchases = 0;
    while let Some(group) = waiting.front() {
        let fits = groups.first().is_none_or(|first| {
            first.epoch == group.epoch && purchases + group.attempts.len() <= COMMIT_MAX
        });
        if !fits {
            break;
        }
        purchases += group.attempts.len();
        groups.extend(waiting.pop_front());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(epoch: u64, attempts: usize) -> Group {
        let order = "00000001-6dda-8221-9e5f-d7f82a46b46a".parse().unwrap();
        let buyer = crate::domain::BuyerId::parse("alice").unwrap();
        let purchase = Purchase {
            order,
            buyer,
            quantity: 1,
        };
        let now = tokio::time::Instant::now();
        let attempts = (0..attempts)
            .map(|_| Attempt::found(purchase.clone(), now))
            .collect();
        Group {
            epoch,
            segment: 0,
            entry: None,
            attempts,
        }
    }

    fn sizes(waiting: &mut VecDeque<Group>) -> Vec<usize> {
        next_transaction(waiting)
            .iter()
            .map(|group| group.attempts.len())
            .collect()
    }

    #[test]
    fn a_transaction_takes_what_fits_and_never_two_epochs() {
        let groups = [
            group(1, 600),
            group(1, 400),
            group(1, 1),
            group(2, 5),
            group(2, 1_000),
        ];
        let mut waiting = VecDeque::from(groups);
        assert_eq!(sizes(&mut waiting), [600, 400]);
        assert_eq!(sizes(&mut waiting), [1]);
        assert_eq!(sizes(&mut waiting), [5]);
        assert_eq!(sizes(&mut waiting), [1_000]);
        assert!(sizes(&mut waiting).is_empty());
    }
}
