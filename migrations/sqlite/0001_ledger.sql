-- The ledger: which units of a sale are taken, by which orders.
--
-- Contract. After every commit
--   * sale.taken     = sum of quantity over the sale's orders that are reserved or confirmed,
--     sale.confirmed = sum of quantity over those that are confirmed, and taken <= quantity;
--   * sale_change holds the numbers 1 .. sale.change_number of a sale without gaps;
--   * hold_group names each change whose reserved orders may still expire;
--   * stock_return names each ended order whose units Redis has not taken back.
--
-- The tables are those of migrations/postgres; the reasons that hold for both are told there too.
-- What differs: SQLite lets one transaction write at a time (begin immediate), which makes every
-- lock order trivial; and its types are few, so tables are strict, or a column would take anything.
--
-- Times are integer milliseconds since 1970.

create table sale (
    -- Never reused: order ids and keys in Redis contain it. That is what "autoincrement" adds to a
    -- primary key that would otherwise take the highest number there is, plus one.
    sale_id integer primary key autoincrement,
    product text not null,
    title text not null,
    price_minor integer not null,
    currency text not null,
    quantity integer not null,
    segments integer not null,
    per_buyer_limit integer not null,
    opens_at_ms integer,
    closes_at_ms integer,
    hold_seconds integer not null,
    strategy text not null,

    -- Words, not numbers: whoever looks into this table at night can read it.
    stage text not null default 'scheduled',
    -- There is no boolean in a strict table.
    paused integer not null default 0,
    closed integer not null default 0,
    drained integer not null default 0,
    control integer not null default 0,

    -- The fence: a commit must name it, and each load of stock into Redis raises it.
    epoch integer not null default 0,
    load_lease_until_ms integer,
    -- The newest epoch whose load was finished, hence the oldest one that can have sold anything that
    -- no later load has adopted. A loader may die between the fence and the adoption; the next one
    -- must not take the empty epoch in between for the one that sold.
    loaded_epoch integer not null default 0,

    -- Counters instead of sums over purchase_order: the guard "taken + n <= quantity" costs one
    -- row.
    taken integer not null default 0,
    confirmed integer not null default 0,
    change_number integer not null default 0,

    created_at_ms integer not null,

    constraint sale_id_in_32_bits check (sale_id between 1 and 4294967295),
    constraint sale_text_present check (product <> '' and title <> '' and strategy <> ''),
    constraint sale_price_not_negative check (price_minor >= 0),
    constraint sale_currency_is_a_code check (currency glob '[A-Z][A-Z][A-Z]'),
    constraint sale_quantity_positive check (quantity > 0),
    constraint sale_segments_positive check (segments > 0),
    constraint sale_limit_positive check (per_buyer_limit > 0),
    constraint sale_hold_not_negative check (hold_seconds >= 0),
    constraint sale_window_in_order check (closes_at_ms > opens_at_ms),
    constraint sale_flags_are_boolean
        check (paused in (0, 1) and closed in (0, 1) and drained in (0, 1)),
    constraint sale_stage_known check (stage in ('scheduled', 'loading', 'loaded')),
    -- A loader that dies is overtaken when its lease is over; without a lease it never could be.
    constraint sale_loading_has_a_lease
        check ((stage = 'loading') = (load_lease_until_ms is not null)),
    constraint sale_epoch_zero_until_loading check ((stage = 'scheduled') = (epoch = 0)),
    constraint sale_loaded_epoch_reached check (0 <= loaded_epoch and loaded_epoch <= epoch),
    constraint sale_loaded_when_finished check (stage <> 'loaded' or loaded_epoch = epoch),
    constraint sale_drained_is_closed check (closed or not drained),
    -- Not oversold. The guard in the update refuses first; this catches whatever forgets the guard.
    constraint sale_not_oversold
        check (0 <= confirmed and confirmed <= taken and taken <= quantity),
    constraint sale_control_not_negative check (control >= 0),
    constraint sale_change_number_not_negative check (change_number >= 0)
) strict;

-- What background work walks through: a shop's past sales grow without end, its live ones do not.
create index sale_live on sale (sale_id) where not drained;

