//! One child process without a sandbox: started without a shell, and gone when this value is.
//!
//! The child leads a process group of its own. Whatever ends the conversation (the result, too much output, the deadline
//! that drops the future), the whole group gets SIGKILL, so that helpers a tool has started do not outlive it.
//!
//! Not here: the conversation (`simple`). A process that leaves its group (`setsid`) escapes the kill; containing that is
//! what the sandbox is for.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::process::Command;

use super::streams::ProcessStreams;

/// Where programs are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A running child.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    group: Group,
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

    /// Its streams, once.
    pub(super) fn streams(&mut self) -> Option<ProcessStreams> {
        Some(ProcessStreams::new(self.process.stdin.take()?, self.process.stdout.take()?, self.process.stderr.take()?))
    }

    /// Waits for the end of the leader, and ends what it left behind.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.process.wait().await;
        self.group.kill();
        status
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
