//! The locks in SQL databases.

use super::{Capabilities, Entry, Fencing, LEASE, NOTHING, Sentence};

const POSTGRES_CONFLICT_PAGE: &str = "https://www.postgresql.org/docs/15/sql-insert.html";
const POSTGRES_LOCKING_PAGE: &str = "https://www.postgresql.org/docs/15/explicit-locking.html";

/// A lock that lasts as long as a connection to a database.
const CONNECTION: Capabilities = Capabilities {
    fencing: Fencing::Durable,
    extends: true,
    survives_pause: true,
    ..NOTHING
};

pub(super) const UNIQUE_ROW: Entry = Entry {
    name: "unique-row",
    naive: true,
    promise: Sentence {
        en: "Whoever inserts the row holds the lock; deleting it frees it.",
        zh: "插入唯一行者持有锁，删除该行即释放。",
    },
    breaks: Sentence {
        en: "A holder that dies leaves its row behind for ever; anybody's delete frees it.",
        zh: "持有者崩溃后行永远留下；任何人的删除都会释放它。",
    },
    source: POSTGRES_CONFLICT_PAGE,
    capabilities: Capabilities {
        survives_pause: true,
        ..NOTHING
    },
};

pub(super) const LEASE_ROW: Entry = Entry {
    name: "lease-row",
    naive: false,
    promise: Sentence {
        en: "One holder per lease, by the database's clock; its fence outlives restarts.",
        zh: "按数据库时钟，每个租约只有一个持有者；围栏令牌在重启后依然递增。",
    },
    breaks: Sentence {
        en: "A pause beyond the lease: two work at once, and the fence in the same database refuses the stale one.",
        zh: "停顿超过租约：两人同时工作，但同库中的围栏令牌会拒绝过期者。",
    },
    source: POSTGRES_CONFLICT_PAGE,
    capabilities: Capabilities {
        fencing: Fencing::Durable,
        ..LEASE
    },
};

pub(super) const ROW_LOCK: Entry = Entry {
    name: "row-lock",
    naive: false,
    promise: Sentence {
        en: "One holder as long as its transaction lasts, however long it pauses.",
        zh: "事务存续期间只有一个持有者，停顿多久都不影响。",
    },
    breaks: Sentence {
        en: "The end of the connection: the lock goes with it, and what was not committed too.",
        zh: "连接断开：锁随之释放，未提交的内容也一并作废。",
    },
    source: POSTGRES_LOCKING_PAGE,
    capabilities: CONNECTION,
};

pub(super) const ADVISORY: Entry = Entry {
    name: "advisory",
    naive: false,
    promise: Sentence {
        en: "One holder as long as its session lasts, however long it pauses.",
        zh: "会话存续期间只有一个持有者，停顿多久都不影响。",
    },
    breaks: Sentence {
        en: "The end of the connection; a pool that hands it on; a standby that is promoted knows of no lock.",
        zh: "连接断开；连接池把它交给别人；被提升的备库不知道任何锁。",
    },
    source: POSTGRES_LOCKING_PAGE,
    capabilities: CONNECTION,
};
