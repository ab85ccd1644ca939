//! The locks in services that replicate what they say: ZooKeeper, etcd, MongoDB.

use super::{Capabilities, Entry, Fencing, LEASE, NOTHING, Sentence};

/// A session that a majority of servers keeps, as long as they hear of its process.
const SESSION: Capabilities = Capabilities {
    fair: true,
    fencing: Fencing::Durable,
    extends: true,
    ..NOTHING
};

/// A lease that a majority of servers keeps, numbered by their log.
const QUORUM: Capabilities = Capabilities {
    fair: true,
    fencing: Fencing::Durable,
    ..LEASE
};

pub(super) const ZOOKEEPER: Entry = Entry {
    name: "zookeeper",
    naive: false,
    promise: Sentence {
        en: "First come, first served, as long as the holder's session lives; a dead one ends by the server's clock.",
        zh: "会话存续期间先到先得；死去的会话由服务器时钟终止。",
    },
    breaks: Sentence {
        en: "A pause beyond the session's timeout: two work at once, until the first hears of it.",
        zh: "停顿超过会话超时：两人同时工作，直到前者得知会话已失效。",
    },
    source: "https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks",
    capabilities: SESSION,
};

pub(super) const ZOOKEEPER_READ_WRITE: Entry = Entry {
    name: "zookeeper-read-write",
    naive: false,
    promise: Sentence {
        en: "Readers together, a writer alone, each in the order of asking, as long as their sessions live.",
        zh: "读者共享、写者独占，均按请求顺序，会话存续期间有效。",
    },
    breaks: Sentence {
        en: "As zookeeper, for each of them.",
        zh: "各自同 zookeeper。",
    },
    source: "https://zookeeper.apache.org/doc/r3.8.0/recipes.html#Shared+Locks",
    capabilities: Capabilities {
        shared: true,
        ..SESSION
    },
};

pub(super) const ETCD: Entry = Entry {
    name: "etcd",
    naive: false,
    promise: Sentence {
        en: "First come, first served, one lease for each acquisition; the fence is the revision that created its key.",
        zh: "先到先得，每次获取使用独立租约；围栏令牌是创建键时的修订号。",
    },
    breaks: Sentence {
        en: "A pause beyond the lease: two work at once, until the first notices.",
        zh: "停顿超过租约：两人同时工作，直到前者发现。",
    },
    source: "https://github.com/etcd-io/etcd/blob/v3.4.23/clientv3/concurrency/mutex.go",
    capabilities: QUORUM,
};

pub(super) const FIND_AND_MODIFY: Entry = Entry {
    name: "find-and-modify",
    naive: false,
    promise: Sentence {
        en: "One holder per lease, by the database's clock, acknowledged by a majority; its fence outlives restarts.",
        zh: "按数据库时钟并经多数确认，每个租约只有一个持有者；围栏令牌在重启后依然递增。",
    },
    breaks: Sentence {
        en: "A pause beyond the lease, as token-lua; a write that only the primary had, with a weaker write concern.",
        zh: "停顿超过租约，同 token-lua；写关注较弱时，只有主节点写入的数据可能丢失。",
    },
    source: "https://www.mongodb.com/docs/manual/reference/command/findAndModify/",
    capabilities: Capabilities {
        fair: false,
        ..QUORUM
    },
};
