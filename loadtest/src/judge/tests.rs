//! The judge bites: each kind of violation is planted in an honest run, found and named.

use uuid::Uuid;

use super::fixture::{
    NOTHING, NOW, Run, admitted, committed, order, purchase, refused, shed, unknown,
};
use super::{Verdict, Violation};
use crate::api::{AuditVerdict, Order, OrderState, Terms};
use crate::worker::Purchase;

#[test]
fn an_honest_run_is_valid() {
    for run in [Run::honest(), Run::reserved()] {
        let judgement = run.judge();
        assert_eq!(judgement.verdict, Verdict::Valid, "{judgement:?}");
        let tally = judgement.tally;
        assert_eq!((tally.sold, tally.oversold, tally.undersold), (3, 0, 0));
        assert_eq!(
            (tally.committed, tally.refused.values().sum::<usize>()),
            (3, 3)
        );
    }
}

#[test]
fn a_unit_too_many_is_oversold() {
    let mut run = Run::honest();
    run.purchases[3] = purchase(4, committed(4));
    run.books.orders.push(order(4, OrderState::Confirmed));
    run.books.audit.terms = Terms {
        quantity: 3,
        available: -1,
        confirmed: 4,
        ..NOTHING
    };
    assert_eq!(run.violations(), [Violation::Oversold]);
    assert_eq!(run.judge().tally.oversold, 1);
}

#[test]
fn a_stranded_unit_is_undersold() {
    let mut run = Run::reserved();
    run.books.orders.pop();
    run.purchases[2] = purchase(3, refused("held"));
    run.books.audit.terms = Terms {
        quantity: 3,
        available: 1,
        held: 2,
        ..NOTHING
    };
    assert_eq!(run.violations(), [Violation::Undersold]);
    assert_eq!(run.judge().tally.undersold, 1);
}

#[test]
fn free_units_are_no_harm_if_everybody_who_was_refused_wanted_more() {
    let mut run = Run::reserved();
    run.books.orders.pop();
    run.purchases[2] = purchase(3, refused("insufficient"));
    for purchase in &mut run.purchases[2..] {
        purchase.wish.quantity = 2;
    }
    run.books.audit.terms = Terms {
        quantity: 3,
        available: 1,
        held: 2,
        ..NOTHING
    };
    assert_eq!(run.judge().verdict, Verdict::Valid);
}

#[test]
fn a_unit_that_came_back_later_excuses_every_refusal_but_sold_out() {
    let mut run = Run::reserved();
    run.books.orders[0].state = OrderState::Expired;
    run.books.audit.terms = Terms {
        quantity: 3,
        available: 1,
        held: 2,
        ..NOTHING
    };
    assert_eq!(run.judge().verdict, Verdict::Valid);
    run.purchases[5].outcome = refused("sold-out");
    assert_eq!(
        run.violations(),
        [Violation::Undersold, Violation::FalseRefusal]
    );
}

#[test]
fn an_unsold_sale_is_undersold() {
    let mut run = Run::honest();
    run.books.orders.clear();
    run.books.audit.terms = Terms {
        quantity: 3,
        available: 3,
        ..NOTHING
    };
    for purchase in &mut run.purchases {
        *purchase = Purchase {
            orders: Vec::new(),
            outcome: refused("held"),
            ..purchase.clone()
        };
    }
    assert_eq!(run.violations(), [Violation::Undersold]);
    assert_eq!(run.judge().tally.undersold, 3);
}

#[test]
fn a_second_order_for_one_purchase_is_a_duplicate() {
    let mut run = Run::honest();
    run.books.sale.quantity = 4;
    run.books.audit.terms = Terms {
        quantity: 4,
        confirmed: 4,
        ..NOTHING
    };
    run.books.sale.per_buyer_limit = 2;
    run.books.orders.push(Order {
        id: Uuid::from_u128(9),
        ..order(1, OrderState::Confirmed)
    });
    assert_eq!(run.violations(), [Violation::Duplicate]);
}

#[test]
fn two_orders_answered_for_one_purchase_are_a_duplicate_even_if_one_is_gone() {
    let mut run = Run::honest();
    run.purchases[0].orders.push(Uuid::from_u128(9));
    assert_eq!(run.violations(), [Violation::Duplicate]);
    let mut run = Run::honest();
    run.replays.push(purchase(1, committed(9)));
    assert_eq!(run.violations(), [Violation::Duplicate]);
}

#[test]
fn an_order_listed_twice_is_a_duplicate() {
    let mut run = Run::honest();
    run.books.orders.push(order(1, OrderState::Confirmed));
    assert!(run.violations().contains(&Violation::Duplicate));
}

#[test]
fn a_promise_without_its_order_is_lost() {
    let mut run = Run::honest();
    run.strand(0);
    assert!(
        run.violations().contains(&Violation::Lost),
        "{:?}",
        run.violations()
    );
    run.purchases[0].outcome = admitted(1);
    assert!(run.violations().contains(&Violation::LostAdmitted));
    assert!(!run.violations().contains(&Violation::Lost));
}

#[test]
fn a_promise_whose_order_was_rejected_is_lost() {
    let mut run = Run::reserved();
    run.books.orders[0].state = OrderState::Rejected;
    run.books.audit.terms = Terms {
        quantity: 3,
        available: 1,
        held: 2,
        ..NOTHING
    };
    assert_eq!(run.violations(), [Violation::Lost]);
}

#[test]
fn one_order_promised_to_two_purchases_is_a_loss_to_one_of_them() {
    let mut run = Run::honest();
    run.purchases[3] = purchase(4, committed(3));
    assert_eq!(run.violations(), [Violation::Lost, Violation::Altered]);
}

