//! Sales: what an admin does with them, once or repeatedly.

use std::time::{SystemTime, UNIX_EPOCH};

use super::fixture::{
    LONG_HOLD, LONG_LEASE, audit, commit, expire_to_the_end, loaded_sale, my_returns, sale_now,
    singles, terms,
};
use crate::domain::{NewSale, SaleId, Stage, Timestamp};
use crate::ledger::Ledger;

fn at(millis: i64) -> Option<Timestamp> {
    Some(Timestamp::from_millis(millis).expect("a time"))
}

/// The database's now, as a new sale has it.
async fn now_ms(ledger: &Ledger) -> i64 {
    ledger
        .create_sale(&terms(1, 0))
        .await
        .expect("create")
        .created_at
        .millis()
}

/// Every term comes back, also the odd ones.
pub async fn a_sale_is_stored_as_it_was_given(ledger: &Ledger) {
    let plain = terms(1, 0);
    let odd = NewSale {
        product: "買家's \"sku\" \\ %s $1 ?".into(),
        title: "手机 📱".into(),
        price_minor: 0,
        quantity: 1_000_000_000,
        segments: 256,
        per_buyer_limit: 1_000_000_000,
        opens_at: at(1),
        closes_at: at(253_402_300_799_999),
        hold_seconds: 2_592_000,
        ..plain.clone()
    };
    for terms in [plain, odd] {
        let made = ledger.create_sale(&terms).await.expect("create");
        assert_eq!(made.terms, terms);
        assert_eq!(
            (made.stage, made.epoch, made.control),
            (Stage::Scheduled, 0, 0)
        );
        assert_eq!(
            (made.paused, made.closed, made.drained),
            (false, false, false)
        );
        assert_eq!((made.taken, made.confirmed), (0, 0));
        assert_eq!(sale_now(ledger, made.id).await, made);
    }
}

/// Since 1970, in UTC. The clocks of this machine and of the database may differ, but not by a day.
pub async fn times_are_milliseconds(ledger: &Ledger) {
    let here = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let mut times = Vec::new();
    for _ in 0..20 {
        times.push(now_ms(ledger).await);
    }
    let day_ms = 24 * 3_600 * 1_000;
    let here_ms = i64::try_from(here.as_millis()).expect("before the year 292 million");
    assert!(
        times.iter().all(|there| (there - here_ms).abs() < day_ms),
        "{times:?}"
    );
    assert!(
        times.iter().any(|there| there % 1_000 != 0),
        "whole seconds: {times:?}"
    );
}

/// Each call says how the sale is; `control` counts what has changed, not what was called.
pub async fn pause_and_resume_can_be_repeated(ledger: &Ledger) {
    let sale = ledger.create_sale(&terms(1, 0)).await.expect("create").id;
    for (paused, control) in [
        (false, 0),
        (true, 1),
        (true, 1),
        (false, 2),
        (false, 2),
        (true, 3),
    ] {
        let now = ledger
            .set_paused(sale, paused)
            .await
            .expect("pause")
            .expect("sale");
        assert_eq!((now.paused, now.control), (paused, control));
        assert_eq!(sale_now(ledger, sale).await, now);
    }
}

/// The opening moves to now if it was still to come, and stays where it is afterwards.
pub async fn a_sale_is_opened_once(ledger: &Ledger) {
    let before = now_ms(ledger).await;
    let future = at(before + 3_600_000);
    for opens_at in [None, future] {
        let terms = NewSale {
            opens_at,
            ..terms(1, 0)
        };
        let sale = ledger.create_sale(&terms).await.expect("create").id;
        let opened = ledger.open_now(sale).await.expect("open").expect("sale");
        let instant = opened.terms.opens_at.expect("opened").millis();
        assert!(
            (before..before + 3_600_000).contains(&instant),
            "{instant} from {before}"
        );
        assert_eq!(opened.control, 1);
        assert_eq!(
            ledger.open_now(sale).await.expect("open"),
            Some(opened),
            "again"
        );
    }
    let past = NewSale {
        opens_at: at(1),
        ..terms(1, 0)
    };
    let sale = ledger.create_sale(&past).await.expect("create");
    assert_eq!(
        ledger.open_now(sale.id).await.expect("open"),
        Some(sale),
        "open for long"
    );
}

/// One that is over, or has to be, stays as it is.
pub async fn a_sale_that_is_over_is_not_opened(ledger: &Ledger) {
    let past = NewSale {
        closes_at: at(2),
        ..terms(1, 0)
    };
    let overdue = ledger.create_sale(&past).await.expect("create");
    let opened = ledger
        .open_now(overdue.id)
        .await
        .expect("open")
        .expect("sale");
    assert_eq!(opened.terms.opens_at, None);
    let sale = ledger.create_sale(&terms(1, 0)).await.expect("create").id;
    let closed = ledger.close_sale(sale).await.expect("close");
    assert_eq!(ledger.open_now(sale).await.expect("open"), closed);
}

/// For good; orders live on.
pub async fn a_sale_is_closed_once(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, LONG_HOLD).await;
    let order = commit(ledger, sale.id, 1, &singles(sale.id, 0..1))
        .await
        .remove(0)
        .order;
    let closed = ledger
        .close_sale(sale.id)
        .await
        .expect("close")
        .expect("sale");
    assert_eq!(
        (closed.closed, closed.drained, closed.control),
        (true, false, 1)
    );
    assert_eq!(
        ledger.close_sale(sale.id).await.expect("close"),
        Some(closed),
        "again"
    );
    commit(ledger, sale.id, 1, &singles(sale.id, 1..2)).await;
    ledger.confirm(order.id).await.expect("confirm");
    let now = audit(ledger, sale.id).await;
    assert_eq!(
        (now.taken, now.confirmed),
        (2, 1),
        "what was admitted before is still committed"
    );
}

