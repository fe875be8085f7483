//! Milliseconds since the epoch to UTC clock and calendar, and back. Proleptic Gregorian, no leap seconds.
//!
//! Not here: time zones. Policies see UTC only, because a decision must not depend on where it is made.

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;
/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// From 0000-03-01 to the epoch.
const EPOCH_DAYS: i64 = 719_468;

/// One moment, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) millisecond: i64,
    /// 1 is Monday.
    pub(super) weekday: i64,
}

impl Moment {
    /// The moment `ms` milliseconds after the epoch.
    pub(super) fn at(ms: i64) -> Self {
        let (days, in_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
        // Years are counted from March, so that the leap day is a year's last.
        let shifted = days + EPOCH_DAYS;
        let (era, day_of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day,
            hour: in_day / HOUR_MS,
            minute: in_day % HOUR_MS / MINUTE_MS,
            second: in_day % MINUTE_MS / 1000,
            millisecond: in_day % 1000,
            weekday: (days + 3).rem_euclid(7) + 1,
        }
    }

    /// As Cedar's `datetime` reads it.
    pub(super) fn to_cedar(self) -> String {
        let Self { year, month, day, hour, minute, second, millisecond, weekday: _ } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }
}

/// The midnight that begins this day, in milliseconds after the epoch. The date must exist.
pub(super) fn midnight_ms(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * ERA_DAYS + day_of_era - EPOCH_DAYS) * DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_come_out_right() {
        for (ms, text, weekday) in [
            (0, "1970-01-01T00:00:00.000Z", 4),
            (-1, "1969-12-31T23:59:59.999Z", 3),
            (951_782_400_000, "2000-02-29T00:00:00.000Z", 2),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z", 4),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z", 1),
        ] {
            let moment = Moment::at(ms);
            assert_eq!((moment.to_cedar().as_str(), moment.weekday), (text, weekday));
        }
    }

    proptest! {
        #[test]
        fn a_date_is_the_midnight_it_came_from(days in -1_000_000_i64..1_000_000) {
            let moment = Moment::at(days * DAY_MS);
            prop_assert_eq!(midnight_ms(moment.year, moment.month, moment.day), days * DAY_MS);
        }
    }
}
