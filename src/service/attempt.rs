//! One purchase on its way, and the buyer who waits for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::domain::{Admission, Outcome, Purchase, Unavailable};

/// When a purchase is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerWhen {
    /// When the ledger has committed it.
    Committed,
    /// As soon as Redis has admitted it.
    Admitted,
}

/// In a queue of this process; nobody else knows of it.
const QUEUED: u8 = 0;
/// On its way to Redis, or back.
const SENT: u8 = 1;
/// Admitted by Redis.
const ADMITTED: u8 = 2;
/// Given up by its buyer while it was queued.
const ABANDONED: u8 = 3;

/// A purchase on its way through the queues.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) purchase: Purchase,
    pub(super) answer_when: AnswerWhen,
    /// Whether an earlier attempt was admitted before this one.
    pub(super) replayed: bool,
    /// Until when it is worth sending.
    pub(super) deadline: Instant,
    stage: Arc<AtomicU8>,
    reply: Option<oneshot::Sender<Outcome>>,
    /// Whether a lost copy of it may still arrive at Redis.
    pub(super) late_copy_possible: bool,
    /// Held until Redis has decided, for whoever gathered units for it.
    turn: Option<Turn>,
    _place: Option<Place>,
}

/// Whoever waits for it learns when all copies are dropped.
pub(super) type Turn = mpsc::Sender<Infallible>;

/// The buyer's end of an [`Attempt`].
#[derive(Debug)]
pub(super) struct Receipt {
    admission: Admission,
    stage: Arc<AtomicU8>,
    reply: oneshot::Receiver<Outcome>,
}

