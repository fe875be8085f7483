//! What a guest writes: a result that is bounded, and a log of which the end is kept.
//!
//! Both are memory on our side and never block the guest. A guest that writes more than a result may have is stopped on
//! the spot, because everything it does from then on is for nothing.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use base::MutexExt as _;
use bytes::Bytes;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::process::streams::StreamTail;

/// Bytes of the end of stderr that are kept.
const LOG_BYTES_KEPT: usize = 4096;
/// Bytes a stream takes at once.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// The result a command writes to stdout.
#[derive(Debug, Clone)]
pub(super) struct ResultStream {
    written: Arc<Mutex<Written>>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Written {
    bytes: Vec<u8>,
    too_much: bool,
}

/// More was written than a result may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more output than a result may have")]
pub(super) struct TooMuchOutput;

impl ResultStream {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { written: Arc::default(), bytes_max }
    }

    /// What was written.
    pub(super) fn take(&self) -> Result<Vec<u8>, TooMuchOutput> {
        let mut written = self.written.lock_unpoisoned();
        if written.too_much { Err(TooMuchOutput) } else { Ok(std::mem::take(&mut written.bytes)) }
    }
}

#[async_trait]
impl Pollable for ResultStream {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for ResultStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut written = self.written.lock_unpoisoned();
        if written.bytes.len().saturating_add(bytes.len()) > self.bytes_max {
            written.too_much = true;
            return Err(StreamError::Trap(TooMuchOutput.into()));
        }
        written.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(CHUNK_BYTES_MAX)
    }
}

/// What a guest writes to stderr, or to stdout where that is not the result.
#[derive(Debug, Clone)]
pub(super) struct LogStream {
    end: Arc<Mutex<StreamTail>>,
}

impl Default for LogStream {
    fn default() -> Self {
        Self { end: Arc::new(Mutex::new(StreamTail::new(LOG_BYTES_KEPT))) }
    }
}

impl LogStream {
    /// The last whole lines of it, fit for a log once they are redacted.
    pub(super) fn last_lines(&self) -> String {
        let end = self.end.lock_unpoisoned();
        printable(&end.text())
    }
}

#[async_trait]
impl Pollable for LogStream {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for LogStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.end.lock_unpoisoned().extend(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(CHUNK_BYTES_MAX)
    }
}

/// A guest's words without what could move a terminal's cursor or break a log's line.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

// Both are the same behind every handle a guest opens, and neither is a terminal.

impl IsTerminal for ResultStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for ResultStream {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only WASI 0.3 asks for it, which is not linked.
        Box::new(tokio::io::sink())
    }
}

impl StdoutStream for LogStream {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_whole_or_too_much() {
        let mut stream = ResultStream::new(4);
        stream.write(Bytes::from_static(b"1234")).unwrap();
        assert_eq!(stream.take(), Ok(b"1234".to_vec()));
        let mut stream = ResultStream::new(4);
        stream.write(Bytes::from_static(b"123")).unwrap();
        assert!(matches!(stream.write(Bytes::from_static(b"45")), Err(StreamError::Trap(_))));
        assert_eq!(stream.take(), Err(TooMuchOutput));
    }

    #[test]
    fn of_a_log_the_end_is_kept() {
        let mut stream = LogStream::default();
        for _ in 0..100 {
            stream.write(Bytes::from(vec![b'a'; 1000])).unwrap();
        }
        stream.write(Bytes::from_static(b"password=")).unwrap();
        stream.write(Bytes::from(vec![b'b'; 5000])).unwrap();
        assert_eq!(stream.last_lines(), "", "what began before may be the rest of a secret");
        stream.write(Bytes::from_static(b"\nthe end\x1b[2J")).unwrap();
        assert_eq!(stream.last_lines(), "the end\u{fffd}[2J");
    }
}
