//! The gate as programs know one: HTTP `CONNECT`, plain HTTP, and SOCKS5, on one port, told apart by the first byte; and for
//! those who know none, names and plain connections ([`direct`](super::direct)).
//!
//! The other side is hostile from its first byte. Heads are bounded in size and time, connections in number and idle
//! time, and what is passed on is written anew from what was understood, so that upstream and proxy cannot read one
//! request in two ways.
//!
//! ```text
//!   accept ── 0x05 ──── socks ────────┐
//!          └─ a letter ─ head ─ CONNECT ── tunnel   bytes, both ways
//!                            └ http://… ── exchange one request, one upstream connection; then the next head
//!   accept at a direct port ── the name behind its address ── tunnel
//! ```
//!
//! Not here: who may go where ([`super::EgressGate`]); TLS, which passes through unread.

mod answer;
mod body;
mod exchange;
mod head;
mod socks;
mod target;
mod tunnel;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use self::answer::Answer;
use self::head::{HeadError, Request};
use self::target::Target;
use super::direct::DirectNames;
use super::dns::PACKET_BYTES_MAX;
use super::gate::EgressGate;

/// Speaks with one program on behalf of one gate.
#[derive(Debug, Clone)]
pub struct EgressProxy {
    gate: Arc<EgressGate>,
    names: Arc<DirectNames>,
    limits: ProxyLimits,
}

/// The running proxy. Dropped, it ends all its connections.
#[derive(Debug)]
pub struct ProxyHandle {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

/// Where a program meets its proxy.
#[derive(Debug)]
pub struct ProxySockets {
    /// For those who know what a proxy is.
    pub proxy: TcpListener,
    /// Where names are asked for.
    pub names: Option<UdpSocket>,
    /// Where connections of the others end.
    pub direct: Vec<TcpListener>,
}

impl From<TcpListener> for ProxySockets {
    fn from(proxy: TcpListener) -> Self {
        Self { proxy, names: None, direct: Vec::new() }
    }
}

/// What a program may ask of its proxy at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Connections served; further ones wait in the listener's queue until one of these ends.
    pub connections_max: usize,
    /// Longest head of a request or a response; a longer one is answered with 431 or 502.
    pub head_bytes_max: usize,
    /// How long a head may take from its first byte to its last, however busily it drips; then 408.
    pub head_timeout: Duration,
    /// How long nothing may move on a connection, in either direction.
    pub idle_timeout: Duration,
    /// The same for direct ones: connections to databases rest for long, and their programs do not expect to lose them.
    pub direct_idle_timeout: Duration,
}

/// A program's connection.
struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

/// Breath after a listener that cannot accept, mostly for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The first byte of SOCKS5, which no request of HTTP begins with.
const SOCKS5: u8 = 5;

/// How long and how much of what a refused client still sends is thrown away, so that it reads the refusal: closing a
/// socket with unread bytes tears down what was written last.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: u64 = 256 << 10;

// ----------------------------------------------------------------------------------------------------------- Proxy

impl EgressProxy {
    /// Serves the connections that come to these sockets through the gate until the handle is dropped.
    #[must_use]
    pub fn serve(sockets: impl Into<ProxySockets>, gate: Arc<EgressGate>) -> ProxyHandle {
        Self::serve_with(sockets, gate, ProxyLimits::default())
    }

    /// The same with limits of one's own.
    #[must_use]
    pub fn serve_with(sockets: impl Into<ProxySockets>, gate: Arc<EgressGate>, limits: ProxyLimits) -> ProxyHandle {
        let (stop, stopped) = oneshot::channel();
        let names = Arc::new(DirectNames::new(Arc::clone(&gate)));
        let proxy = Self { gate, names, limits };
        ProxyHandle { stop: Some(stop), task: tokio::spawn(proxy.accept(sockets.into(), stopped)) }
    }

    /// The connections belong to this task: when it is gone, so are they.
    async fn accept(self, sockets: ProxySockets, mut stopped: oneshot::Receiver<()>) {
        let ProxySockets { proxy, names, direct } = sockets;
        let mut connections = JoinSet::new();
        let mut packet = [0; PACKET_BYTES_MAX];
        loop {
            let has_room = connections.len() < self.limits.connections_max;
            tokio::select! {
                _ = &mut stopped => break,
                Some(_) = connections.join_next() => {}
                asked = next_packet(names.as_ref(), &mut packet) => match asked {
                    Ok((bytes, from)) => self.tell(names.as_ref(), packet.get(..bytes).unwrap_or_default(), from),
                    Err(error) => pause("be asked for names", &error).await,
                },
                accepted = proxy.accept(), if has_room => match accepted {
                    Ok((stream, _)) => {
                        let proxy = self.clone();
                        // An error of one connection is its end and nobody else's concern.
                        connections.spawn(async move { drop(proxy.converse(stream).await) });
                    }
                    Err(error) => pause("accept", &error).await,
                },
                accepted = accept_any(&direct), if has_room => match accepted {
                    Ok(stream) => {
                        let proxy = self.clone();
                        connections.spawn(async move { drop(proxy.carry(stream).await) });
                    }
                    Err(error) => pause("accept a direct connection", &error).await,
                },
            }
        }
        connections.shutdown().await;
    }

