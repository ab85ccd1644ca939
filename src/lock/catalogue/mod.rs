//! Every kind of lock: what it promises, what breaks it, and where it comes from.

mod in_process;
mod redis;
mod replicated;
mod sql;

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

/// A lease that ends by itself.
const LEASE: Capabilities = Capabilities {
    extends: true,
    recovers: true,
    ..NOTHING
};

kinds! {
    /// In this process' memory.
    Mutex = in_process::MUTEX;
    /// `SETNX`, `DEL`.
    Setnx = redis::SETNX;
    /// `SETNX`, then `EXPIRE`.
    SetnxExpire = redis::SETNX_EXPIRE;
    /// `SETNX` with a time, taken over by `GETSET`.
    SetnxGetset = redis::SETNX_GETSET;
    /// `SET NX PX` with one value for all, `DEL`.
    SetPxDel = redis::SET_PX_DEL;
    /// A token, `GET`, then `DEL`.
    TokenGetDel = redis::TOKEN_GET_DEL;
    /// A token, compared and deleted by a script.
    TokenLua = redis::TOKEN_LUA;
    /// The same, renewed every third of its lease.
    Watchdog = redis::WATCHDOG;
    /// Its owner may take it again.
    Reentrant = redis::REENTRANT;
    /// First come, first served.
    Fair = redis::FAIR;
    /// Readers together, a writer alone.
    ReadWrite = redis::READ_WRITE;
    /// Several names, all or none.
    Multi = redis::MULTI;
    /// A majority of independent masters.
    Redlock = redis::REDLOCK;
    /// With a number for each holder, which is checked at the write.
    Fenced = redis::FENCED;
    /// A row that is inserted and deleted.
    UniqueRow = sql::UNIQUE_ROW;
    /// A row with a lease and a fence, never deleted.
    LeaseRow = sql::LEASE_ROW;
    /// `SELECT … FOR UPDATE`.
    RowLock = sql::ROW_LOCK;
    /// `pg_advisory_lock`.
    Advisory = sql::ADVISORY;
    /// An ephemeral sequential node, as Curator has it.
    Zookeeper = replicated::ZOOKEEPER;
    /// Readers together, a writer alone, as Curator has it.
    ZookeeperReadWrite = replicated::ZOOKEEPER_READ_WRITE;
    /// A key that lives as long as a lease of its own.
    Etcd = replicated::ETCD;
    /// A document with a lease and a fence, never deleted.
    FindAndModify = replicated::FIND_AND_MODIFY;
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
