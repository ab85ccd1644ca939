//! Purchases, and the ways of their units into the ledger and back.

use stockade::domain::{BuyerId, IdempotencyKey, OrderId, Purchase};
use stockade::stock::scripts::{self, Answer, Copies, Decided, Entries, Presence, Returned};

use super::Outcome;
use super::loading::Stage;
use super::model::{Entry, units};
use super::step::Wish;
use super::world::{Call, World, pick, same, sound};
use crate::harness::purchase_at;

impl World {
    /// All of a batch have one home; who has another is replaced by a neighbour.
    pub(super) async fn buy(
        &mut self,
        batch: &[Wish],
        copies: Copies,
        commits: bool,
    ) -> Outcome<()> {
        let mut home = None;
        let mut purchases = Vec::new();
        for wish in batch {
            let at_home = |buyer: &&BuyerId| home.is_none_or(|home| home == self.home(buyer));
            let buyers: Vec<&BuyerId> = self.buyers.iter().filter(at_home).collect();
            let buyer = buyers[wish.buyer % buyers.len()].clone();
            home = Some(self.home(&buyer));
            purchases.push(self.purchase(&buyer, &format!("k{}", wish.key), wish.quantity));
        }
        let home = home.expect("a batch has a purchase");
        self.call(home, purchases, copies).await?;
        match self.calls.last() {
            Some(call) if commits && !call.admitted.is_empty() => {
                let (epoch, admitted) = (call.epoch, call.admitted.clone());
                self.commit_group(epoch, &admitted)
            }
            _ => Ok(()),
        }
    }

    fn home(&self, buyer: &BuyerId) -> u32 {
        let key = IdempotencyKey::parse("any").unwrap();
        let order = OrderId::of(self.sale, buyer, &key);
        order.home(self.segments().len() as u32)
    }

    async fn call(&mut self, segment: u32, batch: Vec<Purchase>, copies: Copies) -> Outcome<()> {
        self.calls.push(Call {
            epoch: self.loaded,
            segment,
            batch,
            admitted: Vec::new(),
            entries: Vec::new(),
        });
        self.deliver(self.calls.len() - 1, copies).await
    }

    /// A copy of a call reaches its segment.
    pub(super) async fn deliver(&mut self, number: usize, copies: Copies) -> Outcome<()> {
        let Call {
            epoch,
            segment,
            ref batch,
            ..
        } = self.calls[number];
        let batch = batch.clone();
        let known = match copies {
            Copies::One => "",
            Copies::LateOnePossible => ", a copy may be late",
            Copies::LastWord => ", a copy may be late, the last word",
        };
        self.tell(format!(
            "call {number} buys {} at segment {segment} of epoch {epoch}{known}",
            self.named(&batch)
        ));
        let (keys, all) = (self.keys(epoch, segment), batch.iter().collect::<Vec<_>>());
        let decision = purchase_at(&mut self.connection, &keys, copies, &all).await;
        let decision = sound(decision)?;
        self.so(&told(&decision));
        let (entry, answers) = match (self.presence(epoch), decision) {
            (None, _) => return Ok(()),
            (Some(Presence::Loaded), Ok(Decided { entry, answers, .. })) => (entry, answers),
            (Some(expected), Err(presence)) => {
                return same("the segment", presence, expected);
            }
            (expected, _) => return Err(format!("expected {expected:?}")),
        };
        let (expected, admitted) = self.segment(epoch, segment).buy(copies, &batch);
        same("the answers", &answers, &expected)?;
        same(
            "whether there is an entry",
            entry.is_some(),
            !admitted.is_empty(),
        )?;
        if let Some(id) = entry {
            let purchases = admitted.clone();
            let journaled = Entry {
                id: id.clone(),
                purchases,
            };
            self.segment(epoch, segment).journal.push(journaled);
            self.calls[number].entries.push((id, admitted));
        }
        for (one, answer) in batch.into_iter().zip(answers) {
            if matches!(answer, Answer::Admitted | Answer::Replay) {
                self.calls[number].admitted.push(one);
            }
        }
        Ok(())
    }

    pub(super) fn commit(&mut self, n: usize) -> Outcome<()> {
        // Every fourth time also one that is fenced, or committed again.
        let waits =
            |call: &Call| call.epoch == self.ledger.epoch && !self.ledger.has(&call.admitted);
        let wanted =
            |call: &Call| !call.admitted.is_empty() && (n.is_multiple_of(4) || waits(call));
        let calls: Vec<&Call> = self.calls.iter().filter(|call| wanted(call)).collect();
        let Some(call) = pick(calls.len(), n).map(|n| calls[n]) else {
            return Ok(());
        };
        let (epoch, admitted) = (call.epoch, call.admitted.clone());
        self.commit_group(epoch, &admitted)
    }

    fn commit_group(&mut self, epoch: u64, admitted: &[Purchase]) -> Outcome<()> {
        self.tell(format!("the ledger commits {}", self.named(admitted)));
        if !self.ledger.commit(epoch, admitted)? {
            self.so("fenced");
        }
        Ok(())
    }

    pub(super) async fn settle(&mut self, n: usize) -> Outcome<()> {
        let calls = self.calls.iter();
        let entries = calls.flat_map(|call| call.entries.iter().map(move |entry| (call, entry)));
        let settled = entries.filter(|(_, entry)| self.ledger.has(&entry.1));
        let settled: Vec<_> = settled
            .map(|(call, entry)| (call.epoch, call.segment, entry.clone()))
            .collect();
        let Some(n) = pick(settled.len(), n) else {
            return Ok(());
        };
        let (epoch, segment, (id, purchases)) = settled[n].clone();
        self.delete_entry(epoch, segment, &id, &purchases).await
    }

