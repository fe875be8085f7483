//! Which version a caller asks for, and which one that is today. (REG-005…008, X-20)
//!
//! | spec | gets |
//! |---|---|
//! | `LATEST`, `latest`, empty | the highest active release; if there is none, the highest deprecated release |
//! | `1.2.3`, `v1.2.3`, `=1.2.3` | exactly that version, also when it is deprecated or past its sunset |
//! | `^1.2`, `1.x`, any range | the highest match among active and deprecated versions |
//!
//! Highest means SemVer precedence, never the date of publication. A deprecated version counts in ranges, because a
//! deprecation must not move callers to another version by itself; it warns them, which is the caller's business here.
//!
//! Invariants
//! - SPEC-1: a pre-release is found only if the spec names one (X-20), so `LATEST` never gives a pre-release, not even
//!   when nothing else is registered.
//! - SPEC-2: a removed version is never found.
//!
//! Not here: when a deprecated version becomes sunset or removed (the registry knows the dates).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{RangeError, TextVisitor, Version, VersionRange, shown};

/// A caller's wish for a version.
///
/// ```
/// use gantry_contract::version::VersionSpec;
/// assert_eq!("latest".parse(), Ok(VersionSpec::Latest));
/// assert!(matches!("=1.2.3".parse(), Ok(VersionSpec::Exact(_))));
/// assert!(matches!("1.x".parse(), Ok(VersionSpec::Range(_))));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum VersionSpec {
    /// The newest release that is not deprecated.
    #[default]
    Latest,
    /// This version and no other.
    Exact(Version),
    /// The highest version of the range.
    Range(VersionRange),
}

/// Why a text is not a version spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Neither `LATEST` nor a version nor a range.
    #[error("version `{given}` is neither LATEST nor a version nor a range: {reason}")]
    Malformed { given: String, reason: RangeError },
}

/// What the registry says of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionAvailability {
    /// In service.
    Active,
    /// In service, and announced to go.
    Deprecated,
    /// No longer offered, but those who pin it still get it.
    Sunset,
    /// Gone. Known only so that the answer can say so.
    Removed,
}

/// What a spec comes to among the registered versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionResolution<'a> {
    /// This one.
    Found(&'a Version),
    /// The pinned version, or any version at all, was never registered.
    NotRegistered,
    /// What the spec asks for was there and has been removed.
    Removed,
    /// There are versions, but none that the spec may get.
    Unsatisfiable,
}

/// Picks the version that `spec` stands for.
///
/// ```
/// use gantry_contract::version::{VersionAvailability, VersionResolution, Version, resolve};
/// let versions = [Version::new(1, 0, 0), Version::new(1, 2, 0), Version::new(2, 0, 0)];
/// let registered = versions.iter().map(|version| (version, VersionAvailability::Active));
/// assert_eq!(resolve(&"^1.0.0".parse().unwrap(), registered), VersionResolution::Found(&versions[1]));
/// ```
pub fn resolve<'a>(
    spec: &VersionSpec,
    candidates: impl IntoIterator<Item = (&'a Version, VersionAvailability)>,
) -> VersionResolution<'a> {
    let mut choice = Choice::default();
    for (version, availability) in candidates {
        let asked_for = match spec {
            VersionSpec::Latest => !version.is_prerelease(),
            VersionSpec::Exact(wanted) => version == wanted,
            VersionSpec::Range(range) => range.matches(version),
        };
        choice.any = true;
        if asked_for {
            choice.take(version, availability);
        }
    }
    choice.decide(spec)
}

/// The best of each availability so far.
#[derive(Default)]
struct Choice<'a> {
    any: bool,
    active: Option<&'a Version>,
    deprecated: Option<&'a Version>,
    sunset: Option<&'a Version>,
    removed: bool,
}

impl<'a> Choice<'a> {
    fn take(&mut self, version: &'a Version, availability: VersionAvailability) {
        // `Option`'s order puts `None` first, so this is the higher of the two.
        match availability {
            VersionAvailability::Active => self.active = self.active.max(Some(version)),
            VersionAvailability::Deprecated => self.deprecated = self.deprecated.max(Some(version)),
            VersionAvailability::Sunset => self.sunset = self.sunset.max(Some(version)),
            VersionAvailability::Removed => self.removed = true,
        }
    }

    fn decide(self, spec: &VersionSpec) -> VersionResolution<'a> {
        let found = match spec {
            VersionSpec::Latest => self.active.or(self.deprecated),
            VersionSpec::Exact(_) => self.active.or(self.deprecated).or(self.sunset),
            VersionSpec::Range(_) => self.active.max(self.deprecated),
        };
        match (found, spec) {
            (Some(version), _) => VersionResolution::Found(version),
            (None, _) if self.removed && self.sunset.is_none() => VersionResolution::Removed,
            (None, VersionSpec::Exact(_)) => VersionResolution::NotRegistered,
            (None, VersionSpec::Latest | VersionSpec::Range(_)) if !self.any => VersionResolution::NotRegistered,
            (None, VersionSpec::Latest | VersionSpec::Range(_)) => VersionResolution::Unsatisfiable,
        }
    }
}

