//! The names of keys and channels, in one place. (RES-007, STORE-006)
//!
//! What belongs together has one hash tag, the part in braces: a cluster keeps it on one node, and a script may touch it
//! all. The parts inside the braces are encoded, so that no name of a service, tenant or user can close the brace or
//! pretend to be two parts.
//!
//! Not here: how long keys live (each script sets that with what it writes).

use std::fmt::Write as _;

/// The sources' channel of policy changes. (AUTH-011)
const POLICY_UPDATES: &str = "abac:policy:updates";
/// The sources' channel of breaker transitions. (RES-011)
const BREAKER_CHANGES: &str = "cb:state:changes";
/// What replicas tell each other.
const CHANGES: &str = "gantry:changes";
/// The same of breakers, with everything there is to know about a transition.
const BREAKER_WORDS: &str = "gantry:breakers";

/// Names under one namespace.
#[derive(Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(namespace: &str) -> Self {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}:") };
        Self { prefix }
    }

    /// Everything that is listened to.
    pub(super) fn channels(&self) -> Vec<String> {
        vec![self.changes(), self.policy_updates(), self.breaker_words()]
    }

    pub(super) fn changes(&self) -> String {
        format!("{}{CHANGES}", self.prefix)
    }

    pub(super) fn policy_updates(&self) -> String {
        format!("{}{POLICY_UPDATES}", self.prefix)
    }

    pub(super) fn breaker_changes(&self) -> String {
        format!("{}{BREAKER_CHANGES}", self.prefix)
    }

    pub(super) fn breaker_words(&self) -> String {
        format!("{}{BREAKER_WORDS}", self.prefix)
    }

    /// The names of all breakers.
    pub(super) fn breaker_index(&self) -> String {
        format!("{}cb:{{index}}", self.prefix)
    }

    /// A limit. All have one hash tag, because several are taken in one step.
    pub(super) fn limit(&self, key: &str) -> String {
        format!("{}{{limits}}:{key}", self.prefix)
    }

    /// The replicas that are there.
    pub(super) fn presence(&self) -> String {
        format!("{}gantry:{{presence}}", self.prefix)
    }

    /// What somebody of this name writes to see that it can.
    pub(super) fn look(&self, who: &str) -> String {
        format!("{}gantry:{{look}}:{who}", self.prefix)
    }

    /// How many changes were ever published.
    pub(super) fn generation(&self) -> String {
        format!("{}gantry:{{bus}}:generation", self.prefix)
    }

    /// `family:{part:part}:leaf`, each part encoded.
    pub(super) fn key(&self, family: &str, parts: &[&str], leaf: &str) -> String {
        let mut key = String::with_capacity(64);
        key.push_str(&self.prefix);
        key.push_str(family);
        key.push_str(":{");
        for (n, part) in parts.iter().enumerate() {
            if n > 0 {
                key.push(':');
            }
            encode(part, &mut key);
        }
        key.push('}');
        if !leaf.is_empty() {
            key.push(':');
            key.push_str(leaf);
        }
        key
    }
}

/// Writes a part with everything but plain characters as `%XX`.
fn encode(part: &str, into: &mut String) {
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b'@' | b'*' => {
                into.push(char::from(byte));
            }
            other => {
                // Writing to a string cannot fail.
                let _done = write!(into, "%{other:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_have_one_hash_tag_whatever_the_parts_are() {
        let names = Names::new("");
        assert_eq!(names.key("cb", &["acme", "mail", "send"], "state"), "cb:{acme:mail:send}:state");
        assert_eq!(names.key("cb", &["a:b", "}{"], ""), "cb:{a%3Ab:%7D%7B}");
        assert_eq!(Names::new("blue").key("cb", &["did:key:z"], "x"), "blue:cb:{did%3Akey%3Az}:x");
    }

    /// The slot of a cluster in which a key lies, by the rule of Redis: CRC16 of what is in the first braces, if anything is.
    fn slot(key: &str) -> u16 {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
        let crc =
            hashed.bytes().fold(0_u16, |crc, byte| {
                (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                    if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
                })
            });
        crc % 16_384
    }

    #[test]
    fn the_keys_of_one_script_lie_in_one_slot() {
        // What Redis itself says of these.
        assert_eq!((slot("123456789"), slot("foo"), slot("x{foo}y")), (12_739, 12_182, 12_182));
        for namespace in ["", "blue", "a.b"] {
            let names = Names::new(namespace);
            for parts in [["acme", "mail", ""], ["a:b", "}{", "{x}"], ["", "{", "}"]] {
                let slots =
                    ["state", "calls", "seconds", "probes", "history"].map(|leaf| slot(&names.key("cb", &parts, leaf)));
                assert!(slots.iter().all(|other| *other == slots[0]), "{parts:?}: {slots:?}");
            }
            let limits = ["platform_rate", "tenant_rate:acme", "tool_rate:a:{did}:x", "service_rate:a{b}c"];
            let slots = limits.map(|limit| slot(&names.limit(limit)));
            assert!(slots.iter().all(|other| *other == slots[0]), "{slots:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn different_parts_never_have_the_same_key(one in prop::collection::vec("\\PC{0,8}", 1..4), other in prop::collection::vec("\\PC{0,8}", 1..4)) {
            let names = Names::new("");
            let key = |parts: &[String]| names.key("f", &parts.iter().map(String::as_str).collect::<Vec<_>>(), "leaf");
            prop_assert_eq!(key(&one) == key(&other), one == other);
            prop_assert_eq!(key(&one).matches(['{', '}']).count(), 2);
        }
    }
}