-- One row per admitted purchase that reached the ledger. "order" is a reserved word of SQL.
--
-- There is no sale_id: an order id begins with the sale's number in 32 bits, most significant
-- first, so the orders of a sale are a range of the primary key. With sqlite3: sale 7 is
--   order_id between unhex('00000007') and unhex('00000007ffffffffffffffffffffffff').
-- A column would say the same thing again, and could say something else.
create table purchase_order (
    -- Made by the service from (sale, buyer, idempotency key), hence the same on every attempt.
    -- Sixteen bytes, not the 36 characters of a UUID: the id is in two indexes.
    order_id blob not null,
    created_at_ms integer not null,
    -- The same in all orders of one commit, so that they can expire together (hold_group). Stored
    -- and not computed from sale.hold_seconds: what a buyer was promised does not change.
    hold_expires_at_ms integer,
    finished_at_ms integer,
    quantity integer not null,
    state text not null,
    buyer_id text not null,

    constraint purchase_order_pk primary key (order_id),
    constraint purchase_order_id_is_16_bytes check (length(order_id) = 16),
    constraint purchase_order_quantity_positive check (quantity > 0),
    constraint purchase_order_buyer_within_bounds check (octet_length(buyer_id) between 1 and 128),
    constraint purchase_order_state_known
        check (state in ('reserved', 'confirmed', 'cancelled', 'expired', 'rejected')),
    constraint purchase_order_finished_unless_reserved
        check ((state = 'reserved') = (finished_at_ms is null)),
    constraint purchase_order_reserved_has_a_hold
        check (state <> 'reserved' or hold_expires_at_ms is not null)
) strict;

-- A buyer's orders, newest sale first. The only index beside the primary key: each one makes the
-- insert of an order, the hot path, dearer. Due holds and the feed need none, since hold_group and
-- sale_change have one row per transaction instead.
create index purchase_order_buyer on purchase_order (buyer_id, order_id);

-- The feed: what happened to which orders, in commit order. One row per transaction, not per order.
create table sale_change (
    sale_id integer not null,
    change_number integer not null,
    -- The state that these orders took.
    state text not null,
    at_ms integer not null,
    -- Their ids, sixteen bytes each, one after the other: there are no arrays, and JSON text would
    -- be twice as long.
    order_ids blob not null,

    constraint sale_change_pk primary key (sale_id, change_number),
    constraint sale_change_sale_fk foreign key (sale_id) references sale (sale_id),
    constraint sale_change_number_positive check (change_number > 0),
    constraint sale_change_has_orders
        check (length(order_ids) between 16 and 16000 and length(order_ids) % 16 = 0),
    constraint sale_change_state_known
        check (state in ('reserved', 'confirmed', 'cancelled', 'expired', 'rejected'))
) strict;

-- Groups of holds that may still end by expiry: the reserved orders of one change. The row goes
-- when the group is expired, so the table holds only work to do, and no index on the orders is
-- needed to find it.
create table hold_group (
    sale_id integer not null,
    -- Equal to hold_expires_at_ms of each order of the group: confirm judges by the order's value
    -- and expiry by the group's, and both must draw the line at the same instant.
    due_at_ms integer not null,
    change_number integer not null,

    constraint hold_group_pk primary key (sale_id, due_at_ms, change_number),
    constraint hold_group_change_fk
        foreign key (sale_id, change_number) references sale_change (sale_id, change_number)
) strict, without rowid;

-- Which sales have work to do, without walking through those that do not.
create index hold_group_due on hold_group (due_at_ms);

-- Units of ended orders on their way back to Redis. Written by the transaction that ends the order,
-- deleted after Redis has taken the units back, or by a load, whose stock includes them.
create table stock_return (
    -- Order of work. The order's id would be random, the time not unique.
    stock_return_id integer primary key,
    order_id blob not null,
    sale_id integer not null,
    -- The sale's epoch when the order ended. Redis must take back a return only into the load that
    -- counted the units as taken; a later load has counted them as free.
    epoch integer not null,
    buyer_id text not null,
    quantity integer not null,

    constraint stock_return_order_once unique (order_id),
    constraint stock_return_order_fk foreign key (order_id) references purchase_order (order_id),
    constraint stock_return_sale_fk foreign key (sale_id) references sale (sale_id),
    constraint stock_return_epoch_positive check (epoch > 0),
    constraint stock_return_quantity_positive check (quantity > 0)
) strict;
