//! What may happen next: steps as proptest draws and shrinks them.
//!
//! A number names one of the things that are there at that moment (the buyers, the calls made so
//! far) by its place, counted around. So every list of steps is a story, also with steps left out.

use proptest::prelude::*;
use stockade::stock::scripts::Copies;

/// A sale and what happens to it.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// Decides where the buyers are at home.
    pub(super) sale: u32,
    pub(super) segments: u32,
    pub(super) quantity: u32,
    pub(super) buyers: u32,
    pub(super) limit: u32,
    pub(super) steps: Vec<Step>,
}

/// One purchase of a batch.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) buyer: usize,
    pub(super) key: u32,
    pub(super) quantity: u32,
}

/// What may happen to a transfer, again and again, by anyone and late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Leg {
    Lend,
    Receive,
    Settle,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Purchases reach the home segment of the first one's buyer, and perhaps the ledger at once.
    Buy {
        batch: Vec<Wish>,
        copies: Copies,
        commits: bool,
    },
    /// A copy of an earlier call comes late, or is sent again because its answer was lost.
    BuyAgain { call: usize, copies: Copies },
    /// The admitted ones of a call reach the ledger.
    Commit { call: usize },
    /// A call's journal entry is deleted, if all of it is in the ledger.
    Settle { call: usize },
    /// Somebody commits and deletes what a segment's journal holds.
    Sweep { segment: usize },
    /// An order is cancelled or expires; perhaps its units return at once.
    End { order: usize, returns: bool },
    /// A return reaches the home segment; its row goes unless that is lost.
    GiveBack { which: usize, row_goes: bool },
    /// A transfer begins, and comes as far as this many legs.
    Transfer {
        donor: u32,
        distance: u32,
        units: u64,
        legs: usize,
    },
    /// A leg of a transfer: for the first time, again, or late.
    Carry { transfer: usize, leg: Leg },
    /// Somebody meets the open transfers of all segments and finishes them.
    FinishTransfers,
    /// The reader of the two readings reads this many further segments.
    Look { from: u32, segments: usize },
    /// A load comes this many stages further: fence, seal and read, write.
    Load {
        overtakes: bool,
        stages: usize,
        segments: u32,
        more: i64,
        sweeps: bool,
    },
    /// A copy of a command of an earlier load comes late, or an overtaken loader writes.
    LateLoad { which: usize },
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let terms = (1..9_u32, 2..=5_u32, 1..=12_u32, 3..=6_u32, 1..=3_u32);
    (terms, prop::collection::vec(step(), 1..80)).prop_map(
        |((sale, segments, quantity, buyers, limit), steps)| Case {
            sale,
            segments,
            quantity,
            buyers,
            limit,
            steps,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let some = || 0..64_usize;
    let quantity = prop_oneof![3 => Just(1), 1 => 2..=3_u32];
    let wish = (some(), 0..4_u32, quantity).prop_map(|(buyer, key, quantity)| Wish {
        buyer,
        key,
        quantity,
    });
    let leg = prop_oneof![Just(Leg::Lend), Just(Leg::Receive), Just(Leg::Settle)];
    let legs = prop_oneof![1 => 0..=2_usize, 1 => Just(3)];
    let further = prop_oneof![3 => 1..=3_usize, 1 => 4..=10_usize];
    prop_oneof![
        8 => (prop::collection::vec(wish, 1..=2), copies(8), any::<bool>())
            .prop_map(|(batch, copies, commits)| Step::Buy { batch, copies, commits }),
        2 => (some(), copies(1)).prop_map(|(call, copies)| Step::BuyAgain { call, copies }),
        4 => some().prop_map(|call| Step::Commit { call }),
        2 => some().prop_map(|call| Step::Settle { call }),
        1 => some().prop_map(|segment| Step::Sweep { segment }),
        6 => (some(), any::<bool>())
            .prop_map(|(order, returns)| Step::End { order, returns }),
        4 => (some(), prop::bool::weighted(0.7))
            .prop_map(|(which, row_goes)| Step::GiveBack { which, row_goes }),
        7 => (0..5_u32, 1..5_u32, 1..=4_u64, legs).prop_map(
            |(donor, distance, units, legs)| Step::Transfer { donor, distance, units, legs }),
        6 => (some(), leg).prop_map(|(transfer, leg)| Step::Carry { transfer, leg }),
        2 => Just(Step::FinishTransfers),
        10 => (0..5_u32, further)
            .prop_map(|(from, segments)| Step::Look { from, segments }),
        2 => (
            prop::bool::weighted(0.2),
            prop_oneof![1 => Just(1), 1 => Just(2), 2 => Just(3_usize)],
            2..=5_u32,
            -3..=3_i64,
            any::<bool>(),
        )
            .prop_map(|(overtakes, stages, segments, more, sweeps)| Step::Load {
                overtakes, stages, segments, more, sweeps,
            }),
        2 => some().prop_map(|which| Step::LateLoad { which }),
    ]
}

/// `one` times as often that a call has no copies as each of the others.
fn copies(one: u32) -> impl Strategy<Value = Copies> {
    prop_oneof![
        one => Just(Copies::One),
        1 => Just(Copies::LateOnePossible),
        1 => Just(Copies::LastWord),
    ]
}
