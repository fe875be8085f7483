//! Spans of time as people write and read them: `1h`, `in 59 minutes`, `2 days ago`.

/// Seconds from `90`, `90s`, `15m`, `1h`, `7d`.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a span of time: write for example 90s, 15m, 1h or 7d");
    let (digits, factor) = match text.char_indices().last() {
        Some((at, unit @ ('s' | 'm' | 'h' | 'd'))) => {
            let factor = match unit {
                's' => 1,
                'm' => 60,
                'h' => 3_600,
                _ => 86_400,
            };
            (text.get(..at).unwrap_or_default(), factor)
        }
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// A moment so many seconds from now, in words.
pub(crate) fn from_now(seconds: i64) -> String {
    let span = seconds.unsigned_abs();
    let (number, unit) = match span {
        0..120 => (span, "second"),
        120..7_200 => (span / 60, "minute"),
        7_200..172_800 => (span / 3_600, "hour"),
        _ => (span / 86_400, "day"),
    };
    let plural = if number == 1 { "" } else { "s" };
    if seconds < 0 { format!("{number} {unit}{plural} ago") } else { format!("in {number} {unit}{plural}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_unit() {
        for (text, expected) in [
            ("90", Some(90)),
            ("90s", Some(90)),
            ("15m", Some(900)),
            ("1h", Some(3_600)),
            ("7d", Some(604_800)),
            ("", None),
            ("h", None),
            ("1w", None),
            ("-1h", None),
            ("1.5h", None),
            ("ü", None),
            ("99999999999999999999d", None),
            ("9999999999999999d", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn moments_are_told_in_the_largest_fitting_unit() {
        for (given, expected) in [
            (0, "in 0 seconds"),
            (-1, "1 second ago"),
            (3_599, "in 59 minutes"),
            (7_200, "in 2 hours"),
            (-200_000, "2 days ago"),
            (i64::MIN, "106751991167300 days ago"),
        ] {
            assert_eq!(from_now(given), expected);
        }
    }
}
