//! `calculator`: the value of a mathematical expression (LOCAL-002, LOCAL-003).
//!
//! An own parser with a whitelist of functions. The source filters characters and hands the rest to a general
//! evaluator, which `9^9^9^9` or ten thousand parentheses bring down. `fend-core` was measured and left out: three
//! times over the budget of this path and its answers are text. See `parser` for what bounds the work.
//!
//! Not here: units, variables, complex numbers, matrices.

use contract::error::Refusal;
use serde_json::{Value, json};

use super::arguments::{ToolArguments, invalid};

mod functions;
mod number;
mod parser;
mod ratio;

/// The hint of every refusal.
const HINT: &str = "use numbers, + - * / % ^, parentheses, pi, e and functions such as sqrt(16), for example \
                    `sqrt(16) + 2^3`";

/// Evaluates `expression`.
pub(super) fn run(parameters: &Value) -> Result<Value, Refusal> {
    let expression = ToolArguments::of(parameters).required_text("expression")?;
    let number = parser::evaluate(expression).map_err(|error| {
        let refusal = invalid(format!("Invalid math expression: {error}"), HINT);
        match error.at {
            Some(position) => refusal.details(json!({ "position": position })),
            None => refusal,
        }
    })?;
    let (result, result_type) = number.to_json();
    Ok(json!({ "expression": expression, "result": result, "resultType": result_type }))
}

#[cfg(test)]
mod tests {
    use contract::error::ErrorCode;

    use super::*;

    fn value(expression: &str) -> Value {
        run(&json!({ "expression": expression })).map(|mut v| v["result"].take()).unwrap_or_else(|r| r.message.into())
    }

    #[test]
    fn arithmetic_roots_powers_and_logarithms_have_their_values() {
        for (expression, expected) in [
            ("sqrt(16) + 2^3", json!(12)),
            ("1 + 2 * 3", json!(7)),
            ("(1 + 2) * 3", json!(9)),
            ("-2^2", json!(-4)),
            ("(-2)^2", json!(4)),
            ("2^3^2", json!(512)),
            ("2^-1", json!(0.5)),
            ("- - 3", json!(3)),
            ("2 - -3", json!(5)),
            ("10 / 4", json!(2.5)),
            ("10 / 5", json!(2)),
            ("1/3", json!(1.0 / 3.0)),
            ("7 % 3", json!(1)),
            ("-7 % 3", json!(2)),
            ("7 % -3", json!(-2)),
            ("5.5 % 2", json!(1.5)),
            ("0.1 + 0.2", json!(0.3)),
            ("1.1 * 1.1", json!(1.21)),
            ("19.99 * 3", json!(59.97)),
            ("2^62", json!(4_611_686_018_427_387_904_i64)),
            ("10^15 + 1", json!(1_000_000_000_000_001_i64)),
            ("2^64 - 1", json!(u64::MAX)),
            ("2^64", json!(18_446_744_073_709_551_616.0)),
            ("1e3", json!(1000)),
            ("1.5e-3", json!(0.0015)),
            ("2E2", json!(200)),
            (".5 + 5.", json!(5.5)),
            ("16^0.5", json!(4)),
            ("sqrt(2)", json!(std::f64::consts::SQRT_2)),
            ("sqrt(2.25)", json!(1.5)),
            ("cbrt(-27)", json!(-3)),
            ("root(81, 4)", json!(3)),
            ("root(2, 3)", json!(2.0_f64.powf(1.0 / 3.0))),
            ("log(e)", json!(1)),
            ("ln(1)", json!(0)),
            ("log(8, 2)", json!(3)),
            ("log(125, 5)", json!(3)),
            ("log10(1000)", json!(3)),
            ("log2(1024)", json!(10)),
            ("exp(0)", json!(1)),
            ("sin(0) + cos(0)", json!(1)),
            ("atan2(1, 1) * 4", json!(std::f64::consts::PI)),
            ("PI", json!(std::f64::consts::PI)),
            ("degrees(pi)", json!(180)),
            ("factorial(5)", json!(120)),
            ("factorial(20)", json!(2_432_902_008_176_640_000_i64)),
            ("round(2.5)", json!(3)),
            ("round(-2.5)", json!(-3)),
            ("round(2.34567, 2)", json!(2.35)),
            ("floor(-1.5)", json!(-2)),
            ("ceil(-1.5)", json!(-1)),
            ("trunc(-1.5)", json!(-1)),
            ("abs(-3/4)", json!(0.75)),
            ("sign(-9)", json!(-1)),
            ("min(3, 1, 2) + max(3, 1, 2)", json!(4)),
            ("sum(1,2,3,4)", json!(10)),
            ("mean(1,2,4)", json!(7.0 / 3.0)),
            ("gcd(12, 18) + lcm(4, 6)", json!(18)),
            ("hypot(3,4)", json!(5)),
            ("mod(-1, 5)", json!(4)),
            ("0^0", json!(1)),
            ("(-1)^1000000001", json!(-1)),
            ("1e308 * 1", json!(1e308)),
        ] {
            assert_eq!(value(expression), expected, "{expression}");
        }
    }

    #[test]
    fn result_types_tell_integers_from_other_numbers() {
        for (expression, expected) in
            [("1+1", "integer"), ("1/2", "number"), ("2^64", "number"), ("sqrt(9)", "integer")]
        {
            assert_eq!(run(&json!({ "expression": expression })).unwrap()["resultType"], expected, "{expression}");
        }
    }

