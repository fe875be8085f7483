//! One text and one digest per JSON value: RFC 8785 (JCS) and SHA-256 over it.
//!
//! Approvals, idempotency keys and manifests are bound to digests of what they are about, so two parties must come to
//! the same bytes, whatever the order of keys or the spelling of numbers was. The writing is done by
//! `serde_json_canonicalizer`; its results are held against the samples of the RFC in the tests.
//!
//! RFC 8785 knows numbers as IEEE doubles only. An integer that a double cannot hold would silently become its
//! neighbour, and an approval of one would serve for the other. Such integers are refused instead.
//!
//! Invariants
//! - CAN-1: `canonical(parse(canonical(v))) = canonical(v)`.
//! - CAN-2: two different integers never have the same canonical text.
//!
//! Not here: reading JSON (`json`, which also refuses duplicate keys before they get here), and signatures.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// Why a value has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// The integer would change, see CAN-2.
    #[error("integer `{value}` is not exact as a 64-bit floating point number: send it as a string")]
    InexactInteger { value: Number },
    /// The writer gave up, which no `Value` should make it do.
    #[error("the value has no canonical form")]
    Unwritable,
}

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
/// assert_eq!(to_canonical_string(&value).unwrap(), r#"{"a":[100,"é"],"b":1.5}"#);
/// ```
pub fn to_canonical_string(value: &Value) -> Result<String, CanonicalError> {
    check_integers(value)?;
    serde_json_canonicalizer::to_string(value).map_err(|_| CanonicalError::Unwritable)
}

/// The SHA-256 of the canonical text of a value.
///
/// ```
/// use gantry_contract::canonical::digest;
/// use serde_json::json;
/// assert_eq!(digest(&json!({"a": 1, "b": 2})), digest(&json!({"b": 2.0, "a": 1})));
/// ```
pub fn digest(value: &Value) -> Result<Digest, CanonicalError> {
    to_canonical_string(value).map(|text| Digest::of_bytes(text.as_bytes()))
}

/// CAN-2: an integer may stand if its digits come through unchanged. That is more than "a double can hold it":
/// 2^60 can be held, but is written 1152921504606847000, which is another integer.
fn check_integers(value: &Value) -> Result<(), CanonicalError> {
    /// Up to here every integer is a double and is written with all its digits.
    const SAFE: u64 = 1 << 53;
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) => {
            let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            match magnitude {
                Some(magnitude) if magnitude > SAFE => {
                    let written =
                        serde_json_canonicalizer::to_string(number).map_err(|_| CanonicalError::Unwritable)?;
                    if written == number.to_string() {
                        Ok(())
                    } else {
                        Err(CanonicalError::InexactInteger { value: number.clone() })
                    }
                }
                _ => Ok(()),
            }
        }
        Value::Array(values) => values.iter().try_for_each(check_integers),
        Value::Object(members) => members.values().try_for_each(check_integers),
    }
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
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
    fn integers_keep_their_digits_or_are_refused() {
        for (number, kept) in [
            (json!(9_007_199_254_740_991_u64), true),
            (json!(9_007_199_254_740_992_u64), true),
            (json!(9_007_199_254_740_993_u64), false),
            (json!(-9_007_199_254_740_993_i64), false),
            (json!(9_007_199_254_740_994_u64), true),
            (json!(1_u64 << 60), false),
            (json!(1_152_921_504_606_847_000_u64), true),
            (json!(u64::MAX), false),
            (json!(i64::MIN), false),
            (json!(18_446_744_073_709_551_616.0), true),
        ] {
            let text = to_canonical_string(&json!({"n": [number.clone()]}));
            match kept {
                true => assert_eq!(text, Ok(format!("{{\"n\":[{}]}}", to_canonical_string(&number).unwrap()))),
                false => assert!(matches!(text, Err(CanonicalError::InexactInteger { .. })), "{number}"),
            }
        }
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
