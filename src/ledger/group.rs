//! Purchases on their way into the ledger together.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{COMMIT_MAX, Committed, Error};
use crate::domain::{Order, OrderId, Purchase, SaleId};

/// The different purchases of one call, by ascending id.
///
/// Sorted, because two transactions that insert the same ids wait for each other: in one order they
/// wait in a queue, in two orders they may wait in a circle.
#[derive(Debug)]
pub(super) struct Group<'a> {
    purchases: Vec<&'a Purchase>,
}

impl<'a> Group<'a> {
    /// Of purchases with one id the first counts.
    ///
    /// # Errors
    /// [`Error::Permanent`] if one is of another sale (it would be counted against the wrong row)
    /// or cannot be expressed in SQL.
    pub(super) fn of(sale: SaleId, purchases: &'a [Purchase]) -> Result<Self, Error> {
        assert!(
            purchases.len() <= COMMIT_MAX,
            "{} purchases in one call",
            purchases.len()
        );
        let refuse = |why| Err(Error::Permanent(sqlx::Error::InvalidArgument(why)));
        if let Some(other) = purchases
            .iter()
            .find(|purchase| purchase.order.sale() != sale)
        {
            return refuse(format!(
                "order {} does not belong to sale {sale}",
                other.order
            ));
        }
        if let Some(large) = purchases
            .iter()
            .find(|p| i32::try_from(p.quantity).is_err())
        {
            return refuse(format!(
                "order {} is of {} units",
                large.order, large.quantity
            ));
        }
        let mut purchases: Vec<_> = purchases.iter().collect();
        // Stable: the first of several with one id stays the first.
        purchases.sort_by_key(|purchase| purchase.order);
        purchases.dedup_by_key(|purchase| purchase.order);
        Ok(Self { purchases })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.purchases.is_empty()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &'a Purchase> {
        self.purchases.iter().copied()
    }

    pub(super) fn ids(&self) -> Vec<Uuid> {
        self.iter().map(|purchase| purchase.order.uuid()).collect()
    }

    /// The same group without purchases that `known` holds.
    pub(super) fn without(self, known: &[Order]) -> Self {
        let known: HashSet<_> = known.iter().map(|order| order.id).collect();
        let fresh = self
            .purchases
            .into_iter()
            .filter(|purchase| !known.contains(&purchase.order));
        Self {
            purchases: fresh.collect(),
        }
    }
}

/// The answer to a commit: an order per purchase, in the order of the call.
///
/// # Errors
/// [`Error::Corrupt`] if one is neither among the `fresh` nor among the `known`.
pub(super) fn answer(
    purchases: &[Purchase],
    fresh: Vec<Order>,
    known: Vec<Order>,
) -> Result<Vec<Committed>, Error> {
    let known = known.into_iter().map(|order| Committed {
        order,
        fresh: false,
    });
    let fresh = fresh
        .into_iter()
        .map(|order| Committed { order, fresh: true });
    let mut orders: HashMap<OrderId, Committed> = known
        .chain(fresh)
        .map(|committed| (committed.order.id, committed))
        .collect();
    let answer = purchases.iter().map(|purchase| {
        let committed = orders.get_mut(&purchase.order).ok_or_else(|| {
            Error::Corrupt(format!("order {} was there and is gone", purchase.order))
        })?;
        let answer = committed.clone();
        committed.fresh = false;
        Ok(answer)
    });
    answer.collect()
}