/// A place among the attempts that an instance works on; free again when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes a place unless `limit` are taken.
    pub(super) fn take(taken: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        if taken.fetch_add(1, Ordering::Relaxed) < limit {
            Some(Self(Arc::clone(taken)))
        } else {
            taken.fetch_sub(1, Ordering::Relaxed);
            None
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Attempt {
    /// An attempt whose buyer waits.
    pub(super) fn new(
        purchase: Purchase,
        answer_when: AnswerWhen,
        deadline: Instant,
        place: Place,
    ) -> (Self, Receipt) {
        let (reply, receiver) = oneshot::channel();
        let stage = Arc::new(AtomicU8::new(QUEUED));
        let admission = Admission {
            order: purchase.order,
            quantity: purchase.quantity,
            replayed: false,
        };
        let attempt = Self {
            purchase,
            answer_when,
            replayed: false,
            deadline,
            stage: Arc::clone(&stage),
            reply: Some(reply),
            late_copy_possible: false,
            turn: None,
            _place: Some(place),
        };
        (
            attempt,
            Receipt {
                admission,
                stage,
                reply: receiver,
            },
        )
    }

    /// A purchase found in a journal, for which nobody here waits.
    pub(super) fn found(purchase: Purchase, deadline: Instant) -> Self {
        Self {
            purchase,
            answer_when: AnswerWhen::Committed,
            replayed: true,
            deadline,
            stage: Arc::new(AtomicU8::new(ADMITTED)),
            reply: None,
            late_copy_possible: false,
            turn: None,
            _place: None,
        }
    }

    /// Marks it as on its way; false if its buyer has given it up, and then it must not be sent.
    pub(super) fn set_out(&self) -> bool {
        let move_on = |stage| match stage {
            QUEUED => Some(SENT),
            ABANDONED => None,
            other => Some(other),
        };
        self.stage
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, move_on)
            .is_ok()
    }

    /// Marks it as back in the queue: Redis certainly did not run it. If a lost copy of it may still have
    /// been admitted, its buyer must not hear that it never left.
    pub(super) fn come_back(&self) {
        if self.late_copy_possible {
            return;
        }
        let _ = self
            .stage
            .compare_exchange(SENT, QUEUED, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Lets `turn` go when Redis has decided.
    pub(super) fn take_turn(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    /// Redis has decided.
    pub(super) fn decided(&mut self) {
        self.turn = None;
    }

    /// Marks it as admitted, and answers a buyer who waits only for that.
    pub(super) fn admit(&mut self, replayed: bool) {
        self.replayed |= replayed;
        self.stage.store(ADMITTED, Ordering::SeqCst);
        if self.answer_when == AnswerWhen::Admitted {
            let admission = self.admission();
            self.answer(Outcome::Admitted(admission));
        }
    }

    fn admission(&self) -> Admission {
        Admission {
            order: self.purchase.order,
            quantity: self.purchase.quantity,
            replayed: self.replayed,
        }
    }

    /// Whether Redis admitted it once, under whatever epoch.
    pub(super) fn was_admitted(&self) -> bool {
        self.stage.load(Ordering::SeqCst) == ADMITTED
    }

    /// Answers the buyer, once; true if the buyer got it.
    pub(super) fn answer(&mut self, outcome: Outcome) -> bool {
        self.reply
            .take()
            .is_some_and(|reply| reply.send(outcome).is_ok())
    }
}

impl Receipt {
    /// Waits for the answer at most until `commit_by` if the purchase is admitted by then, else until
    /// `decide_by`. `refusal` is the word for a purchase that never left this process.
    pub(super) async fn wait(
        mut self,
        commit_by: Instant,
        decide_by: Instant,
        refusal: impl FnOnce() -> Unavailable,
    ) -> Outcome {
        if let Ok(answer) = tokio::time::timeout_at(commit_by, &mut self.reply).await {
            return answer.unwrap_or_else(|_| self.without_answer(refusal));
        }
        if self.stage.load(Ordering::SeqCst) != ADMITTED
            && let Ok(answer) = tokio::time::timeout_at(decide_by, &mut self.reply).await
        {
            return answer.unwrap_or_else(|_| self.without_answer(refusal));
        }
        // After closing, an answer is either here or will find nobody and be written down instead.
        self.reply.close();
        match self.reply.try_recv() {
            Ok(answer) => answer,
            Err(_) => self.without_answer(refusal),
        }
    }

    /// What can be said when no answer will come any more.
    fn without_answer(&self, refusal: impl FnOnce() -> Unavailable) -> Outcome {
        let abandoned =
            self.stage
                .compare_exchange(QUEUED, ABANDONED, Ordering::SeqCst, Ordering::SeqCst);
        match abandoned {
            Ok(_) => Outcome::Unavailable(refusal()),
            Err(ADMITTED) => Outcome::Admitted(self.admission),
            Err(_) => Outcome::Unavailable(Unavailable::OutcomeUnknown),
        }
    }
}

impl Drop for Receipt {
    /// A buyer who hangs up while the purchase is queued takes it back.
    fn drop(&mut self) {
        let _ = self
            .stage
            .compare_exchange(QUEUED, ABANDONED, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::BuyerId;

    async fn answer_after_coming_back(late_copy_possible: bool) -> Outcome {
        let purchase = Purchase {
            order: "00000001-6dda-8221-9e5f-d7f82a46b46a".parse().unwrap(),
            buyer: BuyerId::parse("alice").unwrap(),
            quantity: 1,
        };
        let now = Instant::now();
        let place = Place::take(&Arc::default(), 1).unwrap();
        let (mut attempt, receipt) = Attempt::new(purchase, AnswerWhen::Committed, now, place);
        assert!(attempt.set_out());
        attempt.late_copy_possible = late_copy_possible;
        attempt.come_back();
        let soon = now + Duration::from_millis(1);
        receipt.wait(soon, soon, || Unavailable::Loading).await
    }

    #[tokio::test]
    async fn only_who_certainly_bought_nothing_is_told_so() {
        let certain = answer_after_coming_back(false).await;
        assert_eq!(certain, Outcome::Unavailable(Unavailable::Loading));
        let doubtful = answer_after_coming_back(true).await;
        assert_eq!(doubtful, Outcome::Unavailable(Unavailable::OutcomeUnknown));
    }
}
