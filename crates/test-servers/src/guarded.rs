//! A server that ends with whoever started it, however that ends.
//!
//! A shell stands between: it starts the server, waits until its standard input is closed, which the system does even
//! for a test that was killed, and then ends the server and removes its folder, unless it was told to keep it. So nothing
//! is left running, and no `unsafe` is needed for it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::port::free_port;

/// How long a start may take on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// So often another port is tried when somebody was quicker.
const PORTS_TRIED: usize = 3;

/// `$1` is the signal that ends the server, `$2` the folder to remove (or nothing), the rest the server.
const KEEPER: &str = r#"
signal=$1 folder=$2; shift 2
"$@" </dev/null & server=$!
echo $server
said=$(cat)
kill -CONT $server 2>/dev/null
kill -s "$signal" $server 2>/dev/null
wait $server
[ -z "$folder" ] || [ "$said" = keep ] || rm -rf -- "$folder"
"#;

/// A running server and its keeper.
#[derive(Debug)]
pub struct GuardedServer {
    keeper: Child,
    server: u32,
}

impl GuardedServer {
    /// Starts the server. `signal` ends it in the quickest way that is not a crash.
    pub fn start(server: &[&str], signal: &str, folder: Option<&Path>, log: &Path) -> Result<Self> {
        let log = std::fs::File::create(log).context("cannot make the log of a server")?;
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", signal])
            .arg(folder.unwrap_or_else(|| Path::new("")))
            .args(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start a shell")?;
        let said = keeper.stdout.take().context("the keeper has no output")?;
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line)
            .context("the keeper says nothing")?;
        let server = line.trim().parse().with_context(|| format!("`{}` is no process", line.trim()))?;
        Ok(Self { keeper, server })
    }

    /// Starts a server on a port of loopback and waits until it answers there: the port `had`, or a free one if that is 0.
    pub(crate) fn on_a_port(
        had: u16,
        log: &Path,
        start: impl Fn(u16) -> Result<Self>,
        answers: impl Fn(u16) -> bool,
    ) -> Result<(Self, u16)> {
        for _ in 0..PORTS_TRIED {
            let port = if had == 0 { free_port()? } else { had };
            let server = start(port)?;
            if server.comes_up(|| answers(port)) {
                return Ok((server, port));
            }
            // Its data may be wanted by the next try.
            server.stop();
        }
        let said = std::fs::read_to_string(log).unwrap_or_default();
        bail!("a server did not start:\n{said}")
    }

    /// Waits until `is_ready`. False if it ends before, or takes too long.
    pub(crate) fn comes_up(&self, mut is_ready: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        while start.elapsed() < START_MAX && self.is_running() {
            if is_ready() {
                return true;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        false
    }

    /// The server's process id.
    pub const fn pid(&self) -> u32 {
        self.server
    }

    /// Sends the server a signal by its name, for example `STOP`, `CONT` or `KILL`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").args(["-s", name, &self.server.to_string()]).status()?;
        anyhow::ensure!(status.success(), "the server is gone");
        Ok(())
    }

    /// Is it still there? It may have refused to start, and its keeper looks only at the end: one that has ended is a zombie.
    pub fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.server)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    /// Ends the server, waits for its end, and leaves its folder where it is.
    pub fn stop(mut self) {
        if let Some(keeper) = self.keeper.stdin.as_mut() {
            // A keeper that is gone removes nothing either.
            let _ = std::io::Write::write_all(keeper, b"keep");
        }
        self.end();
    }

    fn end(&mut self) {
        drop(self.keeper.stdin.take());
        // It ends when the server has; if it is gone already, there is nothing to wait for.
        let _ = self.keeper.wait();
    }
}

impl Drop for GuardedServer {
    fn drop(&mut self) {
        self.end();
    }
}
