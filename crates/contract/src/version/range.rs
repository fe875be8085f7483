//! Version ranges as npm writes them: `^1.2`, `~1.2.3`, `1.x`, `>=1.2 <2 || 3.0.0`, `1.2 - 2.3`. (REG-004, REG-006)
//!
//! A range is a list of alternatives; an alternative is a list of comparators that must all hold. That is all that is
//! kept: the sugar is gone after parsing, so that matching, printing and comparing ranges have one form to deal with.
//!
//! Invariants
//! - RNG-1: an alternative without comparators matches everything, and then it is the only alternative.
//! - RNG-2: `parse(range.to_string())` with the same [`Prereleases`] gives the same range.
//!
//! Not here: reading the text (`grammar`), set questions between two ranges (`algebra`), npm's loose mode (what it
//! guesses at, we refuse).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{TextVisitor, VERSION_NUMBER_MAX, Version, grammar};

/// Longest range text in bytes.
pub(super) const RANGE_BYTES_MAX: usize = 1024;
/// Most comparators in one range; bounds the work of comparing two ranges.
pub(super) const RANGE_COMPARATORS_MAX: usize = 64;

/// Which pre-releases a range lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Prereleases {
    /// Only those of a version that the range itself names with a pre-release tag: `^1.2.3-rc.1` takes `1.2.3-rc.2`,
    /// but not `1.2.4-rc.1`. npm's default, and X-20: pre-releases only on request.
    #[default]
    OnRequest,
    /// All that lie between the bounds.
    Always,
}

/// Why a text is not a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Longer than we care to read.
    #[error("a version range has at most {RANGE_BYTES_MAX} characters, this one has {bytes}")]
    TooLong { bytes: usize },
    /// More comparators than we care to keep.
    #[error("a version range has at most {RANGE_COMPARATORS_MAX} comparators")]
    TooMany,
    /// A number of the range, or the bound that follows from it, is too large.
    #[error("`{word}` in the version range needs a number above {VERSION_NUMBER_MAX}")]
    NumberTooLarge { word: String },
    /// A number behind a wildcard, which could only mean something other than it says.
    #[error("`{word}` in the version range has a number after a wildcard")]
    NumberAfterWildcard { word: String },
    /// Not a comparator.
    #[error("`{word}` is not part of a version range; write for example `^1.2.0`, `~1.2`, `1.x` or `>=1.2.0 <2.0.0`")]
    Malformed { word: String },
}

/// A set of versions in npm's notation.
///
/// ```
/// use gantry_contract::version::{Version, VersionRange};
/// let range: VersionRange = "^1.2 || 3.0.0".parse().unwrap();
/// assert!(range.matches(&Version::new(1, 9, 0)));
/// assert!(!range.matches(&Version::new(2, 0, 0)));
/// assert_eq!(range.to_string(), ">=1.2.0 <2.0.0-0||3.0.0");
/// assert!("^1.4".parse::<VersionRange>().unwrap().is_subset_of(&range));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VersionRange {
    pub(super) alternatives: Vec<Vec<Comparator>>,
    pub(super) prereleases: Prereleases,
}

/// One condition: an operator and the version it compares with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Comparator {
    pub(super) operator: Operator,
    pub(super) version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
}

// ---------------------------------------------------------------------------------------------------- VersionRange

impl VersionRange {
    /// Reads a range with npm's default rule for pre-releases.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        Self::parse_with(text, Prereleases::OnRequest)
    }

    /// Reads a range. The choice also moves bounds: with [`Prereleases::Always`], `1.x` begins at `1.0.0-0`.
    pub fn parse_with(text: &str, prereleases: Prereleases) -> Result<Self, RangeError> {
        Ok(Self { alternatives: grammar::alternatives(text, prereleases)?, prereleases })
    }

    /// Is `version` in the range?
    pub fn matches(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|set| {
            set.iter().all(|comparator| comparator.holds(version))
                && (!version.is_prerelease() || self.lets_in(set, version))
        })
    }

    /// The one version this range consists of, if it is an exact pin such as `=1.2.3`.
    pub fn as_exact(&self) -> Option<&Version> {
        match self.alternatives.as_slice() {
            [set] => match set.as_slice() {
                [Comparator { operator: Operator::Equal, version }] => Some(version),
                _ => None,
            },
            _ => None,
        }
    }

    /// Does the whole range lie below `version`? npm's `gtr`, with its view that a range without an upper bound never
    /// does, and that a pre-release which was not asked for is outside on both sides of an open range.
    pub fn is_below(&self, version: &Version) -> bool {
        self.lies_to_one_side(version, Side::Below)
    }

    /// Does the whole range lie above `version`? npm's `ltr`; see [`VersionRange::is_below`].
    pub fn is_above(&self, version: &Version) -> bool {
        self.lies_to_one_side(version, Side::Above)
    }

    /// The pre-release rule for one alternative.
    fn lets_in(&self, set: &[Comparator], version: &Version) -> bool {
        match self.prereleases {
            Prereleases::Always => true,
            Prereleases::OnRequest => set.iter().any(|comparator| {
                comparator.version.is_prerelease() && comparator.version.numbers() == version.numbers()
            }),
        }
    }

    fn lies_to_one_side(&self, version: &Version, side: Side) -> bool {
        !self.matches(version) && self.alternatives.iter().all(|set| side.holds(set, version))
    }
}

