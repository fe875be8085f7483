//! The one reader for JSON that comes from outside: bodies, tool output, manifests, messages.
//!
//! `serde_json` alone is too kind for a trust boundary. Of two equal keys it keeps the last, while another parser on the
//! way keeps the first; then what was checked is not what is run. So duplicates are refused, and so is everything that
//! could make reading expensive: depth, node count and string length have limits. It stays one pass over the input, a
//! visitor over serde_json's parser, so that strictness costs nothing worth saving.
//!
//! Invariants
//! - JSON-1: what [`read`] accepts, every conforming JSON parser reads to the same value (up to the precision of fractions).
//! - JSON-2: work and memory are bounded by [`JsonLimits`] before a schema sees the value.
//! - JSON-3: a number is kept or refused: no integer loses a digit, nothing becomes infinite or zero (`lost_number`).
//!
//! Not here: limits on the transport (the doors count bytes before they buffer), schema validation (`schema`), one form
//! per value (`canonical`).

use std::cell::{Cell, OnceCell};
use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

mod lost_number;

pub use lost_number::NumberLoss;
use lost_number::{LostNumber, first_lost};

/// serde_json stops by itself at 128 levels; a larger `depth_max` is cut to what leaves the refusal to us.
pub const DEPTH_MAX_CEILING: usize = 126;

/// How much JSON is accepted. What exceeds a limit is refused as a whole, with the place where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// Longest input in bytes. Default 1 MiB.
    pub bytes_max: usize,
    /// Most arrays and objects inside each other: `[[1]]` has depth 2. Default 64, at most [`DEPTH_MAX_CEILING`].
    pub depth_max: usize,
    /// Longest string or key in bytes, after unescaping. Default 1 MiB, so that by default only `bytes_max` speaks.
    pub string_bytes_max: usize,
    /// Most values of any kind, containers included, keys not. Default 100,000, about 10 MB of memory.
    pub nodes_max: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self { bytes_max: 1 << 20, depth_max: 64, string_bytes_max: 1 << 20, nodes_max: 100_000 }
    }
}

/// A place in the input. Both count from 1; columns are bytes. Messages say "near" where the parser may have gone one
/// token further before it noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonPosition {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for JsonPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {}", self.line, self.column)
    }
}

/// Why the input was refused, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("there is no JSON here: send a value, for example {{}}")]
    Empty,
    #[error("the JSON has {bytes} bytes, at most {max} are accepted: send less")]
    TooLarge { bytes: usize, max: usize },
    #[error("the JSON starts with a byte order mark: send UTF-8 without one")]
    ByteOrderMark,
    #[error("bytes that are not UTF-8 at {at}: encode the JSON as UTF-8")]
    InvalidUtf8 { at: JsonPosition },
    #[error("key `{key}` stands twice in one object, the second time at {at}: send it once")]
    DuplicateKey { key: String, at: JsonPosition },
    #[error("nesting deeper than {max} levels near {at}: flatten the value")]
    TooDeep { max: usize, at: JsonPosition },
    #[error("a string or key longer than {max} bytes ends at {at}: shorten it")]
    StringTooLong { max: usize, at: JsonPosition },
    #[error("more than {max} values near {at}: split the value up")]
    TooManyNodes { max: usize, at: JsonPosition },
    #[error("the number at `{path}` ({at}) {loss}: send it as a string")]
    NumberLost { loss: NumberLoss, path: String, at: JsonPosition },
    #[error("half of a surrogate pair in a string at {at}: send both halves or the character itself")]
    LoneSurrogate { at: JsonPosition },
    #[error("something follows the JSON value at {at}: send exactly one value")]
    TrailingData { at: JsonPosition },
    #[error("the JSON ends too early, at {at}: close every string, array and object")]
    Truncated { at: JsonPosition },
    #[error("{problem} at {at}")]
    Syntax { problem: String, at: JsonPosition },
}

