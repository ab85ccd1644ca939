//! Lists: complete, in their order, page by page.

use super::fixture::{
    LONG_HOLD, all_orders, audit, buyer, commit, keyed, loaded_sale, order_now, purchase, singles,
    terms,
};
use crate::domain::{Order, SaleId};
use crate::ledger::{Ledger, PAGE_MAX};

/// The newest sale first, nothing of others, nothing twice.
pub async fn a_buyers_orders_come_newest_sale_first(ledger: &Ledger) {
    let first = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    let second = loaded_sale(ledger, 9, 0).await.id;
    let name = format!("list-{first}");
    let mut expected = Vec::new();
    for (sale, key) in [
        (first, "1"),
        (first, "2"),
        (first, "3"),
        (second, "1"),
        (second, "2"),
    ] {
        commit(
            ledger,
            sale,
            1,
            &[keyed(sale, &name, key, 1), purchase(sale, key, 1)],
        )
        .await;
        expected.push(order_now(ledger, keyed(sale, &name, key, 1).order).await);
    }
    expected.sort_by_key(|order| std::cmp::Reverse(order.id));
    for limit in 1..=6 {
        let (mut read, mut after): (Vec<Order>, _) = (Vec::new(), None);
        loop {
            let page = ledger
                .buyer_orders(&buyer(&name), after, limit)
                .await
                .expect("orders");
            assert!(page.orders.len() <= limit as usize, "{page:?}");
            read.extend(page.orders);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(read, expected, "pages of {limit}");
    }
    assert!(expected[0].id.sale() == second, "the newest sale first");
    let nobody = ledger
        .buyer_orders(&buyer("nobody at all"), None, 9)
        .await
        .expect("orders");
    assert!(
        nobody.orders.is_empty() && nobody.next.is_none(),
        "{nobody:?}"
    );
}

/// By id, without those of the sales beside it.
pub async fn a_sales_orders_are_its_own(ledger: &Ledger) {
    let mut sales = Vec::new();
    for quantity in [20, 21, 22] {
        let sale = loaded_sale(ledger, quantity, LONG_HOLD).await.id;
        commit(ledger, sale, 1, &singles(sale, 0..quantity)).await;
        sales.push((sale, quantity));
    }
    for (sale, quantity) in sales {
        let orders = all_orders(ledger, sale).await;
        assert_eq!(orders.len(), quantity as usize);
        assert!(
            orders.is_sorted_by(|a, b| a.id < b.id),
            "ascending, none twice"
        );
        assert!(orders.iter().all(|order| order.id.sale() == sale));
        audit(ledger, sale).await;
    }
    let missing = SaleId::new(4_000_000_003).expect("a number");
    assert!(all_orders(ledger, missing).await.is_empty());
}

/// Whatever the caller asks for.
pub async fn a_page_has_a_largest_size(ledger: &Ledger) {
    let sale = loaded_sale(ledger, PAGE_MAX + 1, 0).await.id;
    commit(ledger, sale, 1, &singles(sale, 0..PAGE_MAX)).await;
    commit(ledger, sale, 1, &singles(sale, PAGE_MAX..PAGE_MAX + 1)).await;
    let page = ledger
        .sale_orders(sale, None, u32::MAX)
        .await
        .expect("orders");
    assert_eq!(page.orders.len(), PAGE_MAX as usize);
    let rest = ledger
        .sale_orders(sale, page.next, u32::MAX)
        .await
        .expect("orders");
    assert_eq!((rest.orders.len(), rest.next), (1, None));
}

/// Those that exist, whatever else was asked for.
pub async fn orders_are_found_by_id(ledger: &Ledger) {
    let sale = loaded_sale(ledger, 9, LONG_HOLD).await.id;
    let mut bought: Vec<_> = commit(ledger, sale, 1, &singles(sale, 0..3)).await;
    let ids: Vec<_> = singles(sale, 0..6)
        .iter()
        .map(|purchase| purchase.order)
        .collect();
    let mut found = ledger.orders(&ids).await.expect("orders");
    found.sort_by_key(|order| order.id);
    bought.sort_by_key(|done| done.order.id);
    assert_eq!(
        found,
        bought
            .into_iter()
            .map(|done| done.order)
            .collect::<Vec<_>>()
    );
    assert!(ledger.orders(&[]).await.expect("orders").is_empty());
    assert!(ledger.order(ids[5]).await.expect("order").is_none());
}

/// All sales, and those that background work has to look at.
pub async fn sales_are_listed_by_number(ledger: &Ledger) {
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(ledger.create_sale(&terms(1, 0)).await.expect("create").id);
    }
    assert!(made.is_sorted_by(|a, b| a < b), "numbers grow: {made:?}");
    ledger.close_sale(made[2]).await.expect("close");
    let (mut all, mut live) = (Vec::new(), Vec::new());
    let before = SaleId::new(i64::from(made[0].get()) - 1).ok();
    let mut after = before;
    loop {
        let page = ledger.sales(after, 2).await.expect("sales");
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        all.extend(page.into_iter().map(|sale| sale.id));
    }
    after = before;
    loop {
        let page = ledger.live_sales(after, 2).await.expect("sales");
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        live.extend(page.into_iter().map(|sale| sale.id));
    }
    assert!(all.is_sorted_by(|a, b| a < b) && live.is_sorted_by(|a, b| a < b));
    assert!(
        made.iter().all(|sale| all.contains(sale)),
        "{made:?} in {all:?}"
    );
    let living: Vec<_> = made.iter().filter(|sale| live.contains(sale)).collect();
    assert_eq!(
        living,
        [&made[0], &made[1], &made[3], &made[4]],
        "one is drained"
    );
    assert!(ledger.sales(None, u32::MAX).await.expect("sales").len() <= PAGE_MAX as usize);
}
