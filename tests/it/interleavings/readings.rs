//! The two readings on which a refusal rests, with anything in between.

use stockade::stock::collect::Reading;
use stockade::stock::scripts::{self, Figures, Presence};

use super::Outcome;
use super::world::{World, same, sound};

/// Two readings under way; the segments are read one by one.
#[derive(Debug)]
pub(super) struct Collect {
    pub(super) epoch: u64,
    first: Vec<Option<Figures>>,
    second: Vec<Option<Figures>>,
    /// The fewest free units at a moment after the first reading and before the second.
    fewest: Option<u64>,
    disturbed: bool,
}

fn unread(reading: &[Option<Figures>]) -> bool {
    reading.iter().any(Option::is_none)
}

impl World {
    /// Reads further segments, beginning at the number `from`. A complete second reading is judged.
    pub(super) async fn look(&mut self, from: u32, segments: usize) -> Outcome<()> {
        let (epoch, count) = (self.loaded, self.segments().len());
        let mut collect = self.collect.take().unwrap_or_else(|| Collect {
            epoch,
            first: vec![None; count],
            second: vec![None; count],
            fewest: None,
            disturbed: false,
        });
        for _ in 0..segments {
            let first = unread(&collect.first);
            let reading = match first {
                true => &mut collect.first,
                false => &mut collect.second,
            };
            let count = reading.len();
            let mut places = (0..count).map(|n| (from as usize + n) % count);
            let place = places.find(|place| reading[*place].is_none());
            let place = place.expect("a reading that is not complete");
            let keys = self.keys(collect.epoch, place as u32);
            let figures = sound(scripts::figures(&mut self.connection, &keys).await)?;
            reading[place] = Some(figures);
            let which = if first { "first" } else { "second" };
            self.tell(format!("the {which} reading sees segment {place}"));
            self.so(&format!(
                "{} available, {} in transfer, version {}, {:?}",
                figures.available, figures.in_transfer, figures.version, figures.presence
            ));
            if first && !unread(&collect.first) {
                collect.fewest = Some(self.free);
            } else if !unread(&collect.second) {
                return self.judge(&collect);
            }
        }
        self.collect = Some(collect);
        Ok(())
    }

    /// Notes what a step has changed between the readings.
    pub(super) fn watch(&mut self, was_a_look: bool) {
        let free = self.free;
        let Some(collect) = &mut self.collect else {
            return;
        };
        collect.disturbed |= !was_a_look;
        if collect.second.iter().all(Option::is_none) {
            collect.fewest = collect.fewest.map(|fewest| fewest.min(free));
        }
    }

    fn judge(&mut self, collect: &Collect) -> Outcome<()> {
        let reading =
            |read: &[Option<Figures>]| Reading::of(read.iter().copied().flatten().collect());
        let (first, second) = (reading(&collect.first), reading(&collect.second));
        let stands = first.stands(&second);
        self.so(if stands {
            "the count stands"
        } else {
            "count again"
        });
        let fewest = collect.fewest.expect("the first reading is complete");
        if stands && first.available() < fewest {
            return Err(format!(
                "a buyer of {fewest} is refused because there are {}, but there never were less \
                 than {fewest}",
                first.available()
            ));
        }
        if !collect.disturbed {
            let load = &self.loads[&collect.epoch];
            let quiet = load.segments.iter().all(|one| one.open.is_empty());
            let there = load.presence == Some(Presence::Loaded);
            same(
                "whether an undisturbed count stands",
                stands,
                quiet && there,
            )?;
        }
        Ok(())
    }
}
