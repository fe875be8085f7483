//! Versions of tools: SemVer 2.0.0 numbers, npm-style ranges over them, and which version a caller gets.
//! (MAN-004, REG-004…008, X-20)
//!
//! [`Version`] is a newtype over `semver::Version`, because two of that type's choices do not fit here: it orders by
//! build metadata, and its ranges are Cargo's, not npm's. Ranges are therefore our own ([`VersionRange`]).
//!
//! Invariants
//! - VER-1: `Eq`, `Ord` and `Hash` of [`Version`] all ignore build metadata. `1.0.0+a` and `1.0.0+b` have the same
//!   precedence, so no rule could choose between them: they are one version and cannot both be registered.
//! - VER-2: every number is at most 2^53 − 1 and every version that is read at most 256 bytes long, as npm has it.
//!
//! Not here: what a new version of a schema must be numbered (`compat`), which versions exist and in which state they
//! are (the registry hands them to [`resolve`]).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

mod algebra;
mod bump;
mod grammar;
mod partial;
mod range;
mod spec;

pub use bump::{BumpError, FirstNumber, VersionBump, VersionPart};
pub use range::{Prereleases, RangeError, VersionRange};
pub use spec::{SpecError, VersionAvailability, VersionResolution, VersionSpec, resolve};

/// Longest version text in bytes, build metadata included.
pub const VERSION_BYTES_MAX: usize = 256;
/// Largest major, minor or patch number: 2^53 − 1, the last integer that every JSON reader keeps exactly.
pub const VERSION_NUMBER_MAX: u64 = 9_007_199_254_740_991;

/// Why a text is not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Longer than [`VERSION_BYTES_MAX`].
    #[error("a version has at most {VERSION_BYTES_MAX} characters, this one has {bytes}")]
    TooLong { bytes: usize },
    /// Larger than [`VERSION_NUMBER_MAX`].
    #[error("version `{given}` has a number above {VERSION_NUMBER_MAX}")]
    NumberTooLarge { given: String },
    /// Not the grammar of SemVer 2.0.0.
    #[error("version `{given}` is not MAJOR.MINOR.PATCH with optional -prerelease and +build: {problem}")]
    Malformed { given: String, problem: String },
}

/// One SemVer 2.0.0 version, such as `1.4.0` or `2.0.0-rc.1+linux`.
///
/// Compared by SemVer precedence; build metadata is kept and shown, but takes no part in `Eq`, `Ord` or `Hash` (VER-1).
///
/// ```
/// use gantry_contract::version::Version;
/// let candidate: Version = "2.0.0-rc.1+linux".parse().unwrap();
/// assert!(candidate < Version::new(2, 0, 0));
/// assert_eq!(candidate, "2.0.0-rc.1+macos".parse().unwrap());
/// assert_eq!(candidate.to_string(), "2.0.0-rc.1+linux");
/// assert!("2.0".parse::<Version>().is_err());
/// ```
#[derive(Debug, Clone)]
pub struct Version(semver::Version);

impl Version {
    /// A release without pre-release tag or build metadata. Numbers above [`VERSION_NUMBER_MAX`] are cut to it.
    pub fn new(major: u64, minor: u64, patch: u64) -> Self {
        let cut = |number: u64| number.min(VERSION_NUMBER_MAX);
        Self(semver::Version::new(cut(major), cut(minor), cut(patch)))
    }

    /// Reads strict SemVer 2.0.0: no `v`, no spaces, no missing parts. The way for manifests and everything stored.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        if text.len() > VERSION_BYTES_MAX {
            return Err(VersionError::TooLong { bytes: text.len() });
        }
        let version = semver::Version::parse(text)
            .map_err(|error| VersionError::Malformed { given: shown(text), problem: error.to_string() })?;
        if [version.major, version.minor, version.patch].into_iter().any(|number| number > VERSION_NUMBER_MAX) {
            return Err(VersionError::NumberTooLarge { given: shown(text) });
        }
        Ok(Self(version))
    }

    /// Reads what npm takes for a version in strict mode: SemVer with white space around it and one `v` before it.
    /// The way for what callers type; the result prints without either.
    pub fn parse_npm(text: &str) -> Result<Self, VersionError> {
        if text.len() > VERSION_BYTES_MAX {
            return Err(VersionError::TooLong { bytes: text.len() });
        }
        let trimmed = text.trim();
        Self::parse(trimmed.strip_prefix('v').unwrap_or(trimmed))
    }

    /// The first number: raised when callers must change.
    pub fn major(&self) -> u64 {
        self.0.major
    }

    /// The second number: raised when something was added.
    pub fn minor(&self) -> u64 {
        self.0.minor
    }

    /// The third number: raised when something was repaired.
    pub fn patch(&self) -> u64 {
        self.0.patch
    }

    /// The part after `-`, empty for a release.
    pub fn prerelease(&self) -> &str {
        self.0.pre.as_str()
    }

    /// The part after `+`, empty when there is none.
    pub fn build(&self) -> &str {
        self.0.build.as_str()
    }

    /// Has this version a pre-release tag?
    pub fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }

    /// The same version without build metadata.
    pub fn without_build(&self) -> Self {
        Self(semver::Version { build: semver::BuildMetadata::EMPTY, ..self.0.clone() })
    }

    /// Major, minor and patch: the tuple npm's pre-release rule compares.
    fn numbers(&self) -> [u64; 3] {
        [self.0.major, self.0.minor, self.0.patch]
    }

    /// Puts a version together from checked parts; `None` when a number is too large.
    fn from_parts([major, minor, patch]: [u64; 3], pre: semver::Prerelease) -> Option<Self> {
        let fits = [major, minor, patch].into_iter().all(|number| number <= VERSION_NUMBER_MAX);
        fits.then(|| Self(semver::Version { major, minor, patch, pre, build: semver::BuildMetadata::EMPTY }))
    }

    /// `major.minor.patch-0`, the lowest version with these numbers.
    fn lowest_prerelease(numbers: [u64; 3]) -> Option<Self> {
        Self::from_parts(numbers, semver::Prerelease::new("0").ok()?)
    }
}

