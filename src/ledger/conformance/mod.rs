//! The contract of [`Ledger`] as cases: what each database must do, said once.
//!
//! Each case is a plain function whose name is the sentence that it checks; it panics if the
//! sentence is false. It makes its own sales, so cases may run beside each other in one database,
//! and those of one database are to run like that: what holds only while nobody else is at work
//! does not hold.
//!
//! Nearly all cases end in the fixture's audit: the counters equal the sums over the orders, the
//! feed has no gap, and replayed from its beginning it leads to the orders as they are.

pub mod epoch;
pub mod expiry;
pub mod feed;
mod fixture;
pub mod guard;
pub mod list;
pub mod load;
pub mod race;
pub mod reject;
pub mod sale;
pub mod scheduled;
pub mod stock_change;
pub mod transition;

use std::fmt;
use std::pin::Pin;

use super::Ledger;

/// One sentence of the contract.
pub struct Case {
    /// The function's name.
    pub name: &'static str,
    /// Runs the case. The future stays on its thread; what must run beside each other in a case is
    /// spawned by it.
    pub run: for<'a> fn(&'a Ledger) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Lists cases by module and name.
macro_rules! list {
    ($($theme:ident: $($case:ident),+ $(,)?;)+) => {
        [$($(Case {
            name: concat!(stringify!($theme), "::", stringify!($case)),
            run: |ledger| Box::pin($theme::$case(ledger)),
        }),+),+]
    };
}

/// Every case that needs nothing but a migrated ledger.
#[must_use]
pub fn cases() -> Vec<Case> {
    list! {
        guard:
            units_are_taken_up_to_the_last_and_no_further,
            a_group_commits_whole_or_not_at_all,
            repeats_make_one_order_and_count_once,
            a_group_of_known_and_new_purchases_counts_the_new_ones,
            known_purchases_are_answered_when_nothing_could_commit,
            an_empty_group_changes_nothing,
            the_largest_group_commits,
            without_holds_an_order_is_confirmed_at_once,
            concurrent_commits_sell_each_unit_once,
            a_purchase_of_another_sale_is_refused,
            purchases_of_a_missing_sale_are_no_fault_of_theirs;
        epoch:
            nothing_of_an_older_epoch_commits,
            a_fence_overtakes_commits_under_way,
            one_of_many_fences_wins,
            a_fence_needs_the_current_epoch_of_a_living_sale,
            a_lease_keeps_other_loaders_out_while_it_lasts,
            a_load_is_overtaken_only_before_its_end,
            an_overtaken_loader_changes_nothing,
            the_end_of_a_load_can_be_repeated,
            the_newest_finished_load_is_remembered;
        load:
            adopted_purchases_are_taken_as_long_as_they_fit,
            adoption_can_be_repeated,
            holds_of_adopted_orders_begin_at_the_adoption,
            adoption_and_late_writers_do_not_block_each_other,
            a_snapshot_has_every_order_of_the_sale,
            a_snapshot_absorbs_the_returns_before_it,
            absorbing_and_deleting_returns_do_not_block_each_other;
        stock_change:
            a_load_changes_quantity_and_segments,
            the_guard_moves_with_the_quantity,
            a_change_from_another_quantity_is_stale,
            units_in_active_orders_are_not_withdrawn,
            all_units_that_are_free_can_be_withdrawn,
            an_overtaken_loader_changes_no_terms,
            the_segments_of_the_newest_finished_load_are_remembered,
            terms_beyond_their_bounds_change_nothing;
        scheduled:
            a_sale_that_was_never_loaded_is_changed_at_once,
            a_change_of_a_scheduled_sale_can_be_stale,
            a_sale_that_is_not_scheduled_is_left_as_it_is,
            one_of_many_changes_from_one_quantity_wins,
            a_change_comes_before_the_first_load_or_not_at_all;
        transition:
            every_state_answers_confirm_and_cancel,
            orders_that_end_together_are_answered_one_by_one,
            an_order_that_is_not_there_is_missing,
            units_of_a_cancelled_order_are_free_again,
            a_return_stays_until_it_is_done,
            returns_come_in_the_order_of_their_orders_ends;
        expiry:
            holds_expire_at_their_instant,
            holds_of_many_commits_expire_together_oldest_first,
            no_more_orders_expire_at_once_than_commit_at_once,
            to_confirm_an_order_whose_hold_is_over_expires_it,
            an_order_whose_hold_is_over_can_still_be_cancelled,
            a_confirmed_order_does_not_expire;
        reject:
            a_rejected_purchase_is_recorded_once,
            to_reject_an_order_leaves_it_as_it_is,
            units_of_an_older_epoch_are_not_given_back;
        race:
            confirm_and_cancel_have_one_winner,
            confirm_cancel_and_expiry_have_one_winner,
            concurrent_sweepers_expire_each_order_once;
        feed:
            changes_tell_what_happened_in_commit_order,
            changes_are_read_from_any_number,
            a_reader_misses_no_change_of_concurrent_writers;
        list:
            a_buyers_orders_come_newest_sale_first,
            a_sales_orders_are_its_own,
            a_page_has_a_largest_size,
            orders_are_found_by_id,
            sales_are_listed_by_number;
        sale:
            a_sale_is_stored_as_it_was_given,
            times_are_milliseconds,
            pause_and_resume_can_be_repeated,
            a_sale_is_opened_once,
            a_sale_that_is_over_is_not_opened,
            a_sale_is_closed_once,
            sales_are_closed_when_their_time_has_come,
            a_sale_that_was_never_loaded_is_drained_when_closed,
            a_sale_is_drained_only_under_its_epoch,
            units_of_a_drained_sale_stay_in_the_ledger,
            a_missing_sale_is_none,
            a_count_tells_who_is_over_the_limit;
    }
    .into()
}
