//! Simple mode: parameters as JSON on stdin, the result as JSON, the end of the process says how it went (DESIGN §3).
//!
//! The result comes on a channel of its own if the tool uses it (descriptor [`RESULT_FD`](super::streams::RESULT_FD),
//! EXEC-011); then stdout is a log like stderr. A tool that writes nothing there is taken at its stdout. The decision is
//! made at the end, by what came: a tool need not announce anything.
//!
//! Invariants
//! - SIMPLE-1: all streams are served at once; a tool that writes before it reads cannot deadlock us.
//! - SIMPLE-2: a result larger than [`Bounds::result_bytes_max`] breaks the conversation off, and so does more log than
//!   [`Bounds::log_bytes_max`]. Of the log only the end is kept.
//! - SIMPLE-3: once the process has ended, what it left in the pipes is read for [`Bounds::drain_max`] at most: a helper
//!   that holds a pipe open cannot hold the call.
//!
//! Not here: ending the process (whoever holds it does, also when this future is dropped), what the result means
//! ([`output`](super::output)).

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::scrub::Scrubber;
use super::streams::{FromTool, Streams, Tail, ToTool, last_lines};

/// How much is read of a tool, and for how long after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a result. Default 1 MiB (VALID-013). One more breaks the conversation off.
    pub result_bytes_max: usize,
    /// Bytes of stderr, and of stdout where the result has its own channel. Default 64 MiB; one more breaks off.
    pub log_bytes_max: u64,
    /// Bytes of the end of the log that are kept. Default 4 KiB.
    pub log_bytes_kept: usize,
    /// How long output is read after the process has ended. Default one second; what has come by then counts.
    pub drain_max: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            result_bytes_max: super::STDOUT_BYTES_MAX,
            log_bytes_max: 64 << 20,
            log_bytes_kept: 4096,
            drain_max: Duration::from_secs(1),
        }
    }
}

/// What a tool said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conversation {
    stdout: Vec<u8>,
    /// What came on the result channel; empty without one.
    channel: Vec<u8>,
    stderr_end: Vec<u8>,
}

/// Why a conversation was broken off.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
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

/// Hands the parameters over and listens until the tool has closed its streams.
///
/// This is for tools whose end nobody watches; whoever holds a process wants [`talk_until`].
pub async fn talk(streams: Streams, input: &[u8], bounds: &Bounds) -> Result<Conversation, Broken> {
    let mut heard = Heard::new(bounds);
    heard.listen(streams, input, bounds).await?;
    heard.conversation(bounds)
}

/// The same, with an eye on the process: `ended` completes when it has ended and is what the caller wants to know about
/// that. Whoever writes that future also ends there what the process left behind, so that the pipes close.
///
/// Waits for both: a tool may close its streams and go on working.
pub async fn talk_until<E>(
    streams: Streams,
    input: &[u8],
    bounds: &Bounds,
    ended: impl Future<Output = E>,
) -> Result<(E, Conversation), Broken> {
    let mut heard = Heard::new(bounds);
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
    Ok((end, heard.conversation(bounds)?))
}

// ----------------------------------------------------------------------------------------------------- Conversation

impl Conversation {
    /// The result as the tool wrote it: what came on the channel, or else stdout.
    pub fn result(&self) -> &[u8] {
        if self.channel.is_empty() { &self.stdout } else { &self.channel }
    }

    /// The last lines of the log without secrets, fit for the operator: stdout (if it is a log here), then stderr.
    pub fn log(&self, secrets: &Scrubber) -> String {
        let stderr = last_lines(&self.stderr_end, secrets);
        let stdout = if self.channel.is_empty() { String::new() } else { last_lines(&self.stdout, secrets) };
        if stdout.is_empty() || stderr.is_empty() { stdout + &stderr } else { format!("{stdout}\n{stderr}") }
    }
}

// ------------------------------------------------------------------------------------------------------------ Heard

/// What has been heard so far. Kept outside the futures that read, so that stopping them loses nothing.
struct Heard {
    stdout: Vec<u8>,
    /// Bytes on stdout in all; more than are kept only where there is a result channel.
    stdout_seen: u64,
    channel: Vec<u8>,
    stderr: Tail,
}

impl Heard {
    fn new(bounds: &Bounds) -> Self {
        let stderr = Tail::new(bounds.log_bytes_kept);
        Self { stdout: Vec::new(), stdout_seen: 0, channel: Vec::new(), stderr }
    }

    async fn listen(&mut self, streams: Streams, input: &[u8], bounds: &Bounds) -> Result<(), Broken> {
        let Streams { stdin, stdout, stderr, result } = streams;
        let Self { stdout: output, stdout_seen, channel, stderr: log } = self;
        // SIMPLE-1.
        match result {
            None => {
                let whole = whole(stdout, output, bounds.result_bytes_max);
                tokio::try_join!(feed(stdin, input), whole, end_of(stderr, log, bounds.log_bytes_max))?;
                *stdout_seen = output.len() as u64;
            }
            Some(result) => tokio::try_join!(
                feed(stdin, input),
                beginning(stdout, output, stdout_seen, bounds),
                whole(result, channel, bounds.result_bytes_max),
                end_of(stderr, log, bounds.log_bytes_max),
            )
            .map(drop)?,
        }
        Ok(())
    }

    fn conversation(self, bounds: &Bounds) -> Result<Conversation, Broken> {
        // Only now is it known whether stdout was the result.
        if self.channel.is_empty() && self.stdout_seen > bounds.result_bytes_max as u64 {
            return Err(Broken::ResultTooLarge { limit: bounds.result_bytes_max });
        }
        Ok(Conversation { stdout: self.stdout, channel: self.channel, stderr_end: self.stderr.to_vec() })
    }
}

/// A tool need not read its parameters: a closed pipe is not an error.
async fn feed(mut stdin: ToTool, input: &[u8]) -> Result<(), Broken> {
    let _ = stdin.write_all(input).await;
    let _ = stdin.shutdown().await;
    Ok(())
}

/// All of a stream, or an error.
async fn whole(stream: FromTool, into: &mut Vec<u8>, limit: usize) -> Result<(), Broken> {
    stream.take(limit as u64 + 1).read_to_end(into).await?;
    if into.len() > limit { Err(Broken::ResultTooLarge { limit }) } else { Ok(()) }
}

/// The beginning of a stream; the rest is read and thrown away up to the bound of a log.
async fn beginning(stream: FromTool, into: &mut Vec<u8>, seen: &mut u64, bounds: &Bounds) -> Result<(), Broken> {
    read_on(stream, bounds.log_bytes_max, |chunk| {
        *seen += chunk.len() as u64;
        let room = bounds.result_bytes_max.saturating_sub(into.len());
        into.extend(chunk.iter().take(room));
        *seen
    })
    .await
}

async fn end_of(stream: FromTool, into: &mut Tail, limit: u64) -> Result<(), Broken> {
    read_on(stream, limit, |chunk| {
        into.extend(chunk);
        into.seen()
    })
    .await
}

/// Reads a log to its end. `keep` takes each chunk and says how much there was so far.
async fn read_on(
    mut stream: impl AsyncRead + Unpin,
    limit: u64,
    mut keep: impl FnMut(&[u8]) -> u64,
) -> Result<(), Broken> {
    let mut chunk = vec![0_u8; 8192];
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        if keep(chunk.get(..count).unwrap_or_default()) > limit {
            return Err(Broken::LogTooLarge { limit });
        }
    }
}

#[cfg(test)]
mod tests;
