//! What is put on the wire and what answers mean; that events arrive at all is the suite's.

use std::collections::VecDeque;
use std::sync::Mutex;

use ports::secret_source::{NoSecrets, SecretError, SecretValue};
use serde_json::Value;

use super::*;
use crate::conformance::{MemorySource, QuickClock};

type Sent = (Vec<(String, String)>, Vec<u8>);
type Answering = Result<(u16, Option<&'static str>), CallOutError>;

/// Answers as it is told; 204 for ever after.
#[derive(Debug, Default)]
struct Wire {
    answers: Mutex<VecDeque<Answering>>,
    sent: Mutex<Vec<Sent>>,
}

#[async_trait]
impl CallsOut for Wire {
    fn check(&self, _: &str) -> Result<(), CallOutError> {
        Ok(())
    }

    async fn post(&self, call: CallOut<'_>) -> Result<CallAnswer, CallOutError> {
        let headers = call.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        self.sent.lock().unwrap().push((headers, call.body.to_vec()));
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Ok((204, None)));
        answer.map(|(status, retry_after)| CallAnswer {
            status,
            body: b"secret of the receiver".to_vec(),
            took: Duration::ZERO,
            retry_after: retry_after.map(str::to_owned),
        })
    }
}

#[derive(Debug)]
struct OneSecret;

#[async_trait]
impl SecretSource for OneSecret {
    async fn secret(&self, tenant: &TenantId, name: &str) -> Result<SecretValue, SecretError> {
        assert_eq!(*tenant, TenantId::home());
        if name == "siem" { Ok(SecretValue::new("Bearer s3cret\n").unwrap()) } else { Err(SecretError::Missing) }
    }
}

fn sink(wire: &Arc<Wire>, mode: HttpMode, credential: Option<&str>) -> HttpSink {
    let clock = QuickClock::default();
    clock.0.store(784_111_717_000, std::sync::atomic::Ordering::Relaxed);
    HttpSink {
        url: "https://siem.example/events".into(),
        mode,
        secret_header: credential
            .map(|credential| SecretHeader { name: "authorization".into(), credential: credential.into() }),
        calls: Arc::clone(wire) as _,
        secrets: if credential.is_some() { Arc::new(OneSecret) } else { Arc::new(NoSecrets) },
        clock: Arc::new(clock),
    }
}

fn answering(answers: impl IntoIterator<Item = Answering>) -> Arc<Wire> {
    Arc::new(Wire { answers: Mutex::new(answers.into_iter().collect()), sent: Mutex::default() })
}

fn events(count: usize) -> Vec<SinkEvent> {
    let source = MemorySource::default();
    source.append(count, |seq| format!("note {seq}"));
    source.events()
}

