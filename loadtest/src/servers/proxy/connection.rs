//! One connection through a proxy.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::trap::{Fate, Hold, PATTERN_BYTES_MAX, Trap};
use super::{Address, Direction, Mode, Shared};

/// Read at once.
const PIECE_BYTES: usize = 16 * 1024;
/// Pieces under way in one direction; beyond that the sender has to wait.
const PIECES_UNDER_WAY: usize = 64;
/// How long the server may take to answer a request whose reply nobody gets.
const REPLY_LIMIT: Duration = Duration::from_secs(10);

/// The connection to the server, of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}
type Server = Box<dyn Stream>;

/// How the forwarding ended.
enum End {
    /// One side has closed: close the other.
    Closed,
    /// Something broke, or should seem so: reset the client.
    Reset,
    /// A trap has sprung; these bytes have not been forwarded.
    Caught(Trap, Vec<u8>, Server),
}

/// Serves one client until its end.
pub(super) async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    match forward(&mut client, &shared).await {
        Ok(End::Closed) => {}
        Ok(End::Reset) | Err(_) => reset(client, &shared),
        Ok(End::Caught(
            Trap {
                fate: Fate::DropReply,
                ..
            },
            request,
            server,
        )) => {
            let reply = execute(server, &request).await;
            if !reply.is_empty() {
                shared.count(|counts| counts.replies_dropped += 1);
            }
            reset(client, &shared);
        }
        Ok(End::Caught(
            Trap {
                fate: Fate::Hold(hold),
                ..
            },
            request,
            server,
        )) => {
            reset(client, &shared);
            shared.count(|counts| counts.requests_held += 1);
            // On its own: a cut waits for connections, and of this one only the request is left.
            tokio::spawn(keep(hold, request, server, shared));
        }
    }
}

/// Closes so that the peer sees a reset instead of an orderly end.
fn reset(client: TcpStream, shared: &Shared) {
    // An error means that the peer has reset it first.
    drop(client.set_zero_linger());
    drop(client);
    shared.count(|counts| counts.resets += 1);
}

async fn keep(hold: Hold, request: Vec<u8>, server: Server, shared: Arc<Shared>) {
    let Hold {
        caught,
        release,
        reply,
    } = hold;
    // Errors mean that the handle was dropped: then the request is lost.
    if caught.send(()).is_err() || release.await.is_err() {
        return;
    }
    let bytes = execute(server, &request).await;
    if !bytes.is_empty() {
        shared.count(|counts| counts.requests_delivered += 1);
        drop(reply.send(bytes));
    }
}

/// Has the server deal with everything it was sent, and gives what it replied.
///
/// Closing our half at once and reading to the end makes sure of that: Redis and PostgreSQL act on
/// all they have received before they notice the end. A reset could overtake the request.
async fn execute(mut server: Server, request: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    let exchange = async {
        server.write_all(request).await?;
        server.shutdown().await?;
        server.read_to_end(&mut reply).await
    };
    // Failing or late: what has arrived is what there is.
    drop(tokio::time::timeout(REPLY_LIMIT, exchange).await);
    reply
}

async fn forward(client: &mut TcpStream, shared: &Shared) -> io::Result<End> {
    let mut wanted = shared.wanted.subscribe();
    let mut server = None;
    client.set_nodelay(true)?;
    if *wanted.borrow_and_update() == Mode::Forward {
        let stream = server.insert(connect(&shared.server()).await?);
        tokio::select! {
            // A fault that is asked for while bytes arrive comes first.
            biased;
            _ = wanted.changed() => {}
            ended = relay(client, stream, shared) => {
                return Ok(match (ended?, server) {
                    (Some((trap, request)), Some(server)) => End::Caught(trap, request, server),
                    _ => End::Closed,
                });
            }
        }
    }
    if *wanted.borrow_and_update() == Mode::Blackhole {
        // The server's side stays open, so that the server notices nothing either.
        swallow(client, &mut wanted, shared).await?;
    }
    Ok(End::Reset)
}

async fn connect(address: &Address) -> io::Result<Server> {
    Ok(match address {
        Address::Tcp(address) => {
            let server = TcpStream::connect(address).await?;
            server.set_nodelay(true)?;
            Box::new(server)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

/// Reads and forgets, until another mode is wanted.
async fn swallow(
    client: &mut TcpStream,
    wanted: &mut watch::Receiver<Mode>,
    shared: &Shared,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        tokio::select! {
            length = client.read(&mut piece) => match length? {
                0 => return Ok(()),
                length => shared.count(|counts| counts.swallowed_bytes += length as u64),
            },
            _ = wanted.changed() => return Ok(()),
        }
    }
}

/// Forwards both ways until one side closes, or a request is caught.
async fn relay(
    client: &mut TcpStream,
    server: &mut Server,
    shared: &Shared,
) -> io::Result<Option<(Trap, Vec<u8>)>> {
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = tokio::io::split(server);
    let replies = pump(server_read, client_write, Direction::ToClient, shared);
    let mut replies = std::pin::pin!(replies);
    tokio::select! {
        caught = pump(client_read, server_write, Direction::ToServer, shared) => {
            let caught = caught?;
            if caught.is_none() {
                // The client has closed its half and may still be reading.
                replies.await?;
            }
            Ok(caught)
        }
        ended = &mut replies => ended,
    }
}

/// Moves bytes one way. The reader runs ahead of the writer, so that a delay is a delay and not a
/// limit on throughput.
async fn pump(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    shared: &Shared,
) -> io::Result<Option<(Trap, Vec<u8>)>> {
    let (sender, receiver) = mpsc::channel(PIECES_UNDER_WAY);
    let read = read_pieces(from, sender, direction, shared);
    let (caught, ()) = tokio::try_join!(read, write_pieces(receiver, &mut to))?;
    if caught.is_none() {
        to.shutdown().await?;
    }
    Ok(caught)
}

/// A piece of traffic, and when it shall arrive.
type Piece = (Instant, Vec<u8>);

async fn read_pieces(
    mut from: impl AsyncRead + Unpin,
    sender: mpsc::Sender<Piece>,
    direction: Direction,
    shared: &Shared,
) -> io::Result<Option<(Trap, Vec<u8>)>> {
    // The end of the traffic before, in case that a pattern begins there.
    let mut before = Vec::new();
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let length = from.read(&mut piece).await?;
        piece.truncate(length);
        if length == 0 {
            return Ok(None);
        }
        if direction == Direction::ToServer {
            before.extend_from_slice(&piece);
            if let Some(trap) = shared.spring_trap(&before) {
                return Ok(Some((trap, piece)));
            }
            before.drain(..before.len().saturating_sub(PATTERN_BYTES_MAX - 1));
        }
        let delay_ms = shared.delay_ms(direction).load(Ordering::Relaxed);
        if delay_ms > 0 {
            shared.count(|counts| counts.delayed += 1);
        }
        let due = Instant::now() + Duration::from_millis(delay_ms);
        if sender.send((due, piece)).await.is_err() {
            return Ok(None);
        }
    }
}

async fn write_pieces(
    mut receiver: mpsc::Receiver<Piece>,
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    while let Some((due, piece)) = receiver.recv().await {
        if due > Instant::now() {
            tokio::time::sleep_until(due).await;
        }
        to.write_all(&piece).await?;
    }
    Ok(())
}
