//! The messages of OTLP that a trace needs, and how they are written as protobuf (opentelemetry-proto 1.x, `trace/v1` and
//! `collector/trace/v1`).
//!
//! By hand, because only writing is needed, and of the whole encoding four forms; the crates that could do it bring an SDK or a
//! code generator along (`docs/decisions/0038`). Field numbers are the protocol's and never change. A test holds the bytes
//! against those of the protocol's own implementation.

/// What is posted to a collector: one resource with one scope, because one server has no more.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExportRequest {
    pub(super) resource: Vec<Attribute>,
    /// Name and version of what made the spans.
    pub(super) scope: (String, String),
    pub(super) spans: Vec<Span>,
}

/// One span.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    pub(super) trace_state: String,
    pub(super) parent_span_id: Option<[u8; 8]>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) start_time_unix_nano: u64,
    pub(super) end_time_unix_nano: u64,
    pub(super) attributes: Vec<Attribute>,
    pub(super) status: Status,
    pub(super) flags: u32,
}

/// Where a span stands between two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// How a span ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Status {
    Ok,
    /// With a word about it.
    Error(String),
}

/// A key and its value.
pub(super) type Attribute = (String, Any);

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Any {
    Text(String),
    Flag(bool),
    Number(i64),
}

impl ExportRequest {
    /// As it goes over the wire.
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut request = Writer::default();
        request.message(1, |resource_spans| {
            resource_spans.message(1, |resource| attributes(resource, 1, &self.resource));
            resource_spans.message(2, |scope_spans| {
                scope_spans.message(1, |scope| {
                    scope.bytes(1, self.scope.0.as_bytes());
                    scope.bytes(2, self.scope.1.as_bytes());
                });
                for span in &self.spans {
                    scope_spans.message(2, |message| span.write(message));
                }
            });
        });
        request.0
    }
}

impl Span {
    fn write(&self, to: &mut Writer) {
        to.bytes(1, &self.trace_id);
        to.bytes(2, &self.span_id);
        to.bytes(3, self.trace_state.as_bytes());
        to.bytes(4, self.parent_span_id.as_ref().map_or(&[], |parent| parent));
        to.bytes(5, self.name.as_bytes());
        to.number(6, self.kind as u64);
        to.fixed64(7, self.start_time_unix_nano);
        to.fixed64(8, self.end_time_unix_nano);
        attributes(to, 9, &self.attributes);
        to.message(15, |status| match &self.status {
            Status::Ok => status.number(3, 1),
            Status::Error(word) => {
                status.bytes(2, word.as_bytes());
                status.number(3, 2);
            }
        });
        to.fixed32(16, self.flags);
    }
}

fn attributes(to: &mut Writer, field: u64, all: &[Attribute]) {
    for (key, value) in all {
        to.message(field, |pair| {
            pair.bytes(1, key.as_bytes());
            pair.message(2, |any| match value {
                // A choice is written also if it is empty: it says which one was made.
                Any::Text(text) => any.chosen_bytes(1, text.as_bytes()),
                Any::Flag(flag) => any.chosen_number(2, u64::from(*flag)),
                Any::Number(number) => any.chosen_number(3, number.cast_unsigned()),
            });
        });
    }
}

/// Forms of values.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// Writes fields of one message. What has its default value is left out, as the encoding wants it.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.0.push(low & 0x7f);
            }
            self.0.push(low | 0x80);
        }
    }

    fn key(&mut self, field: u64, form: u64) {
        self.varint(field << 3 | form);
    }

    fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.chosen_number(field, number);
        }
    }

    fn chosen_number(&mut self, field: u64, number: u64) {
        self.key(field, VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.key(field, FIXED64);
            self.0.extend(number.to_le_bytes());
        }
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        if number != 0 {
            self.key(field, FIXED32);
            self.0.extend(number.to_le_bytes());
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.chosen_bytes(field, bytes);
        }
    }

    fn chosen_bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, LENGTH);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
    }

    /// A message within this one. It is there even if nothing is in it.
    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.chosen_bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_written_as_the_encoding_wants_them() {
        for (number, expected) in [
            (0, vec![0]),
            (1, vec![1]),
            (127, vec![0x7f]),
            (128, vec![0x80, 1]),
            (300, vec![0xac, 2]),
            (u64::MAX, vec![255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut writer = Writer::default();
            writer.varint(number);
            assert_eq!(writer.0, expected, "{number}");
        }
    }
}
