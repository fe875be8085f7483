//! Coercion: a string that can only have been meant as a number or a boolean becomes one. (VALID-003, X-18)
//!
//! Models write `"42"` where 42 is wanted. The validator itself says where: only a string that it refuses for its type is
//! ever looked at, so a valid value cannot be changed, however clever the schema. What is converted must be lossless:
//! the number's digits are exactly the string's.
//!
//! Invariants
//! - COERCE-1: a value that is valid as it stands is not touched.
//! - COERCE-2: no digit, sign or white space is dropped or added; what would not survive a round trip stays a string.
//!
//! Not here: applying the result (`CompiledSchema::prepare`), dates (a string stays a string; `format` checks it).

use jsonschema::JsonType;
use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind};
use serde_json::{Number, Value};

/// One string to replace.
#[derive(Debug, Clone)]
pub(super) struct Fix {
    pub(super) path: String,
    pub(super) value: Value,
    pub(super) to: &'static str,
}

/// The scalar types asked for in place of a string.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    integer: bool,
    number: bool,
    boolean: bool,
}

/// The replacements that these complaints call for.
pub(super) fn fixes(errors: &[ValidationError<'_>]) -> Vec<Fix> {
    let mut fixes: Vec<Fix> = Vec::new();
    for error in errors {
        let found = match error.kind() {
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                branch(context).unwrap_or_default()
            }
            _ => fix(error).into_iter().collect(),
        };
        for one in found {
            if !fixes.iter().any(|known| known.path == one.path) {
                fixes.push(one);
            }
        }
    }
    fixes
}

/// Whether the complaint is about a string where a number or boolean is wanted and the string is not one.
pub(super) fn is_hopeless(error: &ValidationError<'_>) -> bool {
    match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            error.instance().is_string() && context.iter().any(|branch| branch.iter().any(|one| wanted(one).is_some()))
        }
        _ => wanted(error).is_some(),
    }
}

/// The first branch that fails by such strings only; one that does not read digits as a boolean is preferred.
fn branch(context: &[Vec<ValidationError<'static>>]) -> Option<Vec<Fix>> {
    let candidates: Vec<Vec<Fix>> = context.iter().filter_map(|errors| whole(errors)).collect();
    let digits = context.iter().flatten().any(is_digit);
    let preferred = candidates.iter().position(|fixes| !digits || fixes.iter().all(|fix| fix.to != "boolean"));
    candidates.into_iter().nth(preferred.unwrap_or(0))
}

fn is_digit(error: &ValidationError<'static>) -> bool {
    matches!(error.instance().as_str(), Some("0" | "1"))
}

/// All fixes of a branch, if they are all that it lacks.
fn whole(errors: &[ValidationError<'static>]) -> Option<Vec<Fix>> {
    let fixes = fixes(errors);
    let helped = |error: &ValidationError<'_>| {
        let path = error.instance_path().as_str();
        match error.kind() {
            // These look at what is inside, so a string inside may be all that is wrong; checking again will tell.
            ValidationErrorKind::AnyOf { .. }
            | ValidationErrorKind::OneOfNotValid { .. }
            | ValidationErrorKind::OneOfMultipleValid { .. }
            | ValidationErrorKind::UnevaluatedProperties { .. }
            | ValidationErrorKind::UnevaluatedItems { .. }
            | ValidationErrorKind::Contains
            | ValidationErrorKind::Not { .. }
            | ValidationErrorKind::Enum { .. }
            | ValidationErrorKind::Constant { .. } => fixes.iter().any(|fix| fix.path.starts_with(path)),
            _ => fixes.iter().any(|fix| fix.path == path),
        }
    };
    (!errors.is_empty() && errors.iter().all(helped)).then_some(fixes)
}

fn fix(error: &ValidationError<'_>) -> Option<Fix> {
    let wanted = wanted(error)?;
    let (value, to) = scalar(error.instance().as_str()?, wanted)?;
    Some(Fix { path: error.instance_path().as_str().to_owned(), value, to })
}

fn wanted(error: &ValidationError<'_>) -> Option<Wanted> {
    let ValidationErrorKind::Type { kind } = error.kind() else { return None };
    if !error.instance().is_string() {
        return None;
    }
    let mut wanted = Wanted::default();
    let mut add = |kind: JsonType| match kind {
        JsonType::Integer => wanted.integer = true,
        JsonType::Number => wanted.number = true,
        JsonType::Boolean => wanted.boolean = true,
        JsonType::Array | JsonType::Null | JsonType::Object | JsonType::String => {}
    };
    match kind {
        TypeKind::Single(one) => add(*one),
        TypeKind::Multiple(set) => set.iter().for_each(add),
    }
    (wanted.integer || wanted.number || wanted.boolean).then_some(wanted)
}

/// The scalar `text` stands for; digits are a number before they are a boolean.
fn scalar(text: &str, wanted: Wanted) -> Option<(Value, &'static str)> {
    if wanted.integer
        && let Some(number) = integer(text)
    {
        return Some((Value::Number(number), "integer"));
    }
    if wanted.number
        && let Some(number) = integer(text).or_else(|| decimal(text))
    {
        return Some((Value::Number(number), "number"));
    }
    if wanted.boolean
        && let Some(truth) = boolean(text)
    {
        return Some((Value::Bool(truth), "boolean"));
    }
    None
}

fn boolean(text: &str) -> Option<bool> {
    let any = |words: [&str; 3]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if any(["true", "1", "yes"]) {
        Some(true)
    } else if any(["false", "0", "no"]) {
        Some(false)
    } else {
        None
    }
}

/// `-?(0|[1-9][0-9]*)` within 64 bits; `-0` is not an integer, because its sign would be lost.
fn integer(text: &str) -> Option<Number> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (digits.starts_with('0') && text != "0") {
        return None;
    }
    text.parse::<u64>().map(Number::from).or_else(|_| text.parse::<i64>().map(Number::from)).ok()
}

