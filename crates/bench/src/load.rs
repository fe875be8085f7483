//! The load generator: N connections, each sending its next request when the answer to the last one is complete.
//!
//! Requests are bytes made beforehand and answers are read by hand, because a full HTTP client would cost as much as the
//! server it measures, on the same cores. Every answer is checked: a fast wrong answer is not a measurement. Latencies
//! are kept one by one and sorted at the end, so percentiles are exact.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Answers larger than this are a fault of the server or of the reader.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// An answer that takes longer ends the measurement.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

/// What is sent, and what must come back.
#[derive(Clone)]
pub(super) struct Traffic {
    /// Sent in turn; each connection begins at another place.
    pub(super) requests: Arc<[Vec<u8>]>,
    pub(super) status: u16,
    /// Must be in every answer's body.
    pub(super) contains: &'static str,
}

/// Requests of which no two are alike, and what must come back.
#[derive(Clone)]
pub(super) struct Fresh {
    make: Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>,
    next: Arc<AtomicU64>,
    status: u16,
    contains: &'static str,
}

/// What one round showed.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct Measured {
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Sends traffic over `connections` for `duration` after `warm_up`.
pub(super) async fn round(
    address: SocketAddr,
    traffic: &Traffic,
    connections: usize,
    warm_up: Duration,
    duration: Duration,
) -> Result<Measured> {
    let from = Instant::now() + warm_up;
    let until = from + duration;
    let mut tasks = JoinSet::new();
    for number in 0..connections {
        tasks.spawn(keep_asking(address, traffic.clone(), number * 7919, from, until));
    }
    gathered(tasks, duration).await
}

/// The same with requests that are made one by one. Making them is not counted as the server's time.
pub(super) async fn fresh_round(
    address: SocketAddr,
    fresh: &Fresh,
    connections: usize,
    warm_up: Duration,
    duration: Duration,
) -> Result<Measured> {
    let from = Instant::now() + warm_up;
    let until = from + duration;
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let fresh = fresh.clone();
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut latencies = Vec::with_capacity(1 << 12);
            loop {
                let start = Instant::now();
                if start >= until {
                    return Ok(latencies);
                }
                let latency = connection.timed_fresh(&fresh).await?;
                if start >= from {
                    latencies.push(latency);
                }
            }
        });
    }
    gathered(tasks, duration).await
}

async fn gathered(mut tasks: JoinSet<Result<Vec<Duration>>>, duration: Duration) -> Result<Measured> {
    let mut latencies = Vec::new();
    while let Some(part) = tasks.join_next().await {
        latencies.append(&mut part.context("a connection's task died")??);
    }
    Measured::of(latencies, duration)
}

async fn keep_asking(
    address: SocketAddr,
    traffic: Traffic,
    first: usize,
    from: Instant,
    until: Instant,
) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(address).await?;
    let mut latencies = Vec::with_capacity(1 << 16);
    for request in traffic.requests.iter().cycle().skip(first % traffic.requests.len().max(1)) {
        let start = Instant::now();
        if start >= until {
            break;
        }
        let answer = connection.ask(request).await?;
        let latency = start.elapsed();
        answer.check(&traffic)?;
        if start >= from {
            latencies.push(latency);
        }
    }
    Ok(latencies)
}

/// Sends each request exactly once, over `connections`, and says how long that took.
pub(super) async fn each_once(address: SocketAddr, traffic: &Traffic, connections: usize) -> Result<Duration> {
    let start = Instant::now();
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for number in 0..connections {
        let traffic = traffic.clone();
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            for request in traffic.requests.iter().skip(number).step_by(connections) {
                connection.ask(request).await?.check(&traffic)?;
            }
            Ok(())
        });
    }
    while let Some(part) = tasks.join_next().await {
        part.context("a connection's task died")??;
    }
    Ok(start.elapsed())
}

/// One question on a connection of its own.
pub(super) async fn ask_once(address: SocketAddr, request: &[u8]) -> Result<(u16, Vec<u8>)> {
    let mut connection = Connection::open(address).await?;
    let answer = connection.ask(request).await?;
    Ok((answer.status, answer.body.to_vec()))
}

/// The bytes of a request.
pub(super) fn request(method: &str, target: &str, token: Option<&str>, body: Option<&str>) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n");
    if let Some(token) = token {
        text.push_str(&format!("authorization: Bearer {token}\r\n"));
    }
    if let Some(body) = body {
        text.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    } else {
        text.push_str("\r\n");
    }
    text.into_bytes()
}

// ------------------------------------------------------------------------------------------------------------ Fresh

impl Fresh {
    /// `make` makes the request of each number.
    pub(super) fn new(
        status: u16,
        contains: &'static str,
        make: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self { make: Arc::new(make), next: Arc::default(), status, contains }
    }
}

// --------------------------------------------------------------------------------------------------------- Measured

impl Measured {
    /// Of the latencies of all answers that came within `duration`.
    pub(super) fn of(mut latencies: Vec<Duration>, duration: Duration) -> Result<Self> {
        ensure!(!latencies.is_empty(), "no answer came within the round");
        latencies.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
        let per_second = latencies.len() as f64 / duration.as_secs_f64();
        Ok(Self { per_second, p50_us: percentile(&latencies, 50), p99_us: percentile(&latencies, 99) })
    }
}

/// The nearest-rank percentile of sorted values, in microseconds.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |value| value.as_secs_f64() * 1e6)
}

// ------------------------------------------------------------------------------------------------------- Connection

/// One connection, kept alive.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