/// Reads exactly one JSON value.
///
/// ```
/// use gantry_contract::json::{JsonLimits, read};
/// let limits = JsonLimits::default();
/// assert_eq!(read(b"{\"a\": [1, 2]}", &limits).unwrap()["a"][1], 2);
/// let error = read(b"{\"a\": 1, \"a\": 2}", &limits).unwrap_err();
/// assert_eq!(error.to_string(), "key `a` stands twice in one object, the second time at line 1 column 12: send it once");
/// ```
pub fn read(bytes: &[u8], limits: &JsonLimits) -> Result<Value, JsonError> {
    if bytes.len() > limits.bytes_max {
        return Err(JsonError::TooLarge { bytes: bytes.len(), max: limits.bytes_max });
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(JsonError::ByteOrderMark);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| JsonError::InvalidUtf8 { at: position_of(bytes, error.valid_up_to()) })?;
    if text.trim_ascii().is_empty() {
        return Err(JsonError::Empty);
    }
    let run = Run {
        depth_max: limits.depth_max.min(DEPTH_MAX_CEILING),
        string_bytes_max: limits.string_bytes_max,
        nodes_left: Cell::new(limits.nodes_max),
        may_lose: Cell::new(false),
        excess: OnceCell::new(),
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Node { run: &run, depth: 0 }
        .deserialize(&mut deserializer)
        .map_err(|error| explain(text, &error, run.excess.into_inner(), limits))?;
    deserializer.end().map_err(|error| JsonError::TrailingData { at: place(&error) })?;
    if run.may_lose.get() {
        keeps_numbers(text)?;
    }
    Ok(value)
}

/// Does a value of 64 bits hold every number of this JSON? For texts that another parser reads: [`read`] asks by itself.
///
/// ```
/// use gantry_contract::json::keeps_numbers;
/// assert!(keeps_numbers("[9223372036854775807, 0.1]").is_ok());
/// let error = keeps_numbers("{\"id\": [18446744073709551616]}").unwrap_err();
/// assert_eq!(error.to_string(), "the number at `/id/0` (line 1 column 9) is an integer of more than 64 bits: send it as a string");
/// ```
pub fn keeps_numbers(text: &str) -> Result<(), JsonError> {
    first_lost(text).map_or(Ok(()), |lost| Err(number_lost(text, &lost)))
}

impl JsonError {
    /// Where the input went wrong, if it is one place.
    pub fn position(&self) -> Option<JsonPosition> {
        match self {
            Self::Empty | Self::TooLarge { .. } | Self::ByteOrderMark => None,
            Self::InvalidUtf8 { at }
            | Self::DuplicateKey { at, .. }
            | Self::TooDeep { at, .. }
            | Self::StringTooLong { at, .. }
            | Self::TooManyNodes { at, .. }
            | Self::NumberLost { at, .. }
            | Self::LoneSurrogate { at }
            | Self::TrailingData { at }
            | Self::Truncated { at }
            | Self::Syntax { at, .. } => Some(*at),
        }
    }
}

// ------------------------------------------------------------------------------------------------------ the visitor

/// What one call of [`read`] counts, and why it stopped.
struct Run {
    depth_max: usize,
    string_bytes_max: usize,
    nodes_left: Cell<usize>,
    /// Set when a number may not be what was written: only then is the text looked at once more.
    may_lose: Cell<bool>,
    /// Set before the visitor gives up: serde errors can carry only text.
    excess: OnceCell<Excess>,
}

/// The rules that serde_json does not know.
enum Excess {
    DuplicateKey(String),
    Depth,
    StringBytes,
    Nodes,
}

impl Run {
    /// Notes why and gives serde_json an error to which it adds the position.
    #[cold]
    fn stop<E: de::Error>(&self, excess: Excess) -> E {
        // The first reason is the one that is told; serde_json may ask on while it gives up.
        let _ = self.excess.set(excess);
        E::custom("refused")
    }

    #[inline]
    fn count<E: de::Error>(&self) -> Result<(), E> {
        let left = self.nodes_left.get().checked_sub(1).ok_or_else(|| self.stop(Excess::Nodes))?;
        self.nodes_left.set(left);
        Ok(())
    }

    fn check_string<E: de::Error>(&self, text: &str) -> Result<(), E> {
        if text.len() > self.string_bytes_max { Err(self.stop(Excess::StringBytes)) } else { Ok(()) }
    }
}

/// Reads one value and what is in it.
#[derive(Clone, Copy)]
struct Node<'run> {
    run: &'run Run,
    /// Containers around this value.
    depth: usize,
}

