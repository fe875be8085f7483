//! `datetime`: the time now, and reading, writing, comparing and moving dates (LOCAL-004…007).
//!
//! Calendars and zones are `jiff`'s, with the zone database compiled in, so that answers do not depend on the machine.
//! Without a `timezone` everything is UTC. Local times that a change of the clocks skips or repeats are taken by
//! the "compatible" rule: the later instant in a gap, the earlier one in a fold.
//!
//! `diff` is `date2 - date1`: positive when `date2` is later.
//!
//! Not here: recurring dates, business days, other calendars.

use contract::error::Refusal;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use ports::clock::UnixMillis;
use serde_json::{Value, json};

use self::units::Unit;
use super::arguments::{ToolArguments, invalid, missing};
use contract::nearest::nearest;

mod parse;
mod tokens;
mod units;

/// The format when none is asked for.
const FORMAT_DEFAULT: &str = "YYYY-MM-DD HH:mm:ss";
const OPERATIONS: [&str; 5] = ["now", "parse", "format", "diff", "add"];

/// Runs one operation; `now` is the instant of the call.
pub(super) fn run(parameters: &Value, now: UnixMillis) -> Result<Value, Refusal> {
    let call = Call::read(parameters, now)?;
    match call.arguments.required_text("operation")? {
        "now" => call.now(),
        "parse" => call.parse(),
        "format" => call.format(),
        "diff" => call.diff(),
        "add" => call.add(),
        other => Err(unknown_operation(other)),
    }
}

fn unknown_operation(given: &str) -> Refusal {
    let hint = match nearest(given, OPERATIONS) {
        Some(name) => format!("did you mean `{name}`? the operations are now, parse, format, diff, add"),
        None => "the operations are now, parse, format, diff, add".to_owned(),
    };
    let shown: String = given.chars().take(40).collect();
    invalid(format!("unknown operation `{shown}`"), hint)
}

/// What every operation needs.
#[derive(Debug)]
struct Call<'p> {
    arguments: ToolArguments<'p>,
    zone: TimeZone,
    zone_name: &'p str,
    now: Zoned,
}

impl<'p> Call<'p> {
    fn read(parameters: &'p Value, now: UnixMillis) -> Result<Self, Refusal> {
        let arguments = ToolArguments::of(parameters);
        let zone_name = arguments.text("timezone")?.unwrap_or("UTC");
        let zone = parse::zone(zone_name)?;
        let instant = Timestamp::from_millisecond(now.0).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Self { arguments, now: instant.to_zoned(zone.clone()), zone, zone_name })
    }

    fn now(&self) -> Result<Value, Refusal> {
        Ok(json!({
            "iso": iso(&self.now),
            "formatted": self.formatted(&self.now)?,
            "timezone": self.zone_name,
            "timestamp": self.now.timestamp().as_millisecond(),
        }))
    }

    fn parse(&self) -> Result<Value, Refusal> {
        let date = self.date("date")?;
        Ok(json!({
            "iso": iso(&date),
            "formatted": self.formatted(&date)?,
            "timestamp": date.timestamp().as_millisecond(),
        }))
    }

    fn format(&self) -> Result<Value, Refusal> {
        let date = self.date_or_now()?;
        Ok(json!({ "formatted": self.formatted(&date)? }))
    }

    fn diff(&self) -> Result<Value, Refusal> {
        let (from, to) = (self.date("date1")?, self.date("date2")?);
        let unit = self.unit()?;
        Ok(json!({ "difference": unit.between(&from, &to)?, "unit": self.arguments.required_text("unit")? }))
    }

    fn add(&self) -> Result<Value, Refusal> {
        let date = self.date_or_now()?;
        let unit = self.unit()?;
        let amount = self.arguments.number("amount")?.ok_or_else(|| missing("amount"))?;
        let result = parse::in_range(unit.added(&date, amount)?)?;
        Ok(json!({ "original": iso(&date), "result": iso(&result), "formatted": self.formatted(&result)? }))
    }

    fn unit(&self) -> Result<Unit, Refusal> {
        Unit::read(self.arguments.required_text("unit")?)
    }

    fn date(&self, name: &str) -> Result<Zoned, Refusal> {
        parse::date(name, self.arguments.required_text(name)?, &self.zone)
    }

    fn date_or_now(&self) -> Result<Zoned, Refusal> {
        match self.arguments.text("date")? {
            Some(text) => parse::date("date", text, &self.zone),
            None => Ok(self.now.clone()),
        }
    }

    fn formatted(&self, date: &Zoned) -> Result<String, Refusal> {
        tokens::format(date, self.arguments.text("format")?.unwrap_or(FORMAT_DEFAULT))
    }
}

