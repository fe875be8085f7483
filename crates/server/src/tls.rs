//! TLS of the doors: the certificate in force, and handshakes that are bounded in time and number.
//!
//! A connection takes one of the door's places only after its handshake. Until then it is a *pending handshake*: each has a
//! deadline, there are at most `tls_handshakes_max` of them, and when all places are taken the oldest that has dawdled for
//! [`DAWDLE`] makes room for the next. Whoever opens connections and says nothing therefore delays nobody else for long.
//!
//! Invariants
//! - TLS-1: the identity in force is whole: chain, matching key and validity were read before it replaced the former one.
//! - TLS-2: a connection keeps the identity it began with; a replacement concerns new handshakes only.
//!
//! Not here: where the files are and when they are read again (`cli`).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use base::RwLockExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use crate::config::ServerConfig;

mod client_stream;
mod identity;
mod validity;

pub(crate) use client_stream::ClientStream;
pub use identity::{TlsError, TlsIdentity, TlsMaterial};

/// A handshake that has taken so long makes room for others when there is none left.
const DAWDLE: Duration = Duration::from_secs(1);

/// The identity in force and what became of handshakes. Shared by the listener and by whoever replaces the identity.
#[derive(Debug)]
pub struct TlsState {
    identity: RwLock<Arc<TlsIdentity>>,
    completed: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    displaced: AtomicU64,
}

/// How many handshakes ended in which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// The client is connected.
    pub completed: u64,
    /// Client and server did not agree, or the client went away.
    pub failed: u64,
    /// The client took too long.
    pub timed_out: u64,
    /// The client dawdled while others waited for a place.
    pub displaced: u64,
}

impl TlsState {
    /// With this identity in force.
    pub fn new(identity: TlsIdentity) -> Arc<Self> {
        Arc::new(Self {
            identity: RwLock::new(Arc::new(identity)),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
        })
    }

    /// The identity in force.
    pub fn identity(&self) -> Arc<TlsIdentity> {
        Arc::clone(&self.identity.read_unpoisoned())
    }

    /// New handshakes use this identity (TLS-2).
    pub fn replace(&self, identity: TlsIdentity) {
        *self.identity.write_unpoisoned() = Arc::new(identity);
    }

    /// How many handshakes ended in which way.
    pub fn counts(&self) -> HandshakeCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HandshakeCounts {
            completed: read(&self.completed),
            failed: read(&self.failed),
            timed_out: read(&self.timed_out),
            displaced: read(&self.displaced),
        }
    }
}

/// Where connections come from: in the clear, or after a handshake.
#[derive(Debug)]
pub struct DoorListener {
    tcp: TcpListener,
    tls: Option<TlsListener>,
}

#[derive(Debug)]
struct TlsListener {
    state: Arc<TlsState>,
    handshakes: Mutex<Handshakes>,
}

impl From<TcpListener> for DoorListener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None }
    }
}

impl DoorListener {
    /// Connections speak TLS, within the limits of the door.
    pub fn with_tls(tcp: TcpListener, state: Arc<TlsState>, config: &ServerConfig) -> Self {
        let handshakes = Handshakes {
            pending: JoinSet::new(),
            begun: VecDeque::new(),
            places: config.tls_handshakes_max,
            deadline: config.tls_handshake_timeout(),
        };
        Self { tcp, tls: Some(TlsListener { state, handshakes: Mutex::new(handshakes) }) }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The next connection; with TLS, the next whose handshake is complete. Safe to drop at any time.
    pub(crate) async fn accept(&self) -> io::Result<(ClientStream, SocketAddr)> {
        match &self.tls {
            None => self.tcp.accept().await.map(|(stream, address)| (ClientStream::Plain(stream), address)),
            Some(tls) => tls.handshakes.lock().await.next(&self.tcp, &tls.state).await,
        }
    }

    /// How long nobody must come before nobody is waiting: handshakes that have begun take a moment more.
    pub(crate) async fn quiet_time(&self, usual: Duration) -> Duration {
        match &self.tls {
            Some(tls) if !tls.handshakes.lock().await.pending.is_empty() => DAWDLE,
            _ => usual,
        }
    }
}

type Shaken = Option<(ClientStream, SocketAddr)>;

/// Handshakes under way.
#[derive(Debug)]
struct Handshakes {
    pending: JoinSet<Shaken>,
    /// When each began, the oldest first; those that have ended are taken off when they come first.
    begun: VecDeque<(AbortHandle, Instant)>,
    places: usize,
    deadline: Duration,
}

impl Handshakes {
    async fn next(&mut self, tcp: &TcpListener, state: &Arc<TlsState>) -> io::Result<(ClientStream, SocketAddr)> {
        loop {
            let dawdled_at = self.oldest().map(|begun| begun + DAWDLE);
            let is_full = self.pending.len() >= self.places;
            tokio::select! {
                Some(ended) = self.pending.join_next(), if !self.pending.is_empty() => {
                    // An error is a handshake that was displaced, which is counted already.
                    if let Ok(Some(connected)) = ended {
                        return Ok(connected);
                    }
                }
                accepted = tcp.accept(), if !is_full => {
                    let (stream, address) = accepted?;
                    self.begin(stream, address, state);
                }
                () = sleep_until(dawdled_at.unwrap_or_else(Instant::now)), if is_full => self.displace(state),
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, address: SocketAddr, state: &Arc<TlsState>) {
        let (state, deadline) = (Arc::clone(state), self.deadline);
        let handle = self.pending.spawn(async move {
            let acceptor = TlsAcceptor::from(state.identity().server_config());
            let (counter, connected) = match timeout(deadline, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => (&state.completed, Some((ClientStream::Tls(Box::new(stream)), address))),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a TLS handshake failed");
                    (&state.failed, None)
                }
                Err(_) => (&state.timed_out, None),
            };
            counter.fetch_add(1, Ordering::Relaxed);
            connected
        });
        self.begun.push_back((handle, Instant::now()));
    }

    /// When the oldest handshake that is still under way began.
    fn oldest(&mut self) -> Option<Instant> {
        while self.begun.pop_front_if(|(handle, _)| handle.is_finished()).is_some() {}
        self.begun.front().map(|(_, begun)| *begun)
    }

    fn displace(&mut self, state: &TlsState) {
        if self.oldest().is_some_and(|begun| begun.elapsed() >= DAWDLE)
            && let Some((handle, _)) = self.begun.pop_front()
        {
            handle.abort();
            state.displaced.fetch_add(1, Ordering::Relaxed);
        }
    }
}
