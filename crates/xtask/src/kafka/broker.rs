//! The broker: a process on loopback that keeps its topics in a file.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A start that takes longer has failed.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running broker; ended when it is dropped.
pub(super) struct Broker {
    child: Child,
    pub(super) address: String,
}

impl Broker {
    /// On a free port, with its file in this folder.
    pub(super) fn start(program: &Path, home: &Path) -> Result<Self> {
        // Free now; whoever takes it in between makes the start fail, and that is said.
        let port = TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port();
        Self::start_at(program, home, format!("127.0.0.1:{port}"))
    }

    fn start_at(program: &Path, home: &Path, address: String) -> Result<Self> {
        let log = home.join("broker.log");
        let sink = File::options().create(true).append(true).open(&log).context("cannot make the log file")?;
        let url = format!("tcp://{address}");
        let child = Command::new(program)
            .args(["broker", "--storage-engine", "sqlite://topics.db"])
            .args(["--listener-url", &url, "--advertised-listener-url", &url])
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(sink.try_clone()?)
            .stderr(sink)
            .spawn()
            .context("cannot start the broker")?;
        let mut broker = Self { child, address };
        let start = Instant::now();
        while TcpStream::connect(&broker.address).is_err() {
            let ended = broker.child.try_wait().context("cannot look at the broker")?;
            if ended.is_some() || start.elapsed() > START_TIME_MAX {
                bail!("the broker did not start; it said:\n{}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(broker)
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        super::kill(&mut self.child)
    }

    /// The same broker once more: the same address, the same file.
    pub(super) fn again(mut self, program: &Path, home: &Path) -> Result<Self> {
        let address = std::mem::take(&mut self.address);
        drop(self);
        Self::start_at(program, home, address)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
