//! Lines to and from a tool, all three streams at once.
//!
//! Invariants
//! - PIPE-1: everything is cancel-safe. Whoever drops [`Pipe::next`] half way finds the pipe as it was: what has been read
//!   is in `inbox`, what is to be written in `outbox`. That is what lets a call be dropped and then cancelled in order.
//! - PIPE-2: writing never waits for the tool to read while the tool waits for us to read; both go on side by side.
//! - PIPE-3: bounded: the length of a line, the bytes of a call, the log, and what waits to be written.
//!
//! Not here: what the lines say.

use std::fmt;
use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::wire::ProtocolFault;
use super::{SessionBounds, SessionError};
use crate::process::log_end::LogEnd;
use crate::process::streams::{FromTool, ProcessStreams, ToTool};

/// Bytes asked of a stream at once.
const CHUNK_BYTES: usize = 16 << 10;

/// The streams of one process in session mode.
pub(super) struct Pipe {
    stdin: ToTool,
    /// Cleared when the tool has closed its end; it may still answer.
    stdin_open: bool,
    outbox: Vec<u8>,
    /// Bytes of the outbox that are written already.
    written: usize,
    unflushed: bool,
    stdout: FromTool,
    inbox: Vec<u8>,
    /// Bytes of the inbox that were given out as lines already.
    given: usize,
    /// Bytes of the inbox in which there is no end of a line.
    scanned: usize,
    stderr: FromTool,
    stderr_open: bool,
    log: LogEnd,
    /// Bytes on stdout during this call.
    heard: u64,
    bounds: SessionBounds,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PipeLine {
    /// A line, without its end.
    Line(Vec<u8>),
    /// The tool has closed its stdout; a line without an end is none.
    End,
}

impl Pipe {
    pub(super) fn new(streams: ProcessStreams, bounds: SessionBounds) -> Self {
        let ProcessStreams { stdin, stdout, stderr, log } = streams;
        log.keep(bounds.log_bytes_kept);
        Self {
            stdin,
            stdin_open: true,
            outbox: Vec::new(),
            written: 0,
            unflushed: false,
            stdout,
            inbox: Vec::new(),
            given: 0,
            scanned: 0,
            stderr,
            stderr_open: true,
            log,
            heard: 0,
            bounds,
        }
    }

    /// Counts anew, for the next call.
    pub(super) fn begin(&mut self) {
        self.heard = 0;
        self.log.clear();
    }

    /// Gives back the memory of a large call, because an idle process may wait long.
    pub(super) fn rest(&mut self) {
        self.outbox.drain(..self.written);
        self.written = 0;
        self.outbox.shrink_to(CHUNK_BYTES);
        self.inbox.shrink_to(CHUNK_BYTES);
    }

    /// Has the tool said nothing since the last call, and not closed its stdout?
    pub(super) async fn is_quiet(&mut self) -> bool {
        if self.given < self.inbox.len() {
            return false;
        }
        // Lets the runtime look at the streams first.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            _ = self.stdout.read_buf(&mut self.inbox) => false,
            () = std::future::ready(()) => true,
        }
    }

    /// Puts a line into the outbox.
    pub(super) fn send(&mut self, line: &[u8]) -> Result<(), ProtocolFault> {
        if !self.stdin_open {
            return Ok(());
        }
        self.outbox.drain(..self.written);
        self.written = 0;
        // A single line may be large (parameters are bounded elsewhere); what must not be is a heap of unread ones.
        if self.outbox.len() > self.bounds.unread_bytes_max {
            return Err(ProtocolFault::Unread);
        }
        self.outbox.extend_from_slice(line);
        Ok(())
    }

    /// The next line. Writes and reads the log meanwhile.
    pub(super) async fn next(&mut self) -> Result<PipeLine, SessionError> {
        loop {
            if let Some(line) = self.line()? {
                return Ok(PipeLine::Line(line));
            }
            if self.heard > self.bounds.call_bytes_max {
                return Err(SessionError::TooMuch { what: "output", limit: self.bounds.call_bytes_max });
            }
            if self.log.seen() > self.bounds.log_bytes_max {
                return Err(SessionError::TooMuch { what: "log", limit: self.bounds.log_bytes_max });
            }
            if self.pass().await? == 0 {
                return Ok(PipeLine::End);
            }
        }
    }

    /// Reads what is left of the log, after the end.
    pub(super) async fn drain_log(&mut self) {
        let patience = self.bounds.drain_max;
        // What has come by then is what there is.
        let _ = tokio::time::timeout(patience, self.rest_of_log()).await;
    }