// ----------------------------------------------------------------------------------------------------- VersionSpec

impl VersionSpec {
    /// Reads `LATEST` in any case, nothing at all, a version or a range. A range that is one version is that version.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.eq_ignore_ascii_case("latest") {
            return Ok(Self::Latest);
        }
        if let Ok(version) = Version::parse_npm(trimmed) {
            return Ok(Self::Exact(version));
        }
        let range =
            VersionRange::parse(trimmed).map_err(|reason| SpecError::Malformed { given: shown(trimmed), reason })?;
        Ok(range.as_exact().cloned().map_or(Self::Range(range), Self::Exact))
    }
}

impl fmt::Display for VersionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("LATEST"),
            Self::Exact(version) => version.fmt(f),
            Self::Range(range) => range.fmt(f),
        }
    }
}

impl FromStr for VersionSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for VersionSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VersionSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "LATEST, a version such as 1.4.0 or a range such as ^1.2.0";
        deserializer.deserialize_str(TextVisitor { expected, parse: Self::parse })
    }
}

impl JsonSchema for VersionSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VersionSpec".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "LATEST, a SemVer 2.0.0 version, or a version range in npm's notation",
            "examples": ["LATEST", "1.4.0", "^1.2.0", "1.x"],
            "default": "LATEST",
            "maxLength": super::range::RANGE_BYTES_MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_gets_the_version_the_table_promises() {
        use VersionAvailability::{Active, Deprecated, Removed, Sunset};
        let usual = [("1.0.0", Active), ("1.1.0", Active), ("1.2.0", Active), ("2.0.0", Active)];
        let ageing = [
            ("0.9.0", Removed),
            ("1.0.0", Sunset),
            ("1.1.0", Deprecated),
            ("1.2.0", Active),
            ("1.3.0", Deprecated),
            ("2.0.0-rc.1", Active),
        ];
        let old = [("1.0.0", Deprecated), ("1.1.0", Deprecated), ("2.0.0", Sunset)];
        let early = [("1.0.0-rc.1", Active)];
        let gone = [("1.0.0", Removed), ("1.1.0", Removed)];
        for (registered, spec, expected) in [
            // REG-006, in its own words.
            (&usual[..], "^1.0.0", "1.2.0"),
            (&usual, "~1.1.0", "1.1.0"),
            (&usual, "LATEST", "2.0.0"),
            (&usual, "1.x", "1.2.0"),
            (&usual, "1.1.0", "1.1.0"),
            (&usual, "1.1.0+build", "1.1.0"),
            (&usual, "3.x", "unsatisfiable"),
            (&usual, "3.0.0", "not registered"),
            (&ageing, "", "1.2.0"),
            (&ageing, "*", "1.3.0"),
            (&ageing, "1.0.0", "1.0.0"),
            (&ageing, "=1.0.0", "1.0.0"),
            (&ageing, "~1.0.0", "unsatisfiable"),
            (&ageing, "0.9.0", "removed"),
            (&ageing, "0.x", "removed"),
            (&ageing, "2.0.0-rc.1", "2.0.0-rc.1"),
            (&ageing, "^2.0.0-rc.0", "2.0.0-rc.1"),
            (&ageing, "^2", "unsatisfiable"),
            (&old, "latest", "1.1.0"),
            (&early, "latest", "unsatisfiable"),
            (&early, "*", "unsatisfiable"),
            (&early, ">=1.0.0-0", "1.0.0-rc.1"),
            (&gone, "LATEST", "removed"),
            (&[], "LATEST", "not registered"),
            (&[], "1.x", "not registered"),
        ] {
            let versions: Vec<(Version, VersionAvailability)> =
                registered.iter().map(|(text, state)| (text.parse().unwrap(), *state)).collect();
            let found = resolve(&spec.parse().unwrap(), versions.iter().map(|(version, state)| (version, *state)));
            let found = match found {
                VersionResolution::Found(version) => version.to_string(),
                VersionResolution::NotRegistered => "not registered".into(),
                VersionResolution::Removed => "removed".into(),
                VersionResolution::Unsatisfiable => "unsatisfiable".into(),
            };
            assert_eq!(found, expected, "{spec} in {registered:?}");
        }
    }

    #[test]
    fn text_and_json_are_the_same() {
        for (given, shown) in [
            ("\"\"", "LATEST"),
            ("\"Latest\"", "LATEST"),
            ("\" v1.2.3 \"", "1.2.3"),
            ("\"= 1.2.3\"", "1.2.3"),
            ("\"1.x\"", ">=1.0.0 <2.0.0-0"),
        ] {
            let spec: VersionSpec = serde_json::from_str(given).unwrap();
            assert_eq!(spec.to_string(), shown);
            assert_eq!(serde_json::to_value(&spec).unwrap(), shown);
            assert_eq!(shown.parse(), Ok(spec));
        }
        let refused = serde_json::from_str::<VersionSpec>("\"newest\"").unwrap_err().to_string();
        assert!(refused.starts_with("version `newest` is neither LATEST nor a version nor a range"), "{refused}");
    }
}
