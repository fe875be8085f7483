//! Numbers that JSON can write and 64 bits cannot hold. (decision 0114)
//!
//! A parser makes a floating point number of an integer beyond 64 bits, of `9007199254740993.0` its neighbour, and of `1e-400`
//! nothing at all. Two order numbers become one then, under one digest. What is found here is refused instead.
//!
//! Invariants
//! - NUM-1: an integer, however it is written, is kept to its last digit or found. `100000000000000000000` is what many write
//!   for `1e20`, and is kept.
//! - NUM-2: a number that is not zero is not kept as zero, nor as infinity.
//!
//! A fraction has the precision of a floating point number, as everywhere: `0.1` is not found.
//!
//! Not here: whether the text is JSON. What is handed in was parsed, up to the place where the parser stopped.

use std::fmt;

/// What would be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberLoss {
    /// An integer beyond 64 bits.
    IntegerTooLong,
    /// An integer with a point or an exponent, and more digits than a floating point number keeps.
    Digits,
    /// Beyond the largest floating point number.
    TooLarge,
    /// Not zero, and nearer to zero than every floating point number.
    TooSmall,
}

impl fmt::Display for NumberLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IntegerTooLong => "is an integer of more than 64 bits",
            Self::Digits => "has more digits than a 64-bit floating point number keeps",
            Self::TooLarge => "is too large for a 64-bit floating point number",
            Self::TooSmall => "is too small for a 64-bit floating point number",
        })
    }
}

/// A number that would be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LostNumber {
    pub(super) loss: NumberLoss,
    /// JSON Pointer.
    pub(super) path: String,
    /// Of its first byte.
    pub(super) offset: usize,
}

/// What is around the place that is looked at.
enum Frame<'a> {
    Array(usize),
    /// The key as it is written, in its quotes.
    Object(&'a str),
}

/// The first number of a JSON text that a value of 64 bits would change.
pub(super) fn first_lost(text: &str) -> Option<LostNumber> {
    let bytes = text.as_bytes();
    let mut frames: Vec<Frame<'_>> = Vec::new();
    let mut at = 0;
    let mut is_key = false;
    while let Some(byte) = bytes.get(at) {
        let mut next = at + 1;
        match byte {
            b'{' => {
                frames.push(Frame::Object("\"\""));
                is_key = true;
            }
            b'[' => {
                frames.push(Frame::Array(0));
                is_key = false;
            }
            b'}' | b']' => {
                frames.pop();
                is_key = false;
            }
            b',' => match frames.last_mut() {
                Some(Frame::Array(index)) => *index += 1,
                Some(Frame::Object(_)) => is_key = true,
                None => {}
            },
            b'"' => {
                next = end_of_string(bytes, at);
                if std::mem::take(&mut is_key)
                    && let Some(Frame::Object(key)) = frames.last_mut()
                {
                    *key = text.get(at..next).unwrap_or_default();
                }
            }
            b'-' | b'0'..=b'9' => {
                let rest = bytes.get(at..).unwrap_or_default();
                let is_of_number = |b: &u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                next = at + rest.iter().position(|b| !is_of_number(b)).unwrap_or(rest.len());
                if let Some(loss) = text.get(at..next).and_then(loss) {
                    return Some(LostNumber { loss, path: pointer(&frames), offset: at });
                }
            }
            _ => {}
        }
        at = next;
    }
    None
}

/// The place after the quote that closes the string which opens at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            None => return bytes.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

/// What a value of 64 bits would lose of this number.
pub(super) fn loss(number: &str) -> Option<NumberLoss> {
    // Nearly every number is short, and short ones without an exponent are kept.
    const KEPT_DIGITS: usize = 15;
    let exponent_at = number.find(['e', 'E']);
    if exponent_at.is_none() && number.len() <= KEPT_DIGITS {
        return None;
    }
    let (mantissa, exponent) = match exponent_at {
        Some(at) => (number.get(..at)?, number.get(at + 1..)?),
        None => (number, "0"),
    };
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_plain = exponent_at.is_none() && fraction.is_empty();
    if is_plain && (number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok()) {
        return None;
    }
    let digits = format!("{integer}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return None;
    }
    let held = number.parse::<f64>().ok()?;
    if held.is_infinite() {
        return Some(NumberLoss::TooLarge);
    }
    if held == 0.0 {
        return Some(NumberLoss::TooSmall);
    }
    // The value is `trimmed · 10^power`, and an integer if the power is not negative.
    let trimmed = significant.trim_end_matches('0');
    let dropped = i64::try_from(significant.len() - trimmed.len()).ok()?;
    let power = exponent.parse::<i64>().ok()? - i64::try_from(fraction.len()).ok()? + dropped;
    let loss = if is_plain { NumberLoss::IntegerTooLong } else { NumberLoss::Digits };
    (power >= 0 && trimmed != shortest_digits(held)).then_some(loss)
}

