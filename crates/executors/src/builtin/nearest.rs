//! "Did you mean …": the known names nearest to one that is not known.
//!
//! A model that is told the right spelling corrects itself in one step; one that is only told "unknown" guesses. The
//! measure is the optimal string alignment distance (insert, delete, replace, swap neighbours), case ignored.
//!
//! Not here: what to do with the answer. Callers put it into their own words.

/// How long a name may be before comparing it is not worth the work.
const NAME_CHARS_MAX: usize = 64;

/// The known name nearest to `given`, if any is near enough to be meant.
pub(crate) fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let length = given.chars().count();
    if length > NAME_CHARS_MAX {
        return None;
    }
    // A third of the letters may be wrong, and at least one.
    let tolerance = (length / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(given, name), name))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// All known names, the nearest to `given` first; equal ones keep their order.
pub(crate) fn by_nearness<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let mut names: Vec<&str> = known.into_iter().collect();
    if given.chars().count() <= NAME_CHARS_MAX {
        names.sort_by_key(|name| distance(given, name));
    }
    names
}

/// Optimal string alignment distance over lower-case characters.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    // Three rows are enough: the one being made, the one before, and the one before that for swaps.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(last.len());
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut cost = (cell(&last, j + 1) + 1).min(cell(&row, j) + 1).min(cell(&last, j) + usize::from(x != y));
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                cost = cost.min(cell(&before, j - 1) + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_its_name_and_a_stranger_finds_none() {
        let known = ["sqrt", "sin", "cos", "factorial"];
        for (given, expected) in [
            ("sqr", Some("sqrt")),
            ("sqtr", Some("sqrt")),
            ("SIN", Some("sin")),
            ("facotrial", Some("factorial")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), expected, "{given}");
        }
    }

    #[test]
    fn ordering_by_nearness_keeps_every_name() {
        assert_eq!(by_nearness("datetim", ["calculator", "json_parser", "datetime"])[0], "datetime");
        assert_eq!(by_nearness("x", ["a", "b"]).len(), 2);
    }
}
