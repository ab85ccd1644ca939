//! A lock on a server that is a variable, for what the paused clock must show: no real server waits for that one.
//! Each kind of call does its work at once and answers when the test says so, or never.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use stockade::env::Env;
use stockade::lock::{Ask, Error, Kind, Lock, Protocol, Terms, Token, Tried};
use tokio::time::Instant;

/// When a call without an answer is given up.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_millis(400);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Try,
    Extend,
    Release,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// It is done, and the answer takes so long.
    After(Duration),
    /// It is done, and nobody hears of it.
    Lost,
    /// It never arrives.
    Never,
}

/// The server. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Whose it is, and until when.
    holder: Option<(Token, Instant)>,
    answers: HashMap<Call, Answer>,
    calls: Vec<Call>,
}

impl Memory {
    pub(crate) fn lock(&self, terms: Terms) -> Lock {
        Lock::new(Kind::TokenLua, "goods", terms, Env::default(), self.clone())
    }

    /// From now on calls of this kind end so.
    pub(crate) fn answers(&self, call: Call, answer: Answer) {
        self.state().answers.insert(call, answer);
    }

    /// Every call so far, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    pub(crate) fn count(&self, call: Call) -> usize {
        self.calls().iter().filter(|one| **one == call).count()
    }

    pub(crate) fn is_held(&self) -> bool {
        let holder = self.state().holder;
        holder.is_some_and(|(_, until)| Instant::now() < until)
    }

    /// Somebody else has it from now on.
    pub(crate) fn give_to_another(&self, lease: Duration) {
        self.state().holder = Some((Token::random(), Instant::now() + lease));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// One call: its work, unless it never arrives, and its answer.
    async fn call<T>(&self, call: Call, work: impl FnOnce(&mut State) -> T) -> Result<T, Error> {
        let answer = {
            let mut state = self.state();
            state.calls.push(call);
            let answer = state.answers.get(&call).copied();
            answer.unwrap_or(Answer::After(Duration::ZERO))
        };
        let lost = || Error::Unreachable("no answer in time".into());
        match answer {
            Answer::Never => {
                tokio::time::sleep(CALL_TIMEOUT).await;
                Err(lost())
            }
            Answer::Lost => {
                work(&mut self.state());
                tokio::time::sleep(CALL_TIMEOUT).await;
                Err(lost())
            }
            Answer::After(time) => {
                let done = work(&mut self.state());
                tokio::time::sleep(time).await;
                Ok(done)
            }
        }
    }
}

impl State {
    fn is_of(&self, token: Token) -> bool {
        let now = Instant::now();
        self.holder
            .is_some_and(|(holder, until)| holder == token && now < until)
    }
}

impl Protocol for Memory {
    type Session = Ask;

    fn session(&self, ask: Ask) -> Ask {
        ask
    }

    async fn try_acquire(&self, ask: &mut Ask) -> Result<Tried, Error> {
        self.call(Call::Try, |state| {
            let now = Instant::now();
            let other = state.holder.filter(|(_, until)| now < *until);
            match other {
                Some((token, until)) if token != ask.token => Tried::Busy {
                    retry_within: Some(until - now),
                },
                _ => {
                    state.holder = Some((ask.token, now + ask.lease));
                    Tried::Granted { fence: None }
                }
            }
        })
        .await
    }

    async fn wait(&self, _ask: &mut Ask, at_most: Duration) {
        tokio::time::sleep(at_most).await;
    }

    async fn extend(&self, ask: &mut Ask, lease: Duration) -> Result<bool, Error> {
        self.call(Call::Extend, |state| {
            let mine = state.is_of(ask.token);
            if mine {
                state.holder = Some((ask.token, Instant::now() + lease));
            }
            mine
        })
        .await
    }

    async fn release(&self, ask: &mut Ask) -> Result<bool, Error> {
        self.call(Call::Release, |state| {
            let mine = state.is_of(ask.token);
            if mine {
                state.holder = None;
            }
            mine
        })
        .await
    }
}
