//! One contender for a lock: a node that lives as long as the session and stands in a queue.

use std::time::Duration;

use uuid::Uuid;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, EventType, SessionState, Stat};

use super::ensemble::{Ensemble, is_over, why};
use super::queue;
use crate::env::Env;
use crate::lock::{Ask, Error, Mode, Protocol, Tried};

/// Between tries to take away a node that nobody wants any more.
const CLEANING_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) ensemble: Ensemble,
    pub(super) directory: String,
    /// The mark of whoever wants it alone.
    pub(super) alone: &'static str,
    /// The mark of whoever shares it.
    pub(super) shared: &'static str,
    pub(super) env: Env,
}

/// A node of ours.
#[derive(Debug, Clone)]
struct Node {
    name: String,
    /// The transaction that created it: it only grows, whatever the lock.
    fence: u64,
}

impl Node {
    fn new(name: String, stat: &Stat) -> Self {
        Self {
            name,
            fence: u64::try_from(stat.czxid).unwrap_or_default(),
        }
    }
}

/// An acquisition; dropped, it takes its node away behind everybody's back.
#[derive(Debug)]
pub(super) struct Contender {
    mode: Mode,
    place: Place,
    /// The node before ours.
    before: Option<String>,
    env: Env,
}

/// Its place in the queue.
#[derive(Debug, Clone)]
struct Place {
    /// What the node's name begins with. By it the node is found again if the answer to its creation was
    /// lost (<https://github.com/Netflix/curator/issues/3>).
    id: String,
    /// Who asks: the node's data.
    owner: String,
    /// The session that the node belongs to.
    session: Option<Client>,
    node: Option<Node>,
    /// Whether there may be a node that we have not heard of.
    uncertain: bool,
    ensemble: Ensemble,
    directory: String,
}

