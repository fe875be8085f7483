//! What must hold of versions and ranges whatever they are, tried with versions small enough to meet each other.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::collections::BTreeSet;

use gantry_contract::version::{
    Prereleases, Version, VersionAvailability, VersionRange, VersionResolution, VersionSpec, resolve,
};
use proptest::prelude::*;

/// Few numbers and few tags, so that generated versions often are equal, adjacent or of the same release.
fn any_version() -> impl Strategy<Value = Version> {
    let tag = prop_oneof![
        4 => Just(""),
        1 => Just("-0"),
        1 => Just("-0.0"),
        1 => Just("-rc.1"),
        1 => Just("-rc.2"),
        1 => Just("-rc.1.0"),
    ];
    (0..3_u64, 0..3_u64, 0..3_u64, tag, prop_oneof![Just(""), Just("+b")])
        .prop_map(|(major, minor, patch, tag, build)| format!("{major}.{minor}.{patch}{tag}{build}").parse().unwrap())
}

fn any_partial() -> impl Strategy<Value = String> {
    prop_oneof![
        any_version().prop_map(|version| version.to_string()),
        any_version().prop_map(|version| format!("v{version}")),
        (0..3_u64, 0..3_u64).prop_map(|(major, minor)| format!("{major}.{minor}")),
        (0..3_u64, 0..3_u64).prop_map(|(major, minor)| format!("{major}.{minor}.x")),
        (0..3_u64).prop_map(|major| major.to_string()),
        (0..3_u64).prop_map(|major| format!("{major}.*")),
        Just("*".to_owned()),
    ]
}

fn any_set() -> impl Strategy<Value = String> {
    let sign = proptest::sample::select(vec!["", "=", "<", "<=", ">", ">=", "^", "~", "> ", ">= ", "~> ", "^ "]);
    let comparator = (sign, any_partial()).prop_map(|(sign, partial)| format!("{sign}{partial}"));
    prop_oneof![
        4 => proptest::collection::vec(comparator, 0..4).prop_map(|all| all.join(" ")),
        1 => (any_partial(), any_partial()).prop_map(|(from, to)| format!("{from} - {to}")),
    ]
}

fn any_range() -> impl Strategy<Value = VersionRange> {
    let prereleases = prop_oneof![3 => Just(Prereleases::OnRequest), 1 => Just(Prereleases::Always)];
    (proptest::collection::vec(any_set(), 1..4), prereleases)
        .prop_map(|(sets, prereleases)| VersionRange::parse_with(&sets.join(" || "), prereleases).unwrap())
}

/// Alternatives of one comparator each.
fn any_plain_range() -> impl Strategy<Value = VersionRange> {
    let sign = proptest::sample::select(vec!["", "<", "<=", ">", ">=", "^", "~"]);
    let comparator = (sign, any_partial()).prop_map(|(sign, partial)| format!("{sign}{partial}"));
    proptest::collection::vec(comparator, 1..4).prop_map(|all| VersionRange::parse(&all.join("||")).unwrap())
}

/// Every version the generators can name and the neighbours at which ranges change their mind.
fn dense_versions() -> Vec<Version> {
    let tags = ["-0", "-0.0", "-0.0.0", "-a", "-rc.1", "-rc.1.0", "-rc.1.0.0", "-rc.2", "-rc.2.0", "-z", ""];
    let numbers = (0..4).flat_map(|major| (0..4).flat_map(move |minor| (0..5).map(move |patch| (major, minor, patch))));
    numbers
        .flat_map(|(major, minor, patch)| tags.map(|tag| format!("{major}.{minor}.{patch}{tag}").parse().unwrap()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_range_survives_its_canonical_text(range in any_range(), always in any::<bool>()) {
        let prereleases = if always { Prereleases::Always } else { Prereleases::OnRequest };
        // Read once under the option that will be used again: the option moves bounds when sugar is taken off.
        let range = VersionRange::parse_with(&range.to_string(), prereleases).unwrap();
        let again = VersionRange::parse_with(&range.to_string(), prereleases).unwrap();
        prop_assert_eq!(&again, &range);
        prop_assert_eq!(again.to_string(), range.to_string());
    }

    #[test]
    fn intersection_is_what_the_versions_say(left in any_range(), right in any_range()) {
        let met = dense_versions().into_iter().find(|version| left.matches(version) && right.matches(version));
        prop_assert_eq!(left.intersects(&right), right.intersects(&left));
        prop_assert_eq!(left.intersects(&right), met.is_some(), "{} and {}: {:?}", left, right, met);
    }

    #[test]
    fn subset_is_what_the_versions_say(inner in any_range(), outer in any_range()) {
        let outside = dense_versions().into_iter().find(|version| inner.matches(version) && !outer.matches(version));
        prop_assert_eq!(inner.is_subset_of(&outer), outside.is_none(), "{} in {}: {:?}", inner, outer, outside);
        prop_assert!(inner.is_subset_of(&inner));
    }

    // Only ranges without contradictions: of those, npm's rule (which is ours) looks at the outermost bounds alone.
    #[test]
    fn a_range_beside_a_release_has_all_its_versions_there(range in any_plain_range(), version in any_version()) {
        prop_assume!(!version.is_prerelease());
        let mut matched = dense_versions().into_iter().filter(|other| range.matches(other)).peekable();
        prop_assume!(matched.peek().is_some());
        prop_assert!(!(range.is_below(&version) && range.is_above(&version)));
        if range.is_below(&version) {
            prop_assert!(matched.all(|other| other < version));
        } else if range.is_above(&version) {
            prop_assert!(matched.all(|other| other > version));
        }
    }

    #[test]
    fn a_range_resolves_to_its_highest_version(
        range in any_range(),
        registered in proptest::collection::btree_map(any_version(), 0..4_u8, 0..12),
    ) {
        let state = |number: &u8| match number {
            0 => VersionAvailability::Active,
            1 => VersionAvailability::Deprecated,
            2 => VersionAvailability::Sunset,
            _ => VersionAvailability::Removed,
        };
        let offered: BTreeSet<&Version> = registered
            .iter()
            .filter(|(version, number)| matches!(state(number), VersionAvailability::Active | VersionAvailability::Deprecated) && range.matches(version))
            .map(|(version, _)| version)
            .collect();
        let spec = VersionSpec::Range(range.clone());
        let forwards = resolve(&spec, registered.iter().map(|(version, number)| (version, state(number))));
        let backwards = resolve(&spec, registered.iter().rev().map(|(version, number)| (version, state(number))));
        prop_assert_eq!(forwards, backwards);
        match offered.last() {
            Some(&highest) => prop_assert_eq!(forwards, VersionResolution::Found(highest)),
            None => prop_assert!(!matches!(forwards, VersionResolution::Found(_))),
        }
    }

    #[test]
    fn latest_is_a_release_in_service(registered in proptest::collection::btree_map(any_version(), 0..2_u8, 0..12)) {
        let state = |number: u8| if number == 0 { VersionAvailability::Active } else { VersionAvailability::Deprecated };
        let found = resolve(&VersionSpec::Latest, registered.iter().map(|(version, number)| (version, state(*number))));
        let releases = || registered.iter().filter(|(version, _)| !version.is_prerelease());
        let active = releases().filter(|(_, number)| **number == 0).map(|(version, _)| version).max();
        let expected = active.or_else(|| releases().map(|(version, _)| version).max());
        match (found, expected) {
            (VersionResolution::Found(found), Some(expected)) => prop_assert_eq!(found, expected),
            (found, expected) => prop_assert!(expected.is_none() && !matches!(found, VersionResolution::Found(_)), "{:?}", found),
        }
    }
}
