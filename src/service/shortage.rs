//! Purchases that their home segment could not serve: borrow for them, or refuse them truly.
//!
//! One task per sale and instance, in rounds. A round takes all who are waiting, reads what the segments
//! have, moves units to the homes of those who can be served, and sends these back there. A purchase that
//! wants more than all segments have is refused if a second reading confirms the first
//! ([`crate::stock::collect`]): both began after the purchase had come, so at a moment in between it was
//! true. Only the ledger can say "sold out".

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::live::LiveSale;
use crate::domain::{Refusal, Sale};
use crate::stock::Error;
use crate::stock::collect::Reading;
use crate::stock::plan::{self, Demand, Verdict};
use crate::stock::scripts::{self, Answer, Batch, Copies, Decision};

/// The most purchases that one round decides.
const GATHERED_MAX: usize = 4_096;
/// After a round that served and refused nobody.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest rest after a round.
const REST_MAX: Duration = Duration::from_millis(50);
/// How long a gatherer waits for Redis to decide those for whom it has gathered.
const TURN_WAIT: Duration = Duration::from_millis(250);

/// A purchase that its segment could not serve.
#[derive(Debug)]
pub(super) struct Short {
    pub(super) attempt: Attempt,
    /// Units that were available there at that moment.
    pub(super) available: u64,
    pub(super) epoch: u64,
}

/// Decides what becomes of purchases for which stock is short.
#[derive(Debug)]
pub(super) struct Shortage {
    live: Arc<LiveSale>,
    /// Those who came in an earlier round and could be neither served nor refused yet.
    waiting: Vec<Short>,
    /// Whether so little was left that gatherers take turns.
    scarce: bool,
    /// The newest epoch in which the segments were told that everything is sold.
    told_epoch: u64,
}

impl Shortage {
    pub(super) fn new(live: Arc<LiveSale>) -> Self {
        Self {
            live,
            waiting: Vec::new(),
            scarce: false,
            told_epoch: 0,
        }
    }