impl Place {
    /// Whether the session has ended, and the node with it.
    fn is_over(&self) -> bool {
        let session = self.session.as_ref();
        session.is_none_or(|client| client.state().is_terminated())
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// The session; a node of one that is over is no more.
    async fn session(&mut self) -> Result<Client, Error> {
        if let Some(client) = &self.session
            && !self.is_over()
        {
            return Ok(client.clone());
        }
        let client = self.ensemble.session().await?;
        self.node = None;
        self.uncertain = false;
        self.session = Some(client.clone());
        Ok(client)
    }

    /// Takes a place in the queue, once.
    async fn queue_up(&mut self, client: &Client, mark: &str, mode: Mode) -> Result<Node, Error> {
        if let Some(node) = &self.node {
            return Ok(node.clone());
        }
        if self.uncertain
            && let Some(node) = self.find(client).await?
        {
            if mode == Mode::Exclusive {
                return Ok(self.node.insert(node).clone());
            }
            // It may stand beside a writer who is there no more: only a new place is certain.
            self.node = Some(node);
            self.leave().await?;
        }
        self.uncertain = true;
        if mode == Mode::Shared
            && let Some(node) = self.join_own_writer(client, mark).await?
        {
            return Ok(self.node.insert(node).clone());
        }
        let prefix = format!("{}{mark}", self.id);
        let path = self.path(&prefix);
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let owner = self.owner.clone();
        let create = || client.create(&path, owner.as_bytes(), &options);
        let mut created = self.ensemble.answer(create()).await?;
        if created == Err(ZkError::NoNode) {
            // Containers: the servers take them away when nobody has contended for a while.
            let directory = CreateMode::Container.with_acls(Acls::anyone_all());
            let making = client.mkdir(&self.directory, &directory);
            self.ensemble.call(making).await?;
            created = self.ensemble.answer(create()).await?;
        }
        let (stat, number) = created.map_err(|error| why(&error))?;
        let node = Node::new(format!("{prefix}{number}"), &stat);
        Ok(self.node.insert(node).clone())
    }

    /// A reader whose owner writes stands beside its writer, with the same number, before all who wait. It is
    /// there in time if the writer still is when it has been created.
    async fn join_own_writer(
        &mut self,
        client: &Client,
        mark: &str,
    ) -> Result<Option<Node>, Error> {
        let names = self.names(client).await?;
        let Some((writer, number)) = queue::first_writer(&names) else {
            return Ok(None);
        };
        let data = client.get_data(&self.path(writer));
        let owner = match self.ensemble.answer(data).await? {
            Ok((owner, _)) => owner,
            Err(ZkError::NoNode) => return Ok(None),
            Err(error) => return Err(why(&error)),
        };
        if owner != self.owner.as_bytes() {
            return Ok(None);
        }
        let name = format!("{}{mark}{number}", self.id);
        let path = self.path(&name);
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let creating = client.create(&path, &owner, &options);
        let (stat, _) = self.ensemble.call(creating).await?;
        if self.names(client).await?.iter().any(|name| name == writer) {
            return Ok(Some(Node::new(name, &stat)));
        }
        self.ensemble.call(client.delete(&path, None)).await?;
        Ok(None)
    }

    /// All who contend.
    async fn names(&self, client: &Client) -> Result<Vec<String>, Error> {
        match self
            .ensemble
            .answer(client.list_children(&self.directory))
            .await?
        {
            Ok(names) => Ok(names),
            Err(ZkError::NoNode) => Ok(Vec::new()),
            Err(error) => Err(why(&error)),
        }
    }

    /// The node of ours whose creation was not answered. One that an earlier session left behind is none of
    /// ours: it is about to go (<https://github.com/apache/curator/issues/1018>).
    async fn find(&mut self, client: &Client) -> Result<Option<Node>, Error> {
        // A server that lags behind may not know it yet.
        let caught_up = self.ensemble.answer(client.sync(&self.directory)).await?;
        if let Err(error) = caught_up
            && error != ZkError::NoNode
        {
            return Err(why(&error));
        }
        let names = self.names(client).await?;
        for name in names.into_iter().filter(|name| name.starts_with(&self.id)) {
            let stat = client.check_stat(&self.path(&name));
            let stat = self.ensemble.call(stat).await?;
            let ours = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0);
            if let Some(stat) = ours {
                return Ok(Some(Node::new(name, &stat)));
            }
        }
        self.uncertain = false;
        Ok(None)
    }

    /// Takes the node away; false if it was there no more.
    async fn leave(&mut self) -> Result<bool, Error> {
        let Some(client) = self.session.clone() else {
            return Ok(false);
        };
        if self.node.is_none() && self.uncertain {
            self.node = self.find(&client).await?;
        }
        let Some(node) = &self.node else {
            return Ok(false);
        };
        let path = self.path(&node.name);
        let deleted = match self.ensemble.answer(client.delete(&path, None)).await? {
            Ok(()) => true,
            Err(ZkError::NoNode) => false,
            Err(error) if is_over(&error) => false,
            Err(error) => return Err(why(&error)),
        };
        self.node = None;
        self.uncertain = false;
        Ok(deleted)
    }
}

impl Drop for Contender {
    /// A node that could not be taken away would keep everybody out for as long as the session lives
    /// (<https://github.com/apache/curator/issues/1193>): somebody goes on trying until one of them is gone.
    fn drop(&mut self) {
        if self.place.node.is_none() && !self.place.uncertain {
            return;
        }
        let (mut place, env) = (self.place.clone(), self.env.clone());
        self.env.spawn(async move {
            // The session of a program that ends, ends too, and takes what is left along.
            while !place.is_over() && place.leave().await.is_err() && !env.is_stopping() {
                env.sleep_or_stop(CLEANING_PAUSE).await;
            }
        });
    }
}

impl Protocol for Recipe {
    type Session = Contender;
    const LEASED: bool = false;

