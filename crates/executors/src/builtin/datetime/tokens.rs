//! From an instant to text, by the tokens most people and models know from JavaScript libraries.
//!
//! | token | gives | token | gives |
//! |---|---|---|---|
//! | `YYYY` `YY` | 2024, 24 | `HH` `H` | 09, 9 (24 hours) |
//! | `MMMM` `MMM` | January, Jan | `hh` `h` | 09, 9 (12 hours) |
//! | `MM` `M` | 01, 1 | `mm` `m`, `ss` `s` | minutes, seconds |
//! | `DD` `D` | 05, 5 | `SSS` | milliseconds |
//! | `dddd` `ddd` | Friday, Fri | `A` `a` | AM, am |
//! | `Z` `ZZ` | +02:00, +0200 | `[text]` | text as it stands |
//!
//! Letters that are no token are refused (a lone `T` is not): `yyyy-mm-dd` would otherwise print minutes for the month
//! and nobody would notice.
//!
//! Not here: other languages for names of months and days.

use contract::error::Refusal;
use jiff::Zoned;
use jiff::civil::Weekday;

use crate::builtin::arguments::invalid;

/// Characters of a format.
const FORMAT_CHARS_MAX: usize = 200;
/// Longest first, so that the first match is the right one.
const TOKENS: [&str; 22] = [
    "YYYY", "MMMM", "dddd", "MMM", "ddd", "SSS", "YY", "MM", "DD", "HH", "hh", "mm", "ss", "ZZ", "M", "D", "H", "h",
    "m", "s", "A", "a",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Writes `date` as `format` says.
pub(super) fn format(date: &Zoned, format: &str) -> Result<String, Refusal> {
    if format.chars().count() > FORMAT_CHARS_MAX {
        return Err(invalid(format!("`format` is longer than {FORMAT_CHARS_MAX} characters"), "use a shorter format"));
    }
    let mut out = String::with_capacity(format.len() + 8);
    let mut rest = format;
    while let Some(next) = rest.chars().next() {
        if next == '[' {
            let (literal, after) = rest
                .get(1..)
                .and_then(|inner| inner.split_once(']'))
                .ok_or_else(|| invalid("`format` has a `[` that is not closed", "close literal text with `]`"))?;
            out.push_str(literal);
            rest = after;
        } else if next.is_ascii_alphabetic() {
            rest = letters(date, rest, &mut out)?;
        } else {
            out.push(next);
            rest = rest.get(next.len_utf8()..).unwrap_or_default();
        }
    }
    Ok(out)
}

/// Writes one run of the same letter, which must be a token or a lone `T`.
fn letters<'f>(date: &Zoned, rest: &'f str, out: &mut String) -> Result<&'f str, Refusal> {
    let first = rest.chars().next().unwrap_or_default();
    let length = rest.chars().take_while(|c| *c == first).count();
    let run = rest.get(..length).unwrap_or_default();
    let after = rest.get(length..).unwrap_or_default();
    match run {
        "T" => out.push('T'),
        "Z" => out.push_str(&offset(date, ":")),
        token if TOKENS.contains(&token) => out.push_str(&value(date, token)),
        other => return Err(unknown(other)),
    }
    Ok(after)
}

fn unknown(run: &str) -> Refusal {
    let shown: String = run.chars().take(20).collect();
    let meant = match run {
        "yyyy" | "yy" | "y" => "use `YYYY` for the year; ",
        "dd" | "d" => "use `DD` for the day of the month; ",
        "S" | "SS" => "use `SSS` for milliseconds; ",
        "AA" | "aa" => "use `A` for AM or PM; ",
        _ => "",
    };
    invalid(
        format!("`{shown}` in `format` is not a token"),
        format!(
            "{meant}the tokens are YYYY YY MMMM MMM MM M DD D dddd ddd HH H hh h mm m ss s SSS A a Z ZZ; put plain text into [brackets]"
        ),
    )
}

fn value(date: &Zoned, token: &str) -> String {
    let hour = date.hour();
    let hour_of_twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
    match token {
        "YYYY" => format!("{:04}", date.year()),
        "YY" => format!("{:02}", date.year() % 100),
        "MMMM" => month(date).to_owned(),
        "MMM" => short(month(date)),
        "MM" => format!("{:02}", date.month()),
        "M" => date.month().to_string(),
        "DD" => format!("{:02}", date.day()),
        "D" => date.day().to_string(),
        "dddd" => weekday(date).to_owned(),
        "ddd" => short(weekday(date)),
        "HH" => format!("{hour:02}"),
        "H" => hour.to_string(),
        "hh" => format!("{hour_of_twelve:02}"),
        "h" => hour_of_twelve.to_string(),
        "mm" => format!("{:02}", date.minute()),
        "m" => date.minute().to_string(),
        "ss" => format!("{:02}", date.second()),
        "s" => date.second().to_string(),
        "SSS" => format!("{:03}", date.millisecond()),
        "A" => if hour < 12 { "AM" } else { "PM" }.to_owned(),
        "a" => if hour < 12 { "am" } else { "pm" }.to_owned(),
        _ => offset(date, ""),
    }
}

fn month(date: &Zoned) -> &'static str {
    let index = usize::try_from(date.month()).unwrap_or(1).saturating_sub(1);
    MONTHS.get(index).copied().unwrap_or_default()
}

fn weekday(date: &Zoned) -> &'static str {
    match date.weekday() {
        Weekday::Monday => "Monday",
        Weekday::Tuesday => "Tuesday",
        Weekday::Wednesday => "Wednesday",
        Weekday::Thursday => "Thursday",
        Weekday::Friday => "Friday",
        Weekday::Saturday => "Saturday",
        Weekday::Sunday => "Sunday",
    }
}

fn short(name: &str) -> String {
    name.chars().take(3).collect()
}

fn offset(date: &Zoned, separator: &str) -> String {
    let seconds = date.offset().seconds();
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    format!("{sign}{:02}{separator}{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_gives_its_part() {
        let morning: Zoned = "2024-01-05T09:03:07.045+02:00[Africa/Kigali]".parse().unwrap();
        let night: Zoned = "2024-12-31T00:30:00-03:30[America/St_Johns]".parse().unwrap();
        for (date, written, expected) in [
            (&morning, "YYYY-MM-DD HH:mm:ss", "2024-01-05 09:03:07"),
            (&morning, "YY/M/D H:m:s.SSS", "24/1/5 9:3:7.045"),
            (&morning, "dddd ddd MMMM MMM", "Friday Fri January Jan"),
            (&morning, "YYYY-MM-DDTHH:mm:ssZ", "2024-01-05T09:03:07+02:00"),
            (&morning, "hh:mm A, h a ZZ", "09:03 AM, 9 am +0200"),
            (&night, "hh:mm A Z", "12:30 AM -03:30"),
            (&night, "[Year] YYYY [[not] – “D”", "Year 2024 [not – “31”"),
            (&night, "", ""),
        ] {
            assert_eq!(format(date, written), Ok(expected.to_owned()), "{written}");
        }
    }

    #[test]
    fn letters_that_are_no_token_are_refused() {
        let date: Zoned = "2024-01-05T09:03:07+00:00[UTC]".parse().unwrap();
        for bad in ["yyyy-mm-dd", "DDDD", "week w", "[open", "%Y", "YYYYY"] {
            assert!(format(&date, bad).is_err(), "{bad}");
        }
        assert!(format(&date, &"D ".repeat(200)).is_err());
    }
}
