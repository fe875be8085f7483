//! The gate that stands in until the sandbox's egress gate is joined: literal addresses the manifest declares, and nothing
//! else. Names are never resolved here, so there is nothing to rebind; a declared name is refused as unreachable.
//!
//! The place to join is [`gate`]: the adapter of `sandbox::egress::Gate` implements [`Outbound`] and takes its place.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use kernel::permissions::{NetworkPermission, Permissions};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::outbound::{ConnectError, Outbound, Stream, Traffic};

/// The gate of one call.
pub(super) fn gate(permissions: &Permissions) -> Arc<dyn Outbound> {
    Arc::new(DeclaredAddresses { network: permissions.network.clone(), counts: Arc::default() })
}

#[derive(Debug)]
struct DeclaredAddresses {
    network: Vec<NetworkPermission>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
    violations: Mutex<Vec<String>>,
}

/// Refused destinations that are remembered, and the longest host name among them.
const VIOLATIONS_MAX: usize = 8;
const HOST_CHARS_MAX: usize = 100;

impl Counts {
    fn violation(&self, host: &str, port: u16) {
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        if violations.len() < VIOLATIONS_MAX {
            let host: String = host.chars().take(HOST_CHARS_MAX).collect();
            violations.push(format!("{host}:{port}"));
        }
    }
}

#[async_trait]
impl Outbound for DeclaredAddresses {
    async fn connect(&self, host: &str, port: u16) -> Result<Box<dyn Stream>, ConnectError> {
        let declared = self
            .network
            .iter()
            .any(|allowed| allowed.port == port && allowed.host.trim_matches(['[', ']']).eq_ignore_ascii_case(host));
        if !declared {
            self.counts.violation(host, port);
            return Err(ConnectError::NotAllowed);
        }
        let address: IpAddr = host.parse().map_err(|_| {
            ConnectError::Unreachable(io::Error::new(io::ErrorKind::Unsupported, "names are not resolved here"))
        })?;
        let stream = TcpStream::connect((address, port)).await.map_err(ConnectError::Unreachable)?;
        Ok(Box::new(Counted { stream, counts: Arc::clone(&self.counts) }))
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            sent: self.counts.sent.load(Ordering::Acquire),
            received: self.counts.received.load(Ordering::Acquire),
            violations: self.counts.violations.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// A connection whose bytes are counted.
struct Counted {
    stream: TcpStream,
    counts: Arc<Counts>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buf);
        let read = buf.filled().len().saturating_sub(before) as u64;
        self.counts.received.fetch_add(read, Ordering::AcqRel);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = &polled {
            self.counts.sent.fetch_add(*written as u64, Ordering::AcqRel);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
