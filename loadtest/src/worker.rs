//! The buyers: many of them, one after the other, on each of a bounded number of connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::client::{Client, PurchaseRequest};
use crate::outcome::Outcome;
use crate::scenario::{Scenario, Wish};
use crate::target::Target;

/// The most attempts at one purchase.
const ATTEMPTS_MAX: u32 = 1_000;
/// Pause after the first attempt without a final answer; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause, whatever the service asks for.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A purchase as its buyer knows it at the end.
#[derive(Debug, Clone)]
pub struct Purchase {
    /// What was wanted.
    pub wish: Wish,
    /// How often it was sent.
    pub attempts: u32,
    /// The last answer. [`Outcome::Unknown`] if the buyer gave up and any attempt may have bought.
    pub outcome: Outcome,
    /// Every order that any answer named: more than one is a duplicate.
    pub orders: Vec<Uuid>,
    /// From the intended start to the last answer.
    pub response_time: Duration,
    /// From sending the last attempt to its answer.
    pub service_time: Duration,
    /// When the last answer came, counted from the beginning of the run.
    pub finished: Duration,
}

/// How far a run is; for progress bars, and for faults that shall strike half-way.
#[derive(Debug, Default)]
pub struct Progress {
    finished: AtomicUsize,
    accepted: AtomicUsize,
}

impl Progress {
    /// Purchases that have their last answer.
    #[must_use]
    pub fn finished(&self) -> usize {
        self.finished.load(Ordering::Relaxed)
    }

    /// Those of them that were accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn note(&self, purchase: &Purchase) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        if purchase.outcome.order().is_some() {
            self.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What all workers of a run share.
#[derive(Debug)]
struct Shift {
    target: Target,
    sale: u32,
    scenario: Scenario,
    wishes: Vec<Wish>,
    next: AtomicUsize,
    ready: Barrier,
    start: OnceLock<Instant>,
    progress: Arc<Progress>,
}

/// Makes every wish a purchase, and returns when each has its last answer.
///
/// Each worker takes the next wish when it is free, waits for its start, and sends. All are
/// connected before the first starts.
pub(crate) async fn drive(
    target: &Target,
    sale: u32,
    scenario: &Scenario,
    wishes: Vec<Wish>,
    progress: Arc<Progress>,
) -> Vec<Purchase> {
    let workers = scenario.connections.min(wishes.len());
    let shift = Arc::new(Shift {
        target: target.clone(),
        sale,
        scenario: scenario.clone(),
        wishes,
        next: AtomicUsize::new(0),
        ready: Barrier::new(workers),
        start: OnceLock::new(),
        progress,
    });
    let mut tasks = JoinSet::new();
    for number in 0..workers {
        tasks.spawn(Worker::new(Arc::clone(&shift), number).run());
    }
    let logs = tasks.join_all().await;
    logs.into_iter().flatten().collect()
}

#[derive(Debug)]
struct Worker {
    shift: Arc<Shift>,
    client: Client,
    instance: usize,
    rng: StdRng,
}

impl Worker {
    fn new(shift: Arc<Shift>, number: usize) -> Self {
        let timeout = shift.scenario.request_timeout;
        let client = Client::with_timeout(&shift.target, number, timeout);
        let rng = StdRng::seed_from_u64(shift.scenario.seed.wrapping_add(number as u64));
        Self {
            shift,
            client,
            instance: number,
            rng,
        }
    }

    async fn run(mut self) -> Vec<Purchase> {
        let shift = Arc::clone(&self.shift);
        // One that fails is tried again with the first purchase.
        drop(self.client.connect().await);
        shift.ready.wait().await;
        let start = *shift.start.get_or_init(Instant::now);
        let mut log = Vec::new();
        while let Some(wish) = shift.wishes.get(shift.next.fetch_add(1, Ordering::Relaxed)) {
            let intended = start + wish.start;
            tokio::time::sleep_until(intended).await;
            let purchase = self.buy(wish, start).await;
            shift.progress.note(&purchase);
            log.push(purchase);
        }
        log
    }

    /// Sends a purchase until there is a final answer, or patience ends.
    async fn buy(&mut self, wish: &Wish, start: Instant) -> Purchase {
        let give_up = Instant::now() + self.shift.scenario.patience;
        let request = PurchaseRequest {
            sale: self.shift.sale,
            buyer: &wish.buyer,
            key: &wish.key,
            quantity: wish.quantity,
            respond_async: self.shift.scenario.respond_async,
        };
        let mut orders = Vec::new();
        let mut doubt = None;
        for attempts in 1.. {
            let sent = Instant::now();
            let mut outcome = self.client.purchase(&request).await;
            let answered = Instant::now();
            orders.extend(outcome.order().filter(|order| !orders.contains(order)));
            let pause = self.pause(&outcome, attempts);
            let patient = attempts < ATTEMPTS_MAX && answered + pause < give_up;
            if !outcome.is_final() && patient {
                if let Outcome::Unknown { .. } = &outcome {
                    doubt = Some(outcome);
                }
                tokio::time::sleep(pause).await;
                self.change_instance();
                continue;
            }
            if let (Outcome::Shed { .. }, Some(doubt)) = (&outcome, doubt.take()) {
                // The last attempt was not let in, but an earlier one may have been.
                outcome = doubt;
            }
            return Purchase {
                wish: wish.clone(),
                attempts,
                outcome,
                orders,
                response_time: answered.duration_since(start + wish.start),
                service_time: answered.duration_since(sent),
                finished: answered.duration_since(start),
            };
        }
        unreachable!("the number of attempts has a bound")
    }

    fn pause(&mut self, outcome: &Outcome, attempts: u32) -> Duration {
        let doubling = PAUSE_MIN.saturating_mul(1 << attempts.min(10));
        let wanted = match outcome {
            Outcome::Shed {
                retry_after: Some(retry_after),
                ..
            } => *retry_after,
            _ => doubling,
        };
        // Spread, so that those who were turned away together do not come back together.
        wanted
            .min(PAUSE_MAX)
            .mul_f64(self.rng.random_range(1.0..1.5))
    }

    /// A retry goes to the next process: any must know what became of the purchase.
    fn change_instance(&mut self) {
        self.instance += 1;
        if self.shift.target.address(self.instance) != self.client.address() {
            let timeout = self.shift.scenario.request_timeout;
            self.client = Client::with_timeout(&self.shift.target, self.instance, timeout);
        }
    }
}
