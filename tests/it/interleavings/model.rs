//! The ledger and the segments as a person would think of them.

use std::collections::{BTreeMap, BTreeSet};

use stockade::domain::{BuyerId, OrderId, Purchase};
use stockade::stock::requests::Mark;
use stockade::stock::scripts::{Answer, Copies, Returned};

use super::Outcome;

/// An order of the ledger; all of its units count as taken until it ends.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) purchase: Purchase,
    pub(super) active: bool,
}

/// Units of an ended order on their way back.
#[derive(Debug)]
pub(super) struct Return {
    pub(super) purchase: Purchase,
    pub(super) epoch: u64,
    /// Whether its row is there.
    pub(super) open: bool,
}

/// The authority: this test plays it.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) quantity: u64,
    pub(super) epoch: u64,
    pub(super) orders: BTreeMap<OrderId, Order>,
    pub(super) returns: Vec<Return>,
}

impl Ledger {
    pub(super) fn taken(&self) -> u64 {
        let active = self.orders.values().filter(|order| order.active);
        active.map(|order| u64::from(order.purchase.quantity)).sum()
    }

    pub(super) fn units_of(&self, buyer: &BuyerId) -> u32 {
        let active = self.orders.values().filter(|order| order.active);
        let own = active.filter(|order| order.purchase.buyer == *buyer);
        own.map(|order| order.purchase.quantity).sum()
    }

    pub(super) fn has(&self, purchases: &[Purchase]) -> bool {
        let mut ids = purchases.iter().map(|one| one.order);
        ids.all(|id| self.orders.contains_key(&id))
    }

    /// False: fenced, nothing happened. A guard that refuses at the right epoch has found units in
    /// Redis that do not exist.
    pub(super) fn commit(&mut self, epoch: u64, purchases: &[Purchase]) -> Outcome<bool> {
        if epoch != self.epoch {
            return Ok(false);
        }
        self.insert(purchases)?;
        Ok(true)
    }

    /// Inserts what is not there; the guard of the quantity decides.
    pub(super) fn insert(&mut self, purchases: &[Purchase]) -> Outcome<()> {
        for purchase in purchases {
            let purchase = purchase.clone();
            let active = true;
            self.orders
                .entry(purchase.order)
                .or_insert(Order { purchase, active });
        }
        let (taken, quantity) = (self.taken(), self.quantity);
        if taken > quantity {
            return Err(format!("the guard refused: {taken} taken of {quantity}"));
        }
        Ok(())
    }

    /// Ends an active order under the current epoch.
    pub(super) fn end(&mut self, order: OrderId) {
        let ended = self.orders.get_mut(&order).expect("an order of the ledger");
        ended.active = false;
        self.returns.push(Return {
            purchase: ended.purchase.clone(),
            epoch: self.epoch,
            open: true,
        });
    }

    /// A load counts what active orders leave: ended ones have nothing to bring back any more.
    pub(super) fn absorb_returns(&mut self) {
        for one in &mut self.returns {
            one.open = false;
        }
    }
}

/// An entry of the journal.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) purchases: Vec<Purchase>,
}

impl Entry {
    pub(super) fn units(&self) -> u64 {
        units(&self.purchases)
    }
}

pub(super) fn units(purchases: &[Purchase]) -> u64 {
    purchases.iter().map(|one| u64::from(one.quantity)).sum()
}

/// One segment under one epoch. A transfer is named by its place in the list of all.
#[derive(Debug, Default)]
pub(super) struct Segment {
    pub(super) limit: u32,
    pub(super) available: u64,
    pub(super) lent: BTreeMap<usize, u64>,
    pub(super) open: BTreeSet<usize>,
    pub(super) borrowed: BTreeMap<usize, u64>,
    pub(super) units: BTreeMap<BuyerId, u32>,
    pub(super) marks: BTreeMap<OrderId, Mark>,
    pub(super) journal: Vec<Entry>,
}

impl Segment {
    /// The answers, and those that are in the journal from now on.
    pub(super) fn buy(
        &mut self,
        copies: Copies,
        batch: &[Purchase],
    ) -> (Vec<Answer>, Vec<Purchase>) {
        let answers: Vec<Answer> = batch.iter().map(|one| self.decide(copies, one)).collect();
        let both = batch.iter().zip(&answers);
        let admitted = both.filter(|(_, answer)| **answer == Answer::Admitted);
        let admitted = admitted.map(|(one, _)| one.clone()).collect();
        (answers, admitted)
    }

    fn decide(&mut self, copies: Copies, purchase: &Purchase) -> Answer {
        match self.marks.get(&purchase.order) {
            Some(Mark::Void) => return Answer::Void,
            Some(Mark::Admitted(bound) | Mark::Ended(bound)) => {
                return match *bound == purchase.quantity {
                    true => Answer::Replay,
                    false => Answer::KeyReused(*bound),
                };
            }
            None => {}
        }
        let units = self.units.entry(purchase.buyer.clone()).or_default();
        let (answer, mark) = if *units + purchase.quantity > self.limit {
            let void = (copies != Copies::One).then_some(Mark::Void);
            (Answer::LimitReached(self.limit - *units), void)
        } else if u64::from(purchase.quantity) > self.available {
            // Another segment may have it: only the last word is final.
            let void = (copies == Copies::LastWord).then_some(Mark::Void);
            (Answer::Short(self.available), void)
        } else {
            *units += purchase.quantity;
            self.available -= u64::from(purchase.quantity);
            (Answer::Admitted, Some(Mark::Admitted(purchase.quantity)))
        };
        if let Some(mark) = mark {
            self.marks.insert(purchase.order, mark);
        }
        answer
    }

    pub(super) fn give_back(&mut self, purchase: &Purchase) -> Returned {
        match self.marks.get_mut(&purchase.order) {
            Some(mark @ Mark::Admitted(_)) => {
                *mark = Mark::Ended(purchase.quantity);
                self.available += u64::from(purchase.quantity);
                let units = self.units.get_mut(&purchase.buyer);
                *units.expect("a buyer with units") -= purchase.quantity;
                Returned::Back
            }
            Some(Mark::Ended(_)) => Returned::Back,
            Some(Mark::Void) | None => Returned::Unmarked,
        }
    }

    pub(super) fn lend(&mut self, transfer: usize, wanted: u64) -> u64 {
        if let Some(units) = self.lent.get(&transfer) {
            return *units;
        }
        let units = wanted.min(self.available);
        if units > 0 {
            self.available -= units;
            self.lent.insert(transfer, units);
            self.open.insert(transfer);
        }
        units
    }

    pub(super) fn receive(&mut self, transfer: usize, units: u64) {
        if self.borrowed.insert(transfer, units).is_none() {
            self.available += units;
        }
    }

    /// Whether the entry was there.
    pub(super) fn settle(&mut self, entry: &str) -> bool {
        let before = self.journal.len();
        self.journal.retain(|one| one.id != entry);
        self.journal.len() < before
    }

    pub(super) fn journaled(&self) -> u64 {
        self.journal.iter().map(Entry::units).sum()
    }

    /// Units of transfers that are not settled, also of those that have arrived.
    pub(super) fn in_transfer(&self) -> u64 {
        self.open.iter().map(|transfer| self.lent[transfer]).sum()
    }
}
