//! The first natural batcher: purchases of one segment on their way to Redis.
//!
//! There is no timer. While one batch is under way, arrivals queue; when it returns, the queue leaves as
//! the next batch. A lone purchase is a batch of one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::live::LiveSale;
use super::shortage::Short;
use super::writer::Group;
use crate::domain::{Purchase, Refusal, Sale, Timestamp};
use crate::stock::scripts::{self, Answer, Decision, Presence};
use crate::stock::{Connection, Error, SegmentKeys};

/// The most purchases in one batch. Far below what a script may unpack, and at the knee of the curve:
/// the cost of a purchase hardly falls beyond some hundreds.
const BATCH_MAX: usize = 1_000;
/// Between two tries at a Redis that does not answer, or at a sale that is being loaded.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Sends the purchases of one segment.
#[derive(Debug)]
pub(super) struct Segment {
    live: Arc<LiveSale>,
    number: u32,
    connection: Connection,
}

/// What became of one call of the script.
enum Sent {
    /// Every purchase was decided.
    Decided {
        entry: Option<String>,
        sold_out: bool,
        answers: Vec<Answer>,
    },
    /// The segment is not there: nothing was decided.
    NotThere(Presence),
    /// Nobody waits any longer.
    GivenUp,
}

impl Segment {
    pub(super) fn new(live: Arc<LiveSale>, number: u32) -> Self {
        let connection = live.connection(number);
        Self {
            live,
            number,
            connection,
        }
    }

    /// Serves the queue until the service stops.
    pub(super) async fn run(mut self, mut arrivals: mpsc::UnboundedReceiver<Attempt>) {
        let env = self.live.core.env.clone();
        let mut queue: Vec<Attempt> = Vec::new();
        loop {
            while queue.len() < BATCH_MAX
                && let Ok(attempt) = arrivals.try_recv()
            {
                queue.push(attempt);
            }
            if queue.is_empty() {
                tokio::select! {
                    biased;
                    _ = arrivals.recv_many(&mut queue, BATCH_MAX) => {}
                    () = env.stopping() => return,
                }
            }
            self.flush(&mut queue).await;
            if env.is_stopping() && queue.is_empty() && arrivals.is_empty() {
                return;
            }
        }
    }

    /// Sends what is queued. What could not be sent stays in the queue.
    async fn flush(&mut self, queue: &mut Vec<Attempt>) {
        let Ok(sale) = self.live.loaded().await else {
            self.drop_overdue(queue);
            self.live.core.env.sleep(RETRY_PAUSE).await;
            return;
        };
        self.send_strangers_home(queue, &sale);
        queue.retain(Attempt::set_out);
        if queue.is_empty() {
            return;
        }
        let started = self.live.core.env.now();
        let keys = self.live.keys(self.number, sale.epoch);
        match self.send(queue, &keys).await {
            Sent::Decided {
                entry,
                sold_out,
                answers,
            } => {
                crate::crash_point!("purchase:decided");
                let took = self.live.core.env.now() - started;
                self.live.core.metrics.flushed(queue.len(), took);
                self.hand_on(std::mem::take(queue), &sale, entry, sold_out, answers);
            }
            Sent::NotThere(presence) => {
                queue.iter().for_each(Attempt::come_back);
                self.live.not_there(sale.epoch, presence).await;
            }
            Sent::GivenUp => {
                // What was admitted under an older epoch is a promise: it stays until it is decided.
                queue.retain(Attempt::was_admitted);
            }
        }
    }

    /// Those who queued here under another number of segments buy elsewhere now.
    fn send_strangers_home(&self, queue: &mut Vec<Attempt>, sale: &Sale) {
        let at_home = |attempt: &Attempt| sale.home(attempt.purchase.order) == self.number;
        for stranger in queue.extract_if(.., |attempt| !at_home(attempt)) {
            self.live.submit(stranger);
        }
    }

