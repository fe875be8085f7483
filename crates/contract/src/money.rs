//! Money: an exact decimal amount in a currency, never binary floating point. (COST-011)
//!
//! An amount is a whole number of 10^-12 units of its currency. Twelve digits, because prices of a single token have
//! seven or eight and are multiplied before they are rounded for people; 128 bits hold 10^26 units, so sums of real bills
//! do not come near the end. Sums saturate there: a bill that stops growing is wrong, but a call that ends in an overflow
//! because of its bill is worse.
//!
//! Invariants
//! - MON-1: what was written with at most twelve decimals is read, added, multiplied and written exactly.
//! - MON-2: more decimals are rounded up: a price does not become nothing by being small.
//!
//! Not here: exchange rates. Amounts of two currencies are never added.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Decimals that are kept.
const DECIMALS: usize = 12;
/// The smallest amounts in one unit of a currency.
const PER_UNIT: i128 = 1_000_000_000_000;
/// The smallest amounts in a millionth of a unit, for those who keep the two apart.
const PER_MICRO: i128 = 1_000_000;
/// Longest text of an amount.
const TEXT_BYTES_MAX: usize = 40;

/// Why a text is no money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    #[error("an amount is written as digits with at most one point, for example 0.14")]
    Amount,
    #[error("a currency is written as three capital letters, for example USD")]
    Currency,
}

/// A currency by its code of three letters (ISO 4217). Which codes exist is not checked: prices are the operator's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    /// What prices are in when nobody says otherwise.
    pub const USD: Self = Self(*b"USD");

    /// The code.
    pub fn as_str(&self) -> &str {
        // INVARIANT: made of three ASCII letters.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Default for Currency {
    fn default() -> Self {
        Self::USD
    }
}

impl FromStr for Currency {
    type Err = MoneyError;
    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let code: [u8; 3] = text.as_bytes().try_into().map_err(|_| MoneyError::Currency)?;
        if code.iter().all(u8::is_ascii_uppercase) { Ok(Self(code)) } else { Err(MoneyError::Currency) }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Currency {
    fn schema_name() -> Cow<'static, str> {
        "Currency".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[A-Z]{3}$" })
    }
}

// ----------------------------------------------------------------------------------------------------------- Amount

/// An amount without its currency, never negative.
///
/// ```
/// use gantry_contract::money::Amount;
/// let per_token: Amount = "0.00000014".parse().unwrap();
/// assert_eq!(per_token.times(1_000_000).to_string(), "0.14");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(i128);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Is it nothing?
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum; saturates.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// So many of it; saturates.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(i128::from(count)))
    }

    /// One part of so many, rounded up (MON-2); of no parts, nothing.
    #[must_use]
    pub fn divided_by(self, parts: u64) -> Self {
        let parts = i128::from(parts);
        match (self.0.checked_div(parts), self.0.checked_rem(parts)) {
            (Some(whole), Some(rest)) => Self(whole + i128::from(rest > 0)),
            _ => Self::ZERO,
        }
    }

    /// In two parts that add up separately without overflow: millionths of a unit, and the rest below one, in 10^-12.
    pub fn split(self) -> (i64, i64) {
        let micros = i64::try_from(self.0 / PER_MICRO).unwrap_or(i64::MAX);
        (micros, i64::try_from(self.0 % PER_MICRO).unwrap_or(0))
    }

    /// From sums of [`split`](Self::split) parts; what is negative counts as nothing.
    pub fn joined(micros: i64, picos: i64) -> Self {
        Self((i128::from(micros) * PER_MICRO + i128::from(picos)).max(0))
    }
}

impl FromStr for Amount {
    type Err = MoneyError;
    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if text.len() > TEXT_BYTES_MAX || !digits(whole) || !digits(fraction) {
            return Err(MoneyError::Amount);
        }
        let whole: i128 = whole.parse().map_err(|_| MoneyError::Amount)?;
        let kept: String = fraction.chars().chain(std::iter::repeat('0')).take(DECIMALS).collect();
        let more = fraction.bytes().skip(DECIMALS).any(|digit| digit != b'0');
        let kept: i128 = kept.parse().map_err(|_| MoneyError::Amount)?;
        let units = whole.checked_mul(PER_UNIT).ok_or(MoneyError::Amount)?;
        units.checked_add(kept + i128::from(more)).map(Self).ok_or(MoneyError::Amount)
    }
}

impl fmt::Display for Amount {
    /// Without zeros at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / PER_UNIT, self.0 % PER_UNIT);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{fraction:012}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^\d+(\.\d+)?$", "description": "A decimal amount, exact." })
    }
}

/// An amount in a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Money {
    pub amount: Amount,
    #[serde(default)]
    pub currency: Currency,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_written_as_they_were_read() {
        for text in ["0", "1", "0.14", "0.00000014", "12345678901234.000000000001", "0.001"] {
            assert_eq!(text.parse::<Amount>().unwrap().to_string(), text);
        }
        assert_eq!("1.50".parse::<Amount>().unwrap().to_string(), "1.5");
        assert_eq!("0.0000000000001".parse::<Amount>().unwrap().to_string(), "0.000000000001", "never nothing");
    }

    #[test]
    fn what_is_no_amount_and_no_currency_is_refused() {
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", "0x1", " 1", "1.2.3", "NaN", &"9".repeat(41)] {
            assert_eq!(text.parse::<Amount>(), Err(MoneyError::Amount), "{text}");
        }
        assert_eq!("9".repeat(40).parse::<Amount>(), Err(MoneyError::Amount), "does not fit");
        for text in ["", "usd", "US", "USDT", "U D", "€"] {
            assert_eq!(text.parse::<Currency>(), Err(MoneyError::Currency), "{text}");
        }
        let money: Money = serde_json::from_str(r#"{"amount":"0.01"}"#).unwrap();
        assert_eq!(serde_json::to_string(&money).unwrap(), r#"{"amount":"0.01","currency":"USD"}"#);
        assert!(serde_json::from_str::<Money>(r#"{"amount":0.01}"#).is_err(), "a float is no money");
    }

    #[test]
    fn the_ends_saturate() {
        let most = Amount(i128::MAX);
        assert_eq!((most.plus(most), most.times(2)), (most, most));
        assert_eq!(Amount(7).divided_by(0), Amount::ZERO);
    }

    proptest! {
        #[test]
        fn sums_of_split_parts_are_the_sum(amounts in prop::collection::vec(0_i128..1_000_000_000_000_000_000_000, 0..20)) {
            let whole = amounts.iter().fold(Amount::ZERO, |sum, amount| sum.plus(Amount(*amount)));
            let (micros, picos) = amounts.iter().fold((0, 0), |(micros, picos), amount| {
                let (more, rest) = Amount(*amount).split();
                (micros + more, picos + rest)
            });
            prop_assert_eq!(Amount::joined(micros, picos), whole);
            prop_assert_eq!(whole.to_string().parse::<Amount>().unwrap(), whole);
        }

        #[test]
        fn parts_are_never_less_than_the_whole(amount in 0_i128..1_000_000_000_000_000, parts in 1_u64..10_000) {
            let part = Amount(amount).divided_by(parts);
            prop_assert!(part.times(parts) >= Amount(amount));
            prop_assert!(part.0 <= amount / i128::from(parts) + 1);
        }
    }
}