// ------------------------------------------------------------------------------------------------- order and text

// INVARIANT: VER-1. The three impls below must ignore the same part.
impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.numbers() == other.numbers() && self.0.pre == other.0.pre
    }
}

impl Eq for Version {}

impl Hash for Version {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.numbers().hash(state);
        self.0.pre.hash(state);
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp_precedence(&other.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor { expected: "a version such as 1.4.0", parse: Self::parse })
    }
}

impl JsonSchema for Version {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // The regular expression that semver.org recommends, without its named groups.
        schemars::json_schema!({
            "type": "string",
            "description": "A SemVer 2.0.0 version",
            "examples": ["1.4.0", "2.0.0-rc.1"],
            "maxLength": VERSION_BYTES_MAX,
            "pattern": r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$",
        })
    }
}

/// Cuts a refused text to something that fits an error message.
fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    if text.chars().count() > SHOWN_CHARS_MAX {
        shown.push('…');
    }
    shown
}

/// Reads a string and hands it to `parse`, so that versions, ranges and specs share one deserializer.
struct TextVisitor<T, E> {
    expected: &'static str,
    parse: fn(&str) -> Result<T, E>,
}

impl<T, E: fmt::Display> de::Visitor<'_> for TextVisitor<T, E> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<Fault: de::Error>(self, text: &str) -> Result<T, Fault> {
        (self.parse)(text).map_err(Fault::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_metadata_is_shown_but_not_compared() {
        let (left, right) = (Version::parse("1.0.0+a").unwrap(), Version::parse("1.0.0+b").unwrap());
        assert_eq!(left, right);
        assert_eq!(left.cmp(&right), Ordering::Equal);
        assert_eq!(std::collections::HashSet::from([left.clone(), right]).len(), 1);
        assert_eq!((left.to_string().as_str(), left.without_build().to_string().as_str()), ("1.0.0+a", "1.0.0"));
    }

    #[test]
    fn strict_reading_refuses_what_semver_does_not_know() {
        let long = format!("1.0.0-{}", "a".repeat(VERSION_BYTES_MAX));
        for text in ["", "1", "1.2", "v1.2.3", " 1.2.3", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "1.2.3-a..b", &long]
        {
            assert!(Version::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            Version::parse("0.0.9007199254740992"),
            Err(VersionError::NumberTooLarge { given: "0.0.9007199254740992".into() })
        );
        for text in ["1.2.3-Upper.x-y", "1.2.3--", "1.2.3+001", "0.0.9007199254740991"] {
            assert_eq!(Version::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn npm_reading_takes_spaces_and_one_v() {
        assert_eq!(Version::parse_npm("  v1.2.3\t").unwrap().to_string(), "1.2.3");
        for text in ["vv1.2.3", "=1.2.3", "v 1.2.3", "V1.2.3"] {
            assert!(Version::parse_npm(text).is_err(), "{text}");
        }
    }

    #[test]
    fn json_is_the_plain_string() {
        let version: Version = serde_json::from_str("\"1.2.3-a+b\"").unwrap();
        assert_eq!(serde_json::to_string(&version).unwrap(), "\"1.2.3-a+b\"");
        let refused = serde_json::from_str::<Version>("\"1.2\"").unwrap_err().to_string();
        assert!(refused.starts_with("version `1.2` is not MAJOR.MINOR.PATCH"), "{refused}");
        assert!(serde_json::from_str::<Version>("12").is_err());
    }
}
