//! What carries the audit log to its sinks, from the first record to the last.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::FileLog;
use audit::sinks::file::FileSink;
use audit::sinks::http::HttpSink;
use audit::sinks::{
    ForwarderHandle, ForwarderPace, ForwarderParts, LogSource, RecordSink, SinkCursor, SinkForwarder, SinkLag,
    SinkState, SinkWatcher,
};
use executors::GuardedCalls;
use futures_util::future::join_all;
use ports::call_out::CallsOut as _;
use ports::clock::Clock;
use sandbox::egress::{EgressBounds, SystemResolver};
use telemetry::Metrics;

use super::assembly::KernelAssembly;
use crate::config::GantryConfig;
use crate::config::audit::sinks::{KafkaTarget, SinkTable, SinkTarget};
use crate::failure::CommandFailure;
use crate::secrets_folder::SecretsFolder;

/// The couriers.
pub(super) struct AuditSinks(Vec<ForwarderHandle>);

/// Sets a courier to work for each sink of the configuration.
pub(super) async fn start(
    assembly: &KernelAssembly,
    config: &GantryConfig,
    dir: &Path,
    log: &FileLog,
) -> Result<AuditSinks, CommandFailure> {
    let mut couriers = Vec::new();
    for table in &config.audit.sinks {
        let unusable = |error: String| CommandFailure::new(format!("[[audit.sinks]] `{}`: {error}", table.name));
        let sink = sink(assembly, config, table).map_err(unusable)?;
        let source = LogSource::following(dir, log.reader());
        let mut cursor =
            SinkCursor::open(&dir.join("sinks"), &table.name).map_err(|error| unusable(error.to_string()))?;
        if cursor.is_new() {
            let begin = if table.from_the_beginning { 0 } else { log.size() };
            cursor.advance(begin).await.map_err(|error| unusable(error.to_string()))?;
        }
        couriers.push(SinkForwarder::new(ForwarderParts {
            sink,
            source: Arc::new(source),
            cursor,
            limits: table.limits,
            pace: ForwarderPace::default(),
            grown: log.subscribe(),
            clock: Arc::clone(&assembly.clock) as Arc<dyn Clock>,
            entropy: assembly.entropy(),
            watcher: Arc::new(Counted(Arc::clone(&assembly.metrics))),
        }));
    }
    // Only when all are good: a configuration that is refused has delivered nothing.
    let archive = super::archive::start(assembly, dir, log).await?;
    Ok(AuditSinks(couriers.into_iter().map(SinkForwarder::start).chain(archive).collect()))
}

impl AuditSinks {
    /// Lets each carry what is left, as long as that goes well and in time.
    pub(super) async fn close(self) {
        join_all(self.0.into_iter().map(ForwarderHandle::close)).await;
    }
}

fn sink(assembly: &KernelAssembly, config: &GantryConfig, table: &SinkTable) -> Result<Arc<dyn RecordSink>, String> {
    let (clock, data_dir) = (Arc::clone(&assembly.clock) as Arc<dyn Clock>, assembly.data_dir().path());
    match &table.target {
        SinkTarget::File { rotation, .. } => {
            let dir = table.dir(data_dir).unwrap_or_else(|| data_dir.join("audit-events"));
            Ok(Arc::new(FileSink::new(dir, *rotation, clock)))
        }
        SinkTarget::Http { url, mode, secret_header, opened, times } => {
            // The operator names the sink; `[egress]` bounds what others name. (decision 0046)
            let calls = GuardedCalls::new(opened.clone(), &EgressBounds::default(), *times, Arc::new(SystemResolver));
            calls.check(url).map_err(|error| format!("`url`: {error}; a sink opens more with its own `allow`"))?;
            Ok(Arc::new(HttpSink {
                url: url.clone(),
                mode: *mode,
                secret_header: secret_header.clone(),
                calls: Arc::new(calls),
                secrets: Arc::new(SecretsFolder::new(config.secrets.dir(data_dir))),
                clock,
            }))
        }
        SinkTarget::Kafka(target) => kafka(target),
    }
}

#[cfg(feature = "kafka")]
fn kafka(target: &KafkaTarget) -> Result<Arc<dyn RecordSink>, String> {
    use kafka_sink::{KafkaConfig, KafkaMode, KafkaSecurity, KafkaSink, KafkaTls, SaslLogin, SaslMechanism};
    let secret = |path: &std::path::Path| match crate::secret_file::read(path) {
        Ok(Some(secret)) => Ok(secret.text.trim_end_matches(['\r', '\n']).to_owned()),
        Ok(None) => Err(format!("there is no file `{}`", path.display())),
        Err(error) => Err(format!("{error}; {}", error.remedy())),
    };
    let tls = target.security.tls.as_ref().map(|tls| {
        // The library reads it by itself; whether others could read it too is ours to see.
        tls.identity.as_ref().map_or(Ok(String::new()), |(_, key)| secret(key))?;
        Ok::<_, String>(KafkaTls { authorities: tls.authorities.clone(), identity: tls.identity.clone() })
    });
    let login = target.security.login.as_ref().map(|login| {
        let mechanism = SaslMechanism::from_word(&login.mechanism).ok_or("an unknown mechanism")?;
        let (username, password) = (login.username.clone(), secret(&login.password_file)?);
        Ok::<_, String>(SaslLogin { mechanism, username, password })
    });
    let config = KafkaConfig {
        brokers: target.brokers.clone(),
        topic: target.topic.clone(),
        mode: if target.is_binary { KafkaMode::Binary } else { KafkaMode::Structured },
        timeout: target.timeout,
        security: KafkaSecurity { tls: tls.transpose()?, login: login.transpose()? },
    };
    Ok(Arc::new(KafkaSink::new(config).map_err(|error| error.to_string())?))
}

#[cfg(not(feature = "kafka"))]
fn kafka(target: &KafkaTarget) -> Result<Arc<dyn RecordSink>, String> {
    // The configuration has refused it already, with what to do.
    Err(format!("this build has no Kafka, so topic `{}` cannot be written", target.topic))
}

/// Counts what happens to sinks.
#[derive(Debug)]
pub(super) struct Counted(pub(super) Arc<Metrics>);

impl SinkWatcher for Counted {
    fn delivered(&self, sink: &str, records: u64) {
        self.0.sinks().delivered(sink, records);
    }

    fn waited(&self, sink: &str, longest: Duration) {
        self.0.sinks().waited(sink, longest);
    }

    fn failed(&self, sink: &str) {
        self.0.sinks().failed(sink);
    }

    fn lag(&self, sink: &str, lag: SinkLag) {
        self.0.sinks().lag(sink, lag.records, lag.age.as_secs());
    }

    fn state(&self, sink: &str, state: SinkState) {
        self.0.sinks().moved(sink, &SinkState::ALL.map(SinkState::as_str), state.as_str());
    }
}
