//! Wake-ups over publish/subscribe: one subscribed connection for all who wait in this process.
//!
//! A release that lets one holder in wakes one of those who wait here, not all of them: the others would only ask
//! in vain. Whoever is woken and gives up hands the call on.
//!
//! A message can be lost, with its connection or before the subscription stands. So whoever listens looks
//! at the lock once more after the subscription is confirmed, and never waits without a bound. When the
//! connection breaks, everybody is woken.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::Client;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::env::Env;

/// Between two tries to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Wakes those who listen.
#[derive(Clone)]
pub struct Bell {
    wishes: mpsc::UnboundedSender<Wish>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").finish_non_exhaustive()
    }
}

/// Whom a message wakes in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wakes {
    /// One of those who listen to the channel.
    One,
    /// All of them.
    All,
}

enum Wish {
    Listen {
        channel: String,
        wakes: Wakes,
        reply: oneshot::Sender<Listener>,
    },
    Leave {
        channel: String,
        /// Whether somebody else is to be woken instead.
        hand_on: bool,
    },
}

/// A subscription. Dropped, it is given up.
pub(super) struct Listener {
    channel: String,
    /// There until it is dropped.
    heard: Option<Arc<Notify>>,
    /// Whether it got what it waited for.
    content: bool,
    wishes: mpsc::UnboundedSender<Wish>,
}

impl Listener {
    /// Ends the subscription of somebody who got what it waited for.
    pub(super) fn content(mut self) {
        self.content = true;
    }

    /// Returns when something was said since the last call.
    pub(super) async fn heard(&self) {
        if let Some(heard) = &self.heard {
            heard.notified().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Gone before the room is told, which counts those who are left.
        self.heard = None;
        let channel = std::mem::take(&mut self.channel);
        let hand_on = !self.content;
        let _ = self.wishes.send(Wish::Leave { channel, hand_on });
    }
}

impl Bell {
    /// Starts the task that listens; it ends with the last handle.
    #[must_use]
    pub fn start(client: Client, env: &Env) -> Self {
        let (wishes, queue) = mpsc::unbounded_channel();
        let ringer = Ringer {
            client,
            wishes: wishes.downgrade(),
            rooms: HashMap::new(),
        };
        env.spawn(ringer.run(queue, env.clone()));
        Self { wishes }
    }

    /// Listens to a channel; returns when the subscription stands, nothing if it cannot be had.
    pub(super) async fn listen(&self, channel: &str, wakes: Wakes) -> Option<Listener> {
        let (reply, answer) = oneshot::channel();
        let listen = Wish::Listen {
            channel: channel.to_owned(),
            wakes,
            reply,
        };
        self.wishes.send(listen).ok()?;
        answer.await.ok()
    }
}

/// Those who listen to one channel.
enum Room {
    /// They share one notice: it wakes one of them, and waits for one who is just about to listen.
    One(Arc<Notify>),
    /// Each has a notice of their own, so that nobody misses a message.
    All(Vec<Arc<Notify>>),
}

impl Room {
    fn new(wakes: Wakes) -> Self {
        match wakes {
            Wakes::One => Self::One(Arc::default()),
            Wakes::All => Self::All(Vec::new()),
        }
    }

    fn enter(&mut self) -> Arc<Notify> {
        match self {
            Self::One(notice) => Arc::clone(notice),
            Self::All(notices) => {
                let notice = Arc::new(Notify::new());
                notices.push(Arc::clone(&notice));
                notice
            }
        }
    }

    /// Whether nobody is left.
    fn leave(&mut self) -> bool {
        match self {
            Self::One(notice) => Arc::strong_count(notice) == 1,
            Self::All(notices) => {
                notices.retain(|notice| Arc::strong_count(notice) > 1);
                notices.is_empty()
            }
        }
    }

    fn ring(&self) {
        match self {
            Self::One(notice) => notice.notify_one(),
            Self::All(notices) => notices.iter().for_each(|notice| notice.notify_one()),
        }
    }

    fn wake_everybody(&self) {
        if let Self::One(notice) = self {
            notice.notify_waiters();
        }
        self.ring();
    }
}

struct Ringer {
    client: Client,
    wishes: mpsc::WeakUnboundedSender<Wish>,
    rooms: HashMap<String, Room>,
}

impl Ringer {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Wish>, env: Env) {
        let mut waiting: Option<Wish> = None;
        loop {
            // Nobody listens: no connection is needed.
            if self.rooms.is_empty() && waiting.is_none() {
                tokio::select! {
                    wish = queue.recv() => match wish {
                        Some(wish) => waiting = Some(wish),
                        None => return,
                    },
                    () = env.stopping() => return,
                }
            }
            if let Ok(connection) = self.client.get_async_pubsub().await {
                let (sink, stream) = connection.split();
                if self
                    .serve(sink, stream, &mut queue, waiting.take(), &env)
                    .await
                {
                    return;
                }
                self.wake_everybody();
            } else {
                // Whoever asks meanwhile is told that there is no subscription.
                waiting = None;
                self.wake_everybody();
                if env.sleep_or_stop(RECONNECT_PAUSE).await {
                    return;
                }
            }
        }
    }

    fn wake_everybody(&self) {
        self.rooms.values().for_each(Room::wake_everybody);
    }

    /// Serves until the connection breaks; true if there is nothing more to do.
    async fn serve(
        &mut self,
        mut sink: PubSubSink,
        mut stream: PubSubStream,
        queue: &mut mpsc::UnboundedReceiver<Wish>,
        first: Option<Wish>,
        env: &Env,
    ) -> bool {
        for channel in self.rooms.keys() {
            if sink.subscribe(channel).await.is_err() {
                return false;
            }
        }
        // What was said while there was no connection.
        self.wake_everybody();
        if let Some(wish) = first
            && self.fulfil(wish, &mut sink).await.is_err()
        {
            return false;
        }
        loop {
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => {
                        if let Some(room) = self.rooms.get(message.get_channel_name()) {
                            room.ring();
                        }
                    }
                    None => return false,
                },
                wish = queue.recv() => match wish {
                    Some(wish) => if self.fulfil(wish, &mut sink).await.is_err() {
                        return false;
                    },
                    None => return true,
                },
                () = env.stopping() => return true,
            }
        }
    }

    async fn fulfil(&mut self, wish: Wish, sink: &mut PubSubSink) -> Result<(), redis::RedisError> {
        match wish {
            Wish::Listen {
                channel,
                wakes,
                reply,
            } => {
                if !self.rooms.contains_key(&channel) {
                    sink.subscribe(&channel).await?;
                }
                let Some(wishes) = self.wishes.upgrade() else {
                    return Ok(());
                };
                let room = self.rooms.entry(channel.clone());
                let heard = room.or_insert_with(|| Room::new(wakes)).enter();
                // Whoever gave up meanwhile drops the listener, which leaves the room.
                let _ = reply.send(Listener {
                    channel,
                    heard: Some(heard),
                    content: false,
                    wishes,
                });
            }
            Wish::Leave { channel, hand_on } => {
                let Some(room) = self.rooms.get_mut(&channel) else {
                    return Ok(());
                };
                if room.leave() {
                    self.rooms.remove(&channel);
                    sink.unsubscribe(&channel).await?;
                } else if hand_on {
                    room.ring();
                }
            }
        }
        Ok(())
    }
}
