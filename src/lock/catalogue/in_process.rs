//! The lock that needs no server.

use super::{Capabilities, Entry, Fencing, NOTHING, Sentence};

pub(super) const MUTEX: Entry = Entry {
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
