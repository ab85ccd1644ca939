-- What the locks in PostgreSQL need. Repeatable, and from several processes at once: all of it is one transaction,
-- and the number is nobody else's.

select pg_advisory_xact_lock(8319104478);

-- lease-row: a row is never deleted, so that its fence only grows.
create table if not exists stockade_lock (
    name       text        not null primary key,
    -- The acquisition that holds it, or held it last.
    token      text        not null,
    fence      bigint      not null,
    -- By the database's clock; in the past: free.
    expires_at timestamptz not null
);

-- row-lock: the rows that are locked; nothing in them changes.
create table if not exists stockade_lock_row (
    name text not null primary key
);

-- unique-row, the naive one: a row is there while the lock is held.
create table if not exists stockade_lock_unique (
    name text not null primary key
);

-- The fence of row-lock and advisory: a sequence, since what a transaction writes is undone with it.
create sequence if not exists stockade_lock_fence;

-- Values that only the latest holder of a lock can change.
create table if not exists stockade_fenced_value (
    name  text   not null primary key,
    -- The largest that has read or written it.
    fence bigint not null,
    value text   not null
);
