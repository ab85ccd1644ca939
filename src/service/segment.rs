//! The first natural batcher: purchases of one segment on their way to Redis.
//!
//! There is no timer. While one batch is under way, arrivals queue; when it returns, the queue leaves as
//! the next batch. A lone purchase is a batch of one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::decided::Decided;
use super::live::LiveSale;
use crate::domain::{Purchase, Sale};
use crate::stock::scripts::{self, Copies, Decision, Presence};
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
    Decided(Decided),
    /// The segment is not there: nothing was decided.
    NotThere(Presence),
    /// Redis certainly did not run it.
    NotRun,
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
        match self.send(queue, &sale, &keys).await {
            Sent::Decided(decided) => {
                crate::crash_point!("purchase:decided");
                let took = self.live.core.env.now() - started;
                self.live.core.metrics.flushed(queue.len(), took);
                let attempts = std::mem::take(queue);
                self.live.hand_on(self.number, &sale, decided, attempts);
            }
            Sent::NotThere(presence) => {
                queue.iter().for_each(Attempt::come_back);
                self.live.not_there(sale.epoch, presence).await;
            }
            Sent::NotRun => {
                queue.iter().for_each(Attempt::come_back);
                self.drop_overdue(queue);
                self.live.core.env.sleep(RETRY_PAUSE).await;
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
    async fn send(&mut self, queue: &mut [Attempt], sale: &Sale, keys: &SegmentKeys) -> Sent {
        let env = self.live.core.env.clone();
        let purchases: Vec<&Purchase> = queue.iter().map(|attempt| &attempt.purchase).collect();
        let latest = queue
            .iter()
            .map(|attempt| attempt.deadline)
            .max()
            .unwrap_or_else(|| env.now());
        let mut late_copy_possible = queue.iter().any(|attempt| attempt.late_copy_possible);
        loop {
            let left = latest.saturating_duration_since(env.now()).max(RETRY_PAUSE);
            let act_before_ms = self.live.redis_clock_after(left);
            let call = scripts::purchase(
                &mut self.connection,
                keys,
                copies(late_copy_possible, sale),
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
                    for attempt in queue.iter_mut() {
                        attempt.late_copy_possible |= late_copy_possible;
                    }
                    return Sent::Decided(Decided {
                        entry,
                        sold_out,
                        answers,
                    });
                }
                Ok(Decision::NotThere(presence)) => return Sent::NotThere(presence),
                Ok(Decision::TooLate { now_ms }) => self.live.learn_clock(now_ms),
                Err(error) if error.is_not_run() && !late_copy_possible => {
                    tracing::debug!(sale.id = %self.live.id, error = %error, "purchases were not sent");
                    return Sent::NotRun;
                }
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

    /// While the sale cannot be reached, only those stay queued for whom it still matters.
    fn drop_overdue(&self, queue: &mut Vec<Attempt>) {
        let now = self.live.core.env.now();
        queue.retain(|attempt| attempt.deadline > now || attempt.was_admitted());
    }
}

/// What a refusal must leave behind. With one segment there is nobody to borrow from: "short" is final.
fn copies(late_copy_possible: bool, sale: &Sale) -> Copies {
    match (late_copy_possible, sale.terms.segments) {
        (false, _) => Copies::One,
        (true, 1) => Copies::LastWord,
        (true, _) => Copies::LateOnePossible,
    }
}
