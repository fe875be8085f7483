//! From text to an instant: the forms of dates that have exactly one meaning.
//!
//! A guess between 1 February and 2 January is worse than a refusal, because nobody notices it. So forms are tried from
//! the most to the least explicit, and the ambiguous ones are named as such.
//!
//! Not here: relative dates ("tomorrow"); `add` computes them.

use contract::error::Refusal;
use jiff::civil;
use jiff::fmt::{rfc2822, temporal};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::builtin::arguments::invalid;
use contract::nearest::nearest;

/// Characters of a date.
const DATE_CHARS_MAX: usize = 100;
const EXAMPLES: &str = "write it like 2024-01-31, 2024-01-31T15:04:05Z, 2024-01-31 15:04 or 1706713445";
/// Unambiguous civil dates with the month in words, or with the year first.
const WORDED: [&str; 7] = ["%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y", "%Y/%m/%d"];

/// A time zone by its IANA name, or a fixed offset such as `+02:00`.
pub(super) fn zone(name: &str) -> Result<TimeZone, Refusal> {
    static PARSER: temporal::DateTimeParser = temporal::DateTimeParser::new();
    // The usual one needs no look-up.
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    PARSER.parse_time_zone(name).map_err(|_| {
        let shown: String = name.chars().take(64).collect();
        let known: Vec<String> = jiff::tz::db().available().map(|zone| zone.to_string()).collect();
        let hint = match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`? use an IANA name such as `Africa/Kigali`, or `UTC`"),
            None => "use an IANA name such as `Africa/Kigali`, an offset such as `+02:00`, or `UTC`".to_owned(),
        };
        invalid(format!("unknown time zone `{shown}`"), hint)
    })
}

/// The instant that `text` stands for; times without a zone are taken in `zone`.
pub(super) fn date(name: &str, text: &str, zone: &TimeZone) -> Result<Zoned, Refusal> {
    let text = text.trim();
    let unreadable = |why: &str| {
        let shown: String = text.chars().take(64).filter(|c| !c.is_control()).collect();
        invalid(format!("`{shown}` in `{name}` {why}"), EXAMPLES)
    };
    if text.chars().count() > DATE_CHARS_MAX {
        return Err(unreadable("is too long for a date"));
    }
    if is_integer(text) {
        return unix(text, zone).map_err(unreadable).and_then(in_range);
    }
    if is_slashed(text) {
        return Err(unreadable("is ambiguous: it does not say which part is the month"));
    }
    explicit(text)
        .map(|instant| instant.with_time_zone(zone.clone()))
        .or_else(|| civil_time(text).and_then(|time| time.to_zoned(zone.clone()).ok()))
        .ok_or_else(|| unreadable("cannot be read as a date"))
        .and_then(in_range)
}

/// Four-digit years only: whatever is outside cannot be written in the formats that are promised.
pub(super) fn in_range(date: Zoned) -> Result<Zoned, Refusal> {
    let fine = (1..=9999).contains(&date.year()) && (1..=9999).contains(&utc_year(&date));
    if fine { Ok(date) } else { Err(out_of_range()) }
}

/// The refusal for years that have no four digits.
pub(super) fn out_of_range() -> Refusal {
    invalid("the date is out of range", "stay within the years 0001 to 9999")
}

fn utc_year(date: &Zoned) -> i16 {
    date.with_time_zone(TimeZone::UTC).year()
}

/// Forms that say their own offset or zone.
fn explicit(text: &str) -> Option<Zoned> {
    if let Ok(zoned) = text.parse::<Zoned>() {
        return Some(zoned);
    }
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Some(instant.to_zoned(TimeZone::UTC));
    }
    rfc2822::parse(text).ok()
}

/// Forms without a zone.
fn civil_time(text: &str) -> Option<civil::DateTime> {
    if let Ok(time) = text.parse::<civil::DateTime>() {
        return Some(time);
    }
    WORDED.iter().find_map(|form| civil::Date::strptime(form, text).ok()).map(civil::DateTime::from)
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// `01/02/2024`, `1.2.2024` and the like.
fn is_slashed(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or(text);
    ['/', '.', '-'].into_iter().any(|separator| {
        let parts: Vec<&str> = first.split(separator).collect();
        let [a, b, year] = parts.as_slice() else { return false };
        let short = |part: &str| (1..=2).contains(&part.len()) && is_integer(part);
        short(a) && short(b) && (2..=4).contains(&year.len()) && is_integer(year)
    })
}

/// Seconds or milliseconds since 1970. Four digits could be a year and eight a date, so those are refused.
fn unix(text: &str, zone: &TimeZone) -> Result<Zoned, &'static str> {
    let number: i64 = text.parse().map_err(|_| "is too large for a Unix time")?;
    let instant = match text.trim_start_matches('-').len() {
        4 => return Err("is ambiguous: it could be a year or a Unix time"),
        8 => return Err("is ambiguous: it could be a date or a Unix time"),
        ..=11 => Timestamp::from_second(number),
        _ => Timestamp::from_millisecond(number),
    };
    instant.map(|instant| instant.to_zoned(zone.clone())).map_err(|_| "is out of range for a Unix time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_form_means_one_instant() {
        for (text, expected) in [
            ("2024-01-31T15:04:05Z", "2024-01-31T15:04:05Z"),
            ("2024-01-31T15:04:05.250+02:00", "2024-01-31T13:04:05.25Z"),
            ("2024-01-31 15:04:05-0500", "2024-01-31T20:04:05Z"),
            ("2024-01-31T15:04:05+01:00[Europe/Paris]", "2024-01-31T14:04:05Z"),
            ("2024-01-31", "2024-01-30T23:00:00Z"),
            ("2024-01-31T15:04", "2024-01-31T14:04:00Z"),
            ("2024-01-31 15:04:05", "2024-01-31T14:04:05Z"),
            ("  2024-07-31 ", "2024-07-30T22:00:00Z"),
            ("20240131T150405", "2024-01-31T14:04:05Z"),
            ("Wed, 31 Jan 2024 15:04:05 +0000", "2024-01-31T15:04:05Z"),
            ("Wed, 31 Jan 2024 15:04:05 GMT", "2024-01-31T15:04:05Z"),
            ("31 January 2024", "2024-01-30T23:00:00Z"),
            ("January 31, 2024", "2024-01-30T23:00:00Z"),
            ("Jan 31, 2024", "2024-01-30T23:00:00Z"),
            ("2024/01/31", "2024-01-30T23:00:00Z"),
            ("1706713445", "2024-01-31T15:04:05Z"),
            ("1706713445250", "2024-01-31T15:04:05.25Z"),
            ("0", "1970-01-01T00:00:00Z"),
            ("-86400", "1969-12-31T00:00:00Z"),
        ] {
            let read = date("date", text, &zone("Europe/Berlin").unwrap());
            assert_eq!(read.map(|d| d.timestamp().to_string()), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn ambiguous_and_impossible_forms_are_refused() {
        for text in [
            "",
            " ",
            "2024",
            "20240131",
            "01/02/2024",
            "1.2.2024",
            "01-02-2024",
            "2024-13-01",
            "2023-02-29",
            "25:00",
            "tomorrow",
            "99999999999999999999",
            "2024-01-31T25:00:00Z",
            "not a date",
            "10000-01-01",
            "31/12/24",
        ] {
            assert!(date("date", text, &TimeZone::UTC).is_err(), "{text}");
        }
        assert!(date("date", &"1".repeat(500), &TimeZone::UTC).is_err());
    }

    #[test]
    fn local_times_in_gaps_and_folds_follow_the_compatible_rule() {
        let berlin = zone("Europe/Berlin").unwrap();
        for (text, expected) in
            [("2024-03-31 02:30", "2024-03-31T01:30:00Z"), ("2024-10-27 02:30", "2024-10-27T00:30:00Z")]
        {
            assert_eq!(date("date", text, &berlin).unwrap().timestamp().to_string(), expected);
        }
    }

    #[test]
    fn zones_are_names_or_offsets() {
        for good in ["UTC", "Africa/Kigali", "America/New_York", "+02:00", "europe/berlin"] {
            assert!(zone(good).is_ok(), "{good}");
        }
        for bad in ["", "Mars/Olympus", "../../etc/passwd", "CEST+"] {
            assert!(zone(bad).is_err(), "{bad}");
        }
    }
}
