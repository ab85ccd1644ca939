//! One task for each acquisition. It alone talks to the server about it, so renewal and release are in
//! order, and a caller who hangs up at any point cancels nothing half-way: the task sees it and cleans up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::{Ask, Error, Extended, Guard, Protocol, Released, Terms, Tried, Waiting};
use crate::env::Env;

/// What a lease is shortened by on this machine, since clocks do not run alike: one part in this many,
const DRIFT_PART: u32 = 100;
/// and this much.
const DRIFT_MIN: Duration = Duration::from_millis(2);
/// Tries to release, or to withdraw, when the server does not answer.
const RELEASE_TRIES: u32 = 3;
/// Between those tries, and between tries to acquire.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// A renewing lock is renewed each time this part of its lease has gone by.
const RENEWALS_PER_LEASE: u32 = 3;
/// The lease of a lock that has none.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);
/// The longest wait of somebody who is to be woken: a message can be lost.
const WOKEN_AT_LATEST: Duration = Duration::from_secs(1);

/// An acquisition that somebody wants.
pub(super) struct Request {
    pub(super) ask: Ask,
    pub(super) until: Instant,
    pub(super) reply: oneshot::Sender<Result<Option<Guard>, Error>>,
}

/// What the holder of a guard wants.
#[derive(Debug)]
pub(super) enum Command {
    Extend {
        lease: Duration,
        reply: oneshot::Sender<Extended>,
    },
    Release {
        reply: oneshot::Sender<Released>,
    },
}

/// How a held lock stands, as far as this machine knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Held. After an unanswered renewal too, until the lease has run out.
    Held,
    /// Lost, from then on.
    Lost(Instant),
}

pub(super) struct Keeper<P> {
    protocol: Arc<P>,
    terms: Terms,
    env: Env,
}

/// A lease that has been granted.
struct Grant {
    fence: Option<u64>,
    waited: bool,
    /// The last instant at which it is certain to hold.
    deadline: Instant,
}

impl<P: Protocol> Keeper<P> {
    pub(super) fn new(protocol: Arc<P>, terms: Terms, env: Env) -> Self {
        Self {
            protocol,
            terms,
            env,
        }
    }

    pub(super) async fn run(self, request: Request) {
        let Request {
            ask,
            until,
            mut reply,
        } = request;
        let mut session = self.protocol.session(ask);
        let mut uncertain = false;
        let granted = self.acquire(&mut session, until, &mut reply, &mut uncertain);
        let granted = granted.await;
        let grant = match granted {
            Ok(Some(grant)) => grant,
            refused if uncertain => {
                // The server does not answer: nobody should wait for what is done about it.
                let _ = reply.send(refused.map(|_| None));
                self.withdraw(&mut session, uncertain).await;
                return;
            }
            refused => {
                self.withdraw(&mut session, uncertain).await;
                let _ = reply.send(refused.map(|_| None));
                return;
            }
        };
        let (state, seen) = watch::channel(State::Held);
        let (commands, wishes) = mpsc::unbounded_channel();
        let guard = Guard {
            fence: grant.fence,
            waited: grant.waited,
            state: seen,
            commands,
        };
        if reply.send(Ok(Some(guard))).is_ok() {
            self.hold(&mut session, grant.deadline, &state, wishes)
                .await;
        } else {
            self.release(&mut session, grant.deadline).await;
        }
    }

