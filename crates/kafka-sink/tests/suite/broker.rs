//! A broker for tests, and consumers that read everything it has.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Map, Value};

/// How long reading may take.
const DEADLINE: Duration = Duration::from_secs(60);

enum Order {
    Down,
    Up,
}

/// The broker, on a thread of its own: the library's handle stays where it was made.
pub(crate) struct Broker {
    pub(crate) address: String,
    orders: mpsc::Sender<(Order, mpsc::Sender<()>)>,
    _thread: JoinHandle<()>,
}

impl Broker {
    pub(crate) fn start(topic: &'static str, partitions: i32) -> Self {
        let (orders, incoming) = mpsc::channel::<(Order, mpsc::Sender<()>)>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let cluster = MockCluster::new(1).unwrap();
            cluster.create_topic(topic, partitions, 1).unwrap();
            tell.send(cluster.bootstrap_servers()).unwrap();
            // Ends when the broker's owner is gone.
            for (order, done) in incoming {
                match order {
                    Order::Down => cluster.broker_down(-1).unwrap(),
                    Order::Up => cluster.broker_up(-1).unwrap(),
                }
                done.send(()).unwrap();
            }
        });
        Self { address: told.recv().unwrap(), orders, _thread: thread }
    }

    pub(crate) fn down(&self) {
        self.order(Order::Down);
    }

    pub(crate) fn up(&self) {
        self.order(Order::Up);
    }

    fn order(&self, order: Order) {
        let (done, wait) = mpsc::channel();
        self.orders.send((order, done)).unwrap();
        wait.recv().unwrap();
    }
}

/// One message as a consumer sees it.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) key: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) value: Vec<u8>,
}

impl Read {
    /// The whole event, in whichever mode it was sent.
    fn event(&self) -> Value {
        if self.headers.get("content-type").is_some_and(|kind| kind.starts_with("application/cloudevents+json")) {
            return serde_json::from_slice(&self.value).unwrap();
        }
        let mut event = Map::new();
        for (name, value) in &self.headers {
            let name = if name == "content-type" { Some("datacontenttype") } else { name.strip_prefix("ce_") };
            event.extend(name.map(|name| (name.to_owned(), Value::String(value.clone()))));
        }
        event.insert("data".to_owned(), serde_json::from_slice(&self.value).unwrap());
        Value::Object(event)
    }
}

/// Everything of a topic as events, partition after partition or as it comes; either way each partition in order.
pub(crate) fn read_all(address: &str, topic: &str) -> Vec<Value> {
    read_messages(address, topic).iter().map(Read::event).collect()
}

/// Everything of a topic, to the end of each partition.
pub(crate) fn read_messages(address: &str, topic: &str) -> Vec<Read> {
    let (consumer, mut open) = consumer(address, topic);
    let (mut messages, end) = (Vec::new(), Instant::now() + DEADLINE);
    while open > 0 {
        assert!(Instant::now() < end, "the topic is read in time");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => messages.push(read(&message)),
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(_)) | None => {}
        }
    }
    messages
}

/// Reads along while others write.
pub(crate) struct Consumer {
    thread: JoinHandle<Vec<Value>>,
}

impl Consumer {
    /// Reads until it has seen `count` different events.
    pub(crate) fn follow(address: &str, topic: &'static str, count: usize) -> Self {
        let address = address.to_owned();
        let thread = std::thread::spawn(move || {
            let (consumer, _) = consumer(&address, topic);
            let (mut events, mut ids, end) =
                (Vec::new(), std::collections::BTreeSet::new(), Instant::now() + DEADLINE * 2);
            while ids.len() < count {
                assert!(Instant::now() < end, "{} of {count} events have come in time", ids.len());
                // Errors are of the broker that is away.
                if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
                    let event = read(&message).event();
                    ids.insert(event["id"].as_str().unwrap().to_owned());
                    events.push(event);
                }
            }
            events
        });
        Self { thread }
    }

    pub(crate) fn everything(self) -> Vec<Value> {
        self.thread.join().unwrap()
    }
}

/// A consumer of all partitions from their beginning, and how many there are.
fn consumer(address: &str, topic: &str) -> (BaseConsumer, usize) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("group.id", "reader")
        .set("enable.partition.eof", "true")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("reconnect.backoff.max.ms", "500")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), DEADLINE).unwrap();
    let partitions = metadata.topics()[0].partitions();
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    (consumer, partitions.len())
}

fn read(message: &rdkafka::message::BorrowedMessage<'_>) -> Read {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap();
    let headers = message.headers().unwrap();
    Read {
        key: text(message.key()),
        headers: headers.iter().map(|header| (header.key.to_owned(), text(header.value))).collect(),
        value: message.payload().unwrap().to_vec(),
    }
}
