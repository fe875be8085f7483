//! "Did you mean …": the nearest of some known names.

/// The known name with the smallest edit distance to `given`, if it is near enough to be a slip: at most a third of the
/// length of what was given, and at most three edits. Ties go to the name that comes first.
pub fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    const GIVEN_CHARS_MAX: usize = 64;
    let given: Vec<char> = given.chars().take(GIVEN_CHARS_MAX + 1).collect();
    if given.is_empty() || given.len() > GIVEN_CHARS_MAX {
        return None;
    }
    let bound = (given.len() / 3).clamp(1, 3);
    let mut best: Option<(usize, &str)> = None;
    for name in known {
        let limit = best.map_or(bound, |(distance, _)| distance.saturating_sub(1));
        if let Some(distance) = distance_within(&given, name, limit)
            && best.is_none_or(|(so_far, _)| distance < so_far)
        {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Levenshtein distance, or `None` if it is more than `limit`.
fn distance_within(a: &[char], b: &str, limit: usize) -> Option<usize> {
    let b_len = b.chars().count();
    if a.len().abs_diff(b_len) > limit {
        return None;
    }
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, cb) in b.chars().enumerate() {
        let mut diagonal = i;
        let mut previous = i + 1;
        let mut smallest = previous;
        let mut next_row = Vec::with_capacity(row.len());
        next_row.push(previous);
        for (ca, above) in a.iter().zip(row.iter().skip(1)) {
            let cost = if *ca == cb { diagonal } else { 1 + diagonal.min(*above).min(previous) };
            diagonal = *above;
            previous = cost;
            smallest = smallest.min(cost);
            next_row.push(cost);
        }
        if smallest > limit {
            return None;
        }
        row = next_row;
    }
    row.last().copied().filter(|distance| *distance <= limit)
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
            ("datetim", Some("datetime")),
            ("json-parser", Some("json_parser")),
            ("send_email", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), expected, "{given}");
        }
    }
}