    async fn delete_entry(
        &mut self,
        epoch: u64,
        segment: u32,
        id: &str,
        purchases: &[Purchase],
    ) -> Outcome<()> {
        let named = self.named(purchases);
        self.tell(format!(
            "the entry of {named} at segment {segment} is deleted"
        ));
        let entries = [Entries {
            keys: self.keys(epoch, segment),
            entries: vec![(id.to_owned(), units(purchases))],
        }];
        let deleted = sound(scripts::settle(&mut self.connection, &entries).await)?;
        if self.presence(epoch).is_none() {
            return Ok(());
        }
        let expected = self.segment(epoch, segment).settle(id);
        same("entries deleted", deleted, u64::from(expected))
    }

    /// What the owner of a purchase left undone is done by whoever finds it.
    pub(super) async fn sweep(&mut self, segment: usize) -> Outcome<()> {
        let (epoch, segment) = (self.loaded, (segment % self.segments().len()) as u32);
        for entry in self.journal(epoch, segment).await? {
            let named = self.named(&entry.purchases);
            self.tell(format!(
                "{named} is found in segment {segment} and committed"
            ));
            if self.ledger.commit(epoch, &entry.purchases)? {
                self.delete_entry(epoch, segment, &entry.id, &entry.purchases)
                    .await?;
            } else {
                self.so("fenced");
            }
        }
        Ok(())
    }

    pub(super) async fn end(&mut self, n: usize, returns: bool) -> Outcome<()> {
        let orders = self.ledger.orders.iter();
        let active = orders.filter(|(_, order)| order.active).map(|(id, _)| *id);
        let active: Vec<_> = active.collect();
        let Some(order) = pick(active.len(), n).map(|n| active[n]) else {
            return Ok(());
        };
        self.tell(format!("the order {} is cancelled", self.names[&order]));
        self.ledger.end(order);
        if returns {
            self.waiting.push(self.ledger.returns.len() - 1);
        }
        self.bring_waiting().await
    }

    /// While a load is under way, returns wait for its end. Those of another epoch are its affair.
    pub(super) async fn bring_waiting(&mut self) -> Outcome<()> {
        if !matches!(self.stage, Stage::Loaded) {
            return Ok(());
        }
        for which in std::mem::take(&mut self.waiting) {
            if self.ledger.returns[which].epoch == self.loaded {
                self.bring(which, true).await?;
            }
        }
        Ok(())
    }

    /// A return of a finished load is brought, perhaps again; often one whose row is there.
    pub(super) async fn give_back(&mut self, n: usize, row_goes: bool) -> Outcome<()> {
        let returns = self.ledger.returns.iter().enumerate();
        let loaded = returns.filter(|(_, one)| self.loads.contains_key(&one.epoch));
        let wanted = loaded.filter(|(_, one)| one.open || n.is_multiple_of(2));
        let wanted: Vec<usize> = wanted.map(|(which, _)| which).collect();
        match pick(wanted.len(), n) {
            Some(n) => self.bring(wanted[n], row_goes).await,
            None => Ok(()),
        }
    }

    pub(super) async fn bring(&mut self, which: usize, row_goes: bool) -> Outcome<()> {
        let (epoch, purchase) = {
            let one = &self.ledger.returns[which];
            (one.epoch, one.purchase.clone())
        };
        let segment = purchase
            .order
            .home(self.loads[&epoch].segments.len() as u32);
        let named = self.named(std::slice::from_ref(&purchase));
        self.tell(format!(
            "{named} returns to segment {segment} of epoch {epoch}"
        ));
        let keys = self.keys(epoch, segment);
        let order = [(purchase.order, purchase.buyer.as_str(), purchase.quantity)];
        let answer = sound(scripts::give_back(&mut self.connection, &keys, &order).await)?;
        if let Err(elsewhere) = &answer {
            self.so(&format!("{elsewhere:?}"));
        }
        match self.presence(epoch) {
            None => {}
            Some(Presence::Loaded) => {
                let expected = self.segment(epoch, segment).give_back(&purchase);
                same("the model's answer to a return", expected, Returned::Back)?;
                same("the answer to a return", answer, Ok(vec![expected]))?;
                self.ledger.returns[which].open &= !row_goes;
            }
            Some(elsewhere) => same("the answer to a return", answer, Err(elsewhere))?,
        }
        Ok(())
    }

    /// New buyers, who live there, take all that a segment has; the next one finds nothing.
    pub(super) async fn buy_all(&mut self, segment: u32) -> Outcome<()> {
        let everyone = (0..).map(|n| BuyerId::parse(&format!("z{n}")).unwrap());
        for buyer in everyone {
            if self.home(&buyer) != segment {
                continue;
            }
            let left = self.segments()[segment as usize].available;
            let quantity = left.clamp(1, self.limit.into()) as u32;
            let purchase = self.purchase(&buyer, "all", quantity);
            self.call(segment, vec![purchase], Copies::One).await?;
            if left == 0 {
                break;
            }
        }
        self.sweep(segment as usize).await
    }
}

/// A decision in words.
fn told(decision: &Result<Decided, Presence>) -> String {
    match decision {
        Ok(decided) => {
            let answers = decided.answers.iter().map(|answer| format!("{answer:?}"));
            answers.collect::<Vec<_>>().join(", ")
        }
        Err(presence) => format!("{presence:?}"),
    }
}
