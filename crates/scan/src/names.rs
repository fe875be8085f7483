//! Look-alike names: a tool that can be taken for another server's.
//!
//! Two servers may offer tools of one name, and honest names differ by a letter (`get_user`, `get_users`), so nearness is
//! only a remark. What is grave is a name that reads the same and is not: a digit for a letter, a letter of another
//! script. What is suspicious is the slip of a finger, which is how a trap for the hasty is made.

use unicode_security::confusable_detection::skeleton;

use crate::definition::NeighbourNames;
use crate::findings::{FindingKind, FindingList, FindingSeverity};
use crate::normalise::is_visible;

/// Shorter names are near each other by chance.
const NAME_CHARS_MIN: usize = 6;
/// Longer names are compared by their beginning only.
const NAME_CHARS_MAX: usize = 128;
/// Most neighbours that are compared.
const NEIGHBOURS_MAX: usize = 20_000;

/// Compares `name` with the tools of other servers.
pub(crate) fn scan(name: &str, neighbours: &NeighbourNames, findings: &mut FindingList) {
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    let mut add = |severity, reason: &str, excerpt: &str| {
        findings.add(FindingKind::LookAlikeName, severity, "/name", reason, excerpt);
    };
    if name.chars().any(|character| !is_visible(character)) {
        add(FindingSeverity::High, "the name has invisible characters", &name);
    }
    let folded = fold(&name);
    for other in neighbours.foreign.iter().take(NEIGHBOURS_MAX) {
        let other: String = other.chars().take(NAME_CHARS_MAX).collect();
        if name == other {
            add(FindingSeverity::Low, "another server has a tool of this name", &other);
            continue;
        }
        let near = other.len().abs_diff(name.len()) <= 8;
        if near && fold(&other) == folded {
            // Only a difference of letter case or separator is a difference of taste.
            let taste = plain(&name) == plain(&other);
            let severity = if taste { FindingSeverity::Low } else { FindingSeverity::High };
            add(severity, "reads the same as another server's tool", &other);
        } else if near && name.chars().count() >= NAME_CHARS_MIN {
            match slip(&plain(&name), &plain(&other)) {
                Some(Slip::Typo) => add(FindingSeverity::Medium, "a misspelling of another server's tool", &other),
                Some(Slip::Near) => add(FindingSeverity::Low, "one letter away from another server's tool", &other),
                None => {}
            }
        }
    }
}

/// What a hasty eye sees: confusable characters joined, case and separators gone.
fn fold(name: &str) -> String {
    // Case goes first, as `I` and `l` are confusable but `i` and `l` are not; then once more after the skeleton.
    skeleton(name)
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .map(|c| if c == 'i' { 'l' } else { c })
        .collect()
}

fn plain(name: &str) -> Vec<char> {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Slip {
    /// Two letters exchanged, or one letter doubled or its double dropped.
    Typo,
    /// Any other difference of one letter.
    Near,
}

/// How two names differ, if by one letter.
fn slip(a: &[char], b: &[char]) -> Option<Slip> {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a_rest, b_rest) = (a.get(same..)?, b.get(same..)?);
    match (a_rest, b_rest) {
        ([x, y, a_tail @ ..], [p, q, b_tail @ ..]) if x == q && y == p && a_tail == b_tail => Some(Slip::Typo),
        ([_, a_tail @ ..], [_, b_tail @ ..]) if a_tail == b_tail => Some(Slip::Near),
        ([extra, tail @ ..], other) | (other, [extra, tail @ ..]) if tail == other => Some(grown(a, same, *extra)),
        _ => None,
    }
}

/// A letter more: doubled is a slip, an ending is grammar.
fn grown(name: &[char], at: usize, extra: char) -> Slip {
    let before = at.checked_sub(1).and_then(|index| name.get(index));
    if before == Some(&extra) && extra != 's' { Slip::Typo } else { Slip::Near }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(name: &str, other: &str) -> Option<FindingSeverity> {
        let mut findings = FindingList::default();
        scan(name, &NeighbourNames::new([""; 0], [other]), &mut findings);
        findings.finish().first().map(|finding| finding.severity)
    }

    #[test]
    fn names_that_read_the_same_are_grave_and_near_names_are_remarks() {
        let cases = [
            ("send_mai1", "send_mail", Some(FindingSeverity::High)),
            ("l0gin_user", "login_user", Some(FindingSeverity::High)),
            ("r\u{435}ad_file", "read_file", Some(FindingSeverity::High)),
            ("read\u{200b}_file", "other", Some(FindingSeverity::High)),
            ("raed_file", "read_file", Some(FindingSeverity::Medium)),
            ("send_emaill", "send_email", Some(FindingSeverity::Medium)),
            ("get_users", "get_user", Some(FindingSeverity::Low)),
            ("list_tasks", "list_masks", Some(FindingSeverity::Low)),
            ("readFile", "read_file", Some(FindingSeverity::Low)),
            ("read_file", "read_file", Some(FindingSeverity::Low)),
            ("read_file", "write_file", None),
            ("add", "adb", None),
        ];
        for (name, other, expected) in cases {
            assert_eq!(severity(name, other), expected, "{name} {other}");
        }
    }

    #[test]
    fn siblings_are_not_compared() {
        let mut findings = FindingList::default();
        scan("get_item", &NeighbourNames::new(["get_itme"], [""; 0]), &mut findings);
        assert!(findings.finish().is_empty());
    }
}
