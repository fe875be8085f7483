//! Numbers of the calculator: exact fractions while they fit, floating point after that.
//!
//! Most of what agents compute is money, counts and percentages. With fractions of two 128-bit integers `0.1 + 0.2` is
//! `0.3` and `2^62` is exact, at the price of a few nanoseconds; arbitrary precision (as in the `fend-core` crate, which
//! was measured at 58–79 µs for `sqrt(16) + 2^3`) costs more than the whole rest of a call and lets `9^9^9^9` eat the
//! machine.
//!
//! Invariants
//! - CALC-1: every operation takes constant time: at most 170 multiplications, or one Euclidean algorithm on 128 bits.
//! - CALC-2: a [`Number`] is finite. What is not is a [`NumberError`].
//!
//! Not here: the fractions themselves (`ratio`), syntax (`parser`), names of functions (`functions`).

use serde_json::Value;

use super::ratio::{self, Ratio};

/// Integers below this are exact as floating point too, so a float in this range that is whole is shown as an integer.
const FLOAT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
/// The largest n whose factorial is a finite floating point number.
const FACTORIAL_MAX: i128 = 170;

/// A finite real number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Exact(Ratio),
    Float(f64),
}

/// Why an operation has no finite real value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NumberError {
    #[error("division by zero")]
    DivisionByZero,
    #[error("the value is too large to represent (more than about 1.8e308)")]
    TooLarge,
    #[error("the value is too close to zero to represent")]
    TooSmall,
    #[error("the value is not a real number")]
    NotReal,
    #[error("a whole number is needed here")]
    NotWhole,
    #[error("factorial needs a whole number from 0 to 170")]
    Factorial,
}

type Outcome = Result<Number, NumberError>;

// ----------------------------------------------------------------------------------------------------------- Number

impl Number {
    pub(super) const ZERO: Self = Self::Exact(Ratio::ZERO);

    pub(super) fn whole(n: i128) -> Self {
        Self::Exact(Ratio::whole(n))
    }

    /// CALC-2: the only way from a float to a number.
    pub(super) fn float(value: f64) -> Outcome {
        if value.is_nan() {
            Err(NumberError::NotReal)
        } else if value.is_infinite() {
            Err(NumberError::TooLarge)
        } else {
            Ok(Self::Float(value))
        }
    }

