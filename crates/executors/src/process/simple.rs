//! Simple mode: parameters as JSON on stdin, the result as JSON, the end of the process says how it went (DESIGN §3).
//!
//! stdout carries the result and nothing else, stderr the log and nothing else (EXEC-011).
//!
//! Invariants
//! - SIMPLE-1: all streams are served at once; a tool that writes before it reads cannot deadlock us.
//! - SIMPLE-2: a result larger than [`ReadBounds::result_bytes_max`] breaks the conversation off, and so does more log than
//!   [`ReadBounds::log_bytes_max`]. Of the log only the end is kept.
//! - SIMPLE-3: once the process has ended, what it left in the pipes is read for [`ReadBounds::drain_max`] at most: a helper
//!   that holds a pipe open cannot hold the call.
//!
//! Not here: ending the process (whoever holds it does, also when this future is dropped), what the result means
//! ([`output`](super::output)).

use std::io;
use std::time::Duration;

use ports::executor::ToolCall;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::log_end::LogEnd;
use super::scrub::SecretScrubber;
use super::streams::{FromTool, ProcessStreams, ToTool};

/// How much is read of a tool, and for how long after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadBounds {
    /// Bytes of a result; what the call allows (VALID-013), in a call of nobody 1 MiB. One more breaks the conversation off.
    pub result_bytes_max: usize,
    /// Bytes of stderr. Default 64 MiB; one more breaks off.
    pub log_bytes_max: u64,
    /// Bytes of the end of the log that are kept. Default 4 KiB.
    pub log_bytes_kept: usize,
    /// How long output is read after the process has ended. Default one second; what has come by then counts.
    pub drain_max: Duration,
}

impl Default for ReadBounds {
    fn default() -> Self {
        Self {
            result_bytes_max: 1 << 20,
            log_bytes_max: 64 << 20,
            log_bytes_kept: 4096,
            drain_max: Duration::from_secs(1),
        }
    }
}

impl ReadBounds {
    /// For one call.
    pub(super) fn of(call: &ToolCall) -> Self {
        Self { result_bytes_max: super::result_bytes_max(call), ..Self::default() }
    }
}

/// What a tool said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolOutputStream {
    stdout: Vec<u8>,
    stderr_end: String,
}

/// Why a conversation was broken off.
#[derive(Debug, thiserror::Error)]
pub enum BreakOff {
    /// The result is larger than a result may be.
    #[error("the tool's result is larger than {limit} bytes")]
    ResultTooLarge { limit: usize },
    /// The tool floods its log.
    #[error("the tool wrote more than {limit} bytes to its log")]
    LogTooLarge { limit: u64 },
    /// A stream failed under us.
    #[error("the connection to the tool broke")]
    Io(#[from] io::Error),
}

/// Hands the parameters over and listens, with an eye on the process: `ended` completes when it has ended and is what the
/// caller wants to know about that. Whoever writes that future also ends there what the process left behind, so that the
/// pipes close.
///
/// Waits for both: a tool may close its streams and go on working.
pub async fn talk_until<E>(
    streams: ProcessStreams,
    input: &[u8],
    bounds: &ReadBounds,
    ended: impl Future<Output = E>,
) -> Result<(E, ToolOutputStream), BreakOff> {
    let mut heard = ReadOutput::new(streams.log.clone(), bounds);
    let end = {
        let listening = heard.listen(streams, input, bounds);
        tokio::pin!(listening, ended);
        tokio::select! {
            heard = &mut listening => {
                heard?;
                ended.await
            }
            end = &mut ended => {
                // SIMPLE-3: what the tool itself wrote is in the pipe, so what was read in time is what it said.
                if let Ok(heard) = tokio::time::timeout(bounds.drain_max, listening).await {
                    heard?;
                }
                end
            }
        }
    };
    Ok((end, heard.conversation()))
}

// ----------------------------------------------------------------------------------------------------- Conversation

impl ToolOutputStream {
    /// The result as the tool wrote it.
    pub fn result(&self) -> &[u8] {
        &self.stdout
    }

    /// The end of the log without the secrets that the tool was given. It is redacted before its last lines are shown.
    pub fn log(&self, secrets: &SecretScrubber) -> String {
        secrets.text(&self.stderr_end).into_owned()
    }
}

// ------------------------------------------------------------------------------------------------------------ Heard

/// What has been heard so far. Kept outside the futures that read, so that stopping them loses nothing.
struct ReadOutput {
    stdout: Vec<u8>,
    stderr: LogEnd,
}

impl ReadOutput {
    fn new(log: LogEnd, bounds: &ReadBounds) -> Self {
        log.keep(bounds.log_bytes_kept);
        Self { stdout: Vec::new(), stderr: log }
    }

    async fn listen(&mut self, streams: ProcessStreams, input: &[u8], bounds: &ReadBounds) -> Result<(), BreakOff> {
        let ProcessStreams { stdin, stdout, stderr, log: _ } = streams;
        // SIMPLE-1.
        tokio::try_join!(
            feed(stdin, input),
            whole(stdout, &mut self.stdout, bounds.result_bytes_max),
            end_of(stderr, &self.stderr, bounds.log_bytes_max),
        )
        .map(drop)
    }

    fn conversation(self) -> ToolOutputStream {
        ToolOutputStream { stdout: self.stdout, stderr_end: self.stderr.text() }
    }
}

/// A tool need not read its parameters: a closed pipe is not an error.
async fn feed(mut stdin: ToTool, input: &[u8]) -> Result<(), BreakOff> {
    // See above: what it has not read it did not want.
    let _ = stdin.write_all(input).await;
    let _ = stdin.shutdown().await;
    Ok(())
}

/// All of a stream, or an error.
async fn whole(stream: FromTool, into: &mut Vec<u8>, limit: usize) -> Result<(), BreakOff> {
    stream.take(limit as u64 + 1).read_to_end(into).await?;
    if into.len() > limit { Err(BreakOff::ResultTooLarge { limit }) } else { Ok(()) }
}

/// Reads a log to its end, of which the last is kept.
async fn end_of(mut stream: FromTool, into: &LogEnd, limit: u64) -> Result<(), BreakOff> {
    let mut chunk = vec![0_u8; 8192];
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        into.extend(chunk.get(..count).unwrap_or_default());
        if into.seen() > limit {
            return Err(BreakOff::LogTooLarge { limit });
        }
    }
}

#[cfg(test)]
mod tests;
