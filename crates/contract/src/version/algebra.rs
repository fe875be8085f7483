//! Questions about two ranges: have they a version in common, does one lie inside the other?
//!
//! Both are answered by trying versions. What a range says about a version depends only on where the version lies
//! between the versions the range names, and on whether it is a release, a pre-release of a version that is named with
//! a pre-release tag, or another pre-release. That leaves finitely many cases; [`samples`] makes one version for each
//! case that exists, so the answers are exact, not estimates.
//!
//! npm compares bounds instead, which errs in both directions: it says that `>1.0.0 <1.0.1` meets itself, though there
//! is no such release, and that `1.x || 2.x` does not contain `>=1.0.0 <2.5.0`. An answer that narrows a delegated
//! token must not err, so it is done the longer way. The cost is bounded by `RANGE_COMPARATORS_MAX`.

use std::collections::BTreeSet;

use super::{VERSION_NUMBER_MAX, Version, VersionRange};

impl VersionRange {
    /// Is there a version in both ranges?
    pub fn intersects(&self, other: &Self) -> bool {
        samples(self, other).iter().any(|version| self.matches(version) && other.matches(version))
    }

    /// Is every version of this range also in `other`? A range that matches nothing is a subset of all.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        samples(self, other).iter().all(|version| !self.matches(version) || other.matches(version))
    }
}

/// One version for every case that the two ranges can tell apart.
fn samples(left: &VersionRange, right: &VersionRange) -> BTreeSet<Version> {
    let named: BTreeSet<&Version> = [left, right]
        .into_iter()
        .flat_map(|range| &range.alternatives)
        .flatten()
        .map(|comparator| &comparator.version)
        .collect();
    // The versions whose pre-releases may be treated differently from others.
    let tagged: BTreeSet<[u64; 3]> =
        named.iter().filter(|version| version.is_prerelease()).map(|version| version.numbers()).collect();

    let mut samples = BTreeSet::new();
    // Below all that is named.
    samples.insert(Version::new(0, 0, 0));
    samples.extend(Version::lowest_prerelease([0; 3]));
    samples.extend(first_untagged_prerelease(Some([0; 3]), &tagged));
    samples.extend(tagged.iter().filter_map(|&numbers| Version::lowest_prerelease(numbers)));
    // At each named version, and in the gap above it: the first version of every kind.
    for &version in &named {
        let next_release = if version.is_prerelease() { Some(version.numbers()) } else { following(version.numbers()) };
        samples.insert(version.clone());
        samples.extend(successor(version));
        samples.extend(next_release.map(|[major, minor, patch]| Version::new(major, minor, patch)));
        samples.extend(first_untagged_prerelease(next_release, &tagged));
    }
    samples
}

/// The version right after this one, with nothing in between.
fn successor(version: &Version) -> Option<Version> {
    if version.is_prerelease() {
        let pre = semver::Prerelease::new(&format!("{}.0", version.prerelease())).ok()?;
        Version::from_parts(version.numbers(), pre)
    } else {
        Version::lowest_prerelease(following(version.numbers())?)
    }
}

/// The lowest pre-release, from these numbers on, of a version that is not tagged.
fn first_untagged_prerelease(from: Option<[u64; 3]>, tagged: &BTreeSet<[u64; 3]>) -> Option<Version> {
    let mut numbers = from?;
    while tagged.contains(&numbers) {
        numbers = following(numbers)?;
    }
    Version::lowest_prerelease(numbers)
}

/// The numbers of the next release.
fn following([major, minor, patch]: [u64; 3]) -> Option<[u64; 3]> {
    if patch < VERSION_NUMBER_MAX {
        Some([major, minor, patch + 1])
    } else if minor < VERSION_NUMBER_MAX {
        Some([major, minor + 1, 0])
    } else {
        (major < VERSION_NUMBER_MAX).then_some([major + 1, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Prereleases;
    use super::*;

    #[test]
    fn subsets_are_told_exactly() {
        for (inner, outer, expected) in [
            ("^1.2.3", "1.x", true),
            ("1.x", "^1.2.3", false),
            ("1.2.3", "1.2.3 || 2", true),
            (">=1.0.0 <2.5.0", "1.x || 2.x", true),
            (">=1.0.0 <3.0.0", "1.x || 2.x", true),
            (">=1.0.0 <=3.0.0", "1.x || 2.x", false),
            ("<0.0.0-0", "1.2.3", true),
            (">1.0.0 <1.0.1", "9.9.9", true),
            ("*", "*", true),
            ("1.0.0-rc.1", "*", false),
            ("^1.2.3-rc.1", "^1.2.3-rc.0", true),
            ("^1.2.3-rc.1", "^1.2.3", false),
            ("^1.2.3-rc.1", "^1.2.2-rc.1", false),
            ("1.0.0 || 1.0.1", ">=1.0.0 <1.0.2", true),
            (">=1.0.0 <1.0.2", "1.0.0 || 1.0.1", true),
        ] {
            let (inner, outer) = (VersionRange::parse(inner).unwrap(), VersionRange::parse(outer).unwrap());
            assert_eq!(inner.is_subset_of(&outer), expected, "{inner} in {outer}");
        }
    }

    #[test]
    fn a_range_with_all_pre_releases_is_not_inside_one_without() {
        let all = VersionRange::parse_with("1.x", Prereleases::Always).unwrap();
        let some = VersionRange::parse("1.x").unwrap();
        assert!(some.is_subset_of(&all));
        assert!(!all.is_subset_of(&some));
        assert!(!all.is_subset_of(&VersionRange::parse("1.x || 1.0.0-0 || 1.0.1-0").unwrap()));
    }

    #[test]
    fn ranges_meet_only_in_versions_that_exist() {
        for (left, right, expected) in [
            ("1.x", ">=1.9.0", true),
            ("<=1.3.0", ">=1.3.0", true),
            ("<1.3.0", ">=1.3.0", false),
            (">1.0.0 <1.0.1", "*", false),
            ("<0.0.0", "*", false),
            ("1.0.0-rc.1", "*", false),
            ("1.0.0-rc.1", ">=0.9.0 <1.0.0-rc.2", true),
            (">1.0.0-rc.1 <1.0.0-rc.1.0", "<2.0.0-0", false),
        ] {
            let (left, right) = (VersionRange::parse(left).unwrap(), VersionRange::parse(right).unwrap());
            assert_eq!(left.intersects(&right), expected, "{left} and {right}");
            assert_eq!(right.intersects(&left), expected, "{right} and {left}");
        }
    }
}
