//! An honest run, to be tampered with by tests.

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Evidence, Judgement, Violation, judge};
use crate::api::{Audit, AuditVerdict, Order, OrderState, Sale, Terms};
use crate::outcome::Outcome;
use crate::run::Books;
use crate::scenario::Wish;
use crate::worker::Purchase;

/// A run that can be tampered with.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) purchases: Vec<Purchase>,
    pub(super) replays: Vec<Purchase>,
    pub(super) books: Books,
}

impl Run {
    /// Six buyers, one unit each, three units: three bought, three were told `sold-out`.
    pub(super) fn honest() -> Self {
        let purchases = (1..=6)
            .map(|buyer| match buyer {
                1..=3 => purchase(buyer, committed(buyer)),
                _ => purchase(buyer, refused("sold-out")),
            })
            .collect();
        let orders = (1..=3)
            .map(|buyer| order(buyer, OrderState::Confirmed))
            .collect();
        let terms = Terms {
            quantity: 3,
            confirmed: 3,
            ..NOTHING
        };
        let audit = Audit {
            verdict: AuditVerdict::Balanced,
            terms,
            oversold: 0,
            findings: Vec::new(),
        };
        let books = Books {
            sale: sale(),
            orders,
            audit,
            settled: true,
        };
        Self {
            purchases,
            replays: Vec::new(),
            books,
        }
    }

    /// As [`honest`](Self::honest), but the orders wait for their payment.
    pub(super) fn reserved() -> Self {
        let mut run = Self::honest();
        for order in &mut run.books.orders {
            order.state = OrderState::Reserved;
            order.hold_expires_at = Some(NOW + time::Duration::minutes(15));
        }
        run.books.audit.terms = Terms {
            quantity: 3,
            held: 3,
            ..NOTHING
        };
        for purchase in &mut run.purchases[3..] {
            purchase.outcome = refused("held");
        }
        run
    }

    /// Takes an order away, as if it had never been, and leaves its unit free.
    pub(super) fn strand(&mut self, index: usize) {
        self.books.orders.remove(index);
        self.books.audit.terms.confirmed -= 1;
        self.books.audit.terms.available += 1;
    }

    pub(super) fn judge(&self) -> Judgement {
        let Self {
            purchases,
            replays,
            books,
        } = self;
        judge(&Evidence {
            purchases,
            replays,
            books,
        })
    }

    /// The kinds of what is found.
    pub(super) fn violations(&self) -> Vec<Violation> {
        let mut kinds: Vec<_> = self
            .judge()
            .findings
            .iter()
            .map(|one| one.violation)
            .collect();
        kinds.dedup();
        kinds
    }
}

pub(super) const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;
pub(super) const NOTHING: Terms = Terms {
    quantity: 0,
    available: 0,
    in_transfer: 0,
    journaled: 0,
    held: 0,
    confirmed: 0,
    returning: 0,
};

pub(super) fn sale() -> Sale {
    let state = "open".to_owned();
    let (quantity, per_buyer_limit, price_minor) = (3, 1, 500);
    Sale {
        id: 1,
        quantity,
        per_buyer_limit,
        price_minor,
        state,
        epoch: 1,
        server_time: NOW,
    }
}

pub(super) fn order(number: u32, state: OrderState) -> Order {
    Order {
        id: Uuid::from_u128(number.into()),
        sale: 1,
        buyer: format!("buyer-{number}"),
        quantity: 1,
        amount_minor: 500,
        state,
        hold_expires_at: None,
    }
}

pub(super) fn purchase(buyer: u32, outcome: Outcome) -> Purchase {
    let wish = Wish {
        buyer: format!("buyer-{buyer}"),
        key: format!("key-{buyer}"),
        quantity: 1,
        start: Duration::ZERO,
    };
    let orders = outcome.order().into_iter().collect();
    let time = Duration::from_millis(1);
    let (response_time, service_time, finished) = (time, time, time);
    Purchase {
        wish,
        attempts: 1,
        outcome,
        orders,
        response_time,
        service_time,
        finished,
    }
}

pub(super) fn committed(order: u32) -> Outcome {
    Outcome::Committed {
        order: Uuid::from_u128(order.into()),
        replayed: false,
    }
}

pub(super) fn admitted(order: u32) -> Outcome {
    Outcome::Admitted {
        order: Uuid::from_u128(order.into()),
    }
}

pub(super) fn refused(code: &str) -> Outcome {
    Outcome::Refused {
        code: code.to_owned(),
    }
}

pub(super) fn unknown() -> Outcome {
    Outcome::Unknown {
        why: "timeout".to_owned(),
    }
}

pub(super) fn shed() -> Outcome {
    Outcome::Shed {
        code: "overloaded".to_owned(),
        retry_after: None,
    }
}
