//! Numbers of JSON compared as what they say, not as the doubles they would become: above 2^53 two integers that differ
//! by one are the same double, and a limit must tell them apart.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// 2^64 and −2^63 as doubles, exactly: all integers of JSON numbers lie below the one and not below the other.
const ABOVE_INTEGERS: f64 = 18_446_744_073_709_551_616.0;
const LOWEST_INTEGER: f64 = -9_223_372_036_854_775_808.0;

/// How two numbers compare; `None` if one of them is neither an integer nor a finite double.
pub(super) fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => Some(compare_mixed(left, finite(right)?)),
        (None, Some(right)) => Some(compare_mixed(right, finite(left)?).reverse()),
        (None, None) => finite(left)?.partial_cmp(&finite(right)?),
    }
}

/// Are two values equal, with 1 and 1.0 being one number?
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right) == Some(Ordering::Equal),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, left)| right.get(name).is_some_and(|right| same(left, right)))
        }
        _ => left == right,
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn finite(number: &Number) -> Option<f64> {
    number.as_f64().filter(|number| number.is_finite())
}

/// An integer with a double.
fn compare_mixed(integer: i128, double: f64) -> Ordering {
    if double >= ABOVE_INTEGERS {
        return Ordering::Less;
    }
    if double < LOWEST_INTEGER {
        return Ordering::Greater;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole, and between the two bounds above")]
    let whole = double.floor() as i128;
    // Equal to the whole part means equal only if there is nothing behind the point.
    integer.cmp(&whole).then(if double > double.floor() { Ordering::Less } else { Ordering::Equal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_what_they_say() {
        use Ordering::{Equal, Greater, Less};
        for (left, right, expected) in [
            ("1", "2", Less),
            ("1", "1.0", Equal),
            ("1", "1.5", Less),
            ("2", "1.5", Greater),
            ("-1", "-1.5", Greater),
            ("-2", "-1.5", Less),
            ("0", "-0.0", Equal),
            ("0", "1e-300", Less),
            ("0", "-1e-300", Greater),
            ("9007199254740993", "9007199254740992", Greater),
            ("9007199254740993", "9007199254740992.0", Greater),
            ("18446744073709551615", "18446744073709551616.0", Less),
            ("18446744073709551615", "-1", Greater),
            ("18446744073709551615", "9223372036854775807", Greater),
            ("-9223372036854775808", "-9223372036854775808.0", Equal),
            ("-9223372036854775808", "-1e300", Greater),
            ("5", "1e300", Less),
            ("1e300", "1e301", Less),
        ] {
            let (low, high): (Number, Number) = (left.parse().unwrap(), right.parse().unwrap());
            assert_eq!(compare(&low, &high), Some(expected), "{left} {right}");
            assert_eq!(compare(&high, &low), Some(expected.reverse()), "{right} {left}");
        }
    }
}
