//! The listening side of a proxy: accepts, follows the wanted mode, owns the connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection;
use super::{Mode, Shared};

/// Pause after a failed accept or bind, so that a lack of file descriptors is not a busy loop.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Serves until the task is aborted.
pub(super) async fn run(listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut listener = Some(listener);
    let mut wanted = shared.wanted.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let mode = *wanted.borrow_and_update();
        if mode == Mode::Cut {
            // Only a closed socket refuses connections.
            listener = None;
            // Each connection follows the mode by itself.
            while connections.join_next().await.is_some() {}
        } else if listener.is_none() {
            listener = Some(bind(address).await);
        }
        shared.applied.send_replace(mode);
        match &listener {
            Some(listener) => accept(listener, &mut wanted, &mut connections, &shared).await,
            // An error is impossible: `shared` holds the sender.
            None => drop(wanted.changed().await),
        }
    }
}

/// Accepts until another mode is wanted.
async fn accept(
    listener: &TcpListener,
    wanted: &mut watch::Receiver<Mode>,
    connections: &mut JoinSet<()>,
    shared: &Arc<Shared>,
) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    shared.count(|counts| counts.connections += 1);
                    connections.spawn(connection::serve(client, Arc::clone(shared)));
                }
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
            _ = wanted.changed() => return,
        }
    }
}

async fn bind(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}
