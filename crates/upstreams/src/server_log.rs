//! What a server writes to its standard error, and what we have to say about it, in a file of its own.
//!
//! Lines are taken without waiting and written by one task, so that a server that floods its log slows down nobody but
//! itself. What is too much is dropped and counted.
//!
//! Invariants
//! - LOG-1: a log takes at most [`LogBounds::file_bytes_max`] times [`LogBounds::files_max`] of the disk, whatever is written.
//! - LOG-2: a line stands on one line: what would end it or move the cursor is replaced.
//! - LOG-4: whatever is not kept is counted: in the log by lines, for the operator by bytes.
//! - LOG-3: credentials the server was given are taken out before anything is written, and so is whatever else must not be seen;
//!   of a private key that stands in many lines nothing is written.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use base::MutexExt as _;
use executors::process::key_block::KeyBlock;
use executors::process::scrub::SecretScrubber;
use ports::clock::Clock;
use ports::redactor::Redactor;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::observer::{ServerTeller, UpstreamEvent};

/// Lines that wait to be written; what comes on top is dropped.
const WAITING_MAX: usize = 1_024;
/// Characters of a line that are kept.
const LINE_CHARS_MAX: usize = 4_000;
/// Bytes of a file that are looked at for its last lines.
const TAIL_BYTES_MAX: u64 = 1 << 20;

/// How much of the disk one log may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    /// A file that is longer is put aside.
    pub file_bytes_max: u64,
    /// Files of one server, with those put aside.
    pub files_max: u32,
}

impl Default for LogBounds {
    /// Five files of 4 MiB.
    fn default() -> Self {
        Self { file_bytes_max: 4 << 20, files_max: 5 }
    }
}

/// The log of one server.
#[derive(Debug)]
pub(crate) struct ServerLog {
    path: PathBuf,
    lines: mpsc::Sender<String>,
    dropped: Arc<AtomicU64>,
    scrubber: ArcSwap<SecretScrubber>,
    /// Whether what the server writes is inside of a private key.
    key_block: Mutex<KeyBlock>,
    redactor: Arc<dyn Redactor>,
    clock: Arc<dyn Clock>,
    teller: ServerTeller,
}

impl ServerLog {
    /// A log in a folder, which is made if it is not there. Nothing is written before the first line.
    pub(crate) fn open(
        folder: &Path,
        name: &str,
        bounds: LogBounds,
        clock: Arc<dyn Clock>,
        teller: ServerTeller,
        redactor: Arc<dyn Redactor>,
    ) -> Arc<Self> {
        let path = folder.join(format!("{}.log", file_name(name)));
        let (lines, waiting) = mpsc::channel(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let (path_of_file, counted) = (path.clone(), Arc::clone(&dropped));
        let writing =
            Writing { path: path_of_file, bounds, file: None, size: 0, dropped: counted, teller: teller.clone() };
        tokio::spawn(writing.all(waiting));
        Arc::new(Self {
            path,
            lines,
            dropped,
            scrubber: ArcSwap::default(),
            key_block: Mutex::default(),
            redactor,
            clock,
            teller,
        })
    }

    /// LOG-3: from now on these are taken out, too.
    pub(crate) fn hide(&self, scrubber: Arc<SecretScrubber>) {
        self.scrubber.store(scrubber);
    }

    /// One more line that the server has written. Never waits.
    pub(crate) fn written(&self, line: &str) {
        let shown = self.key_block.lock_unpoisoned().line(line);
        if let Some(shown) = shown {
            self.line(&shown);
        }
    }

    /// One more line, whole in itself. Never waits.
    pub(crate) fn line(&self, text: &str) {
        let scrubber = self.scrubber.load();
        let text = scrubber.text(text);
        self.keep(&self.redactor.text(&text));
    }

    /// One line of ours about a place in the network. An address and a port are what whoever grants them has to know, and
    /// tell nothing about a person; a host name may hold anything that the program put there.
    pub(crate) fn place(&self, words: &str, place: &str) {
        if place.parse::<SocketAddr>().is_ok() {
            self.keep(&format!("{words}{place}"));
        } else {
            self.line(&format!("{words}{place}"));
        }
    }

    fn keep(&self, text: &str) {
        let clean = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
        let whole = text.trim_end();
        let kept: String = whole.chars().take(LINE_CHARS_MAX).map(clean).collect();
        let cut: usize = whole.chars().skip(LINE_CHARS_MAX).map(char::len_utf8).sum();
        let mut missing = cut;
        if self.lines.try_send(format!("{} {kept}\n", self.clock.now())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            missing = whole.len();
        }
        self.missing(missing);
    }

    /// LOG-4: so much was not kept.
    pub(crate) fn missing(&self, bytes: usize) {
        if bytes > 0 {
            self.teller.tell(UpstreamEvent::LogDropped { bytes: bytes as u64 });
        }
    }

    /// The last lines, oldest first.
    pub(crate) async fn tail(&self, most: usize) -> io::Result<Vec<String>> {
        let mut file = match File::open(&self.path).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let length = file.metadata().await?.len();
        let from = length.saturating_sub(TAIL_BYTES_MAX);
        file.seek(io::SeekFrom::Start(from)).await?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes).await?;
        let text = String::from_utf8_lossy(&bytes);
        // The first line of a cut is half a line.
        let lines: Vec<&str> = text.lines().skip(usize::from(from > 0)).collect();
        Ok(lines.iter().skip(lines.len().saturating_sub(most)).map(|line| (*line).to_owned()).collect())
    }
}

