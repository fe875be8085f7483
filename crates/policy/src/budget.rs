//! How much may be done with a token. Delegation may only lower it.
//!
//! What is spent with a delegated token is also spent from every budget above it, so handing on a budget twice does not
//! double it. Counting is the store's work; here is only what may be promised.

use serde::{Deserialize, Serialize};

/// A budget. Absent means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallBudget {
    /// Calls that may be run with this token and everything delegated from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
}

impl CallBudget {
    /// Is there no more in this budget than in the `outer` one?
    ///
    /// ```
    /// # use gantry_policy::CallBudget;
    /// let (ten, unlimited) = (CallBudget { calls: Some(10) }, CallBudget { calls: None });
    /// assert!(ten.within(&unlimited) && ten.within(&ten) && !unlimited.within(&ten));
    /// ```
    pub fn within(&self, outer: &Self) -> bool {
        match (self.calls, outer.calls) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(calls), Some(most)) => calls <= most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_within_another_when_it_is_no_larger() {
        for (inner, outer, expected) in [
            (None, None, true),
            (Some(5), None, true),
            (None, Some(5), false),
            (Some(5), Some(5), true),
            (Some(0), Some(5), true),
            (Some(6), Some(5), false),
            (Some(u64::MAX), Some(u64::MAX), true),
        ] {
            assert_eq!(
                CallBudget { calls: inner }.within(&CallBudget { calls: outer }),
                expected,
                "{inner:?} {outer:?}"
            );
        }
    }
}