/// On which side of a version a range is sought.
#[derive(Clone, Copy)]
enum Side {
    Below,
    Above,
}

impl Side {
    /// Does this alternative lie on this side of `version`, given that it does not match it?
    fn holds(self, set: &[Comparator], version: &Version) -> bool {
        let everything = [Comparator { operator: Operator::GreaterOrEqual, version: Version::new(0, 0, 0) }];
        let set = if set.is_empty() { &everything } else { set };
        // For `Above` all comparisons are mirrored. On a tie the first comparator counts, on both ends.
        let ordered = |left: &Version, right: &Version| match self {
            Self::Below => left.cmp(right),
            Self::Above => right.cmp(left),
        };
        let pick = |wanted: std::cmp::Ordering| {
            set.iter().reduce(|best, next| if ordered(&next.version, &best.version) == wanted { next } else { best })
        };
        let (Some(far), Some(near)) = (pick(std::cmp::Ordering::Greater), pick(std::cmp::Ordering::Less)) else {
            return false;
        };
        let (open, open_or_equal) = match self {
            Self::Below => (Operator::Greater, Operator::GreaterOrEqual),
            Self::Above => (Operator::Less, Operator::LessOrEqual),
        };
        if far.operator == open || far.operator == open_or_equal {
            return false;
        }
        let against_near = ordered(version, &near.version);
        if near.operator == Operator::Equal || near.operator == open {
            against_near.is_gt()
        } else if near.operator == open_or_equal {
            against_near.is_ge()
        } else {
            true
        }
    }
}

impl fmt::Display for VersionRange {
    /// npm's canonical form: `>=1.2.0 <2.0.0-0||3.0.0`, and `*` for everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, set) in self.alternatives.iter().enumerate() {
            if at > 0 {
                f.write_str("||")?;
            }
            if set.is_empty() {
                f.write_str("*")?;
            }
            for (at, comparator) in set.iter().enumerate() {
                if at > 0 {
                    f.write_str(" ")?;
                }
                write!(f, "{comparator}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for VersionRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for VersionRange {
    /// Writes the canonical form. [`Prereleases`] is a choice of the reader and is not written.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VersionRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor { expected: "a version range such as ^1.2.0", parse: Self::parse })
    }
}

impl JsonSchema for VersionRange {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VersionRange".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A version range in npm's notation",
            "examples": ["^1.2.0", "~1.2", "1.x", ">=1.2.0 <2.0.0 || 3.0.0"],
            "maxLength": RANGE_BYTES_MAX,
        })
    }
}

// ------------------------------------------------------------------------------------------------------ Comparator

impl Comparator {
    /// Does `version` fulfil this condition by precedence alone?
    fn holds(&self, version: &Version) -> bool {
        let order = version.cmp(&self.version);
        match self.operator {
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterOrEqual => order.is_ge(),
            Operator::Equal => order.is_eq(),
        }
    }
}

impl fmt::Display for Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.operator {
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::Equal => "",
        };
        write!(f, "{operator}{}", self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_pins_are_recognised() {
        for (text, expected) in
            [("=1.2.3", Some("1.2.3")), ("v1.2.3-a", Some("1.2.3-a")), ("1.2.x", None), ("1.2.3 || 2", None)]
        {
            let range = VersionRange::parse(text).unwrap();
            assert_eq!(range.as_exact().map(ToString::to_string).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn json_is_the_canonical_string() {
        let range: VersionRange = serde_json::from_str("\"^1.2\"").unwrap();
        assert_eq!(serde_json::to_string(&range).unwrap(), "\">=1.2.0 <2.0.0-0\"");
        let refused = serde_json::from_str::<VersionRange>("\"newest\"").unwrap_err().to_string();
        assert!(refused.starts_with("`newest` is not part of a version range; write for example"), "{refused}");
    }

    #[test]
    fn a_range_beside_a_version_is_above_or_below_it() {
        for (range, version, below, above) in [
            ("^1.2.3", "2.0.0", true, false),
            ("^1.2.3", "1.2.2", false, true),
            ("^1.2.3", "1.9.0", false, false),
            ("<1.0.0 || >2.0.0", "1.5.0", false, false),
            ("*", "1.0.0-a", false, true),
        ] {
            let (range, version) = (VersionRange::parse(range).unwrap(), Version::parse(version).unwrap());
            assert_eq!((range.is_below(&version), range.is_above(&version)), (below, above), "{range} {version}");
        }
    }
}
