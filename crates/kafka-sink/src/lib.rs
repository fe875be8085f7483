//! Events to Kafka: one message each, keyed by tenant, acknowledged by all replicas in sync before the cursor moves.
//! (AUD-005, AUD-008, AUD-009)
//!
//! A crate of its own, because the library it needs is large and written in C; who does not use Kafka does not build it.
//!
//! Invariants
//! - KAFKA-1: a record is acknowledged when its own delivery report says so.
//! - KAFKA-2: the records of a tenant are in one partition and in order. So the producer is idempotent, never gives up a
//!   message by itself while later ones go on (no message timeout, and no gap after an error), and a producer that has
//!   failed is thrown away with everything in it: the batch is handed over again to a new one.
//! - KAFKA-3: a delivery is bounded in time, although the library's own patience is not.
//!
//! TLS and SASL are the library's, with the feature `tls`; what is configured of them is in [`security`].

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use audit::sinks::{RecordSink, SinkError, SinkEvent};
use base::MutexExt as _;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::future_producer::{DeliveryFuture, FutureProducer, FutureRecord};
use tokio::runtime::Handle;

pub mod security;

pub use security::{KafkaSecurity, KafkaTls, SaslLogin, SaslMechanism};

/// The topic, unless configured otherwise.
pub const TOPIC_DEFAULT: &str = "tool-execution-audit";
/// How long messages gather before they are sent together.
const LINGER_MS: &str = "5";
/// The longest pause before the library connects again.
const RECONNECT_MS_MAX: &str = "2000";

/// How an event is put into a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KafkaMode {
    /// The whole event is the value.
    Structured,
    /// The data is the value, the attributes are headers.
    Binary,
}

/// Where events go.
#[derive(Debug, Clone)]
pub struct KafkaConfig {
    /// `host:port`, one at least; the others are learnt from these.
    pub brokers: Vec<String>,
    pub topic: String,
    pub mode: KafkaMode,
    /// How long a batch may take.
    pub timeout: Duration,
    /// How brokers and we recognise each other.
    pub security: KafkaSecurity,
}

/// Why there is no sink.
#[derive(Debug, thiserror::Error)]
#[error("the Kafka library does not take this configuration: {0}")]
pub struct KafkaSinkError(KafkaError);

type Producer = FutureProducer<Quiet>;

/// Sends messages.
pub struct KafkaSink {
    config: KafkaConfig,
    client: ClientConfig,
    /// A producer that has never failed.
    idle: Mutex<Option<Producer>>,
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink").field("config", &self.config).finish_non_exhaustive()
    }
}