    /// Tries until the lock is granted, time is up, or nobody waits any more.
    async fn acquire(
        &self,
        session: &mut P::Session,
        until: Instant,
        reply: &mut oneshot::Sender<Result<Option<Guard>, Error>>,
        uncertain: &mut bool,
    ) -> Result<Option<Grant>, Error> {
        let mut waited = false;
        // A try without an answer may have been granted, and its lease runs from then on.
        let mut unanswered_since = None;
        loop {
            let sent = self.env.now();
            let tried = self.protocol.try_acquire(session).await;
            let now = self.env.now();
            let left = until.saturating_duration_since(now);
            let pause = match tried {
                Ok(Tried::Granted { fence }) => {
                    let granted_after = unanswered_since.unwrap_or(sent);
                    let deadline = self.deadline(granted_after, self.terms.lease);
                    if now < deadline {
                        self.protocol.granted(session);
                        return Ok(Some(Grant {
                            fence,
                            waited,
                            deadline,
                        }));
                    }
                    // The answer took longer than the lease.
                    self.withdraw(session, true).await;
                    if left.is_zero() {
                        return Ok(None);
                    }
                    unanswered_since = None;
                    Duration::ZERO
                }
                Ok(Tried::Busy { .. }) if left.is_zero() => return Ok(None),
                Ok(Tried::Busy { retry_within }) => {
                    *uncertain = false;
                    unanswered_since = None;
                    retry_within.unwrap_or(WOKEN_AT_LATEST)
                }
                Err(error) if error.is_final() => return Err(error),
                Err(error) if left.is_zero() => {
                    *uncertain = true;
                    return Err(error);
                }
                Err(_) => {
                    *uncertain = true;
                    unanswered_since.get_or_insert(sent);
                    tokio::select! {
                        () = self.env.sleep(self.env.jittered(RETRY_PAUSE).min(left)) => continue,
                        () = reply.closed() => return Ok(None),
                    }
                }
            };
            waited = true;
            let pause = match self.terms.waiting {
                Waiting::Woken => pause,
                Waiting::Polled(pause) => self.env.jittered(pause),
            };
            let polled = matches!(self.terms.waiting, Waiting::Polled(_));
            let wait = async {
                match polled {
                    true => self.env.sleep(pause.min(left)).await,
                    false => self.protocol.wait(session, pause.min(left)).await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = reply.closed() => return Ok(None),
            }
        }
    }

    /// Looks after a granted lease until its holder gives it back.
    async fn hold(
        &self,
        session: &mut P::Session,
        mut deadline: Instant,
        state: &watch::Sender<State>,
        mut wishes: mpsc::UnboundedReceiver<Command>,
    ) {
        let give_up_renewing = self.env.after(self.terms.hold_max);
        let renew_every = self.terms.lease / RENEWALS_PER_LEASE;
        let mut renew_at = self.env.after(renew_every);
        loop {
            let lost = matches!(*state.borrow(), State::Lost(_));
            let renews = self.terms.renewing && !lost && renew_at < give_up_renewing;
            let extend = tokio::select! {
                biased;
                wish = wishes.recv() => match wish {
                    Some(Command::Extend { lease, reply }) => Some((lease, Some(reply))),
                    Some(Command::Release { reply }) => {
                        let certain_until = if lost { self.env.now() } else { deadline };
                        let _ = reply.send(self.release(session, certain_until).await);
                        return;
                    }
                    None => {
                        self.release(session, deadline).await;
                        return;
                    }
                },
                () = tokio::time::sleep_until(deadline), if !lost => {
                    state.send_replace(State::Lost(deadline));
                    None
                }
                () = self.protocol.lost(session), if !lost => {
                    state.send_replace(State::Lost(self.env.now()));
                    None
                }
                () = tokio::time::sleep_until(renew_at), if renews => {
                    renew_at = self.env.after(renew_every);
                    Some((self.terms.lease, None))
                }
            };
            let Some((lease, reply)) = extend else {
                continue;
            };
            let sent = self.env.now();
            let extended = match lost {
                true => Extended::NotMine,
                false => self.extend(session, lease, deadline, state).await,
            };
            let asked = self.deadline(sent, lease);
            match extended {
                Extended::Extended => deadline = asked,
                // What was asked for without an answer may have been done, and may be the shorter one.
                Extended::Unknown => deadline = deadline.min(asked),
                Extended::NotMine => {}
            }
            if let Some(reply) = reply {
                let _ = reply.send(extended);
            }
        }
    }

    /// Prolongs a lock that is held until `deadline`, and says so if it is lost meanwhile: a server that takes its
    /// time keeps nobody from hearing of it.
    async fn extend(
        &self,
        session: &mut P::Session,
        lease: Duration,
        deadline: Instant,
        state: &watch::Sender<State>,
    ) -> Extended {
        let mut extending = pin!(self.protocol.extend(session, lease));
        let extended = tokio::select! {
            biased;
            extended = &mut extending => extended,
            () = tokio::time::sleep_until(deadline) => {
                state.send_replace(State::Lost(deadline));
                // Not given up half-way; but whatever comes of it, what is lost stays lost.
                let _ = extending.await;
                return Extended::NotMine;
            }
        };
        match extended {
            Ok(true) => Extended::Extended,
            Ok(false) => {
                state.send_replace(State::Lost(self.env.now().min(deadline)));
                Extended::NotMine
            }
            Err(_) => Extended::Unknown,
        }
    }

    /// The last instant at which a lease that was asked for at `sent` is certain to hold.
    fn deadline(&self, sent: Instant, lease: Duration) -> Instant {
        if !P::LEASED {
            return sent + FOR_EVER;
        }
        let drift = lease / DRIFT_PART + DRIFT_MIN;
        sent + lease.saturating_sub(drift).min(FOR_EVER)
    }

    /// Gives the lock back, which was held until `certain_until` if nobody has released it before.
    async fn release(&self, session: &mut P::Session, certain_until: Instant) -> Released {
        let mut unanswered = false;
        for _ in 0..RELEASE_TRIES {
            match self.protocol.release(session).await {
                Ok(true) => return Released::Released,
                // It was ours when the first try was sent, so that one has released it. Without a lease the
                // end of a connection may have done so.
                Ok(false) if unanswered && P::LEASED && self.env.now() < certain_until => {
                    return Released::Released;
                }
                Ok(false) if unanswered => return Released::Unknown,
                Ok(false) => return Released::NotMine,
                Err(_) => unanswered = true,
            }
            self.env.sleep(self.env.jittered(RETRY_PAUSE)).await;
        }
        Released::Unknown
    }

    async fn withdraw(&self, session: &mut P::Session, uncertain: bool) {
        for _ in 0..RELEASE_TRIES {
            if self.protocol.withdraw(session, uncertain).await.is_ok() {
                return;
            }
            self.env.sleep(self.env.jittered(RETRY_PAUSE)).await;
        }
    }
}
