//! What a server's tools are called in the registry: `namespace.tool`, both in snake case.
//!
//! Servers write `readFile`, `read-file`, `Read File` and worse; the registry has one alphabet. Going there loses
//! something, so the way back is not a rule but the pin, which has both names. A pinned tool keeps its name whatever else
//! the server offers later.
//!
//! Invariants
//! - UNAME-1: every name made here is a valid tool id.
//! - UNAME-2: two tools of one server never get one name, and none gets a name that is taken.
//! - UNAME-3: which name a tool gets does not depend on the order in which its server lists it.

use contract::hex::lower_hex;
use std::collections::{BTreeMap, BTreeSet};

use contract::ids::ToolId;
use sha2::{Digest as _, Sha256};

/// Longest part of a name that is made from a server's own; longer ones are cut and told apart by their hash. Namespace
/// and tool together stay within what MCP clients accept.
const PART_CHARS_MAX: usize = 48;
/// A tool id has at least so many characters.
const PART_CHARS_MIN: usize = 3;
/// Hexadecimal digits that tell two names apart; doubled as often as need be.
const SUFFIX_DIGITS: usize = 8;

/// The namespace for a server of this name.
///
/// ```
/// # use gantry_upstreams::tool_names::namespace;
/// assert_eq!(namespace("brave-search"), "brave_search");
/// assert_eq!(namespace("7-Zip"), "s_7_zip");
/// ```
pub fn namespace(server: &str) -> String {
    let word = snake(server, "s_");
    if word.len() > PART_CHARS_MAX { with_suffix(&word, server, SUFFIX_DIGITS) } else { word }
}

/// A name for each of a server's tools that has none yet, in a namespace, or in none if it is empty. `known` are the names its pinned tools have; `is_taken` says
/// whether somebody else than this tool has a name.
pub fn tool_ids<'a>(
    namespace: &str,
    tools: impl IntoIterator<Item = &'a str>,
    known: &BTreeMap<String, ToolId>,
    is_taken: impl Fn(&ToolId, &str) -> bool,
) -> BTreeMap<String, ToolId> {
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    let new: BTreeSet<&str> = tools.into_iter().filter(|tool| !known.contains_key(*tool)).collect();
    let mut given: BTreeSet<ToolId> = known.values().cloned().collect();
    let mut plain: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for tool in &new {
        plain.entry(local(tool)).or_default().push(tool);
    }
    let mut names = BTreeMap::new();
    for (word, tools) in &plain {
        // Whoever is written like this already has the best right to it; of several that are not, none has (UNAME-3).
        let owner = match tools.as_slice() {
            [only] => Some(*only),
            several => several.iter().copied().find(|tool| tool == word),
        };
        for tool in tools {
            let wanted = (owner == Some(*tool)).then(|| ToolId::new(namespace, word).ok()).flatten();
            let free = |id: &ToolId| !given.contains(id) && !is_taken(id, tool);
            let id = wanted.filter(|id| free(id)).or_else(|| told_apart(namespace, word, tool, free));
            if let Some(id) = id {
                given.insert(id.clone());
                names.insert((*tool).to_owned(), id);
            }
        }
    }
    names
}

/// The name with as much of its hash as it takes.
fn told_apart(namespace: Option<&str>, word: &str, tool: &str, free: impl Fn(&ToolId) -> bool) -> Option<ToolId> {
    [SUFFIX_DIGITS, SUFFIX_DIGITS * 2, SUFFIX_DIGITS * 4, SUFFIX_DIGITS * 8]
        .into_iter()
        .filter_map(|digits| ToolId::new(namespace, &with_suffix(word, tool, digits)).ok())
        .find(free)
}

/// The part after the dot, before anybody has asked whether it is free.
fn local(tool: &str) -> String {
    let word = snake(tool, "t_");
    let lossy = word.len() > PART_CHARS_MAX || !tool.is_ascii();
    let mut word = if lossy { with_suffix(&word, tool, SUFFIX_DIGITS) } else { word };
    while word.len() < PART_CHARS_MIN {
        word.push('_');
    }
    word
}

fn with_suffix(word: &str, of: &str, digits: usize) -> String {
    let kept: String = word.chars().take(PART_CHARS_MAX.saturating_sub(SUFFIX_DIGITS + 1)).collect();
    let hash: String = lower_hex(&Sha256::digest(of.as_bytes()));
    let hash: String = hash.chars().take(digits).collect();
    format!("{}_{hash}", kept.trim_end_matches('_'))
}

