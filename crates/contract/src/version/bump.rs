//! The next version: what `1.2.3` becomes when its major, minor, patch or pre-release part is raised.
//!
//! Follows npm's `inc` and `truncate`, because that is what tool authors know. Raising a pre-release to the release it
//! announces counts as the step: `1.2.0-rc.1` raised by minor is `1.2.0`, not `1.3.0`.
//!
//! Not here: *which* part must be raised for a changed schema (`compat`).

use std::str::FromStr;

use super::{VERSION_NUMBER_MAX, Version, shown};

/// Which step to take. The `Pre…` steps go to a pre-release of the version the plain step would give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionBump {
    Major,
    Minor,
    Patch,
    PreMajor,
    PreMinor,
    PrePatch,
    /// The next pre-release: of the same version when there is one already, else of the next patch.
    PreRelease,
    /// From a pre-release to the release it announces.
    Release,
}

/// The number behind a pre-release identifier when it is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstNumber {
    /// `1.2.4-beta.0`
    #[default]
    Zero,
    /// `1.2.4-beta.1`
    One,
    /// `1.2.4-beta`
    Absent,
}

/// Up to where [`Version::truncate`] keeps numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionPart {
    Major,
    Minor,
    Patch,
}

/// Why there is no such next version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BumpError {
    /// The name of the step is unknown.
    #[error("`{given}` is not one of major, minor, patch, premajor, preminor, prepatch, prerelease, release")]
    UnknownStep { given: String },
    /// The identifier could not stand in a version.
    #[error("`{given}` is not a pre-release identifier: use letters, digits, hyphens and dots")]
    Identifier { given: String },
    /// Without identifier and number a pre-release would have no tag at all.
    #[error("a pre-release without a number needs an identifier")]
    NoTag,
    /// There is no number to raise and none may be added.
    #[error("version `{version}` has this identifier already and no number to raise")]
    NothingToRaise { version: Version },
    /// Only a pre-release can be released.
    #[error("version `{version}` is a release already")]
    NotPreRelease { version: Version },
    /// A number would pass 2^53 − 1.
    #[error("version `{version}` has no successor: a number would be above {VERSION_NUMBER_MAX}")]
    NumberTooLarge { version: Version },
}

impl FromStr for VersionBump {
    type Err = BumpError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "major" => Self::Major,
            "minor" => Self::Minor,
            "patch" => Self::Patch,
            "premajor" => Self::PreMajor,
            "preminor" => Self::PreMinor,
            "prepatch" => Self::PrePatch,
            "prerelease" => Self::PreRelease,
            "release" => Self::Release,
            _ => return Err(BumpError::UnknownStep { given: shown(text) }),
        })
    }
}

impl Version {
    /// The version one step on, without build metadata. `identifier` and `first` matter to the `Pre…` steps only.
    ///
    /// ```
    /// use gantry_contract::version::{VersionBump, FirstNumber, Version};
    /// let next = Version::new(1, 2, 3).bump(VersionBump::PreMinor, Some("beta"), FirstNumber::Zero).unwrap();
    /// assert_eq!(next.to_string(), "1.3.0-beta.0");
    /// ```
    pub fn bump(&self, step: VersionBump, identifier: Option<&str>, first: FirstNumber) -> Result<Self, BumpError> {
        let [major, minor, patch] = self.numbers();
        let announced = self.is_prerelease();
        let release = |numbers| self.next(numbers, &[]);
        match step {
            VersionBump::Major if announced && minor == 0 && patch == 0 => release([major, 0, 0]),
            VersionBump::Major => release([major + 1, 0, 0]),
            VersionBump::Minor if announced && patch == 0 => release([major, minor, 0]),
            VersionBump::Minor => release([major, minor + 1, 0]),
            VersionBump::Patch if announced => release([major, minor, patch]),
            VersionBump::Patch => release([major, minor, patch + 1]),
            VersionBump::Release if announced => release([major, minor, patch]),
            VersionBump::Release => Err(BumpError::NotPreRelease { version: self.clone() }),
            VersionBump::PreMajor => self.next([major + 1, 0, 0], &self.next_tag(&[], identifier, first)?),
            VersionBump::PreMinor => self.next([major, minor + 1, 0], &self.next_tag(&[], identifier, first)?),
            VersionBump::PreRelease if announced => {
                let tag: Vec<&str> = self.prerelease().split('.').collect();
                self.next([major, minor, patch], &self.next_tag(&tag, identifier, first)?)
            }
            VersionBump::PrePatch | VersionBump::PreRelease => {
                self.next([major, minor, patch + 1], &self.next_tag(&[], identifier, first)?)
            }
        }
    }