fn header(sent: &Sent, name: &str) -> Option<String> {
    sent.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

#[tokio::test]
async fn each_mode_is_as_the_binding_says() {
    let events = events(2);
    let wire = answering([]);
    sink(&wire, HttpMode::Structured, None).deliver(&events).await.unwrap();
    sink(&wire, HttpMode::Batched, None).deliver(&events).await.unwrap();
    sink(&wire, HttpMode::Binary, None).deliver(&events).await.unwrap();
    let sent = wire.sent.lock().unwrap();
    let [one, two, batch, binary, _] = sent.as_slice() else { panic!("{sent:?}") };
    for (sent, event) in [(one, &events[0]), (two, &events[1])] {
        assert_eq!(header(sent, "content-type").unwrap(), "application/cloudevents+json; charset=utf-8");
        assert_eq!(sent.1, event.json().as_bytes());
    }
    assert_eq!(header(batch, "content-type").unwrap(), "application/cloudevents-batch+json; charset=utf-8");
    assert_eq!(batch.1, format!("[{},{}]", events[0].json(), events[1].json()).as_bytes());
    let whole: Value = serde_json::from_str(events[0].json()).unwrap();
    assert_eq!(header(binary, "content-type").unwrap(), "application/json");
    for name in ["specversion", "id", "source", "type", "time", "sequence", "partitionkey"] {
        assert_eq!(header(binary, &format!("ce-{name}")).as_deref(), whole[name].as_str(), "{name}");
    }
    assert_eq!(header(binary, "ce-datacontenttype"), None);
    assert_eq!(serde_json::from_slice::<Value>(&binary.1).unwrap(), whole["data"]);
}

#[tokio::test]
async fn answers_say_whether_another_try_is_worth_it() {
    let later = |seconds: Option<u64>| BatchVerdict::Later { after: seconds.map(Duration::from_secs) };
    let cases: [(Answering, BatchVerdict, &str); 13] = [
        (Ok((500, None)), later(None), "answers 500"),
        (Ok((503, Some("7"))), later(Some(7)), "answers 503"),
        (Ok((429, Some("Sun, 06 Nov 1994 08:49:37 GMT"))), later(Some(60)), "answers 429"),
        (Ok((429, Some("Sun, 06 Nov 1994 08:00:00 GMT"))), later(Some(0)), "answers 429"),
        (Ok((429, Some("soon"))), later(None), "answers 429"),
        (Ok((408, None)), later(None), "answers 408"),
        (Ok((400, None)), BatchVerdict::Refused, "answers 400"),
        (Ok((401, Some("7"))), BatchVerdict::Refused, "answers 401"),
        (Ok((410, None)), BatchVerdict::Refused, "answers 410"),
        (Err(CallOutError::TimedOut(Duration::from_secs(15))), later(None), "no answer"),
        (Err(CallOutError::NotConnected), later(None), "no connection"),
        (Err(CallOutError::Redirect(302)), BatchVerdict::Refused, "redirect"),
        (Err(CallOutError::NotAllowed("it is not public")), BatchVerdict::Refused, "not public"),
    ];
    for (answer, verdict, word) in cases {
        let wire = answering([answer.clone()]);
        let error = sink(&wire, HttpMode::Batched, None).deliver(&events(2)).await.unwrap_err();
        assert_eq!((error.verdict, error.acknowledged), (verdict, 0), "{answer:?}");
        assert!(error.reason.contains(word) && !error.reason.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn what_was_taken_before_a_failure_counts() {
    let wire = answering([Ok((200, None)), Ok((202, None)), Ok((500, None))]);
    let error = sink(&wire, HttpMode::Structured, None).deliver(&events(5)).await.unwrap_err();
    assert_eq!(error.acknowledged, 2);
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_halved_and_one_record_that_is_halts() {
    let wire = answering([Ok((413, None)), Ok((413, None))]);
    sink(&wire, HttpMode::Batched, None).deliver(&events(8)).await.unwrap();
    let sizes: Vec<usize> = wire
        .sent
        .lock()
        .unwrap()
        .iter()
        .map(|(_, body)| serde_json::from_slice::<Vec<Value>>(body).unwrap().len())
        .collect();
    assert_eq!(sizes, [8, 4, 2, 2, 2, 2]);
    let wire = answering(std::iter::repeat_n(Ok((413, None)), 3));
    let error = sink(&wire, HttpMode::Batched, None).deliver(&events(4)).await.unwrap_err();
    assert_eq!((error.verdict, error.acknowledged), (BatchVerdict::Refused, 0));
}

#[tokio::test]
async fn the_credential_goes_into_its_header_and_nothing_goes_without_it() {
    let wire = answering([]);
    sink(&wire, HttpMode::Batched, Some("siem")).deliver(&events(1)).await.unwrap();
    assert_eq!(header(&wire.sent.lock().unwrap()[0], "authorization").unwrap(), "Bearer s3cret");
    let wire = answering([]);
    let error = sink(&wire, HttpMode::Batched, Some("other")).deliver(&events(1)).await.unwrap_err();
    assert!(matches!(error.verdict, BatchVerdict::Later { .. }) && error.reason.contains("`other`"));
    assert!(wire.sent.lock().unwrap().is_empty());
}

#[test]
fn header_values_are_visible_ascii_whatever_they_were() {
    for (text, encoded) in [
        ("plain-1.0", "plain-1.0"),
        ("a b", "a%20b"),
        ("50%\"", "50%25%22"),
        ("Euro € \u{1f600}", "Euro%20%E2%82%AC%20%F0%9F%98%80"),
        ("x\r\ny\0", "x%0D%0Ay%00"),
    ] {
        assert_eq!(percent_encoded(text), encoded);
    }
}
