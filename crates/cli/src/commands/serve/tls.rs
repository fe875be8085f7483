//! TLS of a running server: its files are read at the start, and again when they change or on SIGHUP.
//!
//! Files that cannot be used, or whose certificate is over, change nothing: the former identity stays in force, and the log
//! and a metric say so. What is in force is also in the data directory (`server.crt`), by which commands on this machine
//! recognise their server.
//!
//! Not here: handshakes (`server::tls`), what doctor says of the files (`doctor::tls`).

use std::sync::Arc;
use std::time::Duration;

use ports::clock::Clock;
use server::{DoorListener, ServerConfig, TlsState};
use telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::GantryConfig;
use crate::data_dir::DataDir;
use crate::failure::CommandFailure;
use crate::folder_watcher::FolderWatcher;
use crate::tls_files::{TlsFiles, TlsTexts};

/// The files are looked at after this long even if nobody has said a word: events can be lost.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Keeps the identity what its files say.
pub(super) struct TlsKeeper {
    files: TlsFiles,
    state: Arc<TlsState>,
    data_dir: DataDir,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// What was found last: the texts, or why they cannot be used.
    last: Result<TlsTexts, String>,
}

/// What came of one look.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Same,
    InForce,
    Unusable(String),
}

impl TlsKeeper {
    /// Reads the files, if there are some. A server that was told to speak TLS does not start without it.
    pub(super) fn open(
        config: &GantryConfig,
        data_dir: &DataDir,
        metrics: &Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Self>, CommandFailure> {
        let Some(files) = config.server.tls.clone() else { return Ok(None) };
        let texts = files.read()?;
        let identity = texts.identity()?;
        if let Some(warning) = &texts.warning {
            tracing::warn!("{warning}");
        }
        if !identity.is_valid_at(clock.now().0) {
            tracing::error!("the TLS certificate is not valid now: clients will refuse this server");
        }
        metrics.tls().certificate_expires_at(identity.expires_at_s());
        data_dir.tell_certificates(&[identity.certificate_pem()])?;
        let state = TlsState::new(identity);
        let (data_dir, metrics) = (data_dir.clone(), Arc::clone(metrics));
        Ok(Some(Self { files, state, data_dir, metrics, clock, last: Ok(texts) }))
    }

    /// The listener that speaks TLS with the identity in force.
    pub(super) fn listener(&self, tcp: TcpListener, config: &ServerConfig) -> DoorListener {
        DoorListener::with_tls(tcp, Arc::clone(&self.state), config)
    }

    /// What is told on the page of metrics.
    pub(super) fn state(&self) -> Arc<TlsState> {
        Arc::clone(&self.state)
    }

    /// Looks again after every change and every SIGHUP, for ever.
    pub(super) async fn run(mut self) {
        let mut watcher = FolderWatcher::start(&self.files.folders(), |_| true)
            .inspect_err(|error| {
                tracing::warn!(%error, "the TLS files cannot be watched on this machine; they are looked at now and then");
            })
            .ok();
        let mut hangup = signal(SignalKind::hangup()).ok();
        let clock = Arc::clone(&self.clock);
        loop {
            let changed = async {
                match &mut watcher {
                    Some(watcher) => watcher.changed(&*clock).await,
                    None => std::future::pending().await,
                }
            };
            let told = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                more = changed => if !more { watcher = None },
                _ = told => tracing::info!("SIGHUP: the TLS files are read again"),
                () = clock.sleep(LOOK_EVERY) => {}
            }
            self.look_and_tell();
        }
    }

    fn look_and_tell(&mut self) {
        match self.look() {
            Look::Same => {}
            Look::InForce => {
                self.metrics.tls().certificate_reloaded(true);
                tracing::info!("the new TLS certificate is in force");
            }
            Look::Unusable(why) => {
                self.metrics.tls().certificate_reloaded(false);
                tracing::error!("the new TLS files cannot be used ({why}); the former certificate stays in force");
            }
        }
    }

    /// Reads the files and puts them in force, if they are new and can be used. They are a few kilobytes.
    fn look(&mut self) -> Look {
        let texts = match self.files.read() {
            Ok(texts) => texts,
            Err(failure) => return self.unusable(failure.message),
        };
        if self.last.as_ref().is_ok_and(|last| *last == texts) {
            return Look::Same;
        }
        let identity = match texts.identity() {
            Ok(identity) if identity.is_valid_at(self.clock.now().0) => identity,
            Ok(_) => return self.unusable("the certificate is not valid now".to_owned()),
            Err(failure) => return self.unusable(failure.message),
        };
        let (new, old) = (identity.certificate_pem(), self.state.identity().certificate_pem());
        // Both for a moment, so that a command that looks right now recognises the server either way.
        if let Err(failure) = self.data_dir.tell_certificates(&[new.clone(), old]) {
            return self.unusable(failure.message);
        }
        self.metrics.tls().certificate_expires_at(identity.expires_at_s());
        self.state.replace(identity);
        if let Err(failure) = self.data_dir.tell_certificates(&[new]) {
            tracing::warn!("{}", failure.message);
        }
        self.last = Ok(texts);
        Look::InForce
    }

    /// A trouble is told once, until something changes.
    fn unusable(&mut self, why: String) -> Look {
        if self.last.as_ref().is_err_and(|last| *last == why) {
            return Look::Same;
        }
        self.last = Err(why.clone());
        Look::Unusable(why)
    }
}

/// Puts what the listener has counted on the page of metrics.
pub(super) fn count_handshakes(metrics: &Metrics, state: &TlsState) {
    let counts = state.counts();
    for (outcome, count) in [
        ("completed", counts.completed),
        ("failed", counts.failed),
        ("timed_out", counts.timed_out),
        ("displaced", counts.displaced),
    ] {
        metrics.tls().handshakes(outcome, count);
    }
}