/// Names of servers are the operator's; still no name leads out of the folder.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    name.chars().take(100).map(plain).collect()
}

struct Writing {
    path: PathBuf,
    bounds: LogBounds,
    file: Option<File>,
    size: u64,
    dropped: Arc<AtomicU64>,
    teller: ServerTeller,
}

impl Writing {
    async fn all(mut self, mut lines: mpsc::Receiver<String>) {
        let mut batch = Vec::with_capacity(WAITING_MAX);
        while lines.recv_many(&mut batch, WAITING_MAX).await > 0 {
            let mut text = batch.drain(..).collect::<String>();
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                text.push_str(&format!("[gantry] {dropped} lines were too many and are not here\n"));
            }
            if let Err(error) = self.append(text.as_bytes()).await {
                tracing::warn!(%error, "the log of a server cannot be written");
                self.teller.tell(UpstreamEvent::LogDropped { bytes: text.len() as u64 });
                self.file = None;
            }
        }
    }

    /// LOG-1.
    async fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        if self.file.is_some() && self.size.saturating_add(length) > self.bounds.file_bytes_max {
            self.file = None;
            self.put_aside().await?;
        }
        if self.file.is_none() {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder).await?;
            }
            let mut file = OpenOptions::new().append(true).create(true).open(&self.path).await?;
            self.size = file.metadata().await?.len();
            if self.size > 0 && self.size.saturating_add(length) > self.bounds.file_bytes_max {
                drop(file);
                self.put_aside().await?;
                file = OpenOptions::new().append(true).create(true).open(&self.path).await?;
                self.size = 0;
            }
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            file.write_all(bytes).await?;
            file.flush().await?;
            self.size = self.size.saturating_add(length);
        }
        Ok(())
    }

    async fn put_aside(&mut self) -> io::Result<()> {
        let aside = |n: u32| self.path.with_extension(format!("log.{n}"));
        for n in (1..self.bounds.files_max.saturating_sub(1)).rev() {
            match fs::rename(aside(n), aside(n + 1)).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.bounds.files_max > 1 {
            fs::rename(&self.path, aside(1)).await
        } else {
            fs::remove_file(&self.path).await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::future::Future;
    use std::pin::Pin;
    use std::time::Duration;

    use contract::schema::PartMarks;
    use ports::clock::UnixMillis;
    use ports::redactor::RedactError;
    use serde_json::Value;

    use super::*;

    #[derive(Debug)]
    struct StillClock;
    impl Clock for StillClock {
        fn now(&self) -> UnixMillis {
            UnixMillis(1_772_368_245_678)
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
            Box::pin(std::future::pending())
        }
    }

    #[derive(Debug)]
    struct NoUpstreamObserver;

    impl crate::observer::UpstreamObserver for NoUpstreamObserver {
        fn happened(&self, _: Option<&str>, _: crate::observer::UpstreamEvent) {}
    }

    fn untold() -> ServerTeller {
        ServerTeller::new(Arc::new(NoUpstreamObserver), &contract::ids::TenantId::home(), "files")
    }

    async fn until_last(log: &ServerLog, word: &str) -> Vec<String> {
        tokio::time::timeout(Duration::from_secs(10), async {
            loop {
                let lines = log.tail(5).await.unwrap();
                if lines.last().is_some_and(|line| line.ends_with(word)) {
                    return lines;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap()
    }

    /// Knows one person.
    #[derive(Debug)]
    struct Hidden;

    impl Redactor for Hidden {
        fn value(&self, value: &Value, _: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
            Ok(value.clone())
        }
        fn fields(&self, _: &Value, _: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
            Ok(None)
        }
        fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
            text.replace("jane", "[NAME]").replace("10.0.0.7", "[ADDRESS]").into()
        }
        fn members(&self, _: &mut Value, _: &[Box<str>]) {}
    }

    fn hidden() -> Arc<dyn Redactor> {
        Arc::new(Hidden)
    }

    #[tokio::test]
    async fn lines_are_cleaned_and_secrets_taken_out() {
        let folder = tempfile::tempdir().unwrap();
        let log =
            ServerLog::open(folder.path(), "../files", LogBounds::default(), Arc::new(StillClock), untold(), hidden());
        assert_eq!(log.tail(3).await.unwrap(), Vec::<String>::new());
        log.hide(Arc::new(SecretScrubber::new(&[("key", "hunter2hunter2")])));
        log.line("\u{1b}[31mkey is hunter2hunter2 of jane\r");
        let lines = until_last(&log, "[secret key] of [NAME]").await;
        assert_eq!(lines, ["2026-03-01T12:30:45.678Z \u{fffd}[31mkey is [secret key] of [NAME]"]);
        assert!(folder.path().join("___files.log").try_exists().unwrap());
    }

    #[tokio::test]
    async fn an_address_that_may_be_granted_is_told_and_a_host_name_is_cleaned() {
        let folder = tempfile::tempdir().unwrap();
        let log = ServerLog::open(folder.path(), "net", LogBounds::default(), Arc::new(StillClock), untold(), hidden());
        log.place("[gantry] not to ", "10.0.0.7:3306");
        log.place("[gantry] not to ", "jane.10.0.0.7.example:443");
        log.line("it said 10.0.0.7");
        let lines = until_last(&log, "it said [ADDRESS]").await;
        let words: Vec<&str> = lines.iter().filter_map(|line| line.split_once(' ')).map(|(_, words)| words).collect();
        assert_eq!(
            words,
            ["[gantry] not to 10.0.0.7:3306", "[gantry] not to [NAME].[ADDRESS].example:443", "it said [ADDRESS]"]
        );
    }

    #[tokio::test]
    async fn of_a_key_in_many_lines_nothing_is_written_whatever_else_is_said_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let log =
            ServerLog::open(folder.path(), "keys", LogBounds::default(), Arc::new(StillClock), untold(), hidden());
        log.written("key -----BEGIN PRIVATE KEY-----");
        log.written("MIIEowIBAAKCAQEAx7Zq0fYV3nQ1b8mJcT5kHs2Lw9RdEaGvXoPi4UyN6t");
        log.line("[gantry] a word of our own");
        log.written("MIIEowIBAAKCAQEAx7Zq0fYV3nQ1b8mJcT5kHs2Lw9RdEaGvXoPi4UyN6t");
        log.written("-----END PRIVATE KEY-----");
        log.written("after it");
        let lines = until_last(&log, "after it").await;
        let words: Vec<&str> = lines.iter().filter_map(|line| line.split_once(' ')).map(|(_, words)| words).collect();
        assert_eq!(words, ["key [REDACTED]", "[gantry] a word of our own", "after it"]);
    }

    #[tokio::test]
    async fn a_log_never_takes_more_than_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = LogBounds { file_bytes_max: 1_000, files_max: 3 };
        let log = ServerLog::open(folder.path(), "loud", bounds, Arc::new(StillClock), untold(), hidden());
        for n in 0..200 {
            log.line(&format!("line {n}"));
            until_last(&log, &format!("line {n}")).await;
        }
        let mut sizes: Vec<(String, u64)> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
            .collect();
        sizes.sort();
        let names: Vec<&str> = sizes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["loud.log", "loud.log.1", "loud.log.2"]);
        assert!(sizes.iter().all(|(_, size)| *size <= 1_000), "{sizes:?}");
    }
}