impl Node<'_> {
    /// The reader for what is inside a container at this place.
    #[inline]
    fn inner<E: de::Error>(self) -> Result<Self, E> {
        if self.depth < self.run.depth_max {
            Ok(Self { depth: self.depth + 1, ..self })
        } else {
            Err(self.run.stop(Excess::Depth))
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    #[inline]
    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.run.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    #[inline]
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    #[inline]
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    #[inline]
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    #[inline]
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    #[inline]
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        // Below, every integer is a floating point number of its own.
        const EVERY_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
        if value == 0.0 || value.abs() > EVERY_INTEGER_MAX {
            self.run.may_lose.set(true);
        }
        // serde_json hands over finite numbers only; anything else would be its mistake, not the sender's.
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    #[inline]
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.run.check_string(value)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.run.check_string(&key)?;
            // The entry is taken before the value is read, so that the error points at the second key.
            match object.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(map.next_value_seed(inner)?);
                }
                Entry::Occupied(entry) => return Err(self.run.stop(Excess::DuplicateKey(entry.key().clone()))),
            }
        }
        Ok(Value::Object(object))
    }
}

// ----------------------------------------------------------------------------------------------------- the reasons

/// Turns what stopped the parser into an error of ours.
fn explain(text: &str, error: &serde_json::Error, excess: Option<Excess>, limits: &JsonLimits) -> JsonError {
    let at = place(error);
    match excess {
        Some(Excess::DuplicateKey(key)) => return JsonError::DuplicateKey { key: shown(&key), at },
        Some(Excess::Depth) => return JsonError::TooDeep { max: limits.depth_max.min(DEPTH_MAX_CEILING), at },
        Some(Excess::StringBytes) => return JsonError::StringTooLong { max: limits.string_bytes_max, at },
        Some(Excess::Nodes) => return JsonError::TooManyNodes { max: limits.nodes_max, at },
        None => {}
    }
    if error.is_eof() {
        return JsonError::Truncated { at };
    }
    // serde_json tells its reasons apart by text only. The tests below hold the texts fast.
    let said = error.to_string();
    let reason = said.split(" at line ").next().unwrap_or_default();
    let problem = match reason {
        "number out of range" => {
            let lost = LostNumber { loss: NumberLoss::TooLarge, path: String::new(), offset: 0 };
            return number_lost(text, &first_lost(text).unwrap_or(lost));
        }
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            return JsonError::LoneSurrogate { at };
        }
        "expected value" | "expected ident" => {
            "expected a JSON value (NaN, Infinity, comments and single quotes are not JSON)"
        }
        "invalid number" => "malformed number (no leading zeros, no `+`, no Infinity, digits around the point)",
        "trailing comma" => "a comma with nothing after it (leave it out)",
        "key must be a string" => "expected a key in double quotes",
        "invalid escape" => "unknown escape in a string (write a backslash as `\\\\`)",
        "invalid unicode code point" => "escape that is no Unicode character",
        _ if reason.starts_with("control character") => "control character in a string (write a line break as `\\n`)",
        other => other,
    };
    JsonError::Syntax { problem: problem.to_owned(), at }
}

fn number_lost(text: &str, lost: &LostNumber) -> JsonError {
    let at = position_of(text.as_bytes(), lost.offset);
    JsonError::NumberLost { loss: lost.loss, path: shown(&lost.path), at }
}

fn place(error: &serde_json::Error) -> JsonPosition {
    JsonPosition { line: error.line(), column: error.column() }
}

/// Line and column of a byte offset.
fn position_of(bytes: &[u8], offset: usize) -> JsonPosition {
    let before = bytes.get(..offset).unwrap_or(bytes);
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let line = 1 + before.iter().filter(|b| **b == b'\n').count();
    JsonPosition { line, column: offset - line_start + 1 }
}

