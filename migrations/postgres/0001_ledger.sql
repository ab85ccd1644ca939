-- The ledger: which units of a sale are taken, by which orders.
--
-- Contract. After every commit
--   * sale.taken     = sum of quantity over the sale's orders that are reserved or confirmed,
--     sale.confirmed = sum of quantity over those that are confirmed, and taken <= quantity;
--   * sale_change holds the numbers 1 .. sale.change_number of a sale without gaps;
--   * hold_group names each change whose reserved orders may still expire;
--   * stock_return names each ended order whose units Redis has not taken back.
--
-- Lock order of every transaction: rows that it inserts into purchase_order, by ascending id; then
-- the sale's row; then orders that were there before. Whoever changes an order that was there
-- before holds the sale's row, so that row is also the only lock that such a change needs.
--
-- Times are bigint milliseconds since 1970, not timestamptz: they cross Redis, JSON and two
-- databases as integers, and a time zone could only spoil that.

-- The one clock of holds and orders. clock_timestamp(), not now(): now() stands still from the
-- beginning of the transaction, which may have waited for the sale's row for a long time since.
create function now_ms() returns bigint
    language sql volatile parallel safe
    return floor(extract(epoch from clock_timestamp()) * 1000)::bigint;

create table sale (
    -- Never reused: order ids and keys in Redis contain it. 32 bits, since an order id begins with
    -- it. "always": an id that somebody chose by hand would collide with the sequence later.
    sale_id bigint generated always as identity (maxvalue 4294967295),
    product text not null,
    title text not null,
    price_minor bigint not null,
    currency text not null,
    quantity integer not null,
    segments integer not null,
    per_buyer_limit integer not null,
    opens_at_ms bigint,
    closes_at_ms bigint,
    hold_seconds integer not null,
    strategy text not null,

    -- Words, not numbers: whoever looks into this table at night can read it. Nor an enum type: a
    -- value can be added to one but never taken away.
    stage text not null default 'scheduled',
    paused boolean not null default false,
    closed boolean not null default false,
    drained boolean not null default false,
    control bigint not null default 0,

    -- The fence: a commit must name it, and each load of stock into Redis raises it.
    epoch bigint not null default 0,
    load_lease_until_ms bigint,
    -- The newest epoch whose load was finished, hence the oldest one that can have sold anything that
    -- no later load has adopted. A loader may die between the fence and the adoption; the next one
    -- must not take the empty epoch in between for the one that sold.
    loaded_epoch bigint not null default 0,

    -- Counters instead of sums over purchase_order: the guard "taken + n <= quantity" costs one
    -- row. Every commit of a sale thereby meets in this row. That is bearable because a commit
    -- takes hundreds of orders at once; rows of the sale per segment would need a second way to
    -- move units between them.
    taken bigint not null default 0,
    confirmed bigint not null default 0,
    change_number bigint not null default 0,

    created_at_ms bigint not null default now_ms(),

    constraint sale_pk primary key (sale_id),
    constraint sale_id_in_32_bits check (sale_id between 1 and 4294967295),
    constraint sale_text_present check (product <> '' and title <> '' and strategy <> ''),
    constraint sale_price_not_negative check (price_minor >= 0),
    constraint sale_currency_is_a_code check (currency ~ '^[A-Z]{3}$'),
    constraint sale_quantity_positive check (quantity > 0),
    constraint sale_segments_positive check (segments > 0),
    constraint sale_limit_positive check (per_buyer_limit > 0),
    constraint sale_hold_not_negative check (hold_seconds >= 0),
    constraint sale_window_in_order check (closes_at_ms > opens_at_ms),
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
)
-- The row is rewritten by every commit. Free space in its page lets PostgreSQL put the new version
-- beside the old one (HOT), without touching the index.
with (fillfactor = 50);

-- What background work walks through: a shop's past sales grow without end, its live ones do not.
create index sale_live on sale (sale_id) where not drained;

