//! The words on the channels: what replicas tell each other, and what the policy engine of the sources says. (AUTH-011)
//!
//! A word of ours is `generation replica kind [number]`, plain text, for example `1763300000000001 r-7 access 12`. A kind that
//! this build does not know comes from a newer one in the middle of a rolling upgrade: it is heard as [`BusChange::Lost`], so
//! that everything is read anew. Everything else that does not parse is noise and changes nothing. On the channel of the policy
//! engine there is no such thing: what cannot be read there may have named anybody, so it voids all decisions.
//!
//! Anybody with access to the server can publish, so sizes are bounded and nothing that is read here is believed: the worst a
//! forged word does is one reload, or that decisions are asked for once more.

use std::sync::Arc;

use contract::ids::Subject;
use ports::change_bus::BusChange;
use ports::shared_state::BreakerTransition;
use serde::Deserialize;

/// The longest word of ours that is looked at.
const WORD_BYTES_MAX: usize = 256;
/// The longest word about a breaker: its name, every byte of it escaped, and the change.
const TRANSITION_BYTES_MAX: usize = 4 * 1024;
/// The longest message of the policy engine that is looked at.
const UPDATE_BYTES_MAX: usize = 256 * 1024;
/// Subjects that one message may name.
const SUBJECTS_MAX: usize = 10_000;

/// A word of a replica.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) generation: u64,
    pub(super) replica: String,
    pub(super) change: BusChange,
}

/// What is said of a change; the script puts the generation before it.
pub(super) fn spoken(replica: &str, change: &BusChange) -> String {
    match change {
        BusChange::Access { epoch } => format!("{replica} access {epoch}"),
        BusChange::Registry { generation } => format!("{replica} registry {generation}"),
        BusChange::Servers => format!("{replica} servers"),
        // Whom an engine names, it names to every replica itself; without the names all decisions are meant.
        BusChange::Decisions | BusChange::DecisionsOf { .. } => format!("{replica} decisions"),
        BusChange::Lost => format!("{replica} lost"),
    }
}

/// What was said, if it is a word of ours.
pub(super) fn understood(payload: &[u8]) -> Option<Word> {
    if payload.len() > WORD_BYTES_MAX {
        return None;
    }
    let mut parts = std::str::from_utf8(payload).ok()?.split(' ');
    let generation = parts.next()?.parse().ok()?;
    let replica = parts.next().filter(|name| !name.is_empty())?.to_owned();
    let number = |parts: &mut std::str::Split<'_, char>| parts.next()?.parse::<u64>().ok();
    let change = match parts.next()? {
        "access" => BusChange::Access { epoch: number(&mut parts)? },
        "registry" => BusChange::Registry { generation: number(&mut parts)? },
        "servers" => BusChange::Servers,
        "decisions" => BusChange::Decisions,
        "" => return None,
        _ => BusChange::Lost,
    };
    Some(Word { generation, replica, change })
}

/// What was said of a breaker: its name, a blank, and the change as JSON.
pub(super) fn transition(payload: &[u8]) -> Option<BreakerTransition> {
    if payload.len() > TRANSITION_BYTES_MAX {
        return None;
    }
    let (name, change) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    Some(BreakerTransition { key: name.parse().ok()?, change: serde_json::from_str(change).ok()? })
}

/// What the policy engine says: `{"affected_subjects": ["did:…"]}`.
#[derive(Debug, Deserialize)]
struct PolicyUpdate {
    affected_subjects: Vec<String>,
}

/// Whom a policy update names. `None`: it cannot be read, names nobody or too many, or somebody that nobody can be called,
/// as `*` or a DID with a fragment; then it must be taken to mean everybody.
pub(super) fn subjects_of(payload: &[u8]) -> Option<Arc<[Subject]>> {
    if payload.len() > UPDATE_BYTES_MAX {
        return None;
    }
    let update: PolicyUpdate = serde_json::from_slice(payload).ok()?;
    if !(1..=SUBJECTS_MAX).contains(&update.affected_subjects.len()) {
        return None;
    }
    update.affected_subjects.iter().map(|subject| named(subject)).collect()
}

