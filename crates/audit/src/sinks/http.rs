//! Events by HTTP, as the CloudEvents binding has it: one by one with the envelope in the body (structured) or in headers
//! (binary), or many in one body (batched).
//!
//! The address is called through the same guarded port as webhooks, with the same rules about where it may lead. The
//! credential is fetched for every request, so that a rotated one is in force at the next.
//!
//! What an answer means: 2xx taken; 408, 425, 429 and 5xx later, not before `Retry-After`; everything else refused. A batch
//! that is too large for the receiver (413) is halved.
//!
//! Not here: connections, time limits and the judgement of addresses (the adapter of `CallsOut`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::TenantId;
use jiff::fmt::rfc2822;
use ports::call_out::{CallAnswer, CallOut, CallOutError, CallsOut};
use ports::clock::Clock;
use ports::secret_source::SecretSource;

use super::{BatchVerdict, RecordSink, SinkError, SinkEvent};

/// How events are put into requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMode {
    Structured,
    Binary,
    Batched,
}

impl HttpMode {
    /// From its word.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "structured" => Some(Self::Structured),
            "binary" => Some(Self::Binary),
            "batched" => Some(Self::Batched),
            _ => None,
        }
    }
}

/// A header whose value is a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHeader {
    /// In lower case.
    pub name: String,
    /// The credential of the home tenant whose text is the whole value, `Bearer …` for example.
    pub credential: String,
}

/// Where events go.
#[derive(Debug)]
pub struct HttpSink {
    pub url: String,
    pub mode: HttpMode,
    pub secret_header: Option<SecretHeader>,
    pub calls: Arc<dyn CallsOut>,
    pub secrets: Arc<dyn SecretSource>,
    pub clock: Arc<dyn Clock>,
}

/// One request.
struct Request {
    headers: Vec<(String, String)>,
    body: String,
}

#[async_trait]
impl RecordSink for HttpSink {
    async fn deliver(&self, batch: &[SinkEvent]) -> Result<(), SinkError> {
        let mut taken = 0;
        let mut size = match self.mode {
            HttpMode::Batched => batch.len(),
            HttpMode::Structured | HttpMode::Binary => 1,
        };
        while let Some(part) = batch.get(taken..).filter(|rest| !rest.is_empty()) {
            let part = part.get(..size).unwrap_or(part);
            match self.send(self.request(part)).await.map_err(|error| error.having_taken(taken))? {
                Answer::Taken => taken += part.len(),
                Answer::TooLarge if part.len() > 1 => size = part.len() / 2,
                Answer::TooLarge => {
                    let seq = part.first().map_or(0, |event| event.seq);
                    let reason = format!("the receiver answers 413 to record {seq} alone");
                    return Err(SinkError::refused(reason).having_taken(taken));
                }
            }
        }
        Ok(())
    }
}

enum Answer {
    Taken,
    TooLarge,
}

impl HttpSink {
    fn request(&self, events: &[SinkEvent]) -> Request {
        let content_type = |value: &str| vec![("content-type".to_owned(), value.to_owned())];
        match (self.mode, events) {
            (HttpMode::Structured, [event]) => Request {
                headers: content_type("application/cloudevents+json; charset=utf-8"),
                body: event.json().to_owned(),
            },
            (HttpMode::Binary, [event]) => binary(event),
            _ => {
                let texts: Vec<&str> = events.iter().map(|event| event.json()).collect();
                Request {
                    headers: content_type("application/cloudevents-batch+json; charset=utf-8"),
                    body: format!("[{}]", texts.join(",")),
                }
            }
        }
    }

    async fn send(&self, mut request: Request) -> Result<Answer, SinkError> {
        if let Some(SecretHeader { name, credential }) = &self.secret_header {
            let secret = self.secrets.secret(&TenantId::home(), credential).await;
            // Somebody may provision it meanwhile; the records can wait.
            let secret = secret.map_err(|error| SinkError::later(format!("credential `{credential}`: {error}")))?;
            let text = str::from_utf8(secret.expose().trim_ascii())
                .map_err(|_| SinkError::later(format!("credential `{credential}` is no text")))?;
            request.headers.push((name.clone(), text.to_owned()));
        }
        let headers: Vec<(&str, String)> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let call = CallOut { url: &self.url, headers: &headers, body: request.body.as_bytes() };
        match self.calls.post(call).await {
            Ok(answer) => self.judge(&answer),
            Err(CallOutError::Plaintext) => Err(SinkError::refused(
                "the address must begin with `https://`, or the sink's `allow` must name it with `http://`",
            )),
            Err(error @ CallOutError::Redirect(_)) => Err(SinkError::refused(error.to_string())),
            Err(error) if error.is_final() => Err(SinkError::refused(error.to_string())),
            Err(error) => Err(SinkError::later(error.to_string())),
        }
    }

    fn judge(&self, answer: &CallAnswer) -> Result<Answer, SinkError> {
        // The body is the receiver's and may say anything: it goes nowhere.
        let reason = format!("the receiver answers {}", answer.status);
        match answer.status {
            200..=299 => Ok(Answer::Taken),
            413 => Ok(Answer::TooLarge),
            408 | 425 | 429 | 500..=599 => {
                let after = answer.retry_after.as_deref().and_then(|text| self.asked_pause(text));
                Err(SinkError { verdict: BatchVerdict::Later { after }, ..SinkError::later(reason) })
            }
            _ => Err(SinkError::refused(reason)),
        }
    }

    /// Seconds, or a date.
    fn asked_pause(&self, text: &str) -> Option<Duration> {
        let text = text.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let until = rfc2822::parse(text).ok()?.timestamp().as_millisecond();
        let millis = until.saturating_sub(self.clock.now().0);
        Some(Duration::from_millis(u64::saturating_from(millis)))
    }
}

fn binary(event: &SinkEvent) -> Request {
    let (attributes, body) = event.parts();
    let headers = attributes
        .into_iter()
        .map(|(name, value)| match name.as_str() {
            "datacontenttype" => ("content-type".to_owned(), value),
            name => (format!("ce-{name}"), percent_encoded(&value)),
        })
        .collect();
    Request { headers, body }
}

/// As the binding says: everything but visible ASCII without `"` and `%` becomes the percent-encoding of its UTF-8.
fn percent_encoded(text: &str) -> String {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    let digit = |nibble: u8| HEX.get(usize::from(nibble & 15)).copied().unwrap_or('0');
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' => encoded.extend(['%', digit(byte >> 4), digit(byte)]),
            0x21..=0x7e => encoded.push(char::from(byte)),
            _ => encoded.extend(['%', digit(byte >> 4), digit(byte)]),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
