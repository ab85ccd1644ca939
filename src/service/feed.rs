//! Every change of every order of a sale, in the order of its commits, at least once.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Error, Service};
use crate::domain::{Invalid, Order, OrderId, OrderState, SaleId, Timestamp};
use crate::ledger::{COMMIT_MAX, Change, PAGE_MAX};

/// Between two looks for new changes while a reader waits.
const POLL: Duration = Duration::from_millis(50);
/// The longest that a reader may wait.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// A place in a sale's feed: behind how many changes, and behind how many orders of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    changes: u64,
    orders: usize,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.changes, self.orders)
    }
}

impl FromStr for Cursor {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parts = text.split_once('.').and_then(|(changes, orders)| {
            Some(Self {
                changes: changes.parse().ok()?,
                orders: orders.parse().ok()?,
            })
        });
        let within = |cursor: &Self| i64::try_from(cursor.changes).is_ok_and(|n| n < i64::MAX);
        parts
            .filter(within)
            .ok_or_else(|| Invalid::new("a cursor is a value that the feed has given"))
    }
}

/// A page of the feed.
#[derive(Debug)]
pub struct Feed {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Where to go on.
    pub next: Cursor,
}

/// An order took a state.
#[derive(Debug)]
pub struct Event {
    /// The place behind this event.
    pub cursor: Cursor,
    /// The state that it took then.
    pub state: OrderState,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The order as it stands now.
    pub order: Order,
}

impl Service {
    /// What happened after `after`, at most `limit` events; waits for the first one at most `wait`.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such sale, or see [`Error`].
    pub async fn feed(
        &self,
        sale: SaleId,
        after: Cursor,
        limit: u32,
        wait: Duration,
    ) -> Result<Feed, Error> {
        self.live(sale).await?;
        let end = self.core.env.now() + wait.min(WAIT_MAX);
        loop {
            let feed = self.feed_now(sale, after, limit.clamp(1, PAGE_MAX)).await?;
            let over = self.core.env.now() >= end || self.core.env.is_stopping();
            if !feed.events.is_empty() || over {
                return Ok(feed);
            }
            self.core.env.sleep(POLL).await;
        }
    }

    async fn feed_now(&self, sale: SaleId, after: Cursor, limit: u32) -> Result<Feed, Error> {
        let changes = self
            .core
            .ledger
            .changes(sale, after.changes + 1, limit)
            .await?;
        let steps = steps(&changes, after, limit as usize);
        let ids: Vec<OrderId> = steps.iter().map(|step| step.1).collect();
        let mut orders: HashMap<OrderId, Order> = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(COMMIT_MAX) {
            let found = self.core.ledger.orders(ids).await?;
            orders.extend(found.into_iter().map(|order| (order.id, order)));
        }
        let next = steps.last().map_or(after, |step| step.0);
        let events = steps.into_iter().map(|(cursor, id, change)| {
            let order = orders.get(&id).cloned();
            let order = order.ok_or_else(|| Error::Internal(format!("order {id} is missing")))?;
            Ok(Event {
                cursor,
                state: change.state,
                at: change.at,
                order,
            })
        });
        Ok(Feed {
            events: events.collect::<Result<_, Error>>()?,
            next,
        })
    }
}

/// Single orders of the changes, each with the cursor behind it.
fn steps(changes: &[Change], after: Cursor, limit: usize) -> Vec<(Cursor, OrderId, &Change)> {
    let mut steps = Vec::new();
    for change in changes {
        let seen = if change.number == after.changes + 1 {
            after.orders
        } else {
            0
        };
        for (index, id) in change.orders.iter().enumerate().skip(seen) {
            if steps.len() == limit {
                return steps;
            }
            let last = index + 1 == change.orders.len();
            let cursor = if last {
                Cursor {
                    changes: change.number,
                    orders: 0,
                }
            } else {
                Cursor {
                    changes: change.number - 1,
                    orders: index + 1,
                }
            };
            steps.push((cursor, *id, change));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(number: u64, orders: usize) -> Change {
        let id = "00000001-6dda-8221-9e5f-d7f82a46b46a".parse().unwrap();
        let at = Timestamp::from_millis(0).unwrap();
        Change {
            number,
            state: OrderState::Reserved,
            at,
            orders: vec![id; orders],
        }
    }

    #[test]
    fn a_reader_that_goes_on_from_any_cursor_sees_each_step_once() {
        let changes = [change(1, 3), change(2, 1), change(3, 2)];
        for limit in 1..=7 {
            let (mut after, mut seen) = (Cursor::default(), Vec::new());
            loop {
                let left: Vec<Change> = changes
                    .iter()
                    .filter(|c| c.number > after.changes)
                    .cloned()
                    .collect();
                let page = steps(&left, after, limit);
                let Some(last) = page.last() else { break };
                after = last.0;
                seen.extend(page.iter().map(|step| step.2.number));
            }
            assert_eq!(seen, [1, 1, 1, 2, 3, 3], "pages of {limit}");
        }
    }

    #[test]
    fn cursors_survive_text() {
        let cursor = Cursor {
            changes: 7,
            orders: 3,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "7", "7.", "-1.0", "7.3.1", "9223372036854775807.0"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
