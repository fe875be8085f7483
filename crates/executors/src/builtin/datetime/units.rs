//! Units of time, in differences and in additions (LOCAL-005).
//!
//! Up to the hour a unit is a number of milliseconds. From the day on it is a matter of the calendar and the zone: a day
//! may have 23 hours, and a month after 31 January ends on the last of February.
//!
//! Not here: which zone (`datetime` decides).

use contract::error::Refusal;
use jiff::{Span, SpanTotal, Unit as Calendar, Zoned, ZonedDifference};
use serde_json::Value;

use super::parse::out_of_range;
use crate::builtin::arguments::invalid;
use contract::nearest::by_nearness;

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

const NAMES: [(&str, Unit); 8] = [
    ("millisecond", Unit::Millisecond),
    ("second", Unit::Second),
    ("minute", Unit::Minute),
    ("hour", Unit::Hour),
    ("day", Unit::Day),
    ("week", Unit::Week),
    ("month", Unit::Month),
    ("year", Unit::Year),
];

impl Unit {
    /// By its name, in singular or plural.
    pub(super) fn read(name: &str) -> Result<Self, Refusal> {
        let singular = name.strip_suffix('s').unwrap_or(name);
        NAMES.iter().find(|(known, _)| *known == singular).map(|(_, unit)| *unit).ok_or_else(|| {
            let known = by_nearness(name, NAMES.iter().map(|(known, _)| *known));
            let shown: String = name.chars().take(40).collect();
            invalid(format!("unknown unit `{shown}`"), format!("use one of {}", known.join(", ")))
        })
    }

    /// `None` for units of the calendar.
    fn milliseconds(self) -> Option<i32> {
        match self {
            Self::Millisecond => Some(1),
            Self::Second => Some(1_000),
            Self::Minute => Some(60_000),
            Self::Hour => Some(3_600_000),
            Self::Day | Self::Week | Self::Month | Self::Year => None,
        }
    }

    fn calendar(self) -> Calendar {
        match self {
            Self::Millisecond => Calendar::Millisecond,
            Self::Second => Calendar::Second,
            Self::Minute => Calendar::Minute,
            Self::Hour => Calendar::Hour,
            Self::Day => Calendar::Day,
            Self::Week => Calendar::Week,
            Self::Month => Calendar::Month,
            Self::Year => Calendar::Year,
        }
    }

    /// How many of this unit lie between; whole numbers as integers.
    pub(super) fn between(self, from: &Zoned, to: &Zoned) -> Result<Value, Refusal> {
        let total = match self.milliseconds() {
            Some(each) => from.duration_until(to).as_millis() as f64 / f64::from(each),
            None => from
                .until(ZonedDifference::new(to).largest(self.calendar()))
                .and_then(|span| span.total(SpanTotal::from((self.calendar(), from))))
                .map_err(|_| out_of_range())?,
        };
        Ok(number(total))
    }

    /// `date` moved by `amount`, which may be negative; fractions only where a unit has a fixed length.
    pub(super) fn added(self, date: &Zoned, amount: f64) -> Result<Zoned, Refusal> {
        let span = match self.milliseconds() {
            Some(each) => Span::new().try_milliseconds(whole(amount * f64::from(each))?),
            None if amount.fract() != 0.0 => return Err(self.fraction()),
            None => {
                let amount = whole(amount)?;
                match self {
                    Self::Year => Span::new().try_years(amount),
                    Self::Month => Span::new().try_months(amount),
                    Self::Week => Span::new().try_weeks(amount),
                    Self::Millisecond | Self::Second | Self::Minute | Self::Hour | Self::Day => {
                        Span::new().try_days(amount)
                    }
                }
            }
        };
        span.and_then(|span| date.checked_add(span)).map_err(|_| out_of_range())
    }

    fn fraction(self) -> Refusal {
        let name = NAMES.iter().find(|(_, unit)| *unit == self).map_or("day", |(name, _)| *name);
        invalid(
            format!("`amount` must be a whole number of {name}s, because not all {name}s are equally long"),
            "round the amount, or give it in a smaller unit such as hours",
        )
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the bound is checked just before")]
fn whole(amount: f64) -> Result<i64, Refusal> {
    const BOUND: f64 = 1e15;
    let rounded = amount.round();
    if rounded.abs() <= BOUND { Ok(rounded as i64) } else { Err(out_of_range()) }
}

/// Whole numbers are written without a fraction.
fn number(value: f64) -> Value {
    match whole(value) {
        Ok(integer) if value.fract() == 0.0 => integer.into(),
        _ => value.into(),
    }
}
