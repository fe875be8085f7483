//! The arguments of a call as policies see them: one view per type, keyed by path.
//!
//! A limit in a policy must not be evaded by sending the number in another shape. Rounding cannot give that: whichever way
//! 99.5 is rounded, one of `> 99` and `< 100` comes out wrong. So nothing is rounded and nothing is left out. An argument
//! that is given has a tag in *every* view; where the view's type cannot hold it exactly, the tag is a *misfit*: a record,
//! which no view's type is. To order, match or search a misfit is an evaluation error, and those deny. To ask whether it
//! equals something is answered exactly: it does not.
//!
//! Invariants
//! - ARG-1: `hasTag` has the same answer in every view; only `null` counts as not given.
//! - ARG-2: a tag that is no misfit has exactly the value that is executed.
//! - ARG-3: a path that two arguments share (`{"a.b": 1, "a": {"b": 2}}`) is refused, not resolved.
//! - ARG-4: a list with a list or an object in it is a misfit of the list view: what stands in there is in no set of texts, and a
//!   forbid that looks for it would not see it. `null` in a list is kept as something no text equals.

use std::collections::HashMap;

use cedar_policy::RestrictedExpression;
use contract::canonical::to_canonical_string;
use serde_json::{Number, Value};

use super::reads::{Reads, View};

/// Most arguments, containers included, that policies are shown.
pub const ARGUMENTS_MAX: usize = 512;
/// Most bytes of all their paths together: nesting repeats the names of the outer objects.
pub const ARGUMENT_PATH_BYTES_MAX: usize = 64 * 1024;
/// Digits after the point in Cedar's `decimal`.
const DECIMAL_DIGITS: usize = 4;

/// Why arguments cannot be shown to policies. The call is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ArgumentsError {
    #[error("the call has more than {ARGUMENTS_MAX} arguments that policies look at")]
    TooMany,
    #[error("the paths of the arguments are longer than {ARGUMENT_PATH_BYTES_MAX} bytes together")]
    PathsTooLong,
    #[error("two arguments have the path `{path}`")]
    Ambiguous { path: String },
}

/// The tags of each view, as far as policies read them.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) names: Vec<String>,
    text: Tags,
    number: Tags,
    decimal: Tags,
    flag: Tags,
    list: Tags,
    shown: usize,
    path_bytes: usize,
}

type Tags = HashMap<String, RestrictedExpression>;

impl Arguments {
    /// Takes what `reads` names out of the canonical arguments.
    pub(super) fn of(arguments: &Value, reads: &Reads) -> Result<Self, ArgumentsError> {
        let mut taken = Self::default();
        taken.descend(&mut String::new(), arguments, reads)?;
        Ok(taken)
    }

    /// The tags of one view, taken out.
    pub(super) fn take(&mut self, view: View) -> Tags {
        std::mem::take(self.tags_mut(view))
    }

    fn tags_mut(&mut self, view: View) -> &mut Tags {
        match view {
            View::Text => &mut self.text,
            View::Number => &mut self.number,
            View::Decimal => &mut self.decimal,
            View::Flag => &mut self.flag,
            View::List => &mut self.list,
        }
    }

