//! The audit log of a data directory: how it is opened, who witnesses its checkpoints, and how it is closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::{CheckpointWitness, FileLog, FileWitness, LogOptions, WitnessGroup};
use base::backoff::GrowingPause;
use kernel::RecorderHandle;
use outbound::{ClientOptions, operators_client};
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::observer::Observer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::config::GantryConfig;
use crate::failure::CommandFailure;

/// Where the key that signs checkpoints is, in the data directory.
const KEY_FILE: &str = "keys/audit.key";
/// Checkpoints that wait for the witness. What does not fit is left out: the next one covers it.
const WAITING_MAX: usize = 16;
/// How often one checkpoint is sent before the next one is.
const ATTEMPTS_MAX: u32 = 4;
/// The pause after the first attempt that failed; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// How long the witness may take.
const WITNESS_TIMEOUT: Duration = Duration::from_secs(10);

/// What the log of a data directory is opened with. Tells the witness file only: a command that ends at once sends nothing.
pub(crate) fn options(
    config: &GantryConfig,
    data_dir: &Path,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
) -> LogOptions {
    let mut options = LogOptions::new(data_dir.join(KEY_FILE), clock, entropy);
    options.witness =
        config.audit.witness_file().map(|path| Arc::new(FileWitness::new(path)) as Arc<dyn CheckpointWitness>);
    options
}

/// The same for a server, which also sends checkpoints away.
pub(crate) fn served_options(
    config: &GantryConfig,
    data_dir: &Path,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
) -> Result<LogOptions, CommandFailure> {
    let mut options = options(config, data_dir, Arc::clone(&clock), entropy);
    if let Some(url) = config.audit.witness_url() {
        let mut all: Vec<Box<dyn CheckpointWitness>> = vec![Box::new(UrlWitness::start(url, clock)?)];
        all.extend(
            config.audit.witness_file().map(|path| Box::new(FileWitness::new(path)) as Box<dyn CheckpointWitness>),
        );
        options.witness = Some(Arc::new(WitnessGroup(all)));
    }
    Ok(options)
}

/// Writing and signing, for as long as the server runs.
#[derive(Debug)]
pub(crate) struct LogKeeping {
    recorder: RecorderHandle,
    log: Arc<FileLog>,
    signing: JoinHandle<()>,
    checking: JoinHandle<()>,
}

impl LogKeeping {
    /// Begins to sign now and then, and reads once what was not read before the start.
    pub(crate) fn begin(recorder: RecorderHandle, log: Arc<FileLog>, observer: Arc<dyn Observer>) -> Self {
        let (signer, checked) = (Arc::clone(&log), Arc::clone(&log));
        let signing = tokio::spawn(async move { signer.keep_signing().await });
        Self { recorder, log, signing, checking: tokio::spawn(check(checked, observer)) }
    }

    /// The log itself.
    pub(crate) fn log(&self) -> Arc<FileLog> {
        Arc::clone(&self.log)
    }

    /// Writes what waits, signs it, and ends.
    pub(crate) async fn close(self) {
        self.checking.abort();
        self.recorder.close().await;
        self.signing.abort();
        if let Err(error) = self.log.close().await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the last checkpoint of the audit log is missing"
            );
        }
    }
}

/// Looks through the older files of the log.
async fn check(log: Arc<FileLog>, observer: Arc<dyn Observer>) {
    match log.check_lines().await {
        Ok(None) => {}
        Ok(Some(fault)) => {
            observer.audit_log_fault();
            tracing::error!(
                first = fault.first,
                last = fault.last,
                "AUDIT_LOG_ALTERED: a record of the audit log is missing or not what was signed; `gantry audit verify` says which"
            );
        }
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the older files of the audit log could not be read through"
        ),
    }
}

/// A service to which checkpoints are sent.
#[derive(Debug)]
struct UrlWitness {
    notes: mpsc::Sender<String>,
}

impl UrlWitness {
    fn start(url: &str, clock: Arc<dyn Clock>) -> Result<Self, CommandFailure> {
        let wrong = |error: String| {
            CommandFailure::new(format!("`[audit] witness_url` cannot be used: {error}"))
                .hint("give the URL of an HTTP service")
        };
        let url: reqwest::Url = url.parse().map_err(|error| wrong(format!("{error}")))?;
        let options = ClientOptions { total: Some(WITNESS_TIMEOUT), idle_per_host: 1, ..ClientOptions::default() };
        let client = operators_client(options).map_err(|error| wrong(error.to_string()))?;
        let (notes, mut waiting) = mpsc::channel::<String>(WAITING_MAX);
        tokio::spawn(async move {
            while let Some(note) = waiting.recv().await {
                send(&client, &url, note, &*clock).await;
            }
        });
        Ok(Self { notes })
    }
}

impl CheckpointWitness for UrlWitness {
    fn tell(&self, note: &str) {
        if self.notes.try_send(note.to_owned()).is_err() {
            tracing::warn!(
                "the witness of the audit log is too slow; a checkpoint is not sent, the next one covers it"
            );
        }
    }
}

async fn send(client: &reqwest::Client, url: &reqwest::Url, note: String, clock: &dyn Clock) {
    let mut pause = GrowingPause::doubling(FIRST_PAUSE, LONGEST_PAUSE);
    for attempt in 1..=ATTEMPTS_MAX {
        let request = client.post(url.clone()).header("content-type", "text/plain; charset=utf-8").body(note.clone());
        match request.send().await.and_then(reqwest::Response::error_for_status) {
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(error = %error.without_url(), attempt, "the witness of the audit log did not answer well")
            }
        }
        if attempt < ATTEMPTS_MAX {
            clock.sleep(pause.next_pause()).await;
        }
    }
}
