//! What the tests of every guard expect of its two lists: nothing hostile passes, nothing honest is refused.

/// A guard's question: the rule that a text breaks, if it breaks one.
type BrokenBy = fn(&str) -> Option<&'static str>;

/// Every hostile text breaks a rule, and no honest one does.
pub(super) fn tells_apart(broken_by: BrokenBy, hostile: &[&str], honest: &[&str]) {
    for text in hostile {
        assert!(broken_by(text).is_some(), "{text:?}");
    }
    for text in honest {
        assert_eq!(broken_by(text), None, "{text:?}");
    }
}

/// The rule that each text breaks has this in its words.
pub(super) fn names_the_rule(broken_by: BrokenBy, cases: &[(&str, &str)]) {
    for (text, part) in cases {
        let rule = broken_by(text);
        assert!(rule.is_some_and(|rule| rule.contains(part)), "{text:?}: {rule:?}");
    }
}
