//! The first natural batcher: purchases of one sale on their way to Redis.
//!
//! While one call is under way, arrivals queue; when it returns, and the ledger has taken up what it admitted
//! or takes too long, the queue leaves as the next call. A lone purchase is a call of its own. One call serves all segments, so that its cost,
//! which hardly depends on what is in it, does not grow with their number.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::live::LiveSale;
use crate::domain::{Purchase, Sale};
use crate::stock::scripts::{self, Batch, Copies, Decided, Decision, Presence};
use crate::stock::{Connection, Error, SegmentKeys};

/// The most purchases in one call. Far below what a script may unpack, and at the knee of the curve:
/// the cost of a purchase hardly falls beyond some hundreds.
const CALL_MAX: usize = 1_000;
/// The longest that a call waits for the ledger to take up what earlier calls admitted.
const PATIENCE: Duration = Duration::from_millis(10);
/// Between two tries at a Redis that does not answer, or at a sale that is being loaded.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Sends the purchases of one sale.
#[derive(Debug)]
pub(super) struct Batcher {
    live: Arc<LiveSale>,
    connection: Connection,
}

/// What became of one call of the script.
enum Sent {
    /// Redis has looked at every batch.
    Decided(Vec<Result<Decided, Presence>>),
    /// Redis certainly did not run it.
    NotRun,
    /// Nobody waits any longer.
    GivenUp,
}

/// The part of a call that one segment decides.
struct Part {
    segment: u32,
    keys: SegmentKeys,
    purchases: usize,
}

impl Batcher {
    pub(super) fn new(live: Arc<LiveSale>) -> Self {
        let connection = live.connection(0);
        Self { live, connection }
    }

    /// Serves the queue until the service stops.
    pub(super) async fn run(mut self, mut arrivals: mpsc::UnboundedReceiver<Attempt>) {
        let env = self.live.core.env.clone();
        let mut queue: Vec<Attempt> = Vec::new();
        loop {
            if queue.is_empty() {
                tokio::select! {
                    biased;
                    _ = arrivals.recv_many(&mut queue, CALL_MAX) => {}
                    () = env.stopping() => return,
                }
            }
            self.live.ledger_keeps_up(PATIENCE).await;
            while queue.len() < CALL_MAX
                && let Ok(attempt) = arrivals.try_recv()
            {
                queue.push(attempt);
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
        queue.retain(Attempt::set_out);
        if queue.is_empty() {
            return;
        }
        let started = self.live.core.env.now();
        let parts = self.split(queue, &sale);
        match self.send(queue, &sale, &parts).await {
            Sent::Decided(decisions) => {
                crate::crash_point!("purchase:decided");
                let took = self.live.core.env.now() - started;
                self.live.core.metrics.flushed(queue.len(), took);
                self.hand_on(queue, &sale, &parts, decisions).await;
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

    /// Sorts the queue by home segment, each in the order of arrival.
    fn split(&self, queue: &mut [Attempt], sale: &Sale) -> Vec<Part> {
        let home = |attempt: &Attempt| sale.home(attempt.purchase.order);
        queue.sort_by_key(home);
        let parts = queue.chunk_by(|a, b| home(a) == home(b));
        let part = |attempts: &[Attempt]| Part {
            segment: home(&attempts[0]),
            keys: self.live.keys(home(&attempts[0]), sale.epoch),
            purchases: attempts.len(),
        };
        parts.map(part).collect()
    }

    /// Gives the purchases that were decided to whoever decides the rest of their way. Those whose segment
    /// is not there stay in the queue.
    async fn hand_on(
        &self,
        queue: &mut Vec<Attempt>,
        sale: &Sale,
        parts: &[Part],
        decisions: Vec<Result<Decided, Presence>>,
    ) {
        let mut missing = None;
        let mut admitted = Vec::new();
        let mut sent = std::mem::take(queue).into_iter();
        for (part, decision) in parts.iter().zip(decisions) {
            let attempts = sent.by_ref().take(part.purchases);
            match decision {
                Ok(decided) => {
                    admitted.extend(self.live.hand_on(part.segment, sale, decided, attempts));
                }
                Err(presence) => {
                    missing = Some(presence);
                    queue.extend(attempts.inspect(Attempt::come_back));
                }
            }
        }
        // All at once, so that they get one transaction.
        self.live.commit(admitted);
        if let Some(presence) = missing {
            self.live.not_there(sale.epoch, presence).await;
        }
    }

    /// Calls the script until it is known what it did.
    ///
    /// After an outcome that is not known, the purchases are sent again under the same ids: what the
    /// first copy admitted is a replay. The first copy may still be under way, so refusals are then
    /// written down, and each copy carries the time after which it must do nothing.
    async fn send(&mut self, queue: &mut [Attempt], sale: &Sale, parts: &[Part]) -> Sent {
        let env = self.live.core.env.clone();
        let purchases: Vec<&Purchase> = queue.iter().map(|attempt| &attempt.purchase).collect();
        let batches = batches(parts, &purchases);
        let latest = queue
            .iter()
            .map(|attempt| attempt.deadline)
            .max()
            .unwrap_or_else(|| env.now());
        let mut late_copy_possible = queue.iter().any(|attempt| attempt.late_copy_possible);
        loop {
            let left = latest.saturating_duration_since(env.now()).max(RETRY_PAUSE);
            let act_before_ms = self.live.redis_clock_after(left);
            let copies = copies(late_copy_possible, sale);
            let call = scripts::purchase(&mut self.connection, copies, act_before_ms, &batches);
            let answer = timeout(self.live.core.redis.timeout(), call).await;
            match answer.unwrap_or(Err(Error::TimedOut)) {
                Ok(Decision::Decided { now_ms, batches }) => {
                    self.live.learn_clock(now_ms);
                    for attempt in queue.iter_mut() {
                        attempt.late_copy_possible |= late_copy_possible;
                    }
                    return Sent::Decided(batches);
                }
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

/// The purchases of each part.
fn batches<'a>(parts: &'a [Part], purchases: &'a [&'a Purchase]) -> Vec<Batch<'a>> {
    let mut rest = purchases;
    let batch = |part: &'a Part| {
        let (purchases, others) = rest.split_at(part.purchases);
        rest = others;
        Batch {
            keys: &part.keys,
            purchases,
        }
    };
    parts.iter().map(batch).collect()
}

/// What a refusal must leave behind. With one segment there is nobody to borrow from: "short" is final.
fn copies(late_copy_possible: bool, sale: &Sale) -> Copies {
    match (late_copy_possible, sale.terms.segments) {
        (false, _) => Copies::One,
        (true, 1) => Copies::LastWord,
        (true, _) => Copies::LateOnePossible,
    }
}