/// The fewest digits that tell a floating point number from its neighbours, without zeros at their end.
fn shortest_digits(number: f64) -> String {
    let text = format!("{:e}", number.abs());
    let mantissa = text.split('e').next().unwrap_or_default();
    mantissa.chars().filter(char::is_ascii_digit).collect::<String>().trim_end_matches('0').to_owned()
}

fn pointer(frames: &[Frame<'_>]) -> String {
    let mut path = String::new();
    for frame in frames {
        path.push('/');
        match frame {
            Frame::Array(index) => path.push_str(&index.to_string()),
            Frame::Object(key) => {
                let name: String = serde_json::from_str(key).unwrap_or_default();
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_kept_to_the_last_digit_or_found() {
        for (number, expected) in [
            ("0", None),
            ("-0", None),
            ("-0.0", None),
            ("0e400", None),
            ("9223372036854775807", None),
            ("-9223372036854775808", None),
            ("18446744073709551615", None),
            ("18446744073709551616", Some(NumberLoss::IntegerTooLong)),
            ("-9223372036854775809", Some(NumberLoss::IntegerTooLong)),
            ("100000000000000000000", None),
            ("100000000000000000001", Some(NumberLoss::IntegerTooLong)),
            ("18446744073709552000", None),
            ("9007199254740992.0", None),
            ("9007199254740993.0", Some(NumberLoss::Digits)),
            ("9007199254740993e0", Some(NumberLoss::Digits)),
            ("90071992547409930e-1", Some(NumberLoss::Digits)),
            ("900719925474099.3e1", Some(NumberLoss::Digits)),
            ("1e2", None),
            ("1e23", None),
            ("1.0E+30", None),
            ("123456789012345678e5", Some(NumberLoss::Digits)),
            ("333333333.33333329", None),
            ("0.1234567890123456789", None),
            ("1e308", None),
            ("1e309", Some(NumberLoss::TooLarge)),
            ("-1e400", Some(NumberLoss::TooLarge)),
            ("5e-324", None),
            ("1e-400", Some(NumberLoss::TooSmall)),
            ("-0.001e-330", Some(NumberLoss::TooSmall)),
        ] {
            assert_eq!(loss(number), expected, "{number}");
        }
    }

    #[test]
    fn the_place_of_a_number_is_told_as_a_pointer() {
        for (text, path, offset) in [
            ("18446744073709551616", "", 0),
            ("[1, [2, 18446744073709551616]]", "/1/1", 8),
            (r#"{"a": {"x": 1}, "b/c": [{}, {"~": 1e400}]}"#, "/b~1c/1/~0", 34),
            (r#"{"1e400": "1e400", "\"": 1e400}"#, "/\"", 25),
            (r#"{"a": ["},]\\", 1e400"#, "/a/1", 16),
        ] {
            let found = first_lost(text).unwrap();
            assert_eq!((found.path.as_str(), found.offset), (path, offset), "{text}");
        }
        assert_eq!(first_lost(r#"{"18446744073709551616": "18446744073709551616"}"#), None);
    }

    proptest! {
        #[test]
        fn whatever_is_written_from_memory_is_kept(float in any::<f64>().prop_filter("finite", |f| f.is_finite()), whole in any::<i64>()) {
            prop_assert_eq!(first_lost(&serde_json::json!([float, whole, [float]]).to_string()), None);
        }

        #[test]
        fn two_integers_that_are_kept_are_two(one in "[1-9][0-9]{14,22}(\\.0)?", other in "[1-9][0-9]{14,22}(\\.0)?") {
            let kept = |text: &str| loss(text).is_none().then(|| serde_json::from_str::<serde_json::Value>(text).unwrap());
            if let (Some(a), Some(b)) = (kept(&one), kept(&other)) {
                let same = one.trim_end_matches(".0") == other.trim_end_matches(".0");
                prop_assert!(same || a.as_f64() != b.as_f64() || a.is_i64() || a.is_u64() || b.is_i64() || b.is_u64());
            }
        }
    }
}