#[test]
fn an_order_of_another_quantity_or_price_is_altered() {
    let mut run = Run::honest();
    run.purchases[0].wish.quantity = 2;
    assert_eq!(run.violations(), [Violation::Altered]);
    let mut run = Run::honest();
    run.books.orders[0].amount_minor = 1;
    assert_eq!(run.violations(), [Violation::Altered]);
}

#[test]
fn an_order_for_a_refused_purchase_is_a_phantom() {
    for outcome in [refused("held"), shed()] {
        let mut run = Run::honest();
        run.purchases[0] = purchase(1, outcome);
        assert_eq!(run.violations(), [Violation::Phantom]);
    }
}

#[test]
fn an_order_of_a_stranger_is_a_phantom() {
    let mut run = Run::honest();
    run.books.orders[0].buyer = "stranger".to_owned();
    run.books.orders[0].id = Uuid::from_u128(9);
    assert!(run.violations().contains(&Violation::Phantom));
}

#[test]
fn an_unknown_purchase_may_have_bought_once_or_not_at_all() {
    let mut run = Run::honest();
    run.purchases[0] = purchase(1, unknown());
    run.purchases[5] = purchase(6, unknown());
    let judgement = run.judge();
    assert_eq!(
        (judgement.verdict, judgement.tally.unknown),
        (Verdict::Valid, 2)
    );
    let twice = Order {
        id: Uuid::from_u128(9),
        ..order(1, OrderState::Cancelled)
    };
    run.books.orders.push(twice);
    assert_eq!(run.violations(), [Violation::Phantom]);
}

#[test]
fn more_units_than_one_buyer_may_have_exceed_the_limit() {
    let mut run = Run::honest();
    run.purchases[1].wish.buyer = "buyer-1".to_owned();
    run.books.orders[1].buyer = "buyer-1".to_owned();
    assert_eq!(run.violations(), [Violation::LimitExceeded]);
}

#[test]
fn a_limit_that_was_not_reached_is_a_false_refusal() {
    let mut run = Run::honest();
    run.purchases[5].outcome = refused("limit-reached");
    assert_eq!(run.violations(), [Violation::FalseRefusal]);
    run.purchases[5].wish.buyer = "buyer-1".to_owned();
    assert_eq!(run.judge().verdict, Verdict::Valid);
}

#[test]
fn sold_out_before_everything_is_confirmed_and_key_reused_for_a_new_key_are_false_refusals() {
    let mut run = Run::reserved();
    run.purchases[5].outcome = refused("sold-out");
    assert_eq!(run.violations(), [Violation::FalseRefusal]);
    let mut run = Run::honest();
    run.purchases[5].outcome = refused("key-reused");
    assert_eq!(run.violations(), [Violation::FalseRefusal]);
}

#[test]
fn a_retry_that_is_refused_after_an_acceptance_is_a_contradiction() {
    let mut run = Run::honest();
    run.replays = vec![purchase(1, committed(1)), purchase(2, unknown())];
    assert_eq!(run.judge().verdict, Verdict::Valid);
    run.replays.push(purchase(3, refused("sold-out")));
    assert_eq!(run.violations(), [Violation::Contradiction]);
}

#[test]
fn a_hold_without_order_or_beyond_its_time_is_leaked() {
    let mut run = Run::reserved();
    run.books.orders.pop();
    run.purchases[2] = purchase(3, unknown());
    assert_eq!(run.violations(), [Violation::HoldLeaked]);
    let mut run = Run::reserved();
    run.books.orders[0].hold_expires_at = Some(NOW - time::Duration::minutes(1));
    assert_eq!(run.violations(), [Violation::HoldLeaked]);
}

#[test]
fn books_that_are_off_by_one_or_said_to_be_off_are_unbalanced() {
    let mut shifted = Run::honest();
    shifted.books.audit.terms.available = 1;
    let mut disagreeing = Run::honest();
    disagreeing.books.audit.terms.confirmed = 2;
    disagreeing.books.audit.terms.returning = 1;
    let mut said = Run::honest();
    said.books.audit.verdict = AuditVerdict::Unbalanced;
    for run in [shifted, disagreeing, said] {
        assert!(
            run.violations().contains(&Violation::Unbalanced),
            "{:?}",
            run.judge()
        );
    }
}

#[test]
fn a_run_that_shows_too_little_is_unknown() {
    let mut restless = Run::honest();
    restless.books.settled = false;
    let mut blind = Run::honest();
    blind.books.audit.verdict = AuditVerdict::Unknown;
    let mut odd = Run::honest();
    odd.purchases[5].outcome = refused("unauthorized");
    let mut given_up = Run::reserved();
    given_up.books.orders.pop();
    given_up.books.audit.terms = Terms {
        quantity: 3,
        available: 1,
        held: 2,
        ..NOTHING
    };
    given_up.purchases = vec![
        purchase(1, committed(1)),
        purchase(2, committed(2)),
        purchase(3, shed()),
    ];
    let mut idle = Run::honest();
    idle.books.orders.clear();
    idle.books.audit.terms = Terms {
        quantity: 3,
        available: 3,
        ..NOTHING
    };
    idle.purchases.clear();
    for run in [restless, blind, odd, given_up, idle] {
        let judgement = run.judge();
        assert_eq!(judgement.verdict, Verdict::Unknown, "{judgement:?}");
        assert_eq!(judgement.doubts.len(), 1, "{judgement:?}");
    }
}

#[test]
fn a_violation_outweighs_a_doubt() {
    let mut run = Run::honest();
    run.books.settled = false;
    run.books.audit.verdict = AuditVerdict::Unbalanced;
    assert_eq!(run.judge().verdict, Verdict::Violated);
}
