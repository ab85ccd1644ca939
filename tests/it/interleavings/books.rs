//! What must hold after every step, read from Redis.

use futures_util::future::try_join_all;
use stockade::domain::OrderId;
use stockade::stock::journal;
use stockade::stock::requests::{Mark, marks};
use stockade::stock::scripts::{self, Figures, OpenTransfer};

use super::Outcome;
use super::loading::Stage;
use super::world::{World, same, sound};

/// What one segment shows.
struct Shown {
    figures: Figures,
    open: Vec<OpenTransfer>,
    journal: Vec<journal::Entry>,
}

impl World {
    /// The books balance, nobody is above the limit, the segments are as the model has them.
    pub(super) async fn check(&mut self) -> Outcome<()> {
        if matches!(self.stage, Stage::Read(_)) {
            // The old segments are sealed and the new ones not written: all stock is in the ledger.
            return Ok(());
        }
        let numbers = 0..self.segments().len() as u32;
        let shown = try_join_all(numbers.map(|segment| self.show(segment))).await?;
        self.balance(&shown).await?;
        self.check_limit(&shown)?;
        for (number, (shown, model)) in shown.iter().zip(self.segments()).enumerate() {
            let is = &shown.figures;
            let lent: u64 = model.lent.values().sum();
            let borrowed: u64 = model.borrowed.values().sum();
            let what = format!(
                "segment {number}: available, in transfer, journaled, entries, lent, borrowed"
            );
            same(
                &what,
                [
                    is.available,
                    is.in_transfer,
                    is.journaled,
                    is.entries,
                    is.lent,
                    is.borrowed,
                ],
                [
                    model.available,
                    model.in_transfer(),
                    model.journaled(),
                    model.journal.len() as u64,
                    lent,
                    borrowed,
                ],
            )?;
        }
        Ok(())
    }

    async fn show(&self, segment: u32) -> Outcome<Shown> {
        let (mut connection, keys) = (self.connection.clone(), self.keys(self.loaded, segment));
        let figures = sound(scripts::figures(&mut connection, &keys).await)?;
        same(
            "presence",
            Some(figures.presence),
            self.presence(self.loaded),
        )?;
        let open = match figures.in_transfer {
            0 => Vec::new(),
            _ => sound(scripts::open_transfers(&mut connection, &keys).await)?,
        };
        Ok(Shown {
            figures,
            open,
            journal: self.journal(self.loaded, segment).await?,
        })
    }

    async fn balance(&mut self, shown: &[Shown]) -> Outcome<()> {
        let available: u64 = shown.iter().map(|one| one.figures.available).sum();
        let mut in_transfer = 0;
        for open in shown.iter().flat_map(|one| &one.open) {
            let keys = self.keys(self.loaded, open.borrower);
            let received = scripts::received(&mut self.connection, &keys, &open.id).await;
            if !sound(received)? {
                in_transfer += open.units;
            }
        }
        let entries = shown.iter().flat_map(|one| &one.journal);
        let purchases = entries.flat_map(|entry| &entry.purchases);
        let uncommitted = purchases.filter(|one| !self.ledger.orders.contains_key(&one.order));
        let journaled: u64 = uncommitted.map(|one| u64::from(one.quantity)).sum();
        let (taken, returning) = (self.ledger.taken(), self.returning().await?);
        self.free = available + in_transfer;
        let sum = self.free + journaled + taken + returning;
        if sum != self.ledger.quantity {
            return Err(format!(
                "{available} available + {in_transfer} in transfer + {journaled} journaled + \
                 {taken} taken + {returning} returning = {sum}, but there are {}",
                self.ledger.quantity
            ));
        }
        Ok(())
    }

    /// Units of returns whose row is there and that Redis has not taken back.
    async fn returning(&mut self) -> Outcome<u64> {
        let returns = self.ledger.returns.iter().filter(|one| one.open);
        let returns: Vec<(OrderId, u64)> = returns
            .map(|one| (one.purchase.order, one.purchase.quantity.into()))
            .collect();
        let mut units = 0;
        for (order, quantity) in returns {
            let home = order.home(self.segments().len() as u32);
            let keys = self.keys(self.loaded, home);
            let mark = sound(marks(&mut self.connection, &keys, &[order]).await)?;
            if !matches!(mark[..], [Some(Mark::Ended(_))]) {
                units += quantity;
            }
        }
        Ok(units)
    }

    fn check_limit(&self, shown: &[Shown]) -> Outcome<()> {
        let entries = shown.iter().flat_map(|one| &one.journal);
        let purchases = entries.flat_map(|entry| &entry.purchases);
        let uncommitted = purchases.filter(|one| !self.ledger.orders.contains_key(&one.order));
        let uncommitted: Vec<_> = uncommitted.collect();
        for buyer in &self.buyers {
            let own = uncommitted.iter().filter(|one| one.buyer == *buyer);
            let journaled: u32 = own.map(|one| one.quantity).sum();
            let has = self.ledger.units_of(buyer) + journaled;
            if has > self.limit {
                return Err(format!("{buyer} has {has}, the limit is {}", self.limit));
            }
        }
        Ok(())
    }
}