/// The instant in UTC with milliseconds, as every interface of Gantry writes time.
fn iso(date: &Zoned) -> String {
    format!("{:.3}", date.timestamp())
}

#[cfg(test)]
mod tests {
    use contract::error::ErrorCode;

    use super::*;

    /// 2026-03-01T12:30:45.678Z
    const NOW: UnixMillis = UnixMillis(1_772_368_245_678);

    fn call(parameters: &Value) -> Value {
        run(parameters, NOW).unwrap_or_else(|refusal| format!("{refusal}").into())
    }

    #[test]
    fn now_tells_the_clocks_time_in_the_asked_zone() {
        assert_eq!(
            call(&json!({ "operation": "now" })),
            json!({ "iso": "2026-03-01T12:30:45.678Z", "formatted": "2026-03-01 12:30:45", "timezone": "UTC",
                    "timestamp": 1_772_368_245_678_i64 })
        );
        let kigali = call(&json!({ "operation": "now", "timezone": "Africa/Kigali", "format": "HH:mm Z" }));
        assert_eq!(kigali["formatted"], "14:30 +02:00");
        assert_eq!(kigali["iso"], "2026-03-01T12:30:45.678Z");
    }

    #[test]
    fn parse_and_format_answer_in_the_asked_zone() {
        let parsed = call(&json!({ "operation": "parse", "date": "2024-07-01 12:00", "timezone": "America/New_York" }));
        assert_eq!(parsed["iso"], "2024-07-01T16:00:00.000Z");
        assert_eq!(parsed["formatted"], "2024-07-01 12:00:00");
        assert_eq!(parsed["timestamp"], 1_719_849_600_000_i64);
        let formatted =
            call(&json!({ "operation": "format", "date": "2024-07-01T16:00:00Z", "timezone": "Asia/Kolkata",
                                     "format": "dddd, D MMMM YYYY [at] h:mm A" }));
        assert_eq!(formatted, json!({ "formatted": "Monday, 1 July 2024 at 9:30 PM" }));
        assert_eq!(call(&json!({ "operation": "format", "format": "YYYY" })), json!({ "formatted": "2026" }));
    }

    #[test]
    fn differences_are_signed_and_know_the_calendar() {
        for (from, to, unit, zone, expected) in [
            ("2024-01-01", "2024-01-31", "days", "UTC", json!(30)),
            ("2024-01-31", "2024-01-01", "day", "UTC", json!(-30)),
            ("2024-01-01", "2024-01-01T01:30:00Z", "hours", "UTC", json!(1.5)),
            ("2024-01-01", "2024-01-02", "minutes", "UTC", json!(1440)),
            ("2024-01-01", "2024-01-02", "milliseconds", "UTC", json!(86_400_000)),
            ("2024-01-31", "2024-03-31", "months", "UTC", json!(2)),
            ("2020-02-29", "2024-02-29", "years", "UTC", json!(4)),
            ("2024-01-01", "2024-01-15", "weeks", "UTC", json!(2)),
            // The day the clocks go forward has 23 hours but is one day.
            ("2024-03-10", "2024-03-11", "days", "America/New_York", json!(1)),
            ("2024-03-10", "2024-03-11", "hours", "America/New_York", json!(23)),
        ] {
            let given = json!({ "operation": "diff", "date1": from, "date2": to, "unit": unit, "timezone": zone });
            assert_eq!(call(&given), json!({ "difference": expected, "unit": unit }), "{from} {to} {unit} {zone}");
        }
    }