/// A JSON number that a 64-bit float holds without losing a digit.
fn decimal(text: &str) -> Option<Number> {
    let written = Digits::of(text)?;
    let float: f64 = text.parse().ok()?;
    // The shortest text that reads back as this float: if it has other digits, some were lost.
    let kept = Digits::of(&format!("{float:e}"))?;
    (written == kept).then(|| Number::from_f64(float)).flatten()
}

/// A decimal number as sign, significant digits and the power of ten of the last one.
#[derive(Debug, PartialEq, Eq)]
struct Digits {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Digits {
    /// Reads the grammar of JSON numbers, nothing more: no white space, no plus, no `.5`, no `inf`.
    fn of(text: &str) -> Option<Self> {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (rest, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let digits_only = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits_only(whole) || (whole.len() > 1 && whole.starts_with('0')) || !fraction.is_none_or(digits_only) {
            return None;
        }
        let exponent: i64 = match exponent {
            Some(text) if digits_only(text.strip_prefix(['+', '-']).unwrap_or(text)) => text.parse().ok()?,
            Some(_) => return None,
            None => 0,
        };
        let fraction = fraction.unwrap_or_default();
        let all = format!("{whole}{fraction}");
        let trimmed = all.trim_start_matches('0').trim_end_matches('0');
        if trimmed.is_empty() {
            return Some(Self { negative, digits: String::new(), exponent: 0 });
        }
        let trailing = i64::try_from(all.len() - all.trim_end_matches('0').len()).ok()?;
        let behind_point = i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.checked_sub(behind_point)?.checked_add(trailing)?;
        Some(Self { negative, digits: trimmed.to_owned(), exponent })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INTEGER: Wanted = Wanted { integer: true, number: false, boolean: false };
    const NUMBER: Wanted = Wanted { integer: false, number: true, boolean: false };
    const BOOLEAN: Wanted = Wanted { integer: false, number: false, boolean: true };
    const ANY: Wanted = Wanted { integer: true, number: true, boolean: true };

    #[test]
    fn only_what_loses_nothing_is_converted() {
        for (text, wanted, expected) in [
            ("42", INTEGER, Some(json!(42))),
            ("-7", INTEGER, Some(json!(-7))),
            ("0", INTEGER, Some(json!(0))),
            ("18446744073709551615", INTEGER, Some(json!(u64::MAX))),
            ("18446744073709551616", INTEGER, None),
            ("-9223372036854775808", INTEGER, Some(json!(i64::MIN))),
            ("-9223372036854775809", INTEGER, None),
            ("-0", INTEGER, None),
            ("007", INTEGER, None),
            ("+5", INTEGER, None),
            (" 5", INTEGER, None),
            ("5 ", INTEGER, None),
            ("5.0", INTEGER, None),
            ("", INTEGER, None),
            ("٤", INTEGER, None),
            ("19.99", NUMBER, Some(json!(19.99))),
            ("42", NUMBER, Some(json!(42))),
            ("1.50", NUMBER, Some(json!(1.5))),
            ("1e3", NUMBER, Some(json!(1000.0))),
            ("-0", NUMBER, Some(json!(-0.0))),
            ("0.1", NUMBER, Some(json!(0.1))),
            ("0.10000000000000000001", NUMBER, None),
            ("12345678901234567890123", NUMBER, None),
            ("100000000000000000000000", NUMBER, Some(json!(1e23))),
            ("1e400", NUMBER, None),
            ("1e-400", NUMBER, None),
            ("NaN", NUMBER, None),
            ("Infinity", NUMBER, None),
            ("inf", NUMBER, None),
            (".5", NUMBER, None),
            ("5.", NUMBER, None),
            ("1_000", NUMBER, None),
            ("0x10", NUMBER, None),
            ("1e99999999999999999999", NUMBER, None),
            ("true", BOOLEAN, Some(json!(true))),
            ("YES", BOOLEAN, Some(json!(true))),
            ("1", BOOLEAN, Some(json!(true))),
            ("No", BOOLEAN, Some(json!(false))),
            ("0", BOOLEAN, Some(json!(false))),
            ("on", BOOLEAN, None),
            ("1", ANY, Some(json!(1))),
            ("yes", ANY, Some(json!(true))),
        ] {
            let found = scalar(text, wanted).map(|(value, _)| value);
            assert_eq!(found.as_ref().map(ToString::to_string), expected.as_ref().map(ToString::to_string), "{text:?}");
        }
    }
}
