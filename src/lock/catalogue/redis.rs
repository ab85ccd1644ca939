//! The locks in Redis, the naive ones first.

use super::{Capabilities, Entry, Fencing, LEASE, NOTHING, Sentence};

const SETNX_PAGE: &str = "https://redis.io/docs/latest/commands/setnx/";
const REDIS_LOCKS_PAGE: &str =
    "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/";
const REDISSON_PAGE: &str = "https://redisson.pro/docs/data-and-services/locks-and-synchronizers/";

pub(super) const SETNX: Entry = Entry {
    name: "setnx",
    naive: true,
    promise: Sentence {
        en: "One holder at a time, as long as every holder lives to release it.",
        zh: "只要每个持有者都活着释放，同一时刻只有一个持有者。",
    },
    breaks: Sentence {
        en: "A holder that dies: the key has no expiry, and nobody ever gets the lock again.",
        zh: "持有者崩溃：键没有过期时间，从此谁也拿不到锁。",
    },
    source: SETNX_PAGE,
    capabilities: Capabilities {
        survives_pause: true,
        ..NOTHING
    },
};

pub(super) const SETNX_EXPIRE: Entry = Entry {
    name: "setnx-expire",
    naive: true,
    promise: Sentence {
        en: "As setnx, with an expiry that is set in a second step.",
        zh: "同 setnx，但过期时间在第二步才设置。",
    },
    breaks: Sentence {
        en: "A holder that dies between the two steps: the key stays for ever.",
        zh: "持有者在两步之间崩溃：键永远留下。",
    },
    source: SETNX_PAGE,
    capabilities: Capabilities {
        recovers: true,
        ..NOTHING
    },
};

pub(super) const SETNX_GETSET: Entry = Entry {
    name: "setnx-getset",
    naive: true,
    promise: Sentence {
        en: "The value is the time at which the lease ends; who finds it past takes over with GETSET.",
        zh: "值是租约的结束时间；发现已过期者用 GETSET 接管。",
    },
    breaks: Sentence {
        en: "A client whose clock is ahead takes a live lock; a loser's GETSET overwrites the winner's time.",
        zh: "时钟偏快的客户端夺走活着的锁；竞争失败者的 GETSET 覆盖胜者的时间。",
    },
    source: SETNX_PAGE,
    capabilities: Capabilities {
        recovers: true,
        ..NOTHING
    },
};

pub(super) const SET_PX_DEL: Entry = Entry {
    name: "set-px-del",
    naive: true,
    promise: Sentence {
        en: "Lock and expiry in one step; whoever is done deletes the key.",
        zh: "一步完成加锁与过期；用完直接删除键。",
    },
    breaks: Sentence {
        en: "A holder that overruns its lease deletes the next one's lock, whose work then overlaps, and so on.",
        zh: "超时的持有者删掉下一个人的锁，于是错误一个接一个传下去。",
    },
    source: REDIS_LOCKS_PAGE,
    capabilities: Capabilities {
        recovers: true,
        ..NOTHING
    },
};

pub(super) const TOKEN_GET_DEL: Entry = Entry {
    name: "token-get-del",
    naive: true,
    promise: Sentence {
        en: "Each holder writes a token and deletes only what it reads back.",
        zh: "每个持有者写入自己的令牌，释放前先读回比对再删除。",
    },
    breaks: Sentence {
        en: "The lease ends between GET and DEL: the next one's lock is deleted.",
        zh: "租约在 GET 与 DEL 之间到期：下一个人的锁被删掉。",
    },
    source: REDIS_LOCKS_PAGE,
    capabilities: Capabilities {
        recovers: true,
        ..NOTHING
    },
};

pub(super) const TOKEN_LUA: Entry = Entry {
    name: "token-lua",
    naive: false,
    promise: Sentence {
        en: "One owner of the key at a time; a stale holder can neither release nor prolong another's lock.",
        zh: "键同一时刻只有一个主人；过期的持有者既不能释放也不能续期别人的锁。",
    },
    breaks: Sentence {
        en: "A pause beyond the lease: two work at once, until the first notices. A failover that loses the key.",
        zh: "停顿超过租约：两人同时工作，直到前者发现；或主从切换丢了键。",
    },
    source: REDIS_LOCKS_PAGE,
    capabilities: LEASE,
};

