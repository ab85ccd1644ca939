//! Who is served from what the segments have, and which units must move for that. Pure.

/// A purchase that its home segment could not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The buyer's home segment.
    pub home: u32,
    /// Units.
    pub quantity: u64,
}

/// What is to become of one demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is enough for it after the moves.
    Served,
    /// There would be enough, but those before it may take it.
    Waits,
    /// There is not enough in all segments together.
    Short,
}

/// Units that should go from one segment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Who lends.
    pub donor: u32,
    /// Who borrows.
    pub borrower: u32,
    /// Units.
    pub units: u64,
}

/// A plan for all demands.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// One for each demand, in their order.
    pub verdicts: Vec<Verdict>,
    /// What must move.
    pub moves: Vec<Move>,
    /// Whether so little is left that a move may need the last units of several segments: then those who
    /// gather should take turns.
    pub scarce: bool,
}

/// Fewer units per segment than this on the average are scarce.
const SCARCE_PER_SEGMENT: u64 = 2;

/// Plans for the `available` units of each segment; first come, first served.
///
/// Each home gets at least what its served demands lack. While stock is plentiful it gets half of what
/// the richest segment can spare, so that it need not borrow again soon.
#[must_use]
pub fn plan(available: &[u64], demands: &[Demand]) -> Plan {
    let total: u64 = available.iter().sum();
    let scarce = total < SCARCE_PER_SEGMENT * available.len() as u64;
    let mut left = total;
    let mut wanted = vec![0; available.len()];
    let mut verdict = |demand: &Demand| {
        if demand.quantity > total {
            Verdict::Short
        } else if demand.quantity > left {
            Verdict::Waits
        } else {
            left -= demand.quantity;
            wanted[demand.home as usize] += demand.quantity;
            Verdict::Served
        }
    };
    let verdicts = demands.iter().map(&mut verdict).collect();
    let moves = moves(available, &wanted, scarce);
    Plan {
        verdicts,
        moves,
        scarce,
    }
}

fn moves(available: &[u64], wanted: &[u64], scarce: bool) -> Vec<Move> {
    let mut spare: Vec<u64> = available
        .iter()
        .zip(wanted)
        .map(|(has, wants)| has.saturating_sub(*wants))
        .collect();
    let lacking = |(has, wants): (&u64, &u64)| wants.saturating_sub(*has);
    let all_lack: u64 = available.iter().zip(wanted).map(lacking).sum();
    // What nobody here needs may travel beyond the need, half of the richest's at a time.
    let mut surplus = if scarce {
        0
    } else {
        spare.iter().sum::<u64>() - all_lack
    };
    let mut moves = Vec::new();
    let numbered = (0_u32..).zip(available.iter().zip(wanted));
    for (borrower, (has, wants)) in numbered {
        let mut lacks = wants.saturating_sub(*has);
        while lacks > 0 {
            let richest = (0_u32..)
                .zip(spare.iter_mut())
                .max_by_key(|(_, spare)| **spare);
            let Some((donor, spare)) = richest.filter(|(_, spare)| **spare > 0) else {
                break;
            };
            let needed = lacks.min(*spare);
            let extra = (*spare / 2).saturating_sub(needed).min(surplus);
            let units = needed + extra;
            surplus -= extra;
            lacks -= needed;
            *spare -= units;
            moves.push(Move {
                donor,
                borrower,
                units,
            });
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn demand(home: u32, quantity: u64) -> Demand {
        Demand { home, quantity }
    }

    #[test]
    fn the_last_units_of_three_segments_serve_an_order_of_three() {
        let plan = plan(&[1, 0, 1, 1], &[demand(0, 3), demand(1, 3), demand(1, 4)]);
        assert_eq!(
            plan.verdicts,
            [Verdict::Served, Verdict::Waits, Verdict::Short]
        );
        let to_home = |m: &Move| m.borrower == 0 && m.units == 1;
        assert_eq!(plan.moves.len(), 2, "{:?}", plan.moves);
        assert!(plan.moves.iter().all(to_home) && plan.scarce);
    }

    #[test]
    fn plenty_is_shared_with_a_home_that_has_run_dry() {
        let plan = plan(&[0, 100, 40], &[demand(0, 2)]);
        let half = Move {
            donor: 1,
            borrower: 0,
            units: 50,
        };
        assert_eq!(plan.moves, [half]);
    }

    proptest! {
        #[test]
        fn after_the_moves_every_served_demand_finds_its_units(
            available in prop::collection::vec(0_u64..20, 1..12),
            demands in prop::collection::vec((0_u32..12, 1_u64..9), 0..40),
        ) {
            let segments = u32::try_from(available.len()).unwrap();
            let demands: Vec<_> = demands.iter().map(|(home, q)| demand(home % segments, *q)).collect();
            let plan = plan(&available, &demands);
            let mut stock = available.clone();
            for one in &plan.moves {
                prop_assert!(one.units > 0 && one.donor != one.borrower);
                prop_assert!(stock[one.donor as usize] >= one.units, "lent more than there is");
                stock[one.donor as usize] -= one.units;
                stock[one.borrower as usize] += one.units;
            }
            for (demand, verdict) in demands.iter().zip(&plan.verdicts) {
                let total: u64 = available.iter().sum();
                prop_assert_eq!(*verdict == Verdict::Short, demand.quantity > total);
                if *verdict == Verdict::Served {
                    prop_assert!(stock[demand.home as usize] >= demand.quantity);
                    stock[demand.home as usize] -= demand.quantity;
                }
            }
        }
    }
}