    /// A literal: digits, an optional fraction and an optional exponent. The parser has checked the form.
    pub(super) fn literal(text: &str) -> Outcome {
        if let Some(exact) = Ratio::literal(text) {
            return Ok(Self::Exact(exact));
        }
        let value: f64 = text.parse().map_err(|_| NumberError::NotReal)?;
        let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
        if value == 0.0 && mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
            return Err(NumberError::TooSmall);
        }
        Self::float(value)
    }

    pub(super) fn to_f64(self) -> f64 {
        match self {
            Self::Exact(ratio) => ratio.to_f64(),
            Self::Float(value) => value,
        }
    }

    pub(super) fn is_zero(self) -> bool {
        match self {
            Self::Exact(ratio) => ratio.is_zero(),
            Self::Float(value) => value == 0.0,
        }
    }

    /// The value as an integer, if it is one.
    pub(super) fn as_whole(self) -> Result<i128, NumberError> {
        self.whole_value().ok_or(NumberError::NotWhole)
    }

    fn whole_value(self) -> Option<i128> {
        match self {
            Self::Exact(ratio) => ratio.as_whole(),
            Self::Float(value) => is_small_whole(value).then(|| whole_of(value)),
        }
    }

    fn both(self, other: Self, exact: fn(Ratio, Ratio) -> Option<Ratio>, float: fn(f64, f64) -> f64) -> Outcome {
        if let (Self::Exact(a), Self::Exact(b)) = (self, other)
            && let Some(result) = exact(a, b)
        {
            return Ok(Self::Exact(result));
        }
        Self::float(float(self.to_f64(), other.to_f64()))
    }

    pub(super) fn add(self, other: Self) -> Outcome {
        self.both(other, Ratio::add, |a, b| a + b)
    }

    pub(super) fn sub(self, other: Self) -> Outcome {
        self.both(other, |a, b| a.add(b.negated()?), |a, b| a - b)
    }

    pub(super) fn mul(self, other: Self) -> Outcome {
        self.both(other, Ratio::mul, |a, b| a * b)
    }

    pub(super) fn div(self, other: Self) -> Outcome {
        if other.is_zero() {
            return Err(NumberError::DivisionByZero);
        }
        self.both(other, |a, b| a.mul(b.inverse()?), |a, b| a / b)
    }

    /// Remainder with the sign of the divisor, so that `-7 % 3` is 2.
    pub(super) fn modulo(self, other: Self) -> Outcome {
        if other.is_zero() {
            return Err(NumberError::DivisionByZero);
        }
        let exact = |a: Ratio, b: Ratio| {
            let times = Ratio::whole(a.mul(b.inverse()?)?.floor());
            a.add(b.mul(times)?.negated()?)
        };
        self.both(other, exact, |a, b| (a % b + b) % b)
    }

    pub(super) fn negated(self) -> Outcome {
        match self {
            Self::Exact(ratio) => ratio.negated().map_or_else(|| Self::float(-ratio.to_f64()), |r| Ok(Self::Exact(r))),
            Self::Float(value) => Ok(Self::Float(-value)),
        }
    }

    pub(super) fn pow(self, exponent: Self) -> Outcome {
        if let (Self::Exact(base), Self::Exact(power)) = (self, exponent) {
            if base.is_zero() && power.is_negative() {
                return Err(NumberError::DivisionByZero);
            }
            if let Some(times) = power.as_whole()
                && let Some(exact) = base.pow(times)
            {
                return Ok(Self::Exact(exact));
            }
            if power == Ratio::HALF {
                return self.sqrt();
            }
        }
        Self::float(self.to_f64().powf(exponent.to_f64()))
    }

    pub(super) fn sqrt(self) -> Outcome {
        if let Self::Exact(ratio) = self
            && let Some(root) = ratio.sqrt()
        {
            return Ok(Self::Exact(root));
        }
        Self::float(self.to_f64().sqrt())
    }

    pub(super) fn abs(self) -> Outcome {
        if self.to_f64() < 0.0 { self.negated() } else { Ok(self) }
    }

    pub(super) fn floor(self) -> Outcome {
        match self {
            Self::Exact(ratio) => Ok(Self::whole(ratio.floor())),
            Self::Float(value) => Self::float(value.floor()),
        }
    }

    pub(super) fn ceil(self) -> Outcome {
        self.negated()?.floor()?.negated()
    }

    /// Half away from zero, at `digits` decimal places.
    pub(super) fn round(self, digits: u32) -> Outcome {
        let scale = Self::whole(10_i128.pow(digits.min(15)));
        let half = Self::Exact(Ratio::HALF);
        let scaled = self.mul(scale)?;
        let rounded = if scaled.to_f64() < 0.0 { scaled.sub(half)?.ceil()? } else { scaled.add(half)?.floor()? };
        rounded.div(scale)
    }

    pub(super) fn factorial(self) -> Outcome {
        let n = self.as_whole().ok().filter(|n| (0..=FACTORIAL_MAX).contains(n)).ok_or(NumberError::Factorial)?;
        (2..=n).try_fold(Self::whole(1), |product, factor| product.mul(Self::whole(factor)))
    }

    pub(super) fn gcd(self, other: Self) -> Outcome {
        let divisor = ratio::gcd(self.as_whole()?.unsigned_abs(), other.as_whole()?.unsigned_abs());
        i128::try_from(divisor).map(Self::whole).map_err(|_| NumberError::TooLarge)
    }

    pub(super) fn lcm(self, other: Self) -> Outcome {
        if self.is_zero() || other.is_zero() {
            return Ok(Self::ZERO);
        }
        self.div(self.gcd(other)?)?.mul(other)?.abs()
    }

    /// Logarithm to a base; whole results are made exact.
    pub(super) fn log(self, base: Self) -> Outcome {
        let (value, base_value) = (self.to_f64(), base.to_f64());
        if value <= 0.0 || base_value <= 0.0 || base_value == 1.0 {
            return Err(NumberError::NotReal);
        }
        let quotient = if base_value == 2.0 {
            value.log2()
        } else if base_value == 10.0 {
            value.log10()
        } else {
            value.ln() / base_value.ln()
        };
        let near = quotient.round();
        if near.abs() <= 1024.0 {
            let whole = Self::whole(whole_of(near));
            if base.pow(whole) == Ok(self) {
                return Ok(whole);
            }
        }
        Self::float(quotient)
    }

    /// The JSON number and its type. Whole numbers that fit 64 bits are integers; larger ones are rounded to a float.
    pub(super) fn to_json(self) -> (Value, &'static str) {
        if let Some(n) = self.whole_value() {
            if let Ok(n) = i64::try_from(n) {
                return (n.into(), "integer");
            }
            if let Ok(n) = u64::try_from(n) {
                return (n.into(), "integer");
            }
        }
        (self.to_f64().into(), "number")
    }
}

fn is_small_whole(value: f64) -> bool {
    value.abs() <= FLOAT_INTEGER_MAX && value.fract() == 0.0
}

#[expect(clippy::cast_possible_truncation, reason = "callers have checked that the value is whole and below 2^53")]
fn whole_of(value: f64) -> i128 {
    value as i128
}
