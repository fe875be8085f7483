//! Saturating casts between whole numbers: what is too large becomes the largest number, what is too small the smallest.
//!
//! For counts, sizes and times at the edges of the product (columns of a database, headers, metrics), where a number that does not fit
//! is beyond every bound that is checked later, and wrapping would put it within. Where it is not, `TryFrom` says so.

/// A number that can be had from every `T`, the nearest one if need be.
///
/// ```
/// use gantry_base::SaturatingFrom as _;
/// assert_eq!(u32::saturating_from(5_u64), 5);
/// assert_eq!(u32::saturating_from(u64::MAX), u32::MAX);
/// assert_eq!(u64::saturating_from(-1_i64), 0);
/// ```
pub trait SaturatingFrom<T> {
    /// The nearest number of this type.
    fn saturating_from(number: T) -> Self;
}

macro_rules! saturating {
    ($($from:ty => $($to:ty),+;)+) => {$($(
        impl SaturatingFrom<$from> for $to {
            fn saturating_from(number: $from) -> Self {
                Self::try_from(number).unwrap_or(if number > 0 { Self::MAX } else { Self::MIN })
            }
        }
    )+)+};
}

saturating! {
    u128 => u64, u32, u16, u8, usize, i64, i32;
    u64 => u32, u16, u8, usize, i64, i32;
    usize => u64, u32, u16, u8, i64, i32;
    u32 => u16, u8, usize, i32;
    u16 => u8;
    i128 => u64, u32, usize, i64, i32;
    i64 => u64, u32, u16, u8, usize, i32, u128;
    isize => usize, u64, u32;
    i32 => u64, u32, u16, u8, usize;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_does_not_fit_becomes_the_nearest_number() {
        assert_eq!(u64::saturating_from(u128::MAX), u64::MAX);
        assert_eq!(i64::saturating_from(u64::MAX), i64::MAX);
        assert_eq!(usize::saturating_from(-7_i64), 0);
        assert_eq!(i64::saturating_from(i128::MIN), i64::MIN);
        assert_eq!(u8::saturating_from(256_u16), u8::MAX);
    }

    proptest! {
        #[test]
        fn what_fits_stays_what_it_is(number in any::<u32>()) {
            prop_assert_eq!(u32::saturating_from(u64::from(number)), number);
            prop_assert_eq!(u32::saturating_from(i64::from(number)), number);
        }

        #[test]
        fn the_nearest_number_is_between_the_bounds(number in any::<i64>()) {
            prop_assert_eq!(i64::from(i32::saturating_from(number)), number.clamp(i32::MIN.into(), i32::MAX.into()));
        }
    }
}
