//! One child process: started without a shell, talked to on its three streams, and gone when this value is.
//!
//! The child leads a process group of its own. Whatever ends the conversation (the result, too much output, the deadline
//! that drops the future), the whole group gets SIGKILL, so that helpers a tool has started do not outlive it.
//!
//! Invariants
//! - CHILD-1: all three streams are served at once; a tool that writes before it reads cannot deadlock us.
//! - CHILD-2: once the leader has ended, what it left in the pipe is read for [`DRAIN_MAX`] at most: a helper that has
//!   left the group and holds the pipe open cannot hold the call.
//!
//! Not here: a process that leaves its group (`setsid`) escapes the kill. Containing that is the sandbox's work.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};

/// Where programs are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Bytes of the end of stderr that are kept.
const STDERR_BYTES_KEPT: usize = 4096;
/// Lines of the end of stderr that are logged.
const STDERR_LINES_LOGGED: usize = 20;
/// How long output is read after the child has ended.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// A running child.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    group: Group,
}

/// What a child left behind.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    stderr_end: Vec<u8>,
}

/// Why a conversation was broken off.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChildError {
    #[error("more than {limit} bytes on stdout")]
    TooMuchOutput { limit: usize },
    #[error("the streams of the process failed")]
    Io(#[from] io::Error),
}

impl Child {
    /// Starts a program in a folder, with nothing of our own environment.
    pub(super) fn start(command: &[String], env: &BTreeMap<String, String>, home: &Path) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let process = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .envs(env)
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = Group::led_by(&process);
        Ok(Self { process, group })
    }

    /// Hands `input` over and waits for the end.
    pub(super) async fn talk(mut self, input: Vec<u8>, stdout_max: usize) -> Result<Ended, ChildError> {
        let (stdin, stdout, stderr) =
            (self.process.stdin.take(), self.process.stdout.take(), self.process.stderr.take());
        let streams = async {
            tokio::try_join!(feed(stdin, &input), bounded(stdout, stdout_max), end_of(stderr))
                .map(|((), stdout, stderr_end)| (stdout, stderr_end))
        };
        tokio::pin!(streams);
        let (status, (stdout, stderr_end)) = tokio::select! {
            read = &mut streams => {
                let read = read?;
                (self.process.wait().await?, read)
            }
            status = self.process.wait() => {
                let status = status?;
                self.group.kill();
                // CHILD-2. Nothing read in time is nothing written.
                let read = tokio::time::timeout(DRAIN_MAX, streams).await.unwrap_or_else(|_| Ok(Default::default()))?;
                (status, read)
            }
        };
        self.group.kill();
        Ok(Ended { status, stdout, stderr_end })
    }
}

impl Ended {
    /// The last lines of stderr, fit for a log.
    pub(super) fn last_lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr_end);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(STDERR_LINES_LOGGED)..).unwrap_or_default().join("\n");
        last.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
    }
}

// ------------------------------------------------------------------------------------------------------------ Group

/// A process group that is killed when this value is dropped.
#[derive(Debug)]
struct Group(Option<rustix::process::Pid>);

impl Group {
    fn led_by(process: &tokio::process::Child) -> Self {
        Self(process.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw))
    }

    /// Once only, and at once after the leader was waited for: while a member lives the number cannot be given to
    /// another group, and a number that has just become free is not given away again for thousands of processes.
    fn kill(&mut self) {
        if let Some(leader) = self.0.take() {
            // The usual answer is "no such process", because a tool normally leaves nothing behind.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

// ---------------------------------------------------------------------------------------------------------- streams

/// A tool need not read its parameters: a closed pipe is not an error.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) -> Result<(), ChildError> {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input).await;
        let _ = stdin.shutdown().await;
    }
    Ok(())
}

async fn bounded(stream: Option<impl AsyncRead + Unpin>, limit: usize) -> Result<Vec<u8>, ChildError> {
    let mut output = Vec::new();
    let Some(stream) = stream else { return Ok(output) };
    stream.take(limit as u64 + 1).read_to_end(&mut output).await?;
    if output.len() > limit { Err(ChildError::TooMuchOutput { limit }) } else { Ok(output) }
}

async fn end_of(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, ChildError> {
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
