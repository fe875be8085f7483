//! The calculator's whitelist: every function and constant there is, and nothing else (LOCAL-003).
//!
//! A table and not a `match` alone, because refusals name the nearest known name and the manifest's description must
//! list exactly what works; a test keeps the two together.
//!
//! Not here: arithmetic (`number`), syntax (`parser`).

use super::number::{Number, NumberError};

/// How many arguments a function takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arity {
    Exactly(usize),
    Between(usize, usize),
    AtLeast(usize),
}

/// One function of the whitelist.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) arity: Arity,
    run: fn(&[Number]) -> Result<Number, NumberError>,
}

/// The names without arguments.
pub(super) const CONSTANTS: &[(&str, f64)] =
    &[("pi", std::f64::consts::PI), ("e", std::f64::consts::E), ("tau", std::f64::consts::TAU)];

macro_rules! functions {
    ($($name:literal $arity:expr => $run:expr;)*) => {
        /// Every function, most used first.
        pub(super) static FUNCTIONS: &[Function] = &[$(Function { name: $name, arity: $arity, run: $run },)*];
    };
}

functions! {
    "sqrt" Arity::Exactly(1) => |a| first(a).sqrt();
    "abs" Arity::Exactly(1) => |a| first(a).abs();
    "round" Arity::Between(1, 2) => round;
    "floor" Arity::Exactly(1) => |a| first(a).floor();
    "ceil" Arity::Exactly(1) => |a| first(a).ceil();
    "trunc" Arity::Exactly(1) => |a| if first(a).to_f64() < 0.0 { first(a).ceil() } else { first(a).floor() };
    "sign" Arity::Exactly(1) => sign;
    "min" Arity::AtLeast(1) => |a| Ok(extreme(a, |x, y| x < y));
    "max" Arity::AtLeast(1) => |a| Ok(extreme(a, |x, y| x > y));
    "sum" Arity::AtLeast(1) => sum;
    "mean" Arity::AtLeast(1) => mean;
    "pow" Arity::Exactly(2) => |a| first(a).pow(second(a));
    "mod" Arity::Exactly(2) => |a| first(a).modulo(second(a));
    "exp" Arity::Exactly(1) => |a| float(a, f64::exp);
    "ln" Arity::Exactly(1) => |a| first(a).log(E_NUMBER);
    "log" Arity::Between(1, 2) => |a| first(a).log(a.get(1).copied().unwrap_or(E_NUMBER));
    "log2" Arity::Exactly(1) => |a| first(a).log(Number::whole(2));
    "log10" Arity::Exactly(1) => |a| first(a).log(Number::whole(10));
    "cbrt" Arity::Exactly(1) => |a| root(first(a), Number::whole(3));
    "root" Arity::Exactly(2) => |a| root(first(a), second(a));
    "sin" Arity::Exactly(1) => |a| float(a, f64::sin);
    "cos" Arity::Exactly(1) => |a| float(a, f64::cos);
    "tan" Arity::Exactly(1) => |a| float(a, f64::tan);
    "asin" Arity::Exactly(1) => |a| float(a, f64::asin);
    "acos" Arity::Exactly(1) => |a| float(a, f64::acos);
    "atan" Arity::Exactly(1) => |a| float(a, f64::atan);
    "atan2" Arity::Exactly(2) => |a| Number::float(first(a).to_f64().atan2(second(a).to_f64()));
    "sinh" Arity::Exactly(1) => |a| float(a, f64::sinh);
    "cosh" Arity::Exactly(1) => |a| float(a, f64::cosh);
    "tanh" Arity::Exactly(1) => |a| float(a, f64::tanh);
    "hypot" Arity::Exactly(2) => hypot;
    "radians" Arity::Exactly(1) => |a| float(a, f64::to_radians);
    "degrees" Arity::Exactly(1) => |a| float(a, f64::to_degrees);
    "factorial" Arity::Exactly(1) => |a| first(a).factorial();
    "gcd" Arity::Exactly(2) => |a| first(a).gcd(second(a));
    "lcm" Arity::Exactly(2) => |a| first(a).lcm(second(a));
}

