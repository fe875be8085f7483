//! Time. The kernel never asks the machine for it, so tests can hold it still and step it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use base::SaturatingFrom as _;

/// Milliseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// This instant plus a span; saturates at the end of time.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::saturating_from(span.as_millis())))
    }

    /// The span from `earlier` to this instant; zero if it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::saturating_from(self.0.saturating_sub(earlier.0)))
    }
}

impl fmt::Display for UnixMillis {
    /// RFC 3339 in UTC with milliseconds, the one form of time on the wire and in records (STORE-014). Three of these are
    /// written for every call, so the years people live in are written by hand and the rest by the calendar library.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ThisEra::of(*self) {
            Some(text) => f.write_str(text.as_str()),
            None => {
                let stamp = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
                write!(f, "{stamp:.3}")
            }
        }
    }
}

/// `2027-01-15T08:00:00.000Z`: times from 1970 to 9999 have this one width.
struct ThisEra([u8; 24]);

impl ThisEra {
    fn of(time: UnixMillis) -> Option<Self> {
        let millis = u64::try_from(time.0).ok().filter(|_| time.0 < jiff::Timestamp::MAX.as_second() * 1000)?;
        let (days, of_day) = (millis / 86_400_000, millis % 86_400_000);
        let (year, month, day) = civil(days);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let fields = [
            (0, 4, year),
            (5, 2, month),
            (8, 2, day),
            (11, 2, of_day / 3_600_000),
            (14, 2, of_day / 60_000 % 60),
            (17, 2, of_day / 1000 % 60),
            (20, 3, of_day % 1000),
        ];
        for (at, digits, value) in fields {
            let mut rest = value;
            for slot in text.get_mut(at..at + digits)?.iter_mut().rev() {
                *slot = b'0' + u8::try_from(rest % 10).ok()?;
                rest /= 10;
            }
        }
        Some(Self(text))
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The Gregorian date of a day counted from 1970-01-01. Years are taken to begin in March, so that the leap day is the
/// last of its year and months have a regular length (153 days per five of them).
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    let days = days_since_1970 + 719_468;
    let (era, of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time, for records and expiry. May jump.
    fn now(&self) -> UnixMillis;

    /// Time since some fixed instant, for measuring spans. Never goes back.
    fn monotonic(&self) -> Duration;

    /// Completes once `span` has passed on the monotonic clock.
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_library_writes_them() {
        let (day, last) = (86_400_000_i64, jiff::Timestamp::MAX.as_second() * 1000 - 1);
        let edges = [0, 1, 999, day - 1, day, 951_782_400_000, 951_868_799_999, 4_107_542_400_000, last];
        let steps = (0..200_000).map(|n| n * day * 14 + n * 7_919);
        let outside = [-1, -62_135_596_800_000, i64::MAX];
        for millis in edges.into_iter().chain(steps.take_while(|m| *m < last)).chain(outside) {
            let expected = match jiff::Timestamp::from_millisecond(millis) {
                Ok(stamp) => format!("{stamp:.3}"),
                Err(_) => format!("{:.3}", jiff::Timestamp::UNIX_EPOCH),
            };
            assert_eq!(UnixMillis(millis).to_string(), expected);
        }
    }
}