pub(super) const WATCHDOG: Entry = Entry {
    name: "watchdog",
    naive: false,
    promise: Sentence {
        en: "As token-lua, prolonged every third of its lease as long as its holder lives and the bound allows.",
        zh: "同 token-lua，持有者活着且未到上限时，每三分之一租约续期一次。",
    },
    breaks: Sentence {
        en: "When the process stands still, so does the watchdog: then as token-lua.",
        zh: "进程停顿时看门狗也停顿：此时同 token-lua。",
    },
    source: REDISSON_PAGE,
    capabilities: LEASE,
};

pub(super) const REENTRANT: Entry = Entry {
    name: "reentrant",
    naive: false,
    promise: Sentence {
        en: "The owner may take it again; the last release frees it. Re-entry changes neither fence nor end.",
        zh: "同一所有者可重入，最后一次释放才真正释放；重入不改变围栏令牌，也不缩短租约。",
    },
    breaks: Sentence {
        en: "As token-lua. Two tasks that share an owner id do not exclude each other.",
        zh: "同 token-lua；共用一个所有者标识的两个任务互不排斥。",
    },
    source: REDISSON_PAGE,
    capabilities: Capabilities {
        reentrant: true,
        fencing: Fencing::WhileDataLives,
        ..LEASE
    },
};

pub(super) const FAIR: Entry = Entry {
    name: "fair",
    naive: false,
    promise: Sentence {
        en: "Who asked first gets it first, by Redis' clock; a dead waiter costs one second.",
        zh: "按 Redis 时钟先到先得；死去的等待者最多耽误一秒。",
    },
    breaks: Sentence {
        en: "As token-lua; a failover may lose the queue too.",
        zh: "同 token-lua；主从切换还可能丢失队列。",
    },
    source: REDISSON_PAGE,
    capabilities: Capabilities {
        fair: true,
        fencing: Fencing::WhileDataLives,
        ..LEASE
    },
};

pub(super) const READ_WRITE: Entry = Entry {
    name: "read-write",
    naive: false,
    promise: Sentence {
        en: "Readers together, each with a lease of its own; a writer alone, not starved; a writer may go on as reader.",
        zh: "读者共享且各有租约；写者独占且不会饿死；写者可降级为读者。",
    },
    breaks: Sentence {
        en: "As token-lua, for each of them; a dead reader keeps writers out until its lease ends.",
        zh: "各自同 token-lua；死去的读者在租约结束前挡住写者。",
    },
    source: REDISSON_PAGE,
    capabilities: Capabilities {
        shared: true,
        fencing: Fencing::WhileDataLives,
        ..LEASE
    },
};

pub(super) const MULTI: Entry = Entry {
    name: "multi",
    naive: false,
    promise: Sentence {
        en: "Several names in one step, all or none: no deadlock, nothing to give back.",
        zh: "一步锁住多个名字，要么全部要么一个不锁：没有死锁。",
    },
    breaks: Sentence {
        en: "As token-lua; in a cluster all names must lie in one slot.",
        zh: "同 token-lua；集群中所有名字必须在同一槽。",
    },
    source: REDISSON_PAGE,
    capabilities: LEASE,
};

pub(super) const REDLOCK: Entry = Entry {
    name: "redlock",
    naive: false,
    promise: Sentence {
        en: "A majority of independent masters agrees: any minority of them may be down.",
        zh: "多数独立主节点同意：少数节点宕机不影响。",
    },
    breaks: Sentence {
        en: "A pause beyond the lease; a master that restarts empty, or whose clock jumps, after an exact majority.",
        zh: "停顿超过租约；恰好多数时，一个主节点空着重启或时钟跳变。",
    },
    source: "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
    capabilities: LEASE,
};

pub(super) const FENCED: Entry = Entry {
    name: "fenced",
    naive: false,
    promise: Sentence {
        en: "As token-lua, with a fence that grows with each holder: the resource refuses a stale one.",
        zh: "同 token-lua，并给每个持有者递增的围栏令牌：资源拒绝过期者。",
    },
    breaks: Sentence {
        en: "A failover may set the counter back; a resource that does not check protects nothing.",
        zh: "主从切换可能使计数回退；不检查围栏令牌的资源得不到保护。",
    },
    source: "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
    capabilities: Capabilities {
        fencing: Fencing::WhileDataLives,
        ..LEASE
    },
};