/// Words in lower case with `_` between them. What does not begin with a letter gets `first` before it.
fn snake(text: &str, first: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let letters: Vec<char> = text.chars().collect();
    for (index, letter) in letters.iter().copied().enumerate() {
        let before = index.checked_sub(1).and_then(|index| letters.get(index));
        let after = letters.get(index + 1);
        if letter.is_ascii_uppercase() {
            // `readFile` and `HTTPServer` are two words each; `HTTP` and `V2` are one.
            let begins = before.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
                || (before.is_some_and(char::is_ascii_uppercase) && after.is_some_and(char::is_ascii_lowercase));
            if begins && !out.ends_with('_') {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        } else if letter.is_ascii_alphanumeric() {
            out.push(letter);
        } else if letter == '_' || !out.ends_with('_') {
            // Underscores are the server's own and stay as many as they are.
            out.push('_');
        }
    }
    let is_word = out.starts_with(|c: char| c.is_ascii_lowercase());
    if is_word { out } else { format!("{first}{}", out.trim_start_matches('_')) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(tools: &[&str]) -> Vec<String> {
        let names = tool_ids("files", tools.iter().copied(), &BTreeMap::new(), |_, _| false);
        tools.iter().map(|tool| names.get(*tool).unwrap().local().to_owned()).collect()
    }

    #[test]
    fn names_read_as_their_servers_meant_them() {
        for (tool, expected) in [
            ("read_file", "read_file"),
            ("readFile", "read_file"),
            ("read-file", "read_file"),
            ("Read File", "read_file"),
            ("HTTPServerStart", "http_server_start"),
            ("getV2Items", "get_v2_items"),
            ("ls", "ls_"),
            ("2fa", "t_2fa"),
            ("brave_web_search", "brave_web_search"),
            ("a__b", "a__b"),
        ] {
            assert_eq!(ids(&[tool]), [expected], "{tool}");
        }
    }

    #[test]
    fn names_that_fall_together_are_told_apart_and_the_exact_one_keeps_its_own() {
        let both = ids(&["readFile", "read_file"]);
        assert_eq!(both.last().unwrap(), "read_file");
        assert!(both.first().unwrap().starts_with("read_file_"), "{both:?}");
        let neither = ids(&["readFile", "read-file"]);
        assert!(neither.iter().all(|name| name.len() == "read_file_".len() + 8), "{neither:?}");
        let long = ids(&["x".repeat(200).as_str(), "ä"]);
        assert!(long.iter().all(|name| name.len() <= PART_CHARS_MAX), "{long:?}");
    }

    #[test]
    fn a_pinned_tool_keeps_its_name_and_a_taken_name_is_not_given() {
        let known = BTreeMap::from([("readFile".to_owned(), "files.read_file".parse().unwrap())]);
        let names = tool_ids("files", ["readFile", "read_file"], &known, |id, _| id.as_str() == "files.write_file");
        assert!(!names.contains_key("readFile"));
        assert_ne!(names.get("read_file").unwrap().as_str(), "files.read_file");
        let names = tool_ids("files", ["write_file"], &known, |id, _| id.as_str() == "files.write_file");
        assert!(names.get("write_file").unwrap().as_str().starts_with("files.write_file_"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn every_name_is_valid_and_none_is_given_twice(
            server in "\\PC{0,80}",
            tools in proptest::collection::btree_set("\\PC{1,90}|[a-zA-Z_-]{1,6}", 1..20),
        ) {
            let names = tool_ids(&namespace(&server), tools.iter().map(String::as_str), &BTreeMap::new(), |_, _| false);
            prop_assert_eq!(names.len(), tools.len(), "each has one");
            let distinct: BTreeSet<&ToolId> = names.values().collect();
            prop_assert_eq!(distinct.len(), tools.len(), "and nobody else has it, so the pin leads back");
            for id in names.values() {
                prop_assert_eq!(&id.as_str().parse::<ToolId>().unwrap(), id);
            }
        }

        #[test]
        fn names_depend_neither_on_the_order_nor_on_what_comes_later(
            tools in proptest::collection::vec("[a-cA-C_-]{1,4}", 1..12),
            later in proptest::collection::vec("[a-cA-C_-]{1,4}", 0..12),
        ) {
            let none = BTreeMap::new();
            let first = tool_ids("files", tools.iter().map(String::as_str), &none, |_, _| false);
            let again = tool_ids("files", tools.iter().rev().map(String::as_str), &none, |_, _| false);
            prop_assert_eq!(&first, &again);
            let more = tool_ids("files", tools.iter().chain(&later).map(String::as_str), &first, |_, _| false);
            prop_assert!(more.keys().all(|tool| !first.contains_key(tool)), "pinned ones are left alone");
            prop_assert!(more.values().all(|id| !first.values().any(|taken| taken == id)));
        }
    }
}