    /// The release with everything behind `part` set to zero; the pre-release tag and build metadata go too.
    pub fn truncate(&self, part: VersionPart) -> Self {
        let [major, minor, patch] = self.numbers();
        match part {
            VersionPart::Major => Self::new(major, 0, 0),
            VersionPart::Minor => Self::new(major, minor, 0),
            VersionPart::Patch => Self::new(major, minor, patch),
        }
    }

    /// Checks the parts of a successor and puts them together.
    fn next(&self, numbers: [u64; 3], tag: &[String]) -> Result<Self, BumpError> {
        let tag = tag.join(".");
        let pre = semver::Prerelease::new(&tag).map_err(|_| BumpError::Identifier { given: shown(&tag) })?;
        Self::from_parts(numbers, pre).ok_or_else(|| BumpError::NumberTooLarge { version: self.clone() })
    }

    /// The pre-release tag that follows `tag` (empty: the first one).
    fn next_tag(&self, tag: &[&str], identifier: Option<&str>, first: FirstNumber) -> Result<Vec<String>, BumpError> {
        let identifier = identifier.filter(|text| !text.is_empty());
        if let Some(given) = identifier
            && semver::Prerelease::new(given).is_err()
        {
            return Err(BumpError::Identifier { given: shown(given) });
        }
        if identifier.is_none() && first == FirstNumber::Absent {
            return Err(BumpError::NoTag);
        }
        let number = if first == FirstNumber::One { "1" } else { "0" };

        // Without regard to the identifier: raise the last number, or add one.
        let mut raised: Vec<String> = tag.iter().map(|&part| part.to_owned()).collect();
        let last_number =
            raised.iter_mut().rev().find_map(|part| small_number(part).map(|current| (part, current + 1)));
        match last_number {
            Some((part, next)) => *part = next.to_string(),
            None if !tag.is_empty() && first == FirstNumber::Absent && identifier == Some(tag.join(".").as_str()) => {
                return Err(BumpError::NothingToRaise { version: self.clone() });
            }
            None => raised.push(number.to_owned()),
        }

        // With an identifier, the raised tag stands only if it has the shape `identifier.<number>…`.
        let Some(identifier) = identifier else { return Ok(raised) };
        let wanted: Vec<&str> = identifier.split('.').collect();
        let continues = raised.len() >= wanted.len() && raised.iter().zip(&wanted).all(|(have, want)| have == want);
        if continues && raised.get(wanted.len()).is_some_and(|part| part.bytes().all(|b| b.is_ascii_digit())) {
            return Ok(raised);
        }
        let mut fresh: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
        if first != FirstNumber::Absent {
            fresh.push(number.to_owned());
        }
        Ok(fresh)
    }
}

/// A pre-release identifier that is a number which can be raised.
fn small_number(part: &str) -> Option<u64> {
    let number: u64 = part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())??;
    (number < VERSION_NUMBER_MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lead_where_npm_leads() {
        let cases = [
            ("1.2.3", "major", None, FirstNumber::Zero, Ok("2.0.0")),
            ("2.0.0-rc.1", "major", None, FirstNumber::Zero, Ok("2.0.0")),
            ("1.2.1-rc.1", "minor", None, FirstNumber::Zero, Ok("1.3.0")),
            ("1.2.3+b", "patch", None, FirstNumber::Zero, Ok("1.2.4")),
            ("1.2.3", "prerelease", Some("beta"), FirstNumber::Absent, Ok("1.2.4-beta")),
            ("1.2.4-beta", "prerelease", Some("beta"), FirstNumber::Zero, Ok("1.2.4-beta.0")),
            ("1.2.4-beta", "prerelease", None, FirstNumber::One, Ok("1.2.4-beta.1")),
            ("1.2.4-a.b.7", "prerelease", Some("a.b"), FirstNumber::Zero, Ok("1.2.4-a.b.8")),
            ("1.2.4-beta", "prerelease", Some("beta"), FirstNumber::Absent, Err("no number to raise")),
            ("1.2.3", "prepatch", None, FirstNumber::Absent, Err("needs an identifier")),
            ("1.2.3", "prepatch", Some("a..b"), FirstNumber::Zero, Err("not a pre-release identifier")),
            ("1.2.3", "release", None, FirstNumber::Zero, Err("a release already")),
            ("1.2.9007199254740991", "patch", None, FirstNumber::Zero, Err("no successor")),
            ("1.2.3", "sideways", None, FirstNumber::Zero, Err("not one of major")),
        ];
        for (from, step, identifier, first, expected) in cases {
            let version = Version::parse(from).unwrap();
            let found = step.parse().and_then(|step| version.bump(step, identifier, first));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected, "{from} {step}"),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{from} {step}: {error}"),
                (found, expected) => panic!("{from} {step}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