    #[test]
    fn adding_clips_days_and_keeps_local_time_over_a_change_of_the_clocks() {
        for (date, amount, unit, zone, expected) in [
            ("2024-01-31", json!(1), "month", "UTC", "2024-02-29 00:00:00"),
            ("2023-01-31", json!(1), "months", "UTC", "2023-02-28 00:00:00"),
            ("2024-02-29", json!(1), "year", "UTC", "2025-02-28 00:00:00"),
            ("2024-03-31", json!(-1), "month", "UTC", "2024-02-29 00:00:00"),
            ("2024-01-01", json!(90), "minutes", "UTC", "2024-01-01 01:30:00"),
            ("2024-01-01", json!(1.5), "hours", "UTC", "2024-01-01 01:30:00"),
            ("2024-01-01", json!(2), "weeks", "UTC", "2024-01-15 00:00:00"),
            ("2024-03-09 12:00", json!(1), "day", "America/New_York", "2024-03-10 12:00:00"),
            ("2024-03-09 12:00", json!(24), "hours", "America/New_York", "2024-03-10 13:00:00"),
            // 02:30 does not exist on that day: the later instant is taken.
            ("2024-03-09 02:30", json!(1), "day", "America/New_York", "2024-03-10 03:30:00"),
        ] {
            let given = json!({ "operation": "add", "date": date, "amount": amount, "unit": unit, "timezone": zone });
            assert_eq!(call(&given)["formatted"], expected, "{date} {amount} {unit} {zone}");
        }
        let from_now = call(&json!({ "operation": "add", "amount": 1, "unit": "day" }));
        assert_eq!(from_now["original"], "2026-03-01T12:30:45.678Z");
        assert_eq!(from_now["result"], "2026-03-02T12:30:45.678Z");
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_what_to_do() {
        for (given, message, hint) in [
            (json!({}), "`operation` is missing", "operation"),
            (json!({ "operation": "nwo" }), "unknown operation `nwo`", "did you mean `now`"),
            (json!({ "operation": "now", "timezone": "Europe/Berln" }), "unknown time zone", "Europe/Berlin"),
            (json!({ "operation": "parse" }), "`date` is missing", "date"),
            (json!({ "operation": "parse", "date": "soon" }), "cannot be read as a date", "2024-01-31"),
            (json!({ "operation": "parse", "date": "01/02/2024" }), "ambiguous", "2024-01-31"),
            (json!({ "operation": "parse", "date": "2024-02-30" }), "cannot be read as a date", "2024-01-31"),
            (json!({ "operation": "diff", "date1": "2024-01-01", "unit": "day" }), "`date2` is missing", "date2"),
            (json!({ "operation": "add", "unit": "day" }), "`amount` is missing", "amount"),
            (json!({ "operation": "add", "amount": 1, "unit": "fortnight" }), "unknown unit `fortnight`", "week"),
            (json!({ "operation": "add", "amount": 1.5, "unit": "month" }), "whole number of months", "smaller unit"),
            (json!({ "operation": "add", "amount": 9000, "unit": "year" }), "out of range", "0001 to 9999"),
            (json!({ "operation": "add", "amount": 1e300, "unit": "hour" }), "out of range", "0001 to 9999"),
            (json!({ "operation": "format", "format": "yyyy-MM-dd" }), "`yyyy`", "YYYY"),
        ] {
            let refusal = run(&given, NOW).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::E3301);
            assert!(refusal.message.contains(message), "{given}: {}", refusal.message);
            assert!(refusal.resolution().contains(hint), "{given}: {}", refusal.resolution());
        }
    }
}
