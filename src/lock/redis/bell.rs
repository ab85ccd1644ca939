//! Wake-ups over publish/subscribe: one subscribed connection for all who wait in this process.
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

enum Wish {
    Listen {
        channel: String,
        reply: oneshot::Sender<Listener>,
    },
    Leave {
        channel: String,
    },
}

/// A subscription. Dropped, it is given up.
pub(super) struct Listener {
    channel: String,
    /// There until it is dropped.
    heard: Option<Arc<Notify>>,
    wishes: mpsc::UnboundedSender<Wish>,
}

impl Listener {
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
        let _ = self.wishes.send(Wish::Leave { channel });
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
    pub(super) async fn listen(&self, channel: &str) -> Option<Listener> {
        let (reply, answer) = oneshot::channel();
        let channel = channel.to_owned();
        self.wishes.send(Wish::Listen { channel, reply }).ok()?;
        answer.await.ok()
    }
}

/// Those who listen to one channel: each has a notice of their own, so that no message is missed.
type Room = Vec<Arc<Notify>>;

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
        self.rooms
            .values()
            .flatten()
            .for_each(|one| one.notify_one());
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
                        let room = self.rooms.get(message.get_channel_name());
                        room.into_iter().flatten().for_each(|one| one.notify_one());
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
            Wish::Listen { channel, reply } => {
                if !self.rooms.contains_key(&channel) {
                    sink.subscribe(&channel).await?;
                }
                let Some(wishes) = self.wishes.upgrade() else {
                    return Ok(());
                };
                let heard = Arc::new(Notify::new());
                self.rooms
                    .entry(channel.clone())
                    .or_default()
                    .push(Arc::clone(&heard));
                // Whoever gave up meanwhile drops the listener, which leaves the room.
                let _ = reply.send(Listener {
                    channel,
                    heard: Some(heard),
                    wishes,
                });
            }
            Wish::Leave { channel } => {
                let Some(room) = self.rooms.get_mut(&channel) else {
                    return Ok(());
                };
                room.retain(|one| Arc::strong_count(one) > 1);
                if room.is_empty() {
                    self.rooms.remove(&channel);
                    sink.unsubscribe(&channel).await?;
                }
            }
        }
        Ok(())
    }
}