    #[test]
    fn what_has_no_value_is_refused_with_a_reason_and_a_place() {
        let nested = format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000));
        let deep = format!("{}1{}", "(".repeat(400), ")".repeat(400));
        let signs = format!("{}1", "-".repeat(900));
        let long = "1+".repeat(600);
        for (expression, reason) in [
            ("", "it is empty"),
            ("   ", "it is empty"),
            ("2 +", "it ends where a number is missing (at position 4)"),
            ("* 2", "a number is missing before `*` (at position 1)"),
            ("2 ** 3", "a number is missing before `*` (at position 4)"),
            ("(1 + 2", "a parenthesis is not closed"),
            ("1 + 2)", "a parenthesis is closed that was never opened (at position 6)"),
            ("2pi", "an operator is missing before `p`"),
            ("2(3)", "an operator is missing before `(`"),
            ("1,000 + 1", "a comma separates arguments"),
            ("1.2.3", "`1.2.3` is not a number"),
            (".", "`.` is not a number"),
            ("sqr(4)", "unknown name `sqr`, did you mean `sqrt`?"),
            ("foo", "unknown name `foo`"),
            ("sqrt", "`sqrt` is a function"),
            ("pi(2)", "`pi` is a constant"),
            ("sqrt()", "`sqrt` takes 1 argument, not 0"),
            ("sqrt(1, 2)", "`sqrt` takes 1 argument, not 2"),
            ("round(1, 2, 3)", "`round` takes 1 to 2 arguments, not 3"),
            ("import(1)", "the word `import` is not allowed"),
            ("Require", "the word `require` is not allowed"),
            ("eval(1)", "the word `eval` is not allowed"),
            ("myFunction(2)", "the word `function` is not allowed"),
            ("x => 1", "the character `=` is not allowed"),
            ("$5 + 1", "the character `$` is not allowed"),
            ("2; drop", "the character `;` is not allowed"),
            ("3 × 4", "the character `×` is not allowed, write `*` (at position 3)"),
            ("5!", "the character `!` is not allowed, write `factorial(…)`"),
            ("1 / 0", "division by zero (at position 3)"),
            ("0 / 0", "division by zero"),
            ("5 % 0", "division by zero"),
            ("0^-1", "division by zero"),
            ("1/(1-1.0)", "division by zero"),
            ("9^9^9^9", "the value is too large"),
            ("9^9^9", "the value is too large"),
            ("1e400", "the value is too large"),
            ("1e-400", "the value is too close to zero"),
            ("1e-2147483648", "the value is too close to zero"),
            ("1e99999999999", "the value is too large"),
            ("exp(1000)", "the value is too large"),
            ("factorial(1e9)", "factorial needs a whole number from 0 to 170"),
            ("factorial(2.5)", "factorial needs a whole number"),
            ("factorial(-1)", "factorial needs a whole number"),
            ("sqrt(-1)", "the value is not a real number"),
            ("(-8)^(1/3)", "the value is not a real number"),
            ("log(0)", "the value is not a real number"),
            ("log(5, 1)", "the value is not a real number"),
            ("asin(2)", "the value is not a real number"),
            ("gcd(1.5, 2)", "a whole number is needed"),
            (nested.as_str(), "it is longer than 1000 characters"),
            (deep.as_str(), "it is nested deeper than 100 levels"),
            (signs.as_str(), "it is nested deeper than 100 levels"),
            (long.as_str(), "it is longer than 1000 characters"),
        ] {
            let refusal = run(&json!({ "expression": expression })).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::E3301);
            assert!(
                refusal.message.starts_with("Invalid math expression: ") && refusal.message.contains(reason),
                "{expression}: {}",
                refusal.message
            );
        }
    }

    #[test]
    fn a_missing_expression_is_refused() {
        assert_eq!(run(&json!({})).unwrap_err().code, ErrorCode::E3301);
        assert_eq!(run(&json!({ "expression": 5 })).unwrap_err().code, ErrorCode::E3301);
    }

    #[test]
    fn the_manifest_lists_every_function() {
        let manifest = include_str!("calculator.toml");
        for function in functions::FUNCTIONS {
            assert!(manifest.contains(function.name), "{} is not described", function.name);
        }
    }

    mod properties {
        use proptest::prelude::*;

        use super::*;

        proptest! {
            #[test]
            fn no_text_makes_it_panic(text in "[-0-9a-e+*/^%().,sqrtpi ]{0,80}") {
                let _ = run(&json!({ "expression": text }));
            }

            #[test]
            fn sums_of_cents_are_exact(a in 0_i64..1_000_000_000, b in 0_i64..1_000_000_000) {
                let written = |n: i64| format!("{}.{:02}", n / 100, n % 100);
                let sum = value(&format!("{} + {}", written(a), written(b)));
                let expected: f64 = written(a + b).parse().unwrap();
                prop_assert_eq!(sum.as_f64().unwrap(), expected);
            }

            #[test]
            fn quotient_and_remainder_make_the_number_again(a in -1_000_000_i64..1_000_000, b in 1_i64..1000) {
                prop_assert_eq!(value(&format!("floor({a}/{b})*{b} + ({a}) % {b}")), json!(a));
            }
        }
    }
}