struct Answer<'a> {
    status: u16,
    body: &'a [u8],
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(64 << 10) })
    }

    /// One request of the traffic, and how long its right answer took.
    pub(super) async fn timed(&mut self, traffic: &Traffic) -> Result<Duration> {
        let request = traffic.requests.first().context("there is nothing to send")?;
        let start = Instant::now();
        let answer = self.ask(request).await?;
        let taken = start.elapsed();
        answer.check(traffic)?;
        Ok(taken)
    }

    /// The next of the requests, and how long its right answer took.
    pub(super) async fn timed_fresh(&mut self, fresh: &Fresh) -> Result<Duration> {
        let request = (fresh.make)(fresh.next.fetch_add(1, Ordering::Relaxed));
        let start = Instant::now();
        let answer = self.ask(&request).await?;
        let taken = start.elapsed();
        answer.expect(fresh.status, fresh.contains)?;
        Ok(taken)
    }

    async fn ask(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.buffer.clear();
        self.stream.write_all(request).await.context("cannot send")?;
        let (status, body_from, end) = loop {
            let read = tokio::time::timeout(ANSWER_TIME_MAX, self.stream.read_buf(&mut self.buffer));
            let count = read.await.context("no answer in time")?.context("cannot receive")?;
            ensure!(count > 0, "the server closed the connection");
            ensure!(self.buffer.len() <= ANSWER_BYTES_MAX, "the answer is larger than {ANSWER_BYTES_MAX} bytes");
            if let Some(head) = head(&self.buffer)?
                && self.buffer.len() >= head.2
            {
                break head;
            }
        };
        Ok(Answer { status, body: self.buffer.get(body_from..end).unwrap_or_default() })
    }
}

/// Status, start and end of the body; nothing while the head is incomplete.
fn head(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head =
        std::str::from_utf8(bytes.get(..end).unwrap_or_default()).context("the head of an answer is not text")?;
    let status = head.get(9..12).and_then(|digits| digits.parse().ok()).context("an answer without status")?;
    let header = |wanted: &str| {
        head.lines().find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case(wanted)))
    };
    let from = end + 4;
    if let Some((_, length)) = header("content-length") {
        let length: usize = length.trim().parse().context("a length that is no number")?;
        return Ok(Some((status, from, from + length)));
    }
    if header("transfer-encoding").is_none() {
        bail!("an answer without an end cannot be measured");
    }
    // One answer at a time is on a connection, so its last chunk is the end of what there is.
    let body = bytes.get(from..).unwrap_or_default();
    let is_whole = body == b"0\r\n\r\n" || body.ends_with(b"\r\n0\r\n\r\n");
    Ok(is_whole.then_some((status, from, bytes.len())))
}

impl Answer<'_> {
    fn check(&self, traffic: &Traffic) -> Result<()> {
        self.expect(traffic.status, traffic.contains)
    }

    fn expect(&self, status: u16, contains: &str) -> Result<()> {
        let wanted = contains.as_bytes();
        let fine = wanted.is_empty() || self.body.windows(wanted.len()).any(|window| window == wanted);
        ensure!(
            self.status == status && fine,
            "a wrong answer: status {} instead of {status}, body {}",
            self.status,
            String::from_utf8_lossy(self.body).chars().take(600).collect::<String>()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let sorted: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        for (percent, expected) in [(50, 50.0), (99, 99.0), (100, 100.0), (1, 1.0)] {
            assert!((percentile(&sorted, percent) - expected).abs() < 0.001, "{percent}");
        }
        assert!((percentile(&[Duration::from_micros(7)], 99) - 7.0).abs() < 0.001);
    }

    #[test]
    fn a_head_is_understood_when_it_is_complete() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(head(answer).unwrap(), Some((200, answer.len() - 4, answer.len())));
        assert_eq!(head(&answer[..40]).unwrap(), None);
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
        assert_eq!(head(chunked).unwrap(), Some((200, 47, chunked.len())));
        assert_eq!(head(&chunked[..chunked.len() - 3]).unwrap(), None);
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(head(b"garbage\r\n\r\n").is_err());
    }

    #[test]
    fn only_the_expected_answer_counts() {
        let traffic = Traffic { requests: Arc::from(vec![Vec::new()]), status: 200, contains: "12" };
        for (status, body, fine) in [(200, "{\"result\":12}", true), (200, "{}", false), (500, "12", false)] {
            assert_eq!(Answer { status, body: body.as_bytes() }.check(&traffic).is_ok(), fine, "{status} {body}");
        }
    }

    /// A server that answers every complete head with the same bytes.
    async fn parrot(answer: &'static [u8]) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
                        stream.write_all(answer).await.unwrap();
                    }
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_round_counts_right_answers_and_stops_at_the_first_wrong_one() {
        let address = parrot(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n12").await;
        let traffic =
            |contains| Traffic { requests: Arc::from(vec![request("GET", "/", None, None)]), status: 200, contains };
        let (warm_up, duration) = (Duration::from_millis(5), Duration::from_millis(50));
        let measured = round(address, &traffic("12"), 4, warm_up, duration).await.unwrap();
        assert!(measured.per_second > 0.0 && measured.p50_us <= measured.p99_us, "{measured:?}");
        let error = round(address, &traffic("13"), 4, warm_up, duration).await.unwrap_err();
        assert!(error.to_string().contains("wrong answer"), "{error}");
        assert!(each_once(address, &traffic("12"), 3).await.is_ok());
        let fresh = Fresh::new(200, "12", |number| request("GET", &format!("/{number}"), None, None));
        assert!(fresh_round(address, &fresh, 4, warm_up, duration).await.unwrap().per_second > 0.0);
        assert!(fresh.next.load(Ordering::Relaxed) > 4);
    }
}
