//! The messages of OTLP that a trace needs, and how they are written as protobuf (opentelemetry-proto 1.x, `trace/v1` and
//! `collector/trace/v1`).
//!
//! By hand, because only writing is needed, and of the whole encoding four forms; the crates that could do it bring an SDK or a
//! code generator along (`docs/decisions/0038`). Field numbers are the protocol's and never change. A test holds the bytes
//! against those of the protocol's own implementation.
//!
//! Everything goes straight into the bytes that are sent: a server that is traced writes eight spans for each call, and as
//! values of their own they would cost more than the call. Fields stand in the order of their numbers, so whoever writes a
//! span says first what it is ([`Head`]), then its attributes, then how it ended.

use std::fmt::{self, Write as _};

use base::SaturatingFrom as _;

/// What is posted to a collector: one resource with one scope, because one server has no more. `spans` writes them.
pub(super) fn export_request(
    resource: &[(&str, &str)],
    (scope, version): (&str, &str),
    room: usize,
    spans: impl FnOnce(&mut SpansWriter<'_>),
) -> Vec<u8> {
    let mut request = Writer(Vec::with_capacity(room));
    request.message(1, |resource_spans| {
        resource_spans.message(1, |message| {
            for (key, value) in resource {
                message.text_attribute(1, key, value);
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |message| {
                message.bytes(1, scope.as_bytes());
                message.bytes(2, version.as_bytes());
            });
            spans(&mut SpansWriter(scope_spans));
        });
    });
    request.0
}

/// Takes spans.
pub(super) struct SpansWriter<'a>(&'a mut Writer);

/// What a span is, where it belongs and when it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    pub(super) trace_state: &'a str,
    pub(super) parent_span_id: Option<[u8; 8]>,
    pub(super) name: &'a str,
    pub(super) kind: SpanKind,
    pub(super) start_time_unix_nano: u64,
    pub(super) end_time_unix_nano: u64,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    /// With a word about it.
    Error(&'static str),
}

impl SpansWriter<'_> {
    /// Writes one span; `attributes` writes its attributes.
    pub(super) fn span(&mut self, head: &Head<'_>, status: Status, attributes: impl FnOnce(&mut AttributesWriter<'_>)) {
        self.0.message(2, |span| {
            span.bytes(1, &head.trace_id);
            span.bytes(2, &head.span_id);
            span.bytes(3, head.trace_state.as_bytes());
            span.bytes(4, head.parent_span_id.as_ref().map_or(&[], |parent| parent));
            span.bytes(5, head.name.as_bytes());
            span.number(6, head.kind as u64);
            span.fixed64(7, head.start_time_unix_nano);
            span.fixed64(8, head.end_time_unix_nano);
            attributes(&mut AttributesWriter(span));
            span.message(15, |message| match status {
                Status::Ok => message.number(3, 1),
                Status::Error(word) => {
                    message.bytes(2, word.as_bytes());
                    message.number(3, 2);
                }
            });
            span.fixed32(16, head.flags);
        });
    }
}

/// Takes the attributes of one span. A value is written also if it is empty: it says which kind it is of.
pub(super) struct AttributesWriter<'a>(&'a mut Writer);

impl AttributesWriter<'_> {
    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.0.text_attribute(SPAN_ATTRIBUTES, key, text);
    }

    /// A text that is made here and now.
    pub(super) fn shown(&mut self, key: &str, value: impl fmt::Display) {
        self.0.attribute(SPAN_ATTRIBUTES, key, |any| {
            any.message(1, |text| {
                // Writing to memory does not fail, and what shows itself here does not either.
                let _ = write!(text, "{value}");
            });
        });
    }

    pub(super) fn flag(&mut self, key: &str, flag: bool) {
        self.0.attribute(SPAN_ATTRIBUTES, key, |any| any.chosen_number(2, u64::from(flag)));
    }

    pub(super) fn number(&mut self, key: &str, number: i64) {
        self.0.attribute(SPAN_ATTRIBUTES, key, |any| any.chosen_number(3, number.cast_unsigned()));
    }
}

/// The field of a span that holds its attributes.
const SPAN_ATTRIBUTES: u64 = 9;

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
        // Most are of one byte.
        while number >= 0x80 {
            self.0.push(low_bits(number) | 0x80);
            number >>= 7;
        }
        self.0.push(low_bits(number));
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
        self.varint(as_number(bytes.len()));
        self.0.extend_from_slice(bytes);
    }

    /// An attribute whose value is a text. There are dozens for each call, so their lengths are added up and nothing is moved.
    fn text_attribute(&mut self, field: u64, key: &str, text: &str) {
        let with_length = |bytes: usize| 1 + varint_bytes(as_number(bytes)) + bytes;
        let value = with_length(text.len());
        self.key(field, LENGTH);
        self.varint(as_number(with_length(key.len()) + with_length(value)));
        self.chosen_bytes(1, key.as_bytes());
        self.key(2, LENGTH);
        self.varint(as_number(value));
        self.chosen_bytes(1, text.as_bytes());
    }

    fn attribute(&mut self, field: u64, key: &str, value: impl FnOnce(&mut Self)) {
        self.message(field, |pair| {
            pair.bytes(1, key.as_bytes());
            pair.message(2, value);
        });
    }

    /// A message within this one. It is there even if nothing is in it. Its length stands before it and is known after it:
    /// most are short enough for the byte that was kept free, the others are moved.
    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        self.key(field, LENGTH);
        let place = self.0.len();
        self.0.push(0);
        write(self);
        let end = self.0.len();
        let mut length = as_number(end - place - 1);
        let more = varint_bytes(length) - 1;
        if more > 0 {
            self.0.resize(end + more, 0);
            self.0.copy_within(place + 1..end, place + 1 + more);
        }
        for byte in self.0.iter_mut().skip(place).take(more) {
            *byte = low_bits(length) | 0x80;
            length >>= 7;
        }
        if let Some(last) = self.0.get_mut(place + more) {
            *last = low_bits(length);
        }
    }
}

impl fmt::Write for Writer {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0.extend_from_slice(part.as_bytes());
        Ok(())
    }
}

/// A length as a number.
fn as_number(length: usize) -> u64 {
    u64::saturating_from(length)
}

/// The seven lowest bits.
fn low_bits(number: u64) -> u8 {
    let [low, ..] = number.to_le_bytes();
    low & 0x7f
}

/// How many bytes a number takes.
fn varint_bytes(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize
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

    #[test]
    fn messages_of_every_length_have_it_before_them() {
        for length in [0_usize, 1, 127, 128, 16_383, 16_384, 100_000] {
            let text = "x".repeat(length);
            let mut writer = Writer::default();
            writer.message(1, |outer| outer.message(2, |inner| inner.0.extend_from_slice(text.as_bytes())));
            let mut inner = Writer::default();
            inner.chosen_bytes(2, text.as_bytes());
            let mut expected = Writer::default();
            expected.chosen_bytes(1, &inner.0);
            assert_eq!(writer.0, expected.0, "{length}");
        }
    }
}
