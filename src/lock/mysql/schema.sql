-- What the locks in MySQL and MariaDB need. Repeatable, and from several processes at once.
-- Names are bytes: in a text column 'a', 'A' and 'a ' would be one lock.

-- lease-row: a row is never deleted, so that its fence only grows.
create table if not exists stockade_lock (
    name       varbinary(255) not null primary key,
    -- The acquisition that holds it, or held it last.
    token      char(32) character set ascii collate ascii_bin not null,
    fence      bigint unsigned not null,
    -- By the database's clock, UTC; in the past: free.
    expires_at datetime(6) not null
) engine = InnoDB;

-- row-lock: the rows that are locked; nothing in them changes.
create table if not exists stockade_lock_row (
    name varbinary(255) not null primary key
) engine = InnoDB;

-- unique-row, the naive one: a row is there while the lock is held.
create table if not exists stockade_lock_unique (
    name varbinary(255) not null primary key
) engine = InnoDB;

-- The fence of row-lock and advisory: one row, drawn from by transactions of their own.
create table if not exists stockade_lock_fence (
    id    tinyint unsigned not null primary key,
    value bigint unsigned not null
) engine = InnoDB;

insert ignore into stockade_lock_fence (id, value) values (1, 0);
