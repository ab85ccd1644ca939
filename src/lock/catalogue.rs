//! Every kind of lock: what it promises, what breaks it, and where it comes from.

use std::fmt;
use std::str::FromStr;

/// Whether a lock has a fence, and how long that only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// No fence.
    None,
    /// It grows as long as the server keeps its data.
    WhileDataLives,
    /// It grows over restarts and failovers too.
    Durable,
}

/// What a kind of lock can do. What is not here, it refuses; nothing is silently missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Its holder may take it again.
    pub reentrant: bool,
    /// Who asked first gets it first.
    pub fair: bool,
    /// It can be shared by those who only read.
    pub shared: bool,
    /// Whether and how it is fenced.
    pub fencing: Fencing,
    /// Its lease can be prolonged.
    pub extends: bool,
    /// A pause of its holder, however long, lets nobody else in.
    pub survives_pause: bool,
    /// Its lease ends by itself, so that a holder that says nothing frees it.
    pub recovers: bool,
}

/// A sentence in both languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sentence {
    /// English.
    pub en: &'static str,
    /// 中文.
    pub zh: &'static str,
}

/// What is to be known of a kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Whether it is naive on purpose.
    pub naive: bool,
    /// What it promises.
    pub promise: Sentence,
    /// What breaks it.
    pub breaks: Sentence,
    /// Where the algorithm comes from.
    pub source: &'static str,
    /// What it can do.
    pub capabilities: Capabilities,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $entry:expr;)*) => {
        /// A kind of lock.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($(#[doc = $doc])+ $kind,)*
        }

        impl Kind {
            /// All kinds, in the order in which they are taught.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// What is to be known of it.
            #[must_use]
            pub const fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$kind => const { &$entry },)*
                }
            }
        }
    };
}

const NOTHING: Capabilities = Capabilities {
    reentrant: false,
    fair: false,
    shared: false,
    fencing: Fencing::None,
    extends: false,
    survives_pause: false,
    recovers: false,
};
/// A lease in Redis.
const LEASE: Capabilities = Capabilities {
    extends: true,
    recovers: true,
    ..NOTHING
};

/// A lock that lasts as long as a connection to a database.
const CONNECTION: Capabilities = Capabilities {
    fencing: Fencing::Durable,
    extends: true,
    survives_pause: true,
    ..NOTHING
};

const POSTGRES_CONFLICT_PAGE: &str = "https://www.postgresql.org/docs/15/sql-insert.html";
const POSTGRES_LOCKING_PAGE: &str = "https://www.postgresql.org/docs/15/explicit-locking.html";
const SETNX_PAGE: &str = "https://redis.io/docs/latest/commands/setnx/";
const REDIS_LOCKS_PAGE: &str =
    "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/";
const REDISSON_PAGE: &str = "https://redisson.pro/docs/data-and-services/locks-and-synchronizers/";

kinds! {
    /// In this process' memory.
    Mutex = Entry {
        name: "mutex",
        naive: false,
        promise: Sentence {
            en: "One holder at a time in this process, first come, first served.",
            zh: "同一进程内同一时刻只有一个持有者，先到先得。",
        },
        breaks: Sentence {
            en: "A second process: it has a mutex of its own, and both hold.",
            zh: "第二个进程：它有自己的互斥锁，两边同时持有。",
        },
        source: "https://docs.rs/tokio/latest/tokio/sync/struct.Mutex.html",
        capabilities: Capabilities {
            fair: true,
            fencing: Fencing::WhileDataLives,
            extends: true,
            survives_pause: true,
            ..NOTHING
        },
    };
    /// `SETNX`, `DEL`.
    Setnx = Entry {
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
        capabilities: Capabilities { survives_pause: true, ..NOTHING },
    };
    /// `SETNX`, then `EXPIRE`.
    SetnxExpire = Entry {
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
        capabilities: Capabilities { recovers: true, ..NOTHING },
    };
    /// `SETNX` with a time, taken over by `GETSET`.
    SetnxGetset = Entry {
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
        capabilities: Capabilities { recovers: true, ..NOTHING },
    };
    /// `SET NX PX` with one value for all, `DEL`.
    SetPxDel = Entry {
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
        capabilities: Capabilities { recovers: true, ..NOTHING },
    };
    /// A token, `GET`, then `DEL`.
    TokenGetDel = Entry {
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
        capabilities: Capabilities { recovers: true, ..NOTHING },
    };
    /// A token, compared and deleted by a script.
    TokenLua = Entry {
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
    /// The same, renewed every third of its lease.
    Watchdog = Entry {
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
    /// Its owner may take it again.
    Reentrant = Entry {
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
    /// First come, first served.
    Fair = Entry {
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
    /// Readers together, a writer alone.
    ReadWrite = Entry {
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
    /// Several names, all or none.
    Multi = Entry {
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
    /// A majority of independent masters.
    Redlock = Entry {
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
    /// With a number for each holder, which is checked at the write.
    Fenced = Entry {
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
    /// A row that is inserted and deleted.
    UniqueRow = Entry {
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
        capabilities: Capabilities { survives_pause: true, ..NOTHING },
    };
    /// A row with a lease and a fence, never deleted.
    LeaseRow = Entry {
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
        capabilities: Capabilities { fencing: Fencing::Durable, ..LEASE },
    };
    /// `SELECT … FOR UPDATE`.
    RowLock = Entry {
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
    /// `pg_advisory_lock`.
    Advisory = Entry {
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
}

impl Kind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// What it can do.
    #[must_use]
    pub const fn capabilities(self) -> Capabilities {
        self.entry().capabilities
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().find(|kind| kind.name() == name);
        known.copied().ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// There is no such kind of lock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no lock of kind {0:?}; `stockade locks` lists them")]
pub struct UnknownKind(String);