    /// Serves the queue until the service stops.
    pub(super) async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Short>) {
        let env = self.live.core.env.clone();
        loop {
            if self.waiting.is_empty() {
                tokio::select! {
                    biased;
                    _ = queue.recv_many(&mut self.waiting, GATHERED_MAX) => {}
                    () = env.stopping() => return,
                }
            } else if env.is_stopping() {
                return;
            }
            while self.waiting.len() < GATHERED_MAX
                && let Ok(short) = queue.try_recv()
            {
                self.waiting.push(short);
            }
            let (before, scarce) = (self.waiting.len(), self.scarce);
            let began = env.now();
            self.round().await;
            // Counting many segments keeps Redis from selling: at most half of the time goes into it.
            if self.live.row().terms.segments > 1 {
                env.sleep((env.now() - began).min(REST_MAX)).await;
            }
            if self.waiting.len() == before && self.scarce == scarce {
                env.sleep(env.jittered(PAUSE)).await;
            }
        }
    }

    async fn round(&mut self) {
        let now = self.live.core.env.now();
        self.waiting
            .retain(|short| short.attempt.deadline > now || short.attempt.was_admitted());
        let row = self.live.if_loaded();
        let epoch = row.as_ref().map(|row| row.epoch);
        // More stock may have come with a newer epoch: ask again there.
        let elsewhere = |short: &mut Short| Some(short.epoch) != epoch;
        for short in self.waiting.extract_if(.., elsewhere) {
            send_back(&self.live, short.attempt);
        }
        let Some(row) = row.filter(|_| !self.waiting.is_empty()) else {
            return;
        };
        if row.terms.segments == 1 {
            // One script has seen all there is, in one instant.
            let shorts = std::mem::take(&mut self.waiting);
            let with_stock = shorts.into_iter().map(|short| (short.available, short));
            self.refuse(&row, with_stock.collect()).await;
        } else if let Err(error) = self.serve_or_refuse(&row).await {
            tracing::debug!(sale.id = %self.live.id, error = %error, "the segments are counted again");
        }
    }

    /// A round over several segments.
    async fn serve_or_refuse(&mut self, row: &Arc<Sale>) -> Result<(), Error> {
        let turn = if self.scarce {
            self.live.gather_turn().await
        } else {
            None
        };
        let done = self.count_and_act(row).await;
        if let Some(turn) = turn {
            turn.release().await;
        }
        done
    }

    async fn count_and_act(&mut self, row: &Arc<Sale>) -> Result<(), Error> {
        let Some(first) = self.count(row).await? else {
            return Ok(());
        };
        let available: Vec<u64> = first.segments().iter().map(|one| one.available).collect();
        let demands: Vec<Demand> = self
            .waiting
            .iter()
            .map(|short| Demand {
                home: row.home(short.attempt.purchase.order),
                quantity: short.attempt.purchase.quantity.into(),
            })
            .collect();
        let plan = plan::plan(&available, &demands);
        let turns_begin = plan.scarce && !self.scarce;
        self.scarce = plan.scarce;
        if turns_begin {
            // Count again when it is this instance's turn.
            return Ok(());
        }
        let (mut served, mut short) = (Vec::new(), Vec::new());
        let gathered = std::mem::take(&mut self.waiting);
        for (one, verdict) in gathered.into_iter().zip(&plan.verdicts) {
            match verdict {
                Verdict::Served => served.push(one),
                Verdict::Waits => self.waiting.push(one),
                Verdict::Short => short.push(one),
            }
        }
        if !short.is_empty() {
            match self.live.read_segments(row).await {
                Ok(second) if first.stands(&second) => {
                    let total = first.available();
                    let with_stock = short.into_iter().map(|one| (total, one));
                    self.refuse(row, with_stock.collect()).await;
                }
                Ok(_) | Err(_) => self.waiting.extend(short),
            }
        }
        if !served.is_empty() {
            self.live
                .carry_out(row.epoch, &plan.moves, !plan.scarce)
                .await;
            self.send_home(served).await;
        }
        Ok(())
    }

    /// Reads all segments, after finishing what others have left open; none if one of them is not there.
    async fn count(&self, row: &Arc<Sale>) -> Result<Option<Reading>, Error> {
        let mut reading = self.live.read_segments(row).await?;
        let lenders = reading.lenders();
        if reading.not_there().is_none() && !lenders.is_empty() {
            self.live.finish_transfers(row.epoch, &lenders).await?;
            reading = self.live.read_segments(row).await?;
        }
        if let Some(presence) = reading.not_there() {
            self.live.not_there(row.epoch, presence).await;
            return Ok(None);
        }
        Ok(Some(reading))
    }

    /// Sends purchases to the segments that now have their units, and waits until Redis has decided.
    async fn send_home(&self, served: Vec<Short>) {
        let (turn, mut all_decided) = mpsc::channel(1);
        for mut short in served {
            short.attempt.take_turn(turn.clone());
            send_back(&self.live, short.attempt);
        }
        drop(turn);
        let _ = timeout(TURN_WAIT, all_decided.recv()).await;
    }

    /// Refuses purchases, each with the units that all segments together had at a moment after it came.
    async fn refuse(&mut self, row: &Arc<Sale>, shorts: Vec<(u64, Short)>) {
        // Without the ledger's word the last known row serves: under one epoch confirmed only grows, so
        // "sold out" read from it is true, and where it is too old the refusal is the softer "held".
        let row = match self.live.refresh().await {
            Ok(newer) if newer.epoch == row.epoch => newer,
            Ok(_) => {
                self.waiting
                    .extend(shorts.into_iter().map(|(_, short)| short));
                return;
            }
            Err(_) => Arc::clone(row),
        };
        let last_word_needed = |(_, short): &mut (u64, Short)| {
            // With one segment, "short" was the last word.
            short.attempt.late_copy_possible && row.terms.segments > 1
        };
        let mut shorts = shorts;
        let doubtful: Vec<_> = shorts.extract_if(.., last_word_needed).collect();
        for (available, short) in shorts {
            let refusal = refusal(&row, short.attempt.purchase.quantity, available);
            super::refuse(&self.live, short.attempt, refusal);
        }
        for (available, short) in doubtful {
            self.say_the_last_word(&row, available, short).await;
        }
        if row.is_sold_out() && row.epoch > self.told_epoch {
            self.tell(&row).await;
        }
    }

    /// Refuses a purchase of which a lost copy may still arrive: only after its home has written down that
    /// it is void. If the copy was faster, or stock has come, it is admitted instead.
    async fn say_the_last_word(&mut self, row: &Arc<Sale>, available: u64, short: Short) {
        let attempt = short.attempt;
        if !attempt.set_out() {
            return;
        }
        let segment = row.home(attempt.purchase.order);
        let now = self.live.core.env.now();
        let act_before_ms = self
            .live
            .redis_clock_after(attempt.deadline.saturating_duration_since(now));
        let (mut connection, keys) = (
            self.live.connection(segment),
            self.live.keys(segment, row.epoch),
        );
        let one = [Batch {
            keys: &keys,
            purchases: &[&attempt.purchase],
        }];
        let call = scripts::purchase(&mut connection, Copies::LastWord, act_before_ms, &one);
        let decided = match self.live.within(call).await {
            Ok(Decision::Decided { mut batches, .. }) => batches.pop(),
            Ok(Decision::TooLate { .. }) | Err(_) => None,
        };
        match decided {
            Some(Ok(decided)) if matches!(decided.answers[..], [Answer::Short(_)]) => {
                let refusal = refusal(row, attempt.purchase.quantity, available);
                super::refuse(&self.live, attempt, refusal);
            }
            Some(Ok(decided)) => {
                let group = self.live.hand_on(segment, row, decided, [attempt]);
                self.live.commit(group.into_iter().collect());
            }
            Some(Err(_)) | None => self.waiting.push(Short { attempt, ..short }),
        }
    }

    /// Marks all segments as sold out, so that they refuse without asking the ledger.
    async fn tell(&mut self, row: &Sale) {
        for segment in 0..row.terms.segments {
            let mut connection = self.live.connection(segment);
            let keys = self.live.keys(segment, row.epoch);
            let call = scripts::control(&mut connection, &keys, row);
            if self.live.within(call).await.is_err() {
                return;
            }
        }
        self.told_epoch = row.epoch;
    }
}

/// Lets the home segment decide again.
fn send_back(live: &Arc<LiveSale>, attempt: Attempt) {
    attempt.come_back();
    live.submit(attempt);
}

fn refusal(row: &Sale, requested: u32, available: u64) -> Refusal {
    if row.is_sold_out() {
        Refusal::SoldOut
    } else if available > 0 {
        Refusal::Insufficient {
            requested,
            available,
        }
    } else {
        let quantity = u64::from(row.terms.quantity);
        Refusal::Held {
            available,
            held: quantity - row.confirmed,
        }
    }
}