    fn descend(&mut self, path: &mut String, value: &Value, reads: &Reads) -> Result<(), ArgumentsError> {
        match value {
            Value::Object(members) => {
                for (name, child) in members {
                    self.child(path, name, child, reads)?;
                }
            }
            Value::Array(items) => {
                for (index, child) in items.iter().enumerate() {
                    self.child(path, &index.to_string(), child, reads)?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    fn child(&mut self, path: &mut String, name: &str, value: &Value, reads: &Reads) -> Result<(), ArgumentsError> {
        let outer = path.len();
        if outer > 0 {
            path.push('.');
        }
        path.push_str(name);
        if !value.is_null() {
            self.show(path, value, reads)?;
            if reads.names || View::ALL.into_iter().any(|view| reads.view(view).wants_below(path)) {
                self.descend(path, value, reads)?;
            }
        }
        path.truncate(outer);
        Ok(())
    }

    fn show(&mut self, path: &str, value: &Value, reads: &Reads) -> Result<(), ArgumentsError> {
        let mut wanted = reads.names;
        if reads.names {
            self.names.push(path.to_owned());
        }
        for view in View::ALL {
            if reads.view(view).wants(path) {
                wanted = true;
                let tag = exactly(view, value).unwrap_or_else(|| misfit(path, value));
                if self.tags_mut(view).insert(path.to_owned(), tag).is_some() {
                    return Err(ArgumentsError::Ambiguous { path: path.to_owned() });
                }
            }
        }
        if wanted {
            self.shown += 1;
            self.path_bytes += path.len();
        }
        if self.shown > ARGUMENTS_MAX {
            Err(ArgumentsError::TooMany)
        } else if self.path_bytes > ARGUMENT_PATH_BYTES_MAX {
            Err(ArgumentsError::PathsTooLong)
        } else {
            Ok(())
        }
    }
}

/// Can `view` hold this value?
pub(super) fn fits(view: View, value: &Value) -> bool {
    value.is_null() || exactly(view, value).is_some()
}

/// The value as `view` has it, if it can.
fn exactly(view: View, value: &Value) -> Option<RestrictedExpression> {
    match (view, value) {
        (View::Text, _) => scalar_text(value).map(RestrictedExpression::new_string),
        (View::Number, Value::Number(number)) => whole(number).map(RestrictedExpression::new_long),
        (View::Decimal, Value::Number(number)) => decimal(number).map(RestrictedExpression::new_decimal),
        (View::Flag, Value::Bool(flag)) => Some(RestrictedExpression::new_bool(*flag)),
        (View::List, Value::Array(items)) => {
            // ARG-4
            let is_flat = items.iter().all(|item| !item.is_array() && !item.is_object());
            is_flat.then(|| RestrictedExpression::new_set(items.iter().map(element)))
        }
        (View::Number | View::Decimal | View::Flag | View::List, _) => None,
    }
}

/// Of no view's type. Numbers that no view holds are still equal to themselves; anything else is equal to nothing.
fn misfit(path: &str, value: &Value) -> RestrictedExpression {
    let what = match value {
        Value::Number(_) => ("number", to_canonical_string(value)),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            ("argument", path.to_owned())
        }
    };
    record(what.0, what.1)
}

fn element(value: &Value) -> RestrictedExpression {
    scalar_text(value).map_or_else(|| record("element", to_canonical_string(value)), RestrictedExpression::new_string)
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(to_canonical_string(value)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A record with one member. Two members of one name are what could fail here, so it does not.
fn record(name: &str, value: String) -> RestrictedExpression {
    let pair = (name.to_owned(), RestrictedExpression::new_string(value));
    RestrictedExpression::new_record([pair]).unwrap_or_else(|_| RestrictedExpression::new_set([]))
}

/// The number as an integer of 64 bits, if it is one. `1e2` is 100.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        // 2^63 itself is out; every float below it that has no fraction is an i64.
        const LIMIT: f64 = 9_223_372_036_854_775_808.0;
        let float = number.as_f64().filter(|_| !number.is_u64())?;
        #[expect(clippy::cast_possible_truncation, reason = "no fraction, and inside the range")]
        (float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float)).then_some(float as i64)
    })
}

/// The number as Cedar's `decimal` reads it, if it holds all its digits.
fn decimal(number: &Number) -> Option<String> {
    // Rust writes a float without exponent, with the digits that tell it from its neighbours: what JSON would say, too.
    let text = match number.as_f64() {
        Some(float) if number.is_f64() => float.to_string(),
        _ => number.to_string(),
    };
    let (integer, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    if fraction.len() > DECIMAL_DIGITS {
        return None;
    }
    // In ten-thousandths it must be an i64, for that is what Cedar computes with.
    format!("{integer}{fraction:0<DECIMAL_DIGITS$}").parse::<i64>().ok()?;
    Some(format!("{integer}.{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn numbers_are_held_exactly_or_not_at_all() {
        for (text, as_whole, as_decimal) in [
            ("100", Some(100), Some("100.0")),
            ("1e2", Some(100), Some("100.0")),
            ("-0.0", Some(0), Some("-0.0")),
            ("100.5", None, Some("100.5")),
            ("100.0001", None, Some("100.0001")),
            ("100.00001", None, None),
            ("-0.00001", None, None),
            ("0.1", None, Some("0.1")),
            ("1e30", None, None),
            ("-1e30", None, None),
            ("1e-30", None, None),
            ("9223372036854775807", Some(i64::MAX), None),
            ("9223372036854775808", None, None),
            ("9223372036854775808.0", None, None),
            ("-9223372036854775808", Some(i64::MIN), None),
            ("-9223372036854775808.0", Some(i64::MIN), None),
            ("18446744073709551615", None, None),
            ("922337203685477", Some(922_337_203_685_477), Some("922337203685477.0")),
            ("922337203685478", Some(922_337_203_685_478), None),
        ] {
            assert_eq!(whole(&number(text)), as_whole, "{text}");
            assert_eq!(decimal(&number(text)).as_deref(), as_decimal, "{text}");
        }
    }

    #[test]
    fn a_given_argument_is_in_every_view_and_null_in_none() {
        let given =
            json!({ "a": 1, "b": "x", "c": [1, { "d": true }], "e": { "f": 1.5 }, "n": null, "o": { "p": null } });
        let mut arguments = Arguments::of(&given, &Reads::everything()).unwrap();
        let expected = ["a", "b", "c", "c.0", "c.1", "c.1.d", "e", "e.f", "o"];
        let mut names = arguments.names.clone();
        names.sort();
        assert_eq!(names, expected);
        for view in View::ALL {
            let mut paths: Vec<_> = arguments.take(view).into_keys().collect();
            paths.sort();
            assert_eq!(paths, expected, "{view:?}");
        }
    }

    #[test]
    fn shared_paths_and_too_many_arguments_are_refused() {
        let many: serde_json::Map<String, Value> = (0..=ARGUMENTS_MAX).map(|n| (format!("a{n}"), json!(n))).collect();
        let deep = (0..60).fold(json!(1), |inner, _| json!({ "k".repeat(100): inner }));
        for (given, expected) in [
            (json!({ "a.b": 1, "a": { "b": 2 } }), ArgumentsError::Ambiguous { path: "a.b".into() }),
            (Value::Object(many), ArgumentsError::TooMany),
            (deep, ArgumentsError::PathsTooLong),
        ] {
            assert_eq!(Arguments::of(&given, &Reads::everything()).unwrap_err(), expected);
            assert!(Arguments::of(&given, &Reads::nothing()).is_ok(), "nobody looks");
        }
    }

    proptest! {
        #[test]
        fn a_decimal_is_the_number_it_came_from(float in any::<f64>().prop_filter("finite", |f| f.is_finite())) {
            if let Some(text) = decimal(&Number::from_f64(float).unwrap()) {
                prop_assert_eq!(text.parse::<f64>().unwrap(), float);
            }
        }

        #[test]
        fn a_decimal_with_four_digits_is_always_held(scaled in -9_000_000_000_000_i64..9_000_000_000_000) {
            let text = format!("{}{}.{:04}", if scaled < 0 { "-" } else { "" }, scaled.abs() / 10_000, scaled.abs() % 10_000);
            prop_assert!(decimal(&number(&text)).is_some(), "{}", text);
        }
    }
}
