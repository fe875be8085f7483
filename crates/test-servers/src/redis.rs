//! Redis 7, which keeps nothing: one server that can be killed, frozen and started again, empty, at the same address.
//!
//! It is spoken to in the plainest form of its protocol, on a connection for each question, so that tests need no client
//! and see what anybody else would see.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::guarded::GuardedServer;
use crate::port::lasting_port;

/// How long a start, or an answer, may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// So often another port is tried when somebody was quicker.
const PORTS_TRIED: usize = 50;

/// A server, running or not.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    options: Vec<String>,
    folder: TempDir,
    server: Option<GuardedServer>,
}

impl RedisServer {
    /// Starts a server that keeps nothing on disk.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// The same with more options, such as `--maxmemory` and `2mb`.
    pub fn start_with(options: &[&str]) -> Result<Self> {
        let mut redis = Self::planned(options)?;
        for _ in 0..PORTS_TRIED {
            if redis.try_start()? {
                return Ok(redis);
            }
            redis.port = lasting_port()?;
        }
        bail!("no Redis could be started; its log: {}", redis.log())
    }

    /// An address where a server may come later.
    pub fn planned(options: &[&str]) -> Result<Self> {
        let options = options.iter().map(ToString::to_string).collect();
        Ok(Self { port: lasting_port()?, options, folder: TempDir::new()?, server: None })
    }

    /// Starts it, empty, at its address.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.try_start()?, "Redis did not come back; its log: {}", self.log());
        Ok(())
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }

    /// Sends the server a signal by its name: after `STOP` it keeps its connections and answers nobody, until `CONT`.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.server.as_ref().context("the server is not running")?.signal(name)
    }

    /// The port of loopback it listens on.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// One command on a connection of its own; the whole answer as it came.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).context("Redis cannot be reached")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = String::new();
        for command in [words, &["QUIT"]] {
            request += &format!("*{}\r\n", command.len());
            for word in command {
                request += &format!("${}\r\n{word}\r\n", word.len());
            }
        }
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// False if it ended at once: somebody else has the port.
    fn try_start(&mut self) -> Result<bool> {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let port = self.port.to_string();
        let mut words = vec!["redis-server", "--port", &port, "--bind", "127.0.0.1", "--dir", &folder];
        words.extend(["--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", "redis.log"]);
        words.extend(self.options.iter().map(String::as_str));
        let server = GuardedServer::start(&words, "KILL", None, &self.folder.path().join("errors.log"))?;
        let wanted = format!("process_id:{}", server.pid());
        let start = Instant::now();
        while start.elapsed() < PATIENCE && server.is_running() {
            if let Ok(info) = self.ask(&["INFO", "server"]) {
                // One that wants a password says nothing about itself. Another's server may have been faster at the port.
                if info.starts_with("-NOAUTH") || info.lines().any(|line| line.trim() == wanted) {
                    self.server = Some(server);
                    return Ok(true);
                }
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(false)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("redis.log")).unwrap_or_default()
    }
}
