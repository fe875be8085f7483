//! A Redis for tests: on a free port of loopback, with a directory of its own, and gone with the test program however that
//! ends.
//!
//! The server is the child of a shell that reads its standard input. Whoever holds the other end, this process, closes it by
//! dying, and the shell kills the server then: also one that was stopped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gantry_shared_state::{RedisSettings, RedisState};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long anything may take on a machine that has much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Ports that the system does not give to others by itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Attempts to find one that stays free until the server has it.
const ATTEMPTS_MAX: usize = 50;

const KEEPER: &str = r#"redis-server "$@" >"$0/log" 2>&1 &
server=$!
echo "$server"
cat >/dev/null
kill -9 "$server"
wait "$server" 2>/dev/null
exit 0"#;

/// A server that can be stopped, killed and started again.
pub(crate) struct Server {
    port: u16,
    options: Vec<String>,
    directory: TempDir,
    running: Option<Running>,
}

struct Running {
    keeper: Child,
    pid: Pid,
}

impl Server {
    /// One that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more options.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        let mut server = Self::planned(options);
        for _ in 0..ATTEMPTS_MAX {
            if server.try_run() {
                return server;
            }
            server.port = free_port();
        }
        panic!("no Redis could be started; its log: {}", server.log());
    }

    /// An address where a server may come later.
    pub(crate) fn planned(options: &[&str]) -> Self {
        Self {
            port: free_port(),
            options: options.iter().map(ToString::to_string).collect(),
            directory: TempDir::new().unwrap(),
            running: None,
        }
    }

    /// Starts it, empty, at the same address.
    pub(crate) fn run(&mut self) {
        assert!(self.try_run(), "the server did not come back; its log: {}", self.log());
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// It keeps its connections and answers nobody.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// It goes on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            drop(running.keeper.stdin.take());
            running.keeper.wait().unwrap();
        }
    }

    /// Says something to it from outside, in the plainest form of its protocol; answers the first line.
    pub(crate) fn say(&self, words: &[&str]) -> String {
        said(self.port, words).expect("the server answers")
    }

    /// The same for a question whose answer is a text.
    pub(crate) fn say_bulk(&self, words: &[&str]) -> String {
        asked(self.port, words).and_then(|answer| answer.lines().nth(1).map(str::to_owned)).expect("an answer")
    }

    /// Its clock, in microseconds since the Unix epoch.
    pub(crate) fn time_us(&self) -> u64 {
        let answer = asked(self.port, &["TIME"]).expect("an answer");
        let number = |line| answer.lines().nth(line).and_then(|text| text.parse::<u64>().ok()).expect("a number");
        number(2) * 1_000_000 + number(4)
    }

    /// Somebody else who listens to a channel.
    pub(crate) fn listen(&self, channel: &str) -> Listener {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{channel}\r\n", channel.len()).unwrap();
        let mut listener = Listener(BufReader::new(stream));
        // `subscribe`, the channel, and how many there are now.
        while !listener.line().starts_with(':') {}
        listener
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.running.as_ref().expect("a server that runs").pid, signal).unwrap();
    }

    fn try_run(&mut self) -> bool {
        let directory = self.directory.path().to_str().unwrap().to_owned();
        let port = self.port.to_string();
        #[expect(clippy::disallowed_methods, reason = "a test starts the server it needs")]
        let mut keeper = Command::new("/bin/sh")
            .args(["-c", KEEPER, &directory, "--port", &port, "--bind", "127.0.0.1", "--dir", &directory])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(&self.options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        self.running = Some(Running { keeper, pid });
        let up = is_up(self.port, pid);
        if !up {
            self.kill();
        }
        up
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A connection that hears one channel.
pub(crate) struct Listener(BufReader<TcpStream>);

impl Listener {
    /// The next message.
    pub(crate) fn next_message(&mut self) -> String {
        while self.line() != "message" {}
        // The length of the channel, the channel, the length of the message, the message.
        (0..4).map(|_| self.line()).last().unwrap()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the server hung up");
        line.trim_end().to_owned()
    }
}

/// The server of the suites. Lives as long as the test program.
pub(crate) fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

/// Settings of one more replica, patient unless a test is about impatience.
pub(crate) fn settings(server: &Server, namespace: &str) -> RedisSettings {
    RedisSettings {
        namespace: namespace.into(),
        connect_timeout: Duration::from_secs(20),
        operation_timeout: Duration::from_secs(20),
        ..RedisSettings::new(server.url(), unique("r"))
    }
}

/// One more replica, connected.
pub(crate) async fn replica(server: &Server, namespace: &str) -> RedisState {
    let state = RedisState::open(&settings(server, namespace)).unwrap();
    within(state.ready()).await;
    state
}

/// A name that no other test of this program has.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What must come, comes.
pub(crate) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it took too long")
}

fn free_port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let span = u64::from(PORTS.end - PORTS.start);
    let start = u64::from(std::process::id()).wrapping_mul(7_919);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + u16::try_from((start + step) % span).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Does this very process answer there? Another's server may have been faster at the port.
#[expect(clippy::disallowed_methods, reason = "a server is waited for by the machine's clock")]
fn is_up(port: u16, pid: Pid) -> bool {
    let wanted = format!("process_id:{}", pid.as_raw_nonzero());
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if rustix::process::test_kill_process(pid).is_err() {
            return false;
        }
        if let Some(info) = asked(port, &["INFO", "server"]) {
            // One that wants a password says nothing about itself.
            return info.starts_with("-NOAUTH") || info.lines().any(|line| line.trim() == wanted);
        }
        std::thread::yield_now();
    }
    false
}

fn said(port: u16, words: &[&str]) -> Option<String> {
    let answer = asked(port, words)?;
    Some(answer.lines().next().unwrap_or_default().to_owned())
}

/// One question on a connection of its own, the whole answer as text.
fn asked(port: u16, words: &[&str]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut request = String::new();
    for command in [words, &["QUIT"]] {
        request += &format!("*{}\r\n", command.len());
        for word in command {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
    }
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