    /// Calls the script until it is known what it did.
    ///
    /// After an outcome that is not known, the purchases are sent again under the same ids: what the
    /// first copy admitted is a replay. The first copy may still be under way, so refusals are then
    /// written down, and each copy carries the time after which it must do nothing.
    async fn send(&mut self, queue: &[Attempt], keys: &SegmentKeys) -> Sent {
        let env = self.live.core.env.clone();
        let purchases: Vec<&Purchase> = queue.iter().map(|attempt| &attempt.purchase).collect();
        let latest = queue
            .iter()
            .map(|attempt| attempt.deadline)
            .max()
            .unwrap_or_else(|| env.now());
        let mut late_copy_possible = false;
        loop {
            let left = latest.saturating_duration_since(env.now()).max(RETRY_PAUSE);
            let act_before_ms = self.live.redis_clock_after(left);
            let call = scripts::purchase(
                &mut self.connection,
                keys,
                late_copy_possible,
                act_before_ms,
                &purchases,
            );
            let answer = timeout(self.live.core.redis.timeout(), call).await;
            match answer.unwrap_or(Err(Error::TimedOut)) {
                Ok(Decision::Decided {
                    now_ms,
                    entry,
                    sold_out,
                    answers,
                }) => {
                    self.live.learn_clock(now_ms);
                    return Sent::Decided {
                        entry,
                        sold_out,
                        answers,
                    };
                }
                Ok(Decision::NotThere(presence)) => return Sent::NotThere(presence),
                Ok(Decision::TooLate { now_ms }) => self.live.learn_clock(now_ms),
                Err(error) => {
                    late_copy_possible |= !error.is_not_run();
                    if !error.is_not_run() {
                        self.live.core.metrics.unknown_resent(queue.len() as u64);
                    }
                    tracing::debug!(sale.id = %self.live.id, error = %error, "purchases are sent again");
                }
            }
            let nobody_waits = queue.iter().all(|attempt| attempt.deadline <= env.now());
            if nobody_waits || env.is_stopping() {
                return Sent::GivenUp;
            }
            env.sleep(RETRY_PAUSE).await;
        }
    }

    /// Gives each purchase to whoever decides the rest of its way.
    fn hand_on(
        &self,
        attempts: Vec<Attempt>,
        sale: &Arc<Sale>,
        entry: Option<String>,
        sold_out: bool,
        answers: Vec<Answer>,
    ) {
        let mut group = Group {
            epoch: sale.epoch,
            segment: self.number,
            entry: None,
            attempts: vec![],
        };
        let mut units = 0;
        for (mut attempt, answer) in attempts.into_iter().zip(answers) {
            attempt.decided();
            match answer {
                Answer::Admitted => {
                    units += u64::from(attempt.purchase.quantity);
                    attempt.admit(false);
                    group.attempts.push(attempt);
                }
                Answer::Replay => {
                    attempt.admit(true);
                    group.attempts.push(attempt);
                }
                Answer::Short(_) if sold_out => self.refuse(attempt, Refusal::SoldOut),
                Answer::Short(available) => {
                    self.live.fall_short(Short {
                        attempt,
                        available,
                        epoch: sale.epoch,
                    });
                }
                Answer::LimitReached(left) => {
                    let limit = sale.terms.per_buyer_limit;
                    self.refuse(attempt, Refusal::LimitReached { limit, left });
                }
                Answer::KeyReused(quantity) => {
                    self.refuse(attempt, Refusal::KeyReused { quantity });
                }
                Answer::Void => self.refuse(attempt, Refusal::Void),
                Answer::Closed => self.refuse(attempt, Refusal::Closed),
                Answer::Paused => {
                    self.refuse(
                        attempt,
                        Refusal::NotOpen {
                            opens_at: None,
                            paused: true,
                        },
                    );
                }
                Answer::NotOpen(opens_at_ms) => {
                    let opens_at = opens_at_ms.and_then(|ms| Timestamp::from_millis(ms).ok());
                    self.refuse(
                        attempt,
                        Refusal::NotOpen {
                            opens_at,
                            paused: false,
                        },
                    );
                }
            }
        }
        group.entry = entry.map(|entry| (entry, units));
        if !group.attempts.is_empty() {
            self.live.commit(group);
        }
    }

    fn refuse(&self, attempt: Attempt, refusal: Refusal) {
        super::refuse(&self.live, attempt, refusal);
    }

    /// While the sale cannot be reached, only those stay queued for whom it still matters.
    fn drop_overdue(&self, queue: &mut Vec<Attempt>) {
        let now = self.live.core.env.now();
        queue.retain(|attempt| attempt.deadline > now || attempt.was_admitted());
    }
}