-- One row per admitted purchase that reached the ledger. "order" is a reserved word of SQL.
--
-- There is no sale_id: an order id begins with the sale's number in 32 bits, most significant
-- first, so the orders of a sale are a range of the primary key. With psql: sale 7 is
--   order_id between '00000007-0000-0000-0000-000000000000'
--                and '00000007-ffff-ffff-ffff-ffffffffffff'.
-- A column would say the same thing again, and could say something else. Nor is there a foreign
-- key: it would lock the sale's row once per order. The guard, which must change the sale's row in
-- the same transaction, asserts that the sale exists.
create table purchase_order (
    -- Made by the service from (sale, buyer, idempotency key), hence the same on every attempt.
    order_id uuid not null,
    created_at_ms bigint not null,
    -- The same in all orders of one commit, so that they can expire together (hold_group). Stored
    -- and not computed from sale.hold_seconds: what a buyer was promised does not change.
    hold_expires_at_ms bigint,
    finished_at_ms bigint,
    quantity integer not null,
    state text not null,
    buyer_id text not null,

    constraint purchase_order_pk primary key (order_id),
    constraint purchase_order_quantity_positive check (quantity > 0),
    constraint purchase_order_buyer_within_bounds check (octet_length(buyer_id) between 1 and 128),
    constraint purchase_order_state_known
        check (state in ('reserved', 'confirmed', 'cancelled', 'expired', 'rejected')),
    constraint purchase_order_finished_unless_reserved
        check ((state = 'reserved') = (finished_at_ms is null)),
    constraint purchase_order_reserved_has_a_hold
        check (state <> 'reserved' or hold_expires_at_ms is not null)
);

-- A buyer's orders, newest sale first. The only index beside the primary key: each one costs the
-- insert of an order, the hot path, about a third more. Due holds and the feed need none, since
-- hold_group and sale_change have one row per transaction instead.
create index purchase_order_buyer on purchase_order (buyer_id, order_id);

-- The feed: what happened to which orders, in commit order. One row per transaction and not per
-- order: a row with five hundred ids costs a tenth of five hundred rows.
--
-- The number is taken from the sale's row, whose lock is held until the commit. A sequence would
-- hand out numbers before commits, and a reader that has seen 8 could miss 7, which commits later.
create table sale_change (
    sale_id bigint not null,
    change_number bigint not null,
    -- The state that these orders took.
    state text not null,
    at_ms bigint not null,
    order_ids uuid[] not null,

    constraint sale_change_pk primary key (sale_id, change_number),
    constraint sale_change_sale_fk foreign key (sale_id) references sale (sale_id),
    constraint sale_change_number_positive check (change_number > 0),
    constraint sale_change_has_orders check (cardinality(order_ids) between 1 and 1000),
    constraint sale_change_state_known
        check (state in ('reserved', 'confirmed', 'cancelled', 'expired', 'rejected'))
);

-- Ids are hashes: trying to compress them costs time and gains nothing.
alter table sale_change alter column order_ids set storage external;

-- Groups of holds that may still end by expiry: the reserved orders of one change. The row goes
-- when the group is expired, so the table holds only work to do, and no index on the orders is
-- needed to find it. Groups are taken by their time, not by their number: of two concurrent commits
-- the later number may carry the earlier time, since the clock is read before the sale's row is
-- locked.
create table hold_group (
    sale_id bigint not null,
    -- Equal to hold_expires_at_ms of each order of the group: confirm judges by the order's value
    -- and expiry by the group's, and both must draw the line at the same instant.
    due_at_ms bigint not null,
    change_number bigint not null,

    constraint hold_group_pk primary key (sale_id, due_at_ms, change_number),
    constraint hold_group_change_fk
        foreign key (sale_id, change_number) references sale_change (sale_id, change_number)
);

-- Which sales have work to do, without walking through those that do not.
create index hold_group_due on hold_group (due_at_ms);

-- Units of ended orders on their way back to Redis. Written by the transaction that ends the order,
-- deleted after Redis has taken the units back, or by a load, whose stock includes them.
create table stock_return (
    -- Order of work. The order's id would be random, the time not unique.
    stock_return_id bigint generated always as identity,
    order_id uuid not null,
    sale_id bigint not null,
    -- The sale's epoch when the order ended. Redis must take back a return only into the load that
    -- counted the units as taken; a later load has counted them as free.
    epoch bigint not null,
    buyer_id text not null,
    quantity integer not null,

    constraint stock_return_pk primary key (stock_return_id),
    constraint stock_return_order_once unique (order_id),
    constraint stock_return_order_fk foreign key (order_id) references purchase_order (order_id),
    constraint stock_return_sale_fk foreign key (sale_id) references sale (sale_id),
    constraint stock_return_epoch_positive check (epoch > 0),
    constraint stock_return_quantity_positive check (quantity > 0)
);
