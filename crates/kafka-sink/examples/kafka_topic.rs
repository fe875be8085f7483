//! A topic from outside, for `cargo xtask kafka`: `create BROKER TOPIC PARTITIONS` makes it, `read BROKER TOPIC` prints every
//! message as a line of JSON with its partition, offset, key and value, to the end of each partition.
//!
//! An example and not a part of `xtask`, because the library in C must not be built for every developer command.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
#![expect(clippy::disallowed_methods, reason = "waits by the machine's clock")]

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};

/// How long the broker may take for anything.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["create", broker, topic, partitions] => create(broker, topic, partitions.parse()?).await,
        ["read", broker, topic] => read(broker, topic),
        _ => Err("use `create BROKER TOPIC PARTITIONS` or `read BROKER TOPIC`".into()),
    }
}

async fn create(broker: &str, topic: &str, partitions: i32) -> Outcome {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new().set("bootstrap.servers", broker).create()?;
    let wish = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    for made in admin.create_topics([&wish], &options).await? {
        made.map_err(|(topic, code)| format!("the topic `{topic}` was not made: {code}"))?;
    }
    Ok(())
}

fn read(broker: &str, topic: &str) -> Outcome {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker)
        .set("group.id", "gantry-kafka-topic")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .create()?;
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let partitions: Vec<i32> = metadata
        .topics()
        .iter()
        .filter(|known| known.name() == topic)
        .flat_map(|known| known.partitions().iter().map(|partition| partition.id()))
        .collect();
    let mut from = TopicPartitionList::new();
    for partition in &partitions {
        from.add_partition_offset(topic, *partition, Offset::Beginning)?;
    }
    consumer.assign(&from)?;
    let (mut open, mut last) = (partitions, Instant::now());
    while !open.is_empty() {
        match consumer.poll(LOOK_EVERY) {
            Some(Ok(message)) => {
                last = Instant::now();
                let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                let value: Option<Value> = message.payload().and_then(|bytes| serde_json::from_slice(bytes).ok());
                let line = json!({ "partition": message.partition(), "offset": message.offset(),
                    "key": text(message.key()), "value": value });
                println!("{line}");
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => open.retain(|known| *known != partition),
            // The library connects anew by itself.
            Some(Err(_)) | None if last.elapsed() < PATIENCE => {}
            Some(Err(error)) => return Err(error.into()),
            None => return Err("the topic was not read to its end in time".into()),
        }
    }
    Ok(())
}