impl KafkaSink {
    /// Checks the configuration. Connects nowhere yet.
    ///
    /// # Errors
    /// When the library refuses the configuration.
    pub fn new(config: KafkaConfig) -> Result<Self, KafkaSinkError> {
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", config.brokers.join(","))
            .set("client.id", "gantry-audit")
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // KAFKA-2.
            .set("message.timeout.ms", "0")
            .set("enable.gapless.guarantee", "true")
            // The hash that clients in Java use, so that others who write by tenant meet the same partition.
            .set("partitioner", "murmur2_random")
            .set("compression.type", "lz4")
            .set("linger.ms", LINGER_MS)
            .set("reconnect.backoff.max.ms", RECONNECT_MS_MAX)
            .set_log_level(RDKafkaLogLevel::Warning);
        for (name, value) in config.security.properties() {
            client.set(name, value);
        }
        client.create_native_config().map_err(KafkaSinkError)?;
        Ok(Self { config, client, idle: Mutex::new(None) })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Option<Producer>> {
        self.idle.lock_unpoisoned()
    }

    fn borrow(&self) -> Result<Borrowed, SinkError> {
        let producer = match self.idle().take() {
            Some(producer) => producer,
            None => self.client.create_with_context(Quiet).map_err(|error| judged(&error))?,
        };
        Ok(Borrowed(Some(producer)))
    }

    /// Puts an event into the producer's queue.
    fn enqueue(&self, producer: &Producer, event: &SinkEvent) -> Result<DeliveryFuture, SinkError> {
        let (headers, value) = match self.config.mode {
            KafkaMode::Structured => {
                let content_type =
                    [("content-type".to_owned(), "application/cloudevents+json; charset=utf-8".to_owned())];
                (content_type.to_vec(), event.json().to_owned())
            }
            KafkaMode::Binary => {
                let (attributes, data) = event.parts();
                let header = |(name, value): (String, String)| match name.as_str() {
                    "datacontenttype" => ("content-type".to_owned(), value),
                    name => (format!("ce_{name}"), value),
                };
                (attributes.into_iter().map(header).collect(), data)
            }
        };
        let headers = headers.iter().fold(OwnedHeaders::new_with_capacity(headers.len()), |all, (key, value)| {
            all.insert(Header { key, value: Some(value) })
        });
        let record = FutureRecord::to(&self.config.topic)
            .key(&event.tenant)
            .payload(&value)
            .headers(headers)
            .timestamp(event.at.0);
        producer.send_result(record).map_err(|(error, _)| {
            let judged = judged(&error);
            SinkError { reason: format!("record {}: {}", event.seq, judged.reason), ..judged }
        })
    }
}

#[async_trait]
impl RecordSink for KafkaSink {
    async fn deliver(&self, batch: &[SinkEvent]) -> Result<(), SinkError> {
        let borrowed = self.borrow()?;
        let Some(producer) = &borrowed.0 else { return Ok(()) };
        let mut reports = Vec::with_capacity(batch.len());
        let mut refused = None;
        for event in batch {
            match self.enqueue(producer, event) {
                Ok(report) => reports.push(report),
                // Nothing after it may overtake it; what is before it may arrive.
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let mut taken = 0;
        let reported = tokio::time::timeout(self.config.timeout, async {
            for report in reports {
                match report.await {
                    Ok(Ok(_)) => taken += 1,
                    Ok(Err((error, _))) => return Err(judged(&cause(producer, error))),
                    Err(_) => return Err(SinkError::later("the producer ended")),
                }
            }
            Ok(())
        });
        let outcome = match reported.await {
            Ok(outcome) => outcome,
            Err(_) => {
                let millis = self.config.timeout.as_millis();
                Err(SinkError::later(format!("no broker has acknowledged within {millis} ms")))
            }
        };
        match outcome.and_then(|()| refused.map_or(Ok(()), Err)) {
            Ok(()) => {
                *self.idle() = borrowed.unharmed();
                Ok(())
            }
            // The producer goes with `borrowed`, and with it whatever it still holds.
            Err(error) => Err(error.having_taken(taken)),
        }
    }
}

/// A producer in use. It ends with this, away from tasks that must not wait, unless it is taken out unharmed.
struct Borrowed(Option<Producer>);

impl Borrowed {
    fn unharmed(mut self) -> Option<Producer> {
        self.0.take()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(producer) = self.0.take() else { return };
        if let Ok(runtime) = Handle::try_current() {
            // Its threads are joined.
            runtime.spawn_blocking(move || drop(producer));
        }
    }
}

/// What the library says of itself goes to our log, and its errors too: they come back with every message.
#[derive(Debug, Clone, Copy)]
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, message, "Kafka library");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka library");
    }
}

/// A producer that refuses everything after one failure names that failure elsewhere.
fn cause(producer: &Producer, error: KafkaError) -> KafkaError {
    use rdkafka::producer::Producer as _;
    match producer.client().fatal_error() {
        Some((code, _)) => KafkaError::MessageProduction(code),
        None => error,
    }
}

fn judged(error: &KafkaError) -> SinkError {
    use RDKafkaErrorCode as Code;
    let Some(code) = error.rdkafka_error_code() else { return SinkError::later(format!("Kafka: {error}")) };
    let reason = format!("Kafka: {code}");
    match code {
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTopic
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::PolicyViolation => SinkError::refused(reason),
        _ => SinkError::later(reason),
    }
}
