//! How many of the traces that begin here are recorded.
//!
//! Decided by the trace id, so that servers with the same ratio choose the same traces, and a job that goes on later is
//! recorded if the call that submitted it was.

use contract::ids::TraceId;

/// A share between none and all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRatio(f64);

/// Not a share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number from 0 to 1")]
pub struct SampleRatioError(String);

impl SampleRatio {
    /// Every trace.
    pub const ALL: Self = Self(1.0);

    /// Is this trace among those that are recorded?
    pub(super) fn takes(self, trace: TraceId) -> bool {
        let [.., a, b, c, d, e, f, g] = trace.to_bytes();
        // 56 bits of it; 53 would fit exactly, and nobody sees the difference.
        let number = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        (number as f64) < self.0 * 2f64.powi(56)
    }
}

impl std::str::FromStr for SampleRatio {
    type Err = SampleRatioError;
    fn from_str(text: &str) -> Result<Self, SampleRatioError> {
        let number = text.trim().parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
        number.map(Self).ok_or_else(|| SampleRatioError(text.chars().filter(|c| !c.is_control()).take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_takes_about_its_share_and_its_ends_take_all_and_none() {
        // A fixed walk over ids that are spread evenly.
        let ids = (0..10_000u64).map(|n| {
            let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            let mut bytes = [1; 16];
            bytes[8..].copy_from_slice(&spread);
            TraceId::from_bytes(bytes)
        });
        for (ratio, least, most) in [("0", 0, 0), ("1", 10_000, 10_000), ("0.1", 900, 1_100), (" 0.5 ", 4_800, 5_200)] {
            let ratio: SampleRatio = ratio.parse().unwrap();
            let taken = ids.clone().filter(|id| ratio.takes(*id)).count();
            assert!((least..=most).contains(&taken), "{ratio:?}: {taken}");
        }
        for bad in ["", "2", "-0.1", "NaN", "many"] {
            assert!(bad.parse::<SampleRatio>().is_err(), "{bad}");
        }
    }
}