    /// Answers a question for a name. An answer that cannot be sent at once is as lost as any packet.
    fn tell(&self, names: Option<&UdpSocket>, packet: &[u8], from: SocketAddr) {
        if let Some((names, answer)) = names.zip(self.names.answer(packet)) {
            let _ = names.try_send_to(&answer, from);
        }
    }

    /// Carries the connection of a program that knows no proxy to where its address stands for. What is refused is closed:
    /// there is no protocol to say it in.
    async fn carry(&self, stream: TcpStream) -> io::Result<()> {
        let _ = stream.set_nodelay(true);
        let place = stream.local_addr()?;
        let host = self.names.host_behind(place.ip(), place.port());
        let Ok(upstream) = self.gate.connect(&host, place.port()).await else { return Ok(()) };
        let (reader, writer) = stream.into_split();
        tunnel::relay(Client { reader: BufReader::new(reader), writer }, upstream, self.limits.direct_idle_timeout)
            .await
    }

    async fn converse(&self, stream: TcpStream) -> io::Result<()> {
        // As at the other end: see the gate.
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let mut client = Client { reader: BufReader::new(reader), writer };
        if client.next_byte(self.limits.idle_timeout).await == Some(SOCKS5) {
            return socks::converse(client, &self.gate, &self.limits).await;
        }
        while client.next_byte(self.limits.idle_timeout).await.is_some() {
            let request = match self.read_request(&mut client).await {
                Ok(request) => request,
                Err(answer) => return client.refuse(&answer, &self.limits).await,
            };
            match &request.target {
                Target::Tunnel(authority) => {
                    let upstream = match self.gate.connect(&authority.host, authority.port).await {
                        Ok(upstream) => upstream,
                        Err(refused) => {
                            let answer = Answer::refusal(&refused, None, self.gate.owner());
                            return client.refuse(&answer, &self.limits).await;
                        }
                    };
                    client.write(b"HTTP/1.1 200 Connection Established\r\n\r\n", &self.limits).await?;
                    return tunnel::relay(client, upstream, self.limits.idle_timeout).await;
                }
                Target::Forward(url) => {
                    if !exchange::forward(&mut client, &request, url, &self.gate, &self.limits).await? {
                        return client.linger().await;
                    }
                }
            }
        }
        Ok(())
    }

    async fn read_request(&self, client: &mut Client) -> Result<Request, Answer> {
        let head = head::read(&mut client.reader, self.limits.head_bytes_max);
        match timeout(self.limits.head_timeout, head).await {
            Ok(Ok(head)) => Request::parse(&head),
            Ok(Err(HeadError::TooLarge)) => Err(Answer::new(431, "the head of the request is too large")),
            Ok(Err(HeadError::Malformed | HeadError::Ended)) => Err(Answer::NOT_HTTP),
            Err(_) => Err(Answer::new(408, "the head of the request took too long")),
        }
    }
}

/// A packet at the socket for names, if there is one.
async fn next_packet(names: Option<&UdpSocket>, packet: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    match names {
        Some(names) => names.recv_from(packet).await,
        None => std::future::pending().await,
    }
}

/// The next connection at any of these.
async fn accept_any(listeners: &[TcpListener]) -> io::Result<TcpStream> {
    poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, _)| stream));
            }
        }
        Poll::Pending
    })
    .await
}

async fn pause(what: &'static str, error: &io::Error) {
    tracing::debug!(%error, "the egress proxy cannot {what}");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

// ----------------------------------------------------------------------------------------------------- ProxyHandle

impl ProxyHandle {
    /// Ends all connections and waits until they are gone, so that the meter no longer moves.
    pub async fn stop(mut self) {
        self.stop = None;
        // The task ends by itself; if it was ended from elsewhere, it is gone as well.
        let _ = (&mut self.task).await;
    }
}

impl Drop for ProxyHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// ----------------------------------------------------------------------------------------------------- ProxyLimits

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            head_bytes_max: 32 << 10,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            direct_idle_timeout: Duration::from_secs(2 * 60 * 60),
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- Client

impl Client {
    /// The next byte, which stays unread; `None` if there is none in time.
    async fn next_byte(&mut self, within: Duration) -> Option<u8> {
        timeout(within, self.reader.fill_buf()).await.ok()?.ok()?.first().copied()
    }

    /// Writes an answer of the proxy itself.
    async fn answer(&mut self, answer: &Answer, limits: &ProxyLimits, last: bool, bare: bool) -> io::Result<()> {
        self.write(answer.render(last, bare).as_bytes(), limits).await
    }

    /// Writes a few bytes to a client that may not be reading.
    async fn write(&mut self, bytes: &[u8], limits: &ProxyLimits) -> io::Result<()> {
        timeout(limits.idle_timeout, self.writer.write_all(bytes)).await?
    }

    /// Answers for the last time.
    async fn refuse(&mut self, answer: &Answer, limits: &ProxyLimits) -> io::Result<()> {
        self.answer(answer, limits, true, false).await?;
        self.linger().await
    }

    async fn linger(&mut self) -> io::Result<()> {
        self.writer.shutdown().await?;
        let mut rest = (&mut self.reader).take(LINGER_BYTES_MAX);
        // However this ends, the connection is over.
        let _ = timeout(LINGER, tokio::io::copy_buf(&mut rest, &mut tokio::io::sink())).await;
        Ok(())
    }
}
