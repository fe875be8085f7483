//! The suite of sinks against Kafka's protocol, and brokers that go away and come back under load.
//!
//! The broker is the one that comes with the library: it listens on loopback, speaks the real protocol and keeps what it was
//! given while it is "down", which means that it has cut every connection and takes no new one.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test crate")]
#![expect(clippy::disallowed_methods, reason = "readers outside the runtime wait by the machine's clock")]

mod broker;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use audit::conformance::{MemorySource, SinkReceiver, check, courier, until, until_acknowledged};
use audit::sinks::{BatchLimits, BatchVerdict, RecordSink, SinkEvent};
use broker::Broker;
use gantry_kafka_sink::{KafkaConfig, KafkaMode, KafkaSecurity, KafkaSink, TOPIC_DEFAULT};
use serde_json::Value;

struct Cluster {
    broker: Broker,
    mode: KafkaMode,
}

impl Cluster {
    fn start(mode: KafkaMode) -> Self {
        Self { broker: Broker::start(TOPIC_DEFAULT, 3), mode }
    }

    fn kafka(&self) -> KafkaSink {
        let config = KafkaConfig {
            brokers: vec![self.broker.address.clone()],
            topic: TOPIC_DEFAULT.into(),
            mode: self.mode,
            timeout: Duration::from_secs(2),
            security: KafkaSecurity::default(),
        };
        KafkaSink::new(config).unwrap()
    }
}

#[async_trait]
impl SinkReceiver for Cluster {
    async fn sink(&self) -> Arc<dyn RecordSink> {
        Arc::new(self.kafka())
    }

    async fn fail(&self) {
        self.broker.down();
    }

    async fn recover(&self) {
        self.broker.up();
    }

    async fn events(&self) -> Vec<Value> {
        let address = self.broker.address.clone();
        tokio::task::spawn_blocking(move || broker::read_all(&address, TOPIC_DEFAULT)).await.unwrap()
    }
}

mod structured {
    async fn open() -> super::Cluster {
        super::Cluster::start(super::KafkaMode::Structured)
    }

    audit::sink_suite!(open);
}

mod binary {
    async fn open() -> super::Cluster {
        super::Cluster::start(super::KafkaMode::Binary)
    }

    audit::sink_suite!(open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_misses_nothing_while_the_broker_is_killed_and_restarted_under_load() {
    const ROUNDS: usize = 4;
    const PER_ROUND: usize = 500;
    let cluster = Cluster::start(KafkaMode::Structured);
    let consumer = broker::Consumer::follow(&cluster.broker.address, TOPIC_DEFAULT, ROUNDS * PER_ROUND);
    let (dir, source) = (tempfile::tempdir().unwrap(), Arc::new(MemorySource::default()));
    let limits = BatchLimits { records: 50, ..BatchLimits::default() };
    let mut carrying = courier(dir.path(), &source, cluster.sink().await, limits);
    for round in 0..ROUNDS {
        let load = tokio::spawn({
            let source = Arc::clone(&source);
            async move {
                for _ in 0..PER_ROUND / 10 {
                    source.append(10, |seq| format!("record {seq} with \u{1b}[31m and \n"));
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        });
        let so_far = (round * PER_ROUND + PER_ROUND / 4) as u64;
        until("some of the round", || async {
            audit::sinks::SinkCursor::peek(dir.path(), "suite").unwrap() >= Some(so_far)
        })
        .await;
        cluster.broker.down();
        load.await.unwrap();
        if round % 2 == 1 {
            // The server dies as well, while the broker is away.
            carrying.abort();
            carrying.ended().await;
            carrying = courier(dir.path(), &source, cluster.sink().await, limits);
        }
        cluster.broker.up();
    }
    until_acknowledged(dir.path(), (ROUNDS * PER_ROUND) as u64).await;
    carrying.close().await;
    let events = tokio::task::spawn_blocking(move || consumer.everything()).await.unwrap();
    check(&events, ROUNDS * PER_ROUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_too_large_is_refused_and_what_is_before_it_is_taken() {
    let cluster = Cluster::start(KafkaMode::Structured);
    let source = MemorySource::default();
    source.append(4, |seq| if seq == 2 { "x".repeat(1_200_000) } else { "small".to_owned() });
    let events: Vec<SinkEvent> = source.events();
    let error = cluster.kafka().deliver(&events).await.unwrap_err();
    assert_eq!((error.verdict, error.acknowledged), (BatchVerdict::Refused, 2), "{error}");
    assert!(error.reason.contains("record 2"), "{error}");
    assert_eq!(cluster.events().await.len(), 2, "nothing has overtaken it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_carry_their_tenant_as_key_and_their_content_type() {
    let cluster = Cluster::start(KafkaMode::Structured);
    let source = MemorySource::default();
    source.append(8, |seq| format!("note {seq}"));
    cluster.kafka().deliver(&source.events()).await.unwrap();
    let address = cluster.broker.address.clone();
    let messages = tokio::task::spawn_blocking(move || broker::read_messages(&address, TOPIC_DEFAULT)).await.unwrap();
    assert_eq!(messages.len(), 8);
    for message in messages {
        let event: Value = serde_json::from_slice(&message.value).unwrap();
        assert_eq!(message.key, event["partitionkey"].as_str().unwrap_or("-"));
        assert_eq!(message.headers["content-type"], "application/cloudevents+json; charset=utf-8");
    }
}

#[test]
fn a_debug_print_of_a_sink_needs_no_broker() {
    let config = KafkaConfig {
        brokers: vec!["127.0.0.1:1".into()],
        topic: TOPIC_DEFAULT.into(),
        mode: KafkaMode::Binary,
        timeout: Duration::from_secs(1),
        security: KafkaSecurity::default(),
    };
    assert!(format!("{:?}", KafkaSink::new(config).unwrap()).contains(TOPIC_DEFAULT));
}
