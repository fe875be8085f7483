//! The pace of a connection: how long a client may take for its headers, how long it may be idle or leave what it is sent
//! unread, and how the last answer still reaches it when its request was refused half-read.
//!
//! hyper has one timer for both waits and arms it anew for every request. Here one lazy timer per connection serves
//! both: it is set only when there is nothing to read, and looks at the real deadline when it rings.
//!
//! Closing a socket with unread bytes makes the kernel send a reset, which can overtake the answer. After such an answer
//! the rest of the request is therefore read and thrown away for a moment ([`LINGER`], [`LINGER_BYTES_MAX`]).
//!
//! Not here: time for bodies (`body`), time for calls (the kernel).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base::MutexExt as _;
use contract::ids::TenantId;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::tls::ClientStream;

/// How a request begins whose client cancels it by going away.
const CONVERSATION: &[u8] = b"POST /mcp";
/// How long the rest of a refused request is thrown away.
const LINGER: Duration = Duration::from_secs(2);
/// How much of it.
const LINGER_BYTES_MAX: usize = 32 << 20;

/// What the service tells the connection, in whose task it runs, and whoever looks for connections that are idle.
#[derive(Debug)]
pub(crate) struct ConnectionProgress {
    asked: AtomicU32,
    answered: AtomicU32,
    linger: AtomicBool,
    /// Whose token it has shown last; `None`: a stranger's.
    tenant: Mutex<Option<TenantId>>,
    /// Its request is under way and the body of it is still awaited.
    reading: AtomicBool,
    /// When it became idle, or began to be awaited, in the order of all connections.
    idle_since: AtomicU64,
    /// Another handle on the socket, while a request is on it whose client's going away matters.
    socket: Mutex<Option<OwnedFd>>,
}

/// The order in which connections become idle.
static IDLE_ORDER: AtomicU64 = AtomicU64::new(0);

impl Default for ConnectionProgress {
    /// Of a fresh connection: idle from now on.
    fn default() -> Self {
        Self {
            asked: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            linger: AtomicBool::new(false),
            tenant: Mutex::default(),
            reading: AtomicBool::new(false),
            idle_since: AtomicU64::new(IDLE_ORDER.fetch_add(1, Ordering::Relaxed)),
            socket: Mutex::default(),
        }
    }
}

impl ConnectionProgress {
    /// It shows a token of this tenant.
    pub(crate) fn belongs_to(&self, tenant: &TenantId) {
        *self.tenant.lock_unpoisoned() = Some(tenant.clone());
    }

    /// Whose token it has shown last.
    pub(crate) fn tenant(&self) -> Option<TenantId> {
        self.tenant.lock_unpoisoned().clone()
    }

    /// Was that the token of this tenant?
    pub(crate) fn is_of(&self, tenant: &TenantId) -> bool {
        self.tenant.lock_unpoisoned().as_ref() == Some(tenant)
    }

    /// What can be told of it to whoever looks for room.
    pub(crate) fn pause(&self) -> Option<ConnectionPause> {
        let since = || self.idle_since.load(Ordering::Relaxed);
        if self.asked.load(Ordering::Acquire) == self.answered.load(Ordering::Acquire) {
            return Some(ConnectionPause::Idle(since()));
        }
        self.reading.load(Ordering::Acquire).then(|| ConnectionPause::Reading(since()))
    }

    /// The body of its request is awaited from now on, until what is given back is dropped.
    pub(crate) fn awaits_body(&self) -> AwaitedBody<'_> {
        self.idle_since.store(IDLE_ORDER.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.reading.store(true, Ordering::Release);
        AwaitedBody(self)
    }

    /// The headers of a request are complete.
    pub(crate) fn asked(&self) {
        self.asked.fetch_add(1, Ordering::Release);
    }

    /// Its answer is ready; that of a stream is when the stream has ended ([`AnswerGuard`]).
    pub(crate) fn answered(&self) {
        self.idle_since.store(IDLE_ORDER.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.answered.fetch_add(1, Ordering::Release);
    }

    /// Completes when the client has closed its side, if this can be seen. What a client sends ahead, or says in TLS before it
    /// closes, is left for hyper.
    pub(crate) async fn gone(&self) {
        let socket = self.socket.lock_unpoisoned().take();
        let stream = socket.and_then(|socket| TcpStream::from_std(socket.into()).ok());
        if let Some(stream) = stream {
            while let Ok(ready) = stream.ready(Interest::READABLE).await {
                if ready.is_read_closed() || ready.is_error() {
                    return;
                }
                // Bytes and no end yet: waits for the next event, which is more bytes or the end.
                let _ = stream.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            }
            return;
        }
        std::future::pending().await
    }

    /// Part of the request was left unread.
    pub(crate) fn linger(&self) {
        self.linger.store(true, Ordering::Relaxed);
    }
}

/// Why a connection can make room, and since when, in the order of all connections. One that does neither has a request
/// under way that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionPause {
    /// No request is under way, or its headers are not complete.
    Idle(u64),
    /// The body of its request is not complete.
    Reading(u64),
}

