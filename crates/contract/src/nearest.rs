//! "Did you mean …": the known names nearest to one that is not known.
//!
//! A person or model that is told the right spelling corrects itself in one step; one that is only told "unknown"
//! guesses. The measure is the optimal string alignment distance: insertions, deletions, replacements and swaps of
//! neighbours, because those are what fingers do.
//!
//! Not here: what to do with the answer. Callers put it into their own words.

/// How long a name may be before comparing it is not worth the work.
const NAME_CHARS_MAX: usize = 64;
/// More slips than this are another word.
const SLIPS_MAX: usize = 3;

/// The known name nearest to `given`, case ignored, if it is near enough to be meant: a third of the letters may be
/// wrong, at least one and at most three. Ties go to the name that comes first.
///
/// ```
/// use gantry_contract::nearest::nearest;
/// assert_eq!(nearest("calculater", ["datetime", "calculator"]), Some("calculator"));
/// assert_eq!(nearest("send_email", ["datetime", "calculator"]), None);
/// ```
pub fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let given = folded(given)?;
    let mut limit = (given.chars().count() / 3).clamp(1, SLIPS_MAX);
    let mut best = None;
    for name in known {
        if let Some(steps) = folded(name).and_then(|name| distance_within(&given, &name, limit)) {
            best = Some(name);
            if steps == 0 {
                return best;
            }
            // Only something strictly nearer can still win.
            limit = steps - 1;
        }
    }
    best
}

/// All known names, the nearest to `given` first; equal ones keep their order.
pub fn by_nearness<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let mut names: Vec<&str> = known.into_iter().collect();
    if let Some(given) = folded(given) {
        let steps = |name: &str| folded(name).and_then(|name| distance_within(&given, &name, NAME_CHARS_MAX));
        names.sort_by_key(|name| steps(name).unwrap_or(usize::MAX));
    }
    names
}

/// The optimal string alignment distance of two words, if it is at most `limit`.
pub fn distance_within(left: &str, right: &str, limit: usize) -> Option<usize> {
    // The lengths alone tell most words apart, and cost nothing.
    if left.chars().count().abs_diff(right.chars().count()) > limit {
        return None;
    }
    Some(strsim::osa_distance(left, right)).filter(|steps| *steps <= limit)
}

/// Lower case, or `None` for what is too long to be a slip.
fn folded(text: &str) -> Option<String> {
    (!text.is_empty() && text.chars().nth(NAME_CHARS_MAX).is_none()).then(|| text.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = ["calculator", "datetime", "json_parser", "text_transform"];
        for (given, expected) in [
            ("calculater", Some("calculator")),
            ("calclator", Some("calculator")),
            ("Calculator", Some("calculator")),
            ("datetiem", Some("datetime")),
            ("json-parser", Some("json_parser")),
            ("send_email", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), expected, "{given}");
        }
        assert_eq!(nearest(&"x".repeat(65), ["x"]), None);
    }

    #[test]
    fn distance_counts_the_slips_of_fingers() {
        for (left, right, expected) in [
            ("city", "city", Some(0)),
            ("ctiy", "city", Some(1)),
            ("cit", "city", Some(1)),
            ("cities", "city", None),
            ("", "ab", Some(2)),
            ("größe", "grösse", Some(2)),
        ] {
            assert_eq!(distance_within(left, right, 2), expected, "{left} {right}");
        }
    }

    #[test]
    fn ordering_by_nearness_keeps_every_name() {
        assert_eq!(by_nearness("weak", ["day", "week", "year"]), ["week", "year", "day"]);
        assert_eq!(by_nearness("", ["b", "a"]), ["b", "a"]);
    }
}