/// A subject as tokens have it, if this is one.
fn named(subject: &str) -> Option<Subject> {
    let part_of_a_did = subject.starts_with("did:") && subject.contains(['#', '?', '/']);
    (!part_of_a_did && !subject.contains('*')).then(|| subject.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_spoken_is_understood() {
        let changes = [
            BusChange::Access { epoch: 7 },
            BusChange::Registry { generation: u64::MAX },
            BusChange::Servers,
            BusChange::Decisions,
            BusChange::Lost,
        ];
        for change in changes {
            let payload = format!("12 {}", spoken("r-1", &change));
            let word = Word { generation: 12, replica: "r-1".into(), change };
            assert_eq!(understood(payload.as_bytes()), Some(word), "{payload}");
        }
    }

    #[test]
    fn what_a_newer_build_says_is_heard_as_lost_and_noise_as_nothing() {
        let lost = |payload: &str| understood(payload.as_bytes()).map(|word| word.change) == Some(BusChange::Lost);
        assert!(lost("5 r-1 novelties 9") && lost("5 r-1 a-word"));
        let long = format!("5 r-1 {}", "x".repeat(WORD_BYTES_MAX));
        for noise in ["", " ", "5", "5 ", "5 r-1", "5 r-1 ", "-5 r-1 access 1", "x r-1 access 1", "5  access 1", &long]
        {
            assert_eq!(understood(noise.as_bytes()), None, "{noise}");
        }
        for noise in ["5 r-1 access", "5 r-1 access x", "5 r-1 access -1"] {
            assert_eq!(understood(noise.as_bytes()), None, "{noise}");
        }
        assert_eq!(understood(&[0xff, b' ', b'r', b' ', b'x']), None);
    }

    #[test]
    fn a_policy_update_names_subjects_and_whatever_else_comes_names_everybody() {
        let many = |n: usize| serde_json::json!({ "affected_subjects": vec!["did:x"; n] }).to_string();
        for (payload, expected) in [
            (r#"{"affected_subjects":["did:key:z1","did:web:a"]}"#.to_owned(), Some(2)),
            (r#"{"affected_subjects":["admin"],"reason":"more than we know"}"#.to_owned(), Some(1)),
            (r#"{"affected_subjects":[]}"#.to_owned(), None),
            (r#"{"affected_subjects":["*"]}"#.to_owned(), None),
            (r#"{"affected_subjects":["did:key:z1","did:web:*"]}"#.to_owned(), None),
            (r#"{"affected_subjects":["did:web:a#key-1"]}"#.to_owned(), None),
            (r#"{"affected_subjects":["two words"]}"#.to_owned(), None),
            (many(SUBJECTS_MAX), Some(SUBJECTS_MAX)),
            (many(SUBJECTS_MAX + 1), None),
            (r#"{"affected_subjects":"did:key:z1"}"#.to_owned(), None),
            (r#"{"affected_subjects":[1]}"#.to_owned(), None),
            (r#"{"affected_subjects":[""]}"#.to_owned(), None),
            (format!(r#"{{"affected_subjects":["{}"]}}"#, "x".repeat(501)), None),
            (r#"{"subjects":[]}"#.to_owned(), None),
            ("[]".to_owned(), None),
            ("*".to_owned(), None),
            (format!("{}1", "[".repeat(100_000)), None),
            (format!("{}{}", many(1), " ".repeat(UPDATE_BYTES_MAX)), None),
        ] {
            let start: String = payload.chars().take(60).collect();
            assert_eq!(subjects_of(payload.as_bytes()).map(|named| named.len()), expected, "{start}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn any_bytes_are_heard_without_harm(payload in prop::collection::vec(any::<u8>(), 0..400)) {
            let _word = understood(&payload);
            let _named = subjects_of(&payload);
            let _transition = transition(&payload);
        }
    }
}
