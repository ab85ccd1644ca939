//! Statements that are the same in every database, and the lists of columns.
//!
//! Only what is word for word the same is here. Time is not: PostgreSQL has a function for it,
//! SQLite an expression.

/// The columns of a [`super::row::SaleRow`].
macro_rules! sale_columns {
    () => {
        "sale_id, product, title, price_minor, currency, quantity, segments, per_buyer_limit, \
         opens_at_ms, closes_at_ms, hold_seconds, strategy, stage, paused, closed, drained, \
         control, epoch, loaded_epoch, loaded_segments, taken, confirmed, created_at_ms"
    };
}

/// The columns of a [`super::row::OrderRow`].
macro_rules! order_columns {
    () => {
        "order_id, buyer_id, quantity, state, created_at_ms, hold_expires_at_ms, finished_at_ms"
    };
}

pub(super) use {order_columns, sale_columns};

/// $1 sale.
pub(super) const SALE: &str = concat!("select ", sale_columns!(), " from sale where sale_id = $1");

/// $1 the last sale of the page before, $2 limit.
pub(super) const SALES: &str = concat!(
    "select ",
    sale_columns!(),
    " from sale where sale_id > $1 order by sale_id limit $2"
);

/// $1 the last sale of the page before, $2 limit.
pub(super) const LIVE_SALES: &str = concat!(
    "select ",
    sale_columns!(),
    " from sale where not drained and sale_id > $1 order by sale_id limit $2"
);

/// $1 sale, $2 paused.
pub(super) const SET_PAUSED: &str = "
    update sale set paused = $2, control = control + 1
     where sale_id = $1 and paused <> $2";

/// $1 sale. A sale that was never loaded has nothing in Redis that anybody could wait for.
pub(super) const CLOSE: &str = "
    update sale set closed = true, control = control + 1, drained = (stage = 'scheduled')
     where sale_id = $1 and not closed";

/// $1 sale, $2 epoch.
pub(super) const SET_DRAINED: &str = "
    update sale set drained = true
     where sale_id = $1 and epoch = $2 and stage = 'loaded' and closed and not drained";

/// $1 sale, $2 quantity or null, $3 segments or null. By a transaction that has locked the row and
/// found that it may.
pub(super) const CHANGE_STOCK: &str = concat!(
    "update sale set quantity = coalesce($2, quantity), segments = coalesce($3, segments)
      where sale_id = $1 returning ",
    sale_columns!()
);

/// $1 buyer, $2 the last order of the page before, $3 limit.
pub(super) const BUYER_ORDERS: &str = concat!(
    "select ",
    order_columns!(),
    " from purchase_order where buyer_id = $1 and order_id < $2 order by order_id desc limit $3"
);

/// $1 the last order of the page before, $2 the sale's highest possible id, $3 limit.
pub(super) const SALE_ORDERS: &str = concat!(
    "select ",
    order_columns!(),
    " from purchase_order where order_id > $1 and order_id <= $2 order by order_id limit $3"
);

/// $1 sale, $2 change number, $3 limit.
pub(super) const CHANGES: &str = "
    select change_number, state, at_ms, order_ids from sale_change
     where sale_id = $1 and change_number >= $2 order by change_number limit $3";

/// $1 sale, $2 now, $3 limit. The oldest groups of holds that are over, with their orders.
pub(super) const DUE_GROUPS: &str = "
    select hold_group.change_number, sale_change.order_ids
      from hold_group
      join sale_change on sale_change.sale_id = hold_group.sale_id
                      and sale_change.change_number = hold_group.change_number
     where hold_group.sale_id = $1 and hold_group.due_at_ms <= $2
     order by hold_group.due_at_ms, hold_group.change_number limit $3";

/// $1 limit. A sale that is loading has no stock in Redis that could take units back, and a drained
/// one needs none.
pub(super) const RETURNS: &str = "
    select r.order_id, r.buyer_id, r.quantity, r.epoch
      from stock_return r
      join sale on sale.sale_id = r.sale_id and sale.epoch = r.epoch
     where sale.stage = 'loaded' and not sale.drained
     order by r.stock_return_id limit $1";

/// $1 sale, $2 limit.
pub(super) const SALE_RETURNS: &str = "
    select r.order_id, r.buyer_id, r.quantity, r.epoch
      from stock_return r
      join sale on sale.sale_id = r.sale_id and sale.epoch = r.epoch
     where r.sale_id = $1
     order by r.stock_return_id limit $2";

/// $1 sale. Units that Redis has still to take back.
pub(super) const RETURNING: &str = "
    select coalesce(cast(sum(r.quantity) as bigint), 0) from stock_return r
      join sale on sale.sale_id = r.sale_id and sale.epoch = r.epoch
     where r.sale_id = $1";

/// $1, $2 the sale's lowest and highest possible id.
pub(super) const SNAPSHOT: &str = "
    select order_id, buyer_id, quantity, state in ('reserved', 'confirmed') as active
      from purchase_order where order_id between $1 and $2";

/// $1 sale, $2 epoch.
pub(super) const FINISH_LOAD: &str = "
    update sale
       set stage = 'loaded', loaded_epoch = epoch, loaded_segments = segments,
           load_lease_until_ms = null
     where sale_id = $1 and epoch = $2 and stage = 'loading'";

/// $1 sale, $2 and $3 its lowest and highest possible id. One statement, so that it sees the sale's
/// counters and its orders at one moment.
pub(super) const COUNT: &str = concat!(
    "with buyer as (
        select coalesce(sum(quantity) filter (where state = 'reserved'), 0) as reserved,
               coalesce(sum(quantity) filter (where state = 'confirmed'), 0) as confirmed
          from purchase_order
         where order_id between $2 and $3 and state in ('reserved', 'confirmed')
         group by buyer_id
     )
     select ",
    sale_columns!(),
    ", (select cast(coalesce(sum(reserved), 0) as bigint) from buyer) as reserved_units
     , (select cast(coalesce(sum(confirmed), 0) as bigint) from buyer) as confirmed_units
     , (select count(*) from buyer where reserved + confirmed > sale.per_buyer_limit)
           as buyers_over_limit
     , (select cast(coalesce(sum(r.quantity), 0) as bigint) from stock_return r
         where r.sale_id = sale.sale_id and r.epoch = sale.epoch) as returning_units
      from sale where sale_id = $1"
);
