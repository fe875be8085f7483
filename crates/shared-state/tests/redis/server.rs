//! A Redis for tests, as they speak of it: a server of `test_servers`, replicas that use it, and somebody else who listens.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_shared_state::{RedisSettings, RedisState};
use test_servers::RedisServer;

/// How long anything may take on a machine that has much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that can be stopped, killed and started again.
pub(crate) struct Server(RedisServer);

impl Server {
    /// One that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more options.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        Self(RedisServer::start_with(options).unwrap())
    }

    /// An address where a server may come later.
    pub(crate) fn planned(options: &[&str]) -> Self {
        Self(RedisServer::planned(options).unwrap())
    }

    /// Starts it, empty, at the same address.
    pub(crate) fn run(&mut self) {
        self.0.start_again().unwrap();
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    /// It keeps its connections and answers nobody.
    pub(crate) fn freeze(&self) {
        self.0.signal("STOP").unwrap();
    }

    /// It goes on.
    pub(crate) fn thaw(&self) {
        self.0.signal("CONT").unwrap();
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Says something to it from outside; answers the first line.
    pub(crate) fn say(&self, words: &[&str]) -> String {
        self.0.ask(words).unwrap().lines().next().unwrap_or_default().to_owned()
    }

    /// The same for a question whose answer is a text.
    pub(crate) fn say_bulk(&self, words: &[&str]) -> String {
        self.0.ask(words).unwrap().lines().nth(1).expect("an answer").to_owned()
    }

    /// Its clock, in microseconds since the Unix epoch.
    pub(crate) fn time_us(&self) -> u64 {
        let answer = self.0.ask(&["TIME"]).unwrap();
        let number = |line| answer.lines().nth(line).and_then(|text| text.parse::<u64>().ok()).expect("a number");
        number(2) * 1_000_000 + number(4)
    }

    /// Somebody else who listens to a channel.
    pub(crate) fn listen(&self, channel: &str) -> Listener {
        let mut stream = TcpStream::connect(("127.0.0.1", self.0.port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{channel}\r\n", channel.len()).unwrap();
        let mut listener = Listener(BufReader::new(stream));
        // `subscribe`, the channel, and how many there are now.
        while !listener.line().starts_with(':') {}
        listener
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
