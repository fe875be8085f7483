//! Numbers of the calculator: exact fractions while they fit, floating point after that.
//!
//! Most of what agents compute is money, counts and percentages. With fractions of two 128-bit integers `0.1 + 0.2` is
//! `0.3` and `2^62` is exact, at the price of a few nanoseconds; arbitrary precision (as in the `fend-core` crate, which
//! was measured at 58–79 µs for `sqrt(16) + 2^3`) costs more than the whole rest of a call and lets `9^9^9^9` eat the
//! machine.
//!
//! Invariants
//! - NUM-1: a [`Ratio`] is reduced and its denominator is positive.
//! - NUM-2: every operation takes constant time: at most 170 multiplications, or one Euclidean algorithm on 128 bits.
//! - NUM-3: a [`Number`] is finite. What is not is a [`NumberError`].
//!
//! Not here: syntax (`parser`), names of functions (`functions`).

use serde_json::Value;

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

/// A reduced fraction with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ratio {
    numerator: i128,
    denominator: i128,
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

// ------------------------------------------------------------------------------------------------------------ Ratio

impl Ratio {
    const ZERO: Self = Self { numerator: 0, denominator: 1 };

    fn whole(numerator: i128) -> Self {
        Self { numerator, denominator: 1 }
    }

    /// Reduces; `None` if the denominator is zero or a sign cannot be turned.
    fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 1 {
            return Some(Self::whole(numerator));
        }
        let divisor = i128::try_from(gcd(numerator.unsigned_abs(), denominator.unsigned_abs())).ok()?;
        let (numerator, denominator) = (numerator.checked_div(divisor)?, denominator.checked_div(divisor)?);
        if denominator < 0 {
            return Some(Self { numerator: numerator.checked_neg()?, denominator: denominator.checked_neg()? });
        }
        Some(Self { numerator, denominator })
    }

    fn is_whole(self) -> bool {
        self.denominator == 1
    }

    fn add(self, other: Self) -> Option<Self> {
        if self.is_whole() && other.is_whole() {
            return self.numerator.checked_add(other.numerator).map(Self::whole);
        }
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    fn negated(self) -> Option<Self> {
        Some(Self { numerator: self.numerator.checked_neg()?, denominator: self.denominator })
    }

    fn mul(self, other: Self) -> Option<Self> {
        Self::new(
            self.numerator.checked_mul(other.numerator)?,
            self.denominator.checked_mul(other.denominator)?,
        )
    }

    fn inverse(self) -> Option<Self> {
        Self::new(self.denominator, self.numerator)
    }

    fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    /// Repeated squaring, which stops at the first overflow.
    fn pow(self, exponent: i128) -> Option<Self> {
        if exponent == 0 {
            return Some(Self::whole(1));
        }
        let base = if exponent < 0 { self.inverse()? } else { self };
        if base.is_whole() && matches!(base.numerator, -1..=1) {
            let odd = exponent % 2 != 0;
            return Some(Self::whole(if base.numerator == -1 && !odd { 1 } else { base.numerator }));
        }
        let exponent = u32::try_from(exponent.unsigned_abs()).ok()?;
        Some(Self {
            numerator: base.numerator.checked_pow(exponent)?,
            denominator: base.denominator.checked_pow(exponent)?,
        })
    }

    /// The root, if it is a fraction too.
    fn sqrt(self) -> Option<Self> {
        let root = |n: i128| {
            let n = u128::try_from(n).ok()?;
            let root = n.isqrt();
            (root * root == n).then(|| i128::try_from(root).ok()).flatten()
        };
        Some(Self { numerator: root(self.numerator)?, denominator: root(self.denominator)? })
    }

    fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        // Hardware division is an order of magnitude faster, and most numbers are small.
        if let (Ok(x), Ok(y)) = (u64::try_from(a), u64::try_from(b)) {
            return u128::from(gcd_small(x, y));
        }
        (a, b) = (b, a % b);
    }
    a
}

fn gcd_small(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

// ----------------------------------------------------------------------------------------------------------- Number

impl Number {
    pub(super) const ZERO: Self = Self::Exact(Ratio::ZERO);

    pub(super) fn whole(n: i128) -> Self {
        Self::Exact(Ratio::whole(n))
    }

    /// NUM-3: the only way from a float to a number.
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
        if let Some(exact) = exact_literal(text) {
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
            Self::Exact(ratio) => ratio.numerator == 0,
            Self::Float(value) => value == 0.0,
        }
    }

    /// The value as an integer, if it is one.
    pub(super) fn as_whole(self) -> Result<i128, NumberError> {
        match self {
            Self::Exact(ratio) if ratio.is_whole() => Ok(ratio.numerator),
            Self::Float(value) if is_small_whole(value) => Ok(whole_of(value)),
            Self::Exact(_) | Self::Float(_) => Err(NumberError::NotWhole),
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
            if base.numerator == 0 && power.numerator < 0 {
                return Err(NumberError::DivisionByZero);
            }
            if power.is_whole()
                && let Some(exact) = base.pow(power.numerator)
            {
                return Ok(Self::Exact(exact));
            }
            if (power.numerator, power.denominator) == (1, 2) {
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
        let half = Self::Exact(Ratio { numerator: 1, denominator: 2 });
        let scaled = self.mul(scale)?;
        let rounded = if scaled.to_f64() < 0.0 { scaled.sub(half)?.ceil()? } else { scaled.add(half)?.floor()? };
        rounded.div(scale)
    }

    pub(super) fn factorial(self) -> Outcome {
        let n = self.as_whole().ok().filter(|n| (0..=FACTORIAL_MAX).contains(n)).ok_or(NumberError::Factorial)?;
        (2..=n).try_fold(Self::whole(1), |product, factor| product.mul(Self::whole(factor)))
    }

    pub(super) fn gcd(self, other: Self) -> Outcome {
        let divisor = gcd(self.as_whole()?.unsigned_abs(), other.as_whole()?.unsigned_abs());
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
        let whole = match self {
            Self::Exact(ratio) if ratio.is_whole() => Some(ratio.numerator),
            Self::Float(value) if is_small_whole(value) => Some(whole_of(value)),
            Self::Exact(_) | Self::Float(_) => None,
        };
        if let Some(n) = whole {
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

/// Digits and exponent as a fraction, if both parts fit.
fn exact_literal(text: &str) -> Option<Ratio> {
    const EXPONENT_MAX: i32 = 36;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let mut digits: i128 = 0;
    let mut places: i32 = 0;
    let mut after_point = false;
    for byte in mantissa.bytes() {
        if byte == b'.' {
            after_point = true;
            continue;
        }
        digits = digits.checked_mul(10)?.checked_add(i128::from(byte.checked_sub(b'0')?))?;
        places += i32::from(after_point);
    }
    if digits == 0 {
        return Some(Ratio::ZERO);
    }
    let shift = exponent.checked_sub(places)?;
    if shift.abs() > EXPONENT_MAX {
        return None;
    }
    let power = 10_i128.checked_pow(shift.unsigned_abs())?;
    if shift >= 0 { digits.checked_mul(power).map(Ratio::whole) } else { Ratio::new(digits, power) }
}