/// A body that is awaited. Dropped, it is no more.
#[derive(Debug)]
pub(crate) struct AwaitedBody<'a>(&'a ConnectionProgress);

impl Drop for AwaitedBody<'_> {
    fn drop(&mut self) {
        self.0.reading.store(false, Ordering::Release);
    }
}

/// An answer under way. Dropped, the answer is done.
#[derive(Debug)]
pub(crate) struct AnswerGuard(pub(crate) Arc<ConnectionProgress>);

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.answered();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// For the first byte of the next request.
    Idle,
    /// For the rest of its headers.
    Head,
}

/// A stream that loses patience.
#[derive(Debug)]
pub(crate) struct PacedStream {
    stream: ClientStream,
    progress: Arc<ConnectionProgress>,
    head_limit: Duration,
    idle_limit: Duration,
    waiting: Waiting,
    since: Instant,
    answered_seen: u32,
    timer: Option<Pin<Box<Sleep>>>,
    thrown_away: usize,
    closing_since: Option<Instant>,
    /// Since when nothing of what is to be written has been taken, and what rings then.
    stalled_since: Option<Instant>,
    stall_timer: Option<Pin<Box<Sleep>>>,
}

impl PacedStream {
    /// A fresh connection: its first headers are due at once.
    pub(crate) fn new(
        stream: ClientStream,
        progress: Arc<ConnectionProgress>,
        head_limit: Duration,
        idle_limit: Duration,
    ) -> Self {
        Self {
            stream,
            progress,
            head_limit,
            idle_limit,
            waiting: Waiting::Head,
            since: Instant::now(),
            answered_seen: 0,
            timer: None,
            thrown_away: 0,
            closing_since: None,
            stalled_since: None,
            stall_timer: None,
        }
    }

    fn notice_answers(&mut self) {
        let answered = self.progress.answered.load(Ordering::Relaxed);
        if answered != self.answered_seen {
            self.answered_seen = answered;
            self.waiting = Waiting::Idle;
            self.since = Instant::now();
        }
    }

    fn notice_bytes(&mut self) {
        self.notice_answers();
        if self.waiting == Waiting::Idle {
            self.waiting = Waiting::Head;
            self.since = Instant::now();
        }
    }

    /// hyper does not read while a request is under way, so it does not see its client go. Where going means "cancel", as in
    /// MCP, somebody else watches, by a handle made here: only for such requests, because each costs a descriptor.
    fn notice_conversation(&self, bytes: &[u8]) {
        if bytes.starts_with(CONVERSATION) {
            let socket = self.stream.as_fd().try_clone_to_owned().ok();
            *self.progress.socket.lock_unpoisoned() = socket;
        }
    }

    /// Pending, or an error once patience is at its end.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.notice_answers();
        if self.progress.asked.load(Ordering::Relaxed) != self.answered_seen {
            return Poll::Pending;
        }
        let limit = match self.waiting {
            Waiting::Idle => self.idle_limit,
            Waiting::Head => self.head_limit,
        };
        ready!(self.poll_deadline(self.since + limit, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        // A timer that rings too early is set again then; one that would ring too late is set again now.
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    /// What becomes of a write: a client that takes nothing for as long as it might be idle has gone, or pretends to.
    fn poll_written<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled_since = None;
            return written;
        }
        let deadline = *self.stalled_since.get_or_insert_with(Instant::now) + self.idle_limit;
        let timer = self.stall_timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Throws away what still comes, until the client closes or the limits are reached.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 8192];
        let since = *self.closing_since.get_or_insert_with(Instant::now);
        while self.thrown_away < LINGER_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return self.poll_deadline(since + LINGER, cx),
                Poll::Ready(Err(_)) => break,
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => break,
                Poll::Ready(Ok(())) => self.thrown_away += buffer.filled().len(),
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for PacedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Pending => self.poll_patience(cx),
            done @ Poll::Ready(_) => {
                if buffer.filled().len() > before {
                    self.notice_bytes();
                    self.notice_conversation(buffer.filled().get(before..).unwrap_or_default());
                }
                done
            }
        }
    }
}

impl AsyncWrite for PacedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.poll_written(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.poll_written(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing_since.is_none() {
            // TLS has a last word to write, which a client may leave unread.
            let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.poll_written(closed, cx))?;
        }
        if self.progress.linger.load(Ordering::Relaxed) {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.poll_written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