/// Cuts a refused key to something that fits an error message.
fn shown(key: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    let mut shown: String = key.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    if key.chars().count() > SHOWN_CHARS_MAX {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SMALL: JsonLimits = JsonLimits { bytes_max: 64, depth_max: 3, string_bytes_max: 8, nodes_max: 6 };

    #[test]
    fn values_are_read_as_they_are() {
        for (text, expected) in [
            (" null\n", json!(null)),
            ("-0", json!(-0.0)),
            ("18446744073709551615", json!(u64::MAX)),
            ("333333333.33333329", json!(333_333_333.333_333_3)),
            ("5e-324", json!(5e-324)),
            ("\"\\ud83d\\ude00\\u0000\"", json!("😀\0")),
            ("[[[]]]", json!([[[]]])),
            ("{\"a\":{},\"A\":[1,true]}", json!({"a": {}, "A": [1, true]})),
            ("\"12345678\"", json!("12345678")),
        ] {
            assert_eq!(read(text.as_bytes(), &SMALL), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_said_with_its_place() {
        let long = format!("[{}]", "1,".repeat(40));
        for (bytes, expected) in [
            (&b""[..], "no JSON here"),
            (b" \r\n", "no JSON here"),
            (b"\xef\xbb\xbf{}", "byte order mark"),
            (b"[\n\"\xff\"]", "not UTF-8 at line 2 column 2"),
            (long.as_bytes(), "82 bytes, at most 64"),
            (b"{\"a\":1,\n\"\\u0061\":2}", "key `a` stands twice in one object, the second time at line 2 column 8"),
            (b"[{\"x\":{\"k\":1,\"k\":1}}]", "key `k` stands twice"),
            (b"[[[[]]]]", "deeper than 3 levels near line 1 column 5"),
            (b"[[{\"a\":{}}]]", "deeper than 3 levels near line 1 column 9"),
            (b"\"123456789\"", "longer than 8 bytes ends at line 1 column 11"),
            (b"{\"123456789\":1}", "longer than 8 bytes ends at line 1 column 12"),
            (b"[1,2,3,4,5,6]", "more than 6 values near line 1 column 11"),
            (b"1e999", "the number at `` (line 1 column 1) is too large"),
            (b"[-1e999]", "the number at `/0` (line 1 column 2) is too large"),
            (b"{\"a\":\n[0, 1e-999]}", "the number at `/a/1` (line 2 column 5) is too small"),
            (b"18446744073709551616", "integer of more than 64 bits: send it as a string"),
            (b"9007199254740993.0", "has more digits than"),
            (b"\"\\ud800\"", "half of a surrogate pair"),
            (b"\"\\ud800\\n\"", "half of a surrogate pair"),
            (b"\"\\ud800\\ud800\"", "half of a surrogate pair"),
            (b"\"\\udc00\"", "half of a surrogate pair"),
            (b"{} x", "something follows the JSON value at line 1 column 4"),
            (b"1 2", "something follows"),
            (b"[1", "ends too early, at line 1 column 2"),
            (b"\"a", "ends too early"),
            (b"{\"a\"", "ends too early"),
            (b"NaN", "expected a JSON value (NaN"),
            (
                b"[Infinity]",
                "expected a JSON value (NaN, Infinity, comments and single quotes are not JSON) at line 1 column 2",
            ),
            (b"-Infinity", "malformed number"),
            (b"nul", "ends too early"),
            (b"nulx", "expected a JSON value"),
            (b"01", "malformed number"),
            (b"1.", "ends too early"),
            (b"+1", "expected a JSON value"),
            (b"'a'", "single quotes are not JSON"),
            (b"[1,]", "a comma with nothing after it"),
            (b"{\"a\":1,}", "a comma with nothing after it"),
            (b"{a:1}", "expected a key in double quotes"),
            (b"{\"a\" 1}", "expected `:`"),
            (b"[1 2]", "expected `,` or `]`"),
            (b"\"\\q\"", "unknown escape"),
            (b"\"\n\"", "control character in a string"),
            (b"/* */ 1", "comments"),
        ] {
            let error = read(bytes, &SMALL).unwrap_err();
            assert!(error.to_string().contains(expected), "{}: {error}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn depth_has_a_ceiling_that_the_parser_can_keep() {
        let limits = JsonLimits { depth_max: usize::MAX, ..JsonLimits::default() };
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(nested(DEPTH_MAX_CEILING).as_bytes(), &limits).is_ok());
        let error = read(nested(DEPTH_MAX_CEILING + 1).as_bytes(), &limits).unwrap_err();
        assert!(matches!(error, JsonError::TooDeep { max: DEPTH_MAX_CEILING, .. }), "{error}");
        let usual = JsonLimits::default();
        assert!(read(nested(usual.depth_max).as_bytes(), &usual).is_ok());
        assert!(read(nested(usual.depth_max + 1).as_bytes(), &usual).is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..8).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_every_value(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            let expected: Value = serde_json::from_slice(&text).unwrap();
            prop_assert_eq!(read(&text, &JsonLimits::default()), Ok(expected));
        }

        #[test]
        fn accepts_no_text_that_serde_json_refuses(bytes in proptest::collection::vec(
            proptest::sample::select(b"{}[]\",:01e.-+ntrufalse\\ \n\xc3\xa9".to_vec()), 0..24,
        )) {
            let theirs = serde_json::from_slice::<Value>(&bytes);
            match read(&bytes, &JsonLimits::default()) {
                Ok(value) => prop_assert_eq!(theirs.ok(), Some(value)),
                Err(JsonError::DuplicateKey { .. } | JsonError::NumberLost { .. }) => {}
                Err(_) => prop_assert!(theirs.is_err()),
            }
        }
    }
}
