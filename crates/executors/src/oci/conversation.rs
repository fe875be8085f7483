//! One conversation in simple mode with a program in a sandbox: everything in, everything out, and how it ended.
//!
//! Invariants
//! - TALK-1: all three streams are served at once; a tool that writes before it reads cannot deadlock us.
//! - TALK-2: what is kept is bounded. Too much on stdout ends the conversation, of stderr only the end is kept.
//! - TALK-3: dropping the future drops the child, and with it everything inside ends.

use std::collections::VecDeque;
use std::io;

use sandbox::{Child, Ended};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

/// Bytes of the end of stderr that are kept.
const STDERR_BYTES_KEPT: usize = 4096;
/// Lines of the end of stderr that are logged.
const STDERR_LINES_LOGGED: usize = 20;

/// What a program wrote.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) stdout: Vec<u8>,
    stderr_end: Vec<u8>,
}

/// Why a conversation was broken off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("more than {limit} bytes on stdout")]
    TooMuchOutput { limit: usize },
    #[error("the streams of the process failed")]
    Io(#[from] io::Error),
}

/// Hands `input` over and waits for the end.
pub(super) async fn talk(mut child: Child, input: Vec<u8>, stdout_max: usize) -> Result<(Said, Ended), Broken> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A tool need not read its parameters: a closed pipe is not an error.
            let _ = stdin.write_all(&input).await;
        }
        Ok::<(), Broken>(())
    };
    let ((), stdout, stderr_end) = tokio::try_join!(feed, bounded(stdout, stdout_max), end_of(stderr))?;
    let ended = child.wait().await;
    Ok((Said { stdout, stderr_end }, ended))
}

impl Said {
    /// The last lines of stderr, fit for a log.
    pub(super) fn last_lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr_end);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(STDERR_LINES_LOGGED)..).unwrap_or_default().join("\n");
        last.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
    }
}

async fn bounded(stream: Option<impl AsyncRead + Unpin>, limit: usize) -> Result<Vec<u8>, Broken> {
    let mut output = Vec::new();
    let Some(stream) = stream else { return Ok(output) };
    stream.take(limit as u64 + 1).read_to_end(&mut output).await?;
    if output.len() > limit { Err(Broken::TooMuchOutput { limit }) } else { Ok(output) }
}

async fn end_of(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Broken> {
    let mut kept: VecDeque<u8> = VecDeque::with_capacity(STDERR_BYTES_KEPT);
    let Some(mut stream) = stream else { return Ok(Vec::new()) };
    let mut chunk = [0_u8; 1024];
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(kept.into());
        }
        kept.extend(chunk.get(..count).unwrap_or_default());
        let surplus = kept.len().saturating_sub(STDERR_BYTES_KEPT);
        kept.drain(..surplus);
    }
}