const E_NUMBER: Number = Number::Float(std::f64::consts::E);

impl Function {
    /// By its lower-case name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        FUNCTIONS.iter().find(|function| function.name == name)
    }

    /// Runs it; the parser has checked the number of arguments.
    pub(super) fn run(&self, arguments: &[Number]) -> Result<Number, NumberError> {
        debug_assert!(self.arity.takes(arguments.len()));
        (self.run)(arguments)
    }
}

impl Arity {
    pub(super) fn takes(self, count: usize) -> bool {
        match self {
            Self::Exactly(n) => count == n,
            Self::Between(low, high) => (low..=high).contains(&count),
            Self::AtLeast(n) => count >= n,
        }
    }
}

impl std::fmt::Display for Arity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(1) => f.write_str("1 argument"),
            Self::Exactly(n) => write!(f, "{n} arguments"),
            Self::Between(low, high) => write!(f, "{low} to {high} arguments"),
            Self::AtLeast(n) => write!(f, "at least {n} arguments"),
        }
    }
}

fn first(arguments: &[Number]) -> Number {
    arguments.first().copied().unwrap_or(Number::ZERO)
}

fn second(arguments: &[Number]) -> Number {
    arguments.get(1).copied().unwrap_or(Number::ZERO)
}

fn float(arguments: &[Number], run: fn(f64) -> f64) -> Result<Number, NumberError> {
    // Zero in, exact zero or one out for most of them: keeps `sin(0) + 1` an integer.
    Number::float(run(first(arguments).to_f64()))
}

fn round(arguments: &[Number]) -> Result<Number, NumberError> {
    let digits = match arguments.get(1) {
        Some(digits) => u32::try_from(digits.as_whole()?).map_err(|_| NumberError::NotWhole)?,
        None => 0,
    };
    first(arguments).round(digits)
}

fn sign(arguments: &[Number]) -> Result<Number, NumberError> {
    let value = first(arguments);
    Ok(Number::whole(if value.is_zero() {
        0
    } else if value.to_f64() < 0.0 {
        -1
    } else {
        1
    }))
}

fn extreme(arguments: &[Number], better: fn(f64, f64) -> bool) -> Number {
    arguments.iter().copied().fold(
        first(arguments),
        |best, next| {
            if better(next.to_f64(), best.to_f64()) { next } else { best }
        },
    )
}

fn sum(arguments: &[Number]) -> Result<Number, NumberError> {
    arguments.iter().try_fold(Number::ZERO, |total, next| total.add(*next))
}

fn mean(arguments: &[Number]) -> Result<Number, NumberError> {
    sum(arguments)?.div(Number::whole(arguments.len() as i128))
}

fn hypot(arguments: &[Number]) -> Result<Number, NumberError> {
    let (a, b) = (first(arguments), second(arguments));
    a.mul(a)?.add(b.mul(b)?)?.sqrt()
}

/// The real n-th root; negative numbers have one for odd n. Whole roots are made exact.
fn root(value: Number, degree: Number) -> Result<Number, NumberError> {
    let n = degree.as_whole()?;
    if n == 0 {
        return Err(NumberError::DivisionByZero);
    }
    let negative = value.to_f64() < 0.0;
    if negative && n % 2 == 0 {
        return Err(NumberError::NotReal);
    }
    let magnitude = value.abs()?;
    let approximate = if n == 3 { magnitude.to_f64().cbrt() } else { magnitude.to_f64().powf(1.0 / n as f64) };
    let near = Number::float(approximate)?.round(0)?;
    let near = Number::whole(near.as_whole().unwrap_or(0));
    let result = if near.pow(degree) == Ok(magnitude) { near } else { Number::float(approximate)? };
    if negative { result.negated() } else { Ok(result) }
}