    /// Reads what the tool wrote to its log before it answered, without waiting for more.
    pub(super) async fn take_log(&mut self) {
        // Lets the runtime look at the streams first.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            () = self.rest_of_log() => {}
            () = std::future::ready(()) => {}
        }
    }

    async fn rest_of_log(&mut self) {
        let mut chunk = vec![0_u8; CHUNK_BYTES];
        while self.stderr_open && self.log.seen() <= self.bounds.log_bytes_max {
            let count = self.stderr.read(&mut chunk).await.unwrap_or(0);
            self.stderr_open = count > 0;
            self.log.extend(chunk.get(..count).unwrap_or_default());
        }
    }

    /// The end of the log of this call.
    pub(super) fn log(&self) -> String {
        self.log.text()
    }

    /// A line on stdout was no message: whoever may read the log sees which.
    pub(super) fn note_stray(&self, line: &[u8]) {
        self.log.note_stray(None, line);
    }

    /// A whole line of the inbox that says something.
    fn line(&mut self) -> Result<Option<Vec<u8>>, ProtocolFault> {
        loop {
            let fresh = self.inbox.get(self.scanned..).unwrap_or_default();
            let Some(at) = fresh.iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.inbox.len();
                self.inbox.drain(..self.given);
                self.scanned -= self.given;
                self.given = 0;
                return if self.inbox.len() > self.bounds.line_bytes_max { Err(self.too_long()) } else { Ok(None) };
            };
            let end = self.scanned + at;
            let line = self.inbox.get(self.given..end).unwrap_or_default().to_vec();
            self.given = end + 1;
            self.scanned = self.given;
            if line.len() > self.bounds.line_bytes_max {
                return Err(self.too_long());
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    fn too_long(&self) -> ProtocolFault {
        ProtocolFault::LineTooLong { max: self.bounds.line_bytes_max }
    }

    /// Moves some bytes, one way or another. 0 says that stdout has ended. PIPE-1: each branch is cancel-safe.
    async fn pass(&mut self) -> io::Result<usize> {
        let Self {
            stdin, stdin_open, outbox, written, unflushed, stdout, inbox, stderr, stderr_open, log, heard, ..
        } = self;
        inbox.reserve(CHUNK_BYTES);
        let mut chunk = [0_u8; 2048];
        let waiting = outbox.get(*written..).unwrap_or_default();
        tokio::select! {
            read = stdout.read_buf(inbox) => {
                let count = read?;
                *heard = heard.saturating_add(count as u64);
                Ok(count)
            }
            pushed = push(stdin, waiting), if *stdin_open && (*unflushed || !waiting.is_empty()) => {
                // A tool that has closed its stdin may still answer.
                *stdin_open = pushed.is_ok();
                *unflushed = !waiting.is_empty();
                *written += pushed.unwrap_or(0);
                Ok(1)
            }
            read = stderr.read(&mut chunk), if *stderr_open => {
                let count = read.unwrap_or(0);
                *stderr_open = count > 0;
                log.extend(chunk.get(..count).unwrap_or_default());
                Ok(1)
            }
        }
    }
}

/// Writes some of what waits, or flushes if nothing does.
async fn push(stdin: &mut ToTool, waiting: &[u8]) -> io::Result<usize> {
    if waiting.is_empty() {
        stdin.flush().await?;
        return Ok(0);
    }
    match stdin.write(waiting).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe")
            .field("inbox", &self.inbox.len())
            .field("outbox", &self.outbox.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;

    const LINE_MAX: usize = 40;

    /// What a reader that has everything at once would find: lines until one is too long.
    fn expected(text: &[u8]) -> (Vec<Vec<u8>>, bool) {
        let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let rest = lines.pop().unwrap_or_default();
        let fine = lines.iter().take_while(|line| line.len() <= LINE_MAX).count();
        let too_long = fine < lines.len() || rest.len() > LINE_MAX;
        let said = lines.iter().take(fine).filter(|line| !line.trim_ascii().is_empty()).map(|line| line.to_vec());
        (said.collect(), too_long)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn lines_are_the_same_however_they_arrive(
            pieces in prop::collection::vec("[ab \\n]{0,60}", 0..12),
            capacity in 1_usize..50,
            drops in any::<bool>(),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let text = pieces.concat();
            let (found, too_long) = runtime.block_on(async {
                let (stdout, mut tool) = duplex(capacity);
                let streams = ProcessStreams::new(tokio::io::sink(), stdout, tokio::io::empty());
                let mut pipe = Pipe::new(streams, SessionBounds { line_bytes_max: LINE_MAX, ..SessionBounds::default() });
                let writer = tokio::spawn(async move {
                    for piece in pieces {
                        let _ = tool.write_all(piece.as_bytes()).await;
                        tokio::task::yield_now().await;
                    }
                });
                let mut found = Vec::new();
                let too_long = loop {
                    // PIPE-1: a future that is dropped half way loses nothing.
                    if drops {
                        tokio::select! {
                            biased;
                            heard = pipe.next() => match heard {
                                Ok(PipeLine::Line(line)) => found.push(line),
                                Ok(PipeLine::End) => break false,
                                Err(_) => break true,
                            },
                            () = tokio::task::yield_now() => {}
                        }
                    } else {
                        match pipe.next().await {
                            Ok(PipeLine::Line(line)) => found.push(line),
                            Ok(PipeLine::End) => break false,
                            Err(_) => break true,
                        }
                    }
                };
                drop(pipe);
                writer.await.unwrap();
                (found, too_long)
            });
            prop_assert_eq!((found, too_long), expected(text.as_bytes()));
        }
    }
}
