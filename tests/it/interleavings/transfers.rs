//! Transfers between segments, leg by leg.

use stockade::stock::scripts::{self, Presence, TransferId};

use super::Outcome;
use super::step::Leg;
use super::world::{Transfer, World, same, sound};

impl World {
    /// A transfer begins and comes as far as `legs`; none: its first call is still under way.
    pub(super) async fn transfer(
        &mut self,
        donor: u32,
        borrower: u32,
        wanted: u64,
        legs: usize,
    ) -> Outcome<()> {
        let number = self.transfers.len();
        self.tell(format!(
            "t{number} shall take {wanted} from segment {donor} to segment {borrower}"
        ));
        self.transfers.push(Transfer {
            id: TransferId::random(),
            epoch: self.loaded,
            donor,
            borrower,
            wanted,
            lent: 0,
            arrived: false,
        });
        for leg in [Leg::Lend, Leg::Receive, Leg::Settle]
            .into_iter()
            .take(legs)
        {
            if leg == Leg::Lend || self.transfers[number].lent > 0 {
                self.carry(number, leg).await?;
            }
        }
        Ok(())
    }

    /// The leg happens, or the one that must come before it.
    pub(super) async fn carry(&mut self, number: usize, leg: Leg) -> Outcome<()> {
        let transfer = &self.transfers[number];
        match (transfer.lent, transfer.arrived, leg) {
            (0, ..) | (_, _, Leg::Lend) => self.lend(number).await,
            (_, false, _) | (_, _, Leg::Receive) => self.receive(number).await,
            (_, true, Leg::Settle) => self.settle_transfer(number).await,
        }
    }

    async fn lend(&mut self, number: usize) -> Outcome<()> {
        let transfer = &self.transfers[number];
        let (epoch, donor, wanted) = (transfer.epoch, transfer.donor, transfer.wanted);
        let keys = self.keys(epoch, donor);
        let (id, to) = (transfer.id.clone(), transfer.borrower);
        self.tell(format!(
            "segment {donor} lends {wanted} units to segment {to} (t{number})"
        ));
        let lent = sound(scripts::lend(&mut self.connection, &keys, &id, to, wanted).await)?;
        self.so(&match lent {
            Ok(units) => units.to_string(),
            Err(elsewhere) => format!("{elsewhere:?}"),
        });
        match self.presence(epoch) {
            None => {}
            Some(Presence::Loaded) => {
                let expected = self.segment(epoch, donor).lend(number, wanted);
                same("units lent", lent, Ok(expected))?;
                self.transfers[number].lent = expected;
            }
            Some(elsewhere) => {
                same("the answer to a lend", lent, Err(elsewhere))?;
            }
        }
        Ok(())
    }

    async fn receive(&mut self, number: usize) -> Outcome<()> {
        let transfer = &self.transfers[number];
        let (epoch, borrower, units) = (transfer.epoch, transfer.borrower, transfer.lent);
        let (keys, id) = (self.keys(epoch, borrower), transfer.id.clone());
        self.tell(format!(
            "segment {borrower} receives {units} units (t{number})"
        ));
        let answer = sound(scripts::receive(&mut self.connection, &keys, &id, units).await)?;
        if answer != Presence::Loaded {
            self.so(&format!("{answer:?}"));
        }
        let Some(expected) = self.presence(epoch) else {
            return Ok(());
        };
        same("the answer to a receive", answer, expected)?;
        if expected == Presence::Loaded {
            self.segment(epoch, borrower).receive(number, units);
            self.transfers[number].arrived = true;
        }
        Ok(())
    }

    async fn settle_transfer(&mut self, number: usize) -> Outcome<()> {
        let transfer = &self.transfers[number];
        let (epoch, donor, id) = (transfer.epoch, transfer.donor, transfer.id.clone());
        let keys = self.keys(epoch, donor);
        self.tell(format!("segment {donor} settles t{number}"));
        sound(scripts::settle_transfer(&mut self.connection, &keys, &id).await)?;
        self.segment(epoch, donor).open.remove(&number);
        Ok(())
    }

    /// Whoever meets an open transfer finishes it; its owner may be dead.
    pub(super) async fn finish_transfers(&mut self) -> Outcome<()> {
        let epoch = self.loaded;
        if self.presence(epoch) != Some(Presence::Loaded) {
            return Ok(());
        }
        for donor in 0..self.segments().len() as u32 {
            let keys = self.keys(epoch, donor);
            let met = sound(scripts::open_transfers(&mut self.connection, &keys).await)?;
            for open in met {
                let known = self.transfers.iter().position(|one| one.id == open.id);
                let number = known.expect("a transfer of this case");
                let transfer = &self.transfers[number];
                let expected = (transfer.borrower, transfer.lent);
                same("the note", (open.borrower, open.units), expected)?;
                self.tell(format!("somebody meets t{number} in segment {donor}"));
                self.receive(number).await?;
                self.settle_transfer(number).await?;
            }
        }
        Ok(())
    }
}