    fn session(&self, ask: Ask) -> Contender {
        Contender {
            mode: ask.mode,
            place: Place {
                id: format!("_c_{}", Uuid::new_v4()),
                owner: ask.owner.to_string(),
                session: None,
                node: None,
                uncertain: false,
                ensemble: self.ensemble.clone(),
                directory: self.directory.clone(),
            },
            before: None,
            env: self.env.clone(),
        }
    }

    async fn try_acquire(&self, contender: &mut Contender) -> Result<Tried, Error> {
        let mark = match contender.mode {
            Mode::Exclusive => self.alone,
            Mode::Shared => self.shared,
        };
        let client = contender.place.session().await?;
        let node = contender
            .place
            .queue_up(&client, mark, contender.mode)
            .await?;
        let names = contender.place.names(&client).await?;
        if !names.contains(&node.name) {
            // Somebody took it away; the next try begins anew, at the end of the queue.
            contender.place.node = None;
            return Ok(Tried::Busy {
                retry_within: Some(Duration::ZERO),
            });
        }
        contender.before = queue::predecessor(&node.name, &names, contender.mode).map(Into::into);
        if contender.before.is_some() {
            return Ok(Tried::Busy { retry_within: None });
        }
        match client.state() {
            SessionState::SyncConnected => Ok(Tried::Granted {
                fence: Some(node.fence),
            }),
            // The session may be over by now.
            state => Err(Error::Unreachable(format!("ZooKeeper: {state}"))),
        }
    }

    /// Watches the node before ours, and no other: a release wakes one. The watch is on the data, since one on
    /// a node that is gone would stay for ever.
    async fn wait(&self, contender: &mut Contender, at_most: Duration) {
        let (Some(client), Some(before)) = (&contender.place.session, &contender.before) else {
            return;
        };
        let path = contender.place.path(before);
        let watching = async {
            match self.ensemble.answer(client.get_and_watch_data(&path)).await {
                Ok(Ok((_, _, watcher))) => drop(watcher.changed().await),
                Ok(Err(ZkError::NoNode)) => {}
                _ => self.env.sleep(at_most).await,
            }
        };
        let _ = tokio::time::timeout(at_most, watching).await;
    }

    /// The session is prolonged by itself, as long as its connection lives.
    async fn extend(&self, contender: &mut Contender, _lease: Duration) -> Result<bool, Error> {
        let (Some(client), Some(node)) = (&contender.place.session, &contender.place.node) else {
            return Ok(false);
        };
        let path = contender.place.path(&node.name);
        match self.ensemble.answer(client.check_stat(&path)).await? {
            Ok(stat) => Ok(stat.is_some_and(|it| it.ephemeral_owner == client.session_id().0)),
            Err(error) if is_over(&error) => Ok(false),
            Err(error) => Err(why(&error)),
        }
    }

    async fn release(&self, contender: &mut Contender) -> Result<bool, Error> {
        contender.place.leave().await
    }

    async fn withdraw(&self, contender: &mut Contender, _uncertain: bool) -> Result<(), Error> {
        contender.place.leave().await.map(drop)
    }

    async fn lost(&self, contender: &mut Contender) {
        let (Some(client), Some(node)) = (&contender.place.session, &contender.place.node) else {
            return;
        };
        let mut states = client.state_watcher();
        let disconnected = async {
            while states.state() == SessionState::SyncConnected {
                states.changed().await;
            }
        };
        let path = contender.place.path(&node.name);
        let deleted = async {
            loop {
                match self.ensemble.answer(client.get_and_watch_data(&path)).await {
                    Ok(Ok((_, _, watcher))) => {
                        if watcher.changed().await.event_type == EventType::NodeDeleted {
                            return;
                        }
                    }
                    Ok(Err(ZkError::NoNode)) => return,
                    // Nobody knows; if the connection is broken, the other half says so.
                    _ => self.env.sleep(CLEANING_PAUSE).await,
                }
            }
        };
        tokio::select! {
            () = disconnected => {}
            () = deleted => {}
        }
    }
}