/// By the database's clock, each once.
pub async fn sales_are_closed_when_their_time_has_come(ledger: &Ledger) {
    let now = now_ms(ledger).await;
    let due = NewSale {
        closes_at: at(now),
        ..terms(1, 0)
    };
    let later = NewSale {
        closes_at: at(now + 3_600_000),
        ..terms(1, 0)
    };
    let due = ledger.create_sale(&due).await.expect("create").id;
    let later = ledger.create_sale(&later).await.expect("create").id;
    let never = ledger.create_sale(&terms(1, 0)).await.expect("create").id;
    ledger.close_due().await.expect("close");
    ledger.close_due().await.expect("close");
    let closed = sale_now(ledger, due).await;
    assert_eq!(
        (closed.closed, closed.drained, closed.control),
        (true, true, 1)
    );
    for living in [later, never] {
        assert!(!sale_now(ledger, living).await.closed, "sale {living}");
    }
}

/// Nothing of it is in Redis.
pub async fn a_sale_that_was_never_loaded_is_drained_when_closed(ledger: &Ledger) {
    let sale = ledger.create_sale(&terms(1, 0)).await.expect("create").id;
    let closed = ledger.close_sale(sale).await.expect("close").expect("sale");
    assert!(closed.drained);
    let begun = ledger.create_sale(&terms(1, 0)).await.expect("create").id;
    assert!(ledger.fence(begun, 0, LONG_LEASE).await.expect("fence"));
    let closed = ledger
        .close_sale(begun)
        .await
        .expect("close")
        .expect("sale");
    assert!(!closed.drained, "a load has begun");
}

/// Closed, loaded, and under the epoch that the caller has looked at.
pub async fn a_sale_is_drained_only_under_its_epoch(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, LONG_HOLD).await.id;
    let drained = async |epoch| ledger.set_drained(sale, epoch).await.expect("drain");
    assert!(!drained(1).await, "not closed");
    ledger.close_sale(sale).await.expect("close");
    assert!(!drained(0).await && !drained(2).await, "another epoch");
    assert!(ledger.fence(sale, 1, LONG_LEASE).await.expect("fence"));
    assert!(!drained(2).await, "loading");
    assert!(ledger.finish_load(sale, 2).await.expect("finish"));
    let control = sale_now(ledger, sale).await.control;
    assert!(drained(2).await);
    assert!(
        drained(2).await && drained(7).await,
        "it is drained, whoever asks"
    );
    assert_eq!(
        sale_now(ledger, sale).await.control,
        control,
        "Redis need not know"
    );
    assert!(
        !ledger.fence(sale, 2, LONG_LEASE).await.expect("fence"),
        "never loaded again"
    );
    let missing = SaleId::new(4_000_000_004).expect("a number");
    assert!(!ledger.set_drained(missing, 0).await.expect("drain"));
}

/// Its orders still end; nothing goes back to a stock that nobody sells from.
pub async fn units_of_a_drained_sale_stay_in_the_ledger(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 5, 1).await.id;
    let orders = commit(ledger, sale, 1, &singles(sale, 0..3)).await;
    ledger.cancel(orders[0].order.id).await.expect("cancel");
    assert_eq!(my_returns(ledger, sale).await.len(), 1);
    ledger.close_sale(sale).await.expect("close");
    assert!(ledger.set_drained(sale, 1).await.expect("drain"));
    assert!(
        my_returns(ledger, sale).await.is_empty(),
        "nobody waits for the return"
    );
    let (_, returned) = ledger.cancel(orders[1].order.id).await.expect("cancel");
    assert_eq!(returned, None);
    assert!(
        expire_to_the_end(ledger, sale).await.is_empty(),
        "a return of a drained sale"
    );
    assert!(my_returns(ledger, sale).await.is_empty());
    let count = ledger.count(sale).await.expect("count").expect("sale");
    assert_eq!(count.returning, 0);
    audit(ledger, sale).await;
}

/// Calls about a sale that is not there say so.
pub async fn a_missing_sale_is_none(ledger: &Ledger) {
    let missing = SaleId::new(4_000_000_005).expect("a number");
    assert!(ledger.sale(missing).await.expect("sale").is_none());
    assert!(
        ledger
            .set_paused(missing, true)
            .await
            .expect("pause")
            .is_none()
    );
    assert!(ledger.open_now(missing).await.expect("open").is_none());
    assert!(ledger.close_sale(missing).await.expect("close").is_none());
    assert!(ledger.count(missing).await.expect("count").is_none());
    assert!(
        ledger
            .changes(missing, 1, 9)
            .await
            .expect("changes")
            .is_empty()
    );
}

/// By orders, not by counters: also who holds more than the limit.
pub async fn a_count_tells_who_is_over_the_limit(ledger: &Ledger) {
    use super::fixture::{keyed, purchase};
    // The limit is two units.
    let sale = loaded_sale(ledger, 50, LONG_HOLD).await.id;
    let group = [
        purchase(sale, "within", 2),
        purchase(sale, "over", 3),
        keyed(sale, "twice", "1", 2),
        keyed(sale, "twice", "2", 1),
        purchase(sale, "cancelled", 9),
    ];
    let orders = commit(ledger, sale, 1, &group).await;
    ledger.cancel(orders[4].order.id).await.expect("cancel");
    ledger.confirm(orders[2].order.id).await.expect("confirm");
    let count = ledger.count(sale).await.expect("count").expect("sale");
    assert_eq!(count.buyers_over_limit, 2, "over, twice");
    assert_eq!(
        (count.reserved, count.confirmed, count.returning),
        (6, 2, 9)
    );
}
