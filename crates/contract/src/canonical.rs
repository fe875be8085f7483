//! One text and one digest per JSON value: RFC 8785 (JCS) and SHA-256 over it.
//!
//! Approvals, idempotency keys and manifests are bound to digests of what they are about, so two parties must come to
//! the same bytes, whatever the order of keys or the spelling of numbers was. Every call is digested, so the writer
//! feeds the hash directly and builds no text on the way.
//!
//! RFC 8785 knows numbers as IEEE doubles only. An integer that a double cannot hold would silently become its
//! neighbour, and an approval of one would serve for the other. Such integers (which I-JSON does not allow in the first
//! place) keep all their digits here.
//!
//! Invariants
//! - CAN-1: `canonical(parse(canonical(v))) = canonical(v)`.
//! - CAN-2: two different integers never have the same canonical text.
//!
//! Not here: reading JSON (`json`, which also refuses duplicate keys before they get here), and signatures.

use crate::hex::write_lower_hex;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Wrong prefix, length or characters.
    #[error("a digest is `sha256:` and 64 hexadecimal digits in lower case")]
    Malformed,
}

/// The RFC 8785 text of a value.
///
/// ```
/// use gantry_contract::canonical::to_canonical_string;
/// let value = serde_json::json!({"b": 1.50, "a": [1e2, "é"]});
/// assert_eq!(to_canonical_string(&value), r#"{"a":[100,"é"],"b":1.5}"#);
/// ```
pub fn to_canonical_string(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text);
    text
}

/// The SHA-256 of the canonical text of a value.
///
/// ```
/// use gantry_contract::canonical::digest;
/// use serde_json::json;
/// assert_eq!(digest(&json!({"a": 1, "b": 2})), digest(&json!({"b": 2.0, "a": 1})));
/// ```
pub fn digest(value: &Value) -> Digest {
    let mut hash = Sha256::new();
    write_value(value, &mut hash);
    Digest(hash.finalize().into())
}

// ---------------------------------------------------------------------------------------------------------- writing

/// Where canonical text goes: a string, or straight into a hash.
trait Sink {
    fn put(&mut self, text: &str);
}

impl Sink for String {
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl Sink for Sha256 {
    fn put(&mut self, text: &str) {
        self.update(text.as_bytes());
    }
}

fn write_value(value: &Value, out: &mut impl Sink) {
    match value {
        Value::Null => out.put("null"),
        Value::Bool(true) => out.put("true"),
        Value::Bool(false) => out.put("false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.put("[");
            for (index, item) in items.iter().enumerate() {
                out.put(if index == 0 { "" } else { "," });
                write_value(item, out);
            }
            out.put("]");
        }
        Value::Object(members) => write_object(members, out),
    }
}

fn write_object(members: &Map<String, Value>, out: &mut impl Sink) {
    let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
    // Keys are ordered by UTF-16 units. That is the order of bytes as long as nothing above U+D7FF takes part, and then
    // the map has them in that order already.
    sorted.sort_by(
        |(a, _), (b, _)| {
            if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
        },
    );
    out.put("{");
    for (index, (key, value)) in sorted.into_iter().enumerate() {
        out.put(if index == 0 { "" } else { "," });
        write_string(key, out);
        out.put(":");
        write_value(value, out);
    }
    out.put("}");
}

/// Integers by their digits (CAN-2), everything else as ECMAScript writes doubles.
fn write_number(number: &Number, out: &mut impl Sink) {
    match number.as_f64() {
        Some(double) if number.is_f64() => out.put(ryu_js::Buffer::new().format(double)),
        _ => out.put(&number.to_string()),
    }
}

/// Only what must be escaped is, in the shortest form there is.
fn write_string(text: &str, out: &mut impl Sink) {
    out.put("\"");
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
        let (plain, from) = rest.split_at(at);
        out.put(plain);
        let mut chars = from.chars();
        match chars.next() {
            Some('"') => out.put("\\\""),
            Some('\\') => out.put("\\\\"),
            Some('\u{8}') => out.put("\\b"),
            Some('\t') => out.put("\\t"),
            Some('\n') => out.put("\\n"),
            Some('\u{c}') => out.put("\\f"),
            Some('\r') => out.put("\\r"),
            Some(control) => out.put(&format!("\\u{:04x}", u32::from(control))),
            None => {}
        }
        rest = chars.as_str();
    }
    out.put(rest);
    out.put("\"");
}

// ---------------------------------------------------------------------------------------------------------- Digest

/// A SHA-256 digest, written `sha256:` and 64 hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

/// What stands before the digits.
const PREFIX: &str = "sha256:";

impl Digest {
    /// The digest of these bytes as they are.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Digest {
    /// Takes 32 bytes that are a SHA-256 already, such as a stored one.
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        write_lower_hex(self.0, f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(PREFIX).ok_or(DigestError::Malformed)?.as_bytes();
        let (pairs, []) = digits.as_chunks::<2>() else { return Err(DigestError::Malformed) };
        let mut bytes = [0; 32];
        if pairs.len() != bytes.len() {
            return Err(DigestError::Malformed);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = hex_value(*high)? << 4 | hex_value(*low)?;
        }
        Ok(Self(bytes))
    }
}

/// One lower-case hexadecimal digit. Upper case is refused, so that equal digests are equal texts.
fn hex_value(digit: u8) -> Result<u8, DigestError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(DigestError::Malformed),
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl JsonSchema for Digest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "SHA-256 over the RFC 8785 form",
            "pattern": "^sha256:[0-9a-f]{64}$",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_keep_all_their_digits_even_where_a_double_would_not() {
        for number in [0, 1, 9_007_199_254_740_993, 1 << 60, u64::MAX] {
            assert_eq!(to_canonical_string(&json!({ "n": [number] })), format!("{{\"n\":[{number}]}}"));
        }
        assert_eq!(to_canonical_string(&json!(i64::MIN)), i64::MIN.to_string());
    }

    #[test]
    fn digests_have_one_spelling() {
        // FIPS 180-2, the empty message.
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of_bytes(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of_bytes(b"")));
        assert_eq!(serde_json::to_value(Digest::of_bytes(b"")).unwrap(), empty);
        assert_eq!(serde_json::from_value::<Digest>(json!(empty)).unwrap(), Digest::of_bytes(b""));
        for text in [
            "",
            "sha256:",
            empty.trim_start_matches("sha256:"),
            empty.trim_end_matches('5'),
            &empty.to_uppercase(),
            &format!("{empty}00"),
            &empty.replace('e', "E"),
        ] {
            assert_eq!(text.parse::<Digest>(), Err(DigestError::Malformed), "{text}");
        }
    }
}
