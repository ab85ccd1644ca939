//! What an acquisition of a lock in Redis keeps between its steps.

use std::time::Duration;

use super::bell::Listener;
use crate::lock::{Ask, Tried};

pub(super) struct Session {
    pub(super) ask: Ask,
    pub(super) listener: Option<Listener>,
    /// Whether a try was sent, which may have left a place in a queue.
    pub(super) asked: bool,
}

impl Session {
    pub(super) fn new(ask: Ask) -> Self {
        Self {
            ask,
            listener: None,
            asked: false,
        }
    }

    /// It has got what it waited for.
    pub(super) fn granted(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.content();
        }
    }
}

/// What the acquiring scripts return: 1 and the fence (0: none), or 0 and the milliseconds after which to ask
/// again.
pub(super) fn tried((held, number): (i64, i64)) -> Tried {
    let number = u64::try_from(number).ok();
    match held {
        1 => Tried::Granted {
            fence: number.filter(|fence| *fence > 0),
        },
        _ => Tried::Busy {
            retry_within: number.map(Duration::from_millis),
        },
    }
}
