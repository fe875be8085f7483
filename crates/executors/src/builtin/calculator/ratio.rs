//! Fractions of two 128-bit integers: exact, and quick as long as they fit.
//!
//! Every operation says `None` where the result does not fit; the caller then goes on in floating point.
//!
//! Invariant
//! - RATIO-1: a [`Ratio`] is reduced and its denominator is positive.

/// A reduced fraction with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ratio {
    numerator: i128,
    denominator: i128,
}

impl Ratio {
    pub(super) const ZERO: Self = Self { numerator: 0, denominator: 1 };
    pub(super) const HALF: Self = Self { numerator: 1, denominator: 2 };

    pub(super) fn whole(numerator: i128) -> Self {
        Self { numerator, denominator: 1 }
    }

    /// Digits, an optional fraction and an optional exponent, if the value fits.
    pub(super) fn literal(text: &str) -> Option<Self> {
        const EXPONENT_MAX: u32 = 36;
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
            return Some(Self::ZERO);
        }
        let shift = exponent.checked_sub(places)?;
        if shift.unsigned_abs() > EXPONENT_MAX {
            return None;
        }
        let power = 10_i128.checked_pow(shift.unsigned_abs())?;
        if shift >= 0 { digits.checked_mul(power).map(Self::whole) } else { Self::new(digits, power) }
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

    /// The value as an integer, if it is one.
    pub(super) fn as_whole(self) -> Option<i128> {
        self.is_whole().then_some(self.numerator)
    }

    pub(super) fn is_zero(self) -> bool {
        self.numerator == 0
    }

    pub(super) fn is_negative(self) -> bool {
        self.numerator < 0
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        if self.is_whole() && other.is_whole() {
            return self.numerator.checked_add(other.numerator).map(Self::whole);
        }
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn negated(self) -> Option<Self> {
        Some(Self { numerator: self.numerator.checked_neg()?, denominator: self.denominator })
    }

    pub(super) fn mul(self, other: Self) -> Option<Self> {
        Self::new(self.numerator.checked_mul(other.numerator)?, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn inverse(self) -> Option<Self> {
        Self::new(self.denominator, self.numerator)
    }

    pub(super) fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    /// Repeated squaring, which stops at the first overflow.
    pub(super) fn pow(self, exponent: i128) -> Option<Self> {
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
    pub(super) fn sqrt(self) -> Option<Self> {
        let root = |n: i128| {
            let n = u128::try_from(n).ok()?;
            let root = n.isqrt();
            (root * root == n).then(|| i128::try_from(root).ok()).flatten()
        };
        Some(Self { numerator: root(self.numerator)?, denominator: root(self.denominator)? })
    }

    pub(super) fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

/// The greatest common divisor; 0 only of two zeros.
pub(super) fn gcd(mut a: u128, mut b: u128) -> u128 {
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
