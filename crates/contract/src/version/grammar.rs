//! Reading npm's range notation, and taking the sugar off: `^1.2` becomes `>=1.2.0 <2.0.0-0`.
//!
//! npm defines the notation by a chain of regular-expression replacements. This is a parser instead; it goes the same
//! way in strict mode, oddities included, because ranges are copied from one ecosystem to the next: `= v1.x` is a
//! range, `~ >1.2` is `~1.2`, build metadata is dropped wherever it stands.
//!
//! One accident of the replacements is left out: npm reads `1.2.3*` as `1.2.3`. It is refused here, since nobody who
//! writes the star means that.
//!
//! Not here: loose mode, and what a comparator means (`range`).

use semver::Prerelease;

use super::partial::Partial;
use super::range::{Comparator, Operator, Prereleases, RANGE_BYTES_MAX, RANGE_COMPARATORS_MAX, RangeError};
use super::{VERSION_BYTES_MAX, Version, shown};

type Comparators = Result<Vec<Comparator>, RangeError>;

/// All alternatives of a range, simplified as npm does it (RNG-1).
pub(super) fn alternatives(text: &str, prereleases: Prereleases) -> Result<Vec<Vec<Comparator>>, RangeError> {
    if text.len() > RANGE_BYTES_MAX {
        return Err(RangeError::TooLong { bytes: text.len() });
    }
    let sugar = Sugar { prereleases };
    let mut sets = Vec::new();
    for alternative in text.split("||") {
        sets.push(sugar.alternative(&without_build(alternative))?);
    }
    if sets.iter().map(Vec::len).sum::<usize>() > RANGE_COMPARATORS_MAX {
        return Err(RangeError::TooMany);
    }
    // An alternative that matches nothing is dropped unless there is no other; one that matches all makes the rest moot.
    if let Some(everything) = sets.iter().position(Vec::is_empty) {
        return Ok(vec![sets.swap_remove(everything)]);
    }
    if sets.iter().any(|set| !is_nothing(set)) {
        sets.retain(|set| !is_nothing(set));
    } else {
        sets.truncate(1);
    }
    Ok(sets)
}

/// Is this the alternative that npm writes for "nothing", `<0.0.0-0`?
fn is_nothing(set: &[Comparator]) -> bool {
    matches!(set, [Comparator { operator: Operator::Less, version }] if is_lowest(version))
}

/// Is this `0.0.0-0`, below which there is nothing?
fn is_lowest(version: &Version) -> bool {
    version.numbers() == [0; 3] && version.prerelease() == "0"
}

/// The text without any `+build.metadata`, which takes no part in ranges.
fn without_build(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('+') {
        kept.push_str(before);
        let mut tail = after.trim_start_matches(is_part);
        if tail.len() == after.len() {
            kept.push('+');
        } else {
            while let Some(next) = tail.strip_prefix('.').filter(|next| next.starts_with(is_part)) {
                tail = next.trim_start_matches(is_part);
            }
        }
        rest = tail;
    }
    kept.push_str(rest);
    kept
}

// ----------------------------------------------------------------------------------------------------------- Words

/// Splits an alternative into comparators, which may have a space behind their operator.
fn words(text: &str) -> Vec<String> {
    let is_operator = |word: &str| matches!(word, "<" | ">" | "<=" | ">=" | "=");
    let is_wave = |word: &str| matches!(word, "~" | "~>" | "^");
    let begins_version = |word: &str| {
        word.trim_start_matches(['v', '=']).starts_with(|c: char| c.is_ascii_digit() || matches!(c, 'x' | 'X' | '*'))
    };
    let pairs =
        glue(text.split_whitespace().map(str::to_owned), |word, next| is_operator(word) && begins_version(next));
    // A second pass, because `~ > 1.2` first becomes `~ >1.2` and then `~>1.2`.
    glue(pairs.into_iter(), |word, _| is_wave(word))
}

/// Joins each word with its follower where `together` says so; a joined word is not joined again.
fn glue(words: impl Iterator<Item = String>, together: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut words = words.peekable();
    let mut glued = Vec::new();
    while let Some(mut word) = words.next() {
        if let Some(next) = words.next_if(|next| together(&word, next)) {
            word.push_str(&next);
        }
        glued.push(word);
    }
    glued
}

// ----------------------------------------------------------------------------------------------------------- Sugar

/// Turns words into comparators; knows where bounds begin.
struct Sugar {
    prereleases: Prereleases,
}

impl Sugar {
    fn alternative(&self, text: &str) -> Comparators {
        let comparators = match self.hyphen(text)? {
            Some(comparators) => comparators,
            None => {
                let mut all = Vec::new();
                for word in words(text) {
                    all.extend(self.word(&word)?);
                }
                all
            }
        };
        if let Some(nothing) = comparators.iter().find(|one| is_nothing(std::slice::from_ref(*one))) {
            return Ok(vec![nothing.clone()]);
        }
        let mut set: Vec<Comparator> = Vec::new();
        for comparator in comparators {
            if !self.is_everything(&comparator) && !set.contains(&comparator) {
                set.push(comparator);
            }
        }
        Ok(set)
    }

    /// `>=0.0.0` says nothing, and neither does `>=0.0.0-0` where all pre-releases count.
    fn is_everything(&self, comparator: &Comparator) -> bool {
        comparator.operator == Operator::GreaterOrEqual
            && match self.prereleases {
                Prereleases::OnRequest => comparator.version == Version::new(0, 0, 0),
                Prereleases::Always => is_lowest(&comparator.version),
            }
    }

    /// `1.2 - 2.3.4`: from the first to the second, both included. `None` when the text has no lone hyphen.
    fn hyphen(&self, text: &str) -> Result<Option<Vec<Comparator>>, RangeError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut sides = words.split(|word| *word == "-");
        let (Some(from), Some(to)) = (sides.next(), sides.next()) else { return Ok(None) };
        let malformed = || RangeError::Malformed { word: shown(&words.join(" ")) };
        let (low, high) = (hyphen_side(from).ok_or_else(malformed)?, hyphen_side(to).ok_or_else(malformed)?);
        // Bounds that keep the text as it was written cannot have more than a `v` before it.
        let keeps_low = low.patch.is_some();
        let keeps_high = high.patch.is_some() && high.pre.is_empty() && self.prereleases == Prereleases::OnRequest;
        if sides.next().is_some() || (keeps_low && !low.clean) || (keeps_high && !high.clean) {
            return Err(malformed());
        }
        let word = words.join(" ");
        let low = match (low.major, low.minor, low.patch) {
            (None, _, _) => None,
            (Some(major), None, _) => Some(self.from(&word, [major, 0, 0])?),
            (Some(major), Some(minor), None) => Some(self.from(&word, [major, minor, 0])?),
            (Some(major), Some(minor), Some(patch)) if low.pre.is_empty() => {
                Some(self.from(&word, [major, minor, patch])?)
            }
            (Some(major), Some(minor), Some(patch)) => {
                Some(bound(&word, Operator::GreaterOrEqual, [major, minor, patch], low.pre)?)
            }
        };
        let high = match (high.major, high.minor, high.patch) {
            (None, _, _) => None,
            (Some(major), None, _) => Some(below(&word, [major + 1, 0, 0])?),
            (Some(major), Some(minor), None) => Some(below(&word, [major, minor + 1, 0])?),
            (Some(major), Some(minor), Some(patch))
                if high.pre.is_empty() && self.prereleases == Prereleases::Always =>
            {
                Some(below(&word, [major, minor, patch + 1])?)
            }
            (Some(major), Some(minor), Some(patch)) => {
                Some(bound(&word, Operator::LessOrEqual, [major, minor, patch], high.pre)?)
            }
        };
        Ok(Some(low.into_iter().chain(high).collect()))
    }

    fn word(&self, word: &str) -> Comparators {
        let malformed = || RangeError::Malformed { word: shown(word) };
        if word.len() > VERSION_BYTES_MAX {
            return Err(RangeError::TooLong { bytes: word.len() });
        }
        if let Some(rest) = word.strip_prefix('^') {
            return self.caret(word, Partial::read(rest).ok_or_else(malformed)?);
        }
        if let Some(rest) = word.strip_prefix('~') {
            let rest = rest.strip_prefix('>').unwrap_or(rest);
            return self.tilde(word, Partial::read(rest).ok_or_else(malformed)?);
        }
        let (operator, rest) = operator(word);
        let partial = Partial::read(rest).ok_or_else(malformed)?;
        if partial.has_number_after_wildcard() {
            return Err(RangeError::NumberAfterWildcard { word: shown(word) });
        }
        match (partial.major, partial.minor, partial.patch) {
            (Some(major), Some(minor), Some(patch)) if partial.clean => {
                Ok(vec![bound(word, operator, [major, minor, patch], partial.pre)?])
            }
            (Some(_), Some(_), Some(_)) => Err(malformed()),
            (None, _, _) => match operator {
                Operator::Less | Operator::Greater => Ok(vec![below(word, [0; 3])?]),
                Operator::LessOrEqual | Operator::GreaterOrEqual | Operator::Equal => Ok(Vec::new()),
            },
            (Some(major), minor, _) => {
                let first = [major, minor.unwrap_or(0), 0];
                let beyond = minor.map_or([major + 1, 0, 0], |minor| [major, minor + 1, 0]);
                match operator {
                    Operator::Equal => self.span(word, first, beyond),
                    Operator::Greater => Ok(vec![self.from(word, beyond)?]),
                    Operator::GreaterOrEqual => Ok(vec![self.from(word, first)?]),
                    Operator::Less => Ok(vec![below(word, first)?]),
                    Operator::LessOrEqual => Ok(vec![below(word, beyond)?]),
                }
            }
        }
    }

    /// `^`: everything up to the next change of the left-most number that is not zero.
    fn caret(&self, word: &str, partial: Partial) -> Comparators {
        match (partial.major, partial.minor, partial.patch) {
            (None, _, _) => Ok(Vec::new()),
            (Some(major), None, _) => self.span(word, [major, 0, 0], [major + 1, 0, 0]),
            (Some(0), Some(minor), None) => self.span(word, [0, minor, 0], [0, minor + 1, 0]),
            (Some(major), Some(minor), None) => self.span(word, [major, minor, 0], [major + 1, 0, 0]),
            (Some(major), Some(minor), Some(patch)) => {
                let beyond = match (major, minor) {
                    (0, 0) => [0, 0, patch + 1],
                    (0, _) => [0, minor + 1, 0],
                    _ => [major + 1, 0, 0],
                };
                let low = bound(word, Operator::GreaterOrEqual, [major, minor, patch], partial.pre)?;
                Ok(vec![low, below(word, beyond)?])
            }
        }
    }

    /// `~`: patches only, if a minor number is given; else minors too.
    fn tilde(&self, word: &str, partial: Partial) -> Comparators {
        match (partial.major, partial.minor, partial.patch) {
            (None, _, _) => Ok(Vec::new()),
            (Some(major), None, _) => self.span(word, [major, 0, 0], [major + 1, 0, 0]),
            (Some(major), Some(minor), None) => self.span(word, [major, minor, 0], [major, minor + 1, 0]),
            (Some(major), Some(minor), Some(patch)) => {
                let low = bound(word, Operator::GreaterOrEqual, [major, minor, patch], partial.pre)?;
                Ok(vec![low, below(word, [major, minor + 1, 0])?])
            }
        }
    }

    fn span(&self, word: &str, first: [u64; 3], beyond: [u64; 3]) -> Comparators {
        Ok(vec![self.from(word, first)?, below(word, beyond)?])
    }

    /// A lower bound that nobody wrote out: it begins at the first pre-release where all of them count.
    fn from(&self, word: &str, numbers: [u64; 3]) -> Result<Comparator, RangeError> {
        let pre = match self.prereleases {
            Prereleases::OnRequest => Prerelease::EMPTY,
            Prereleases::Always => first_prerelease(),
        };
        bound(word, Operator::GreaterOrEqual, numbers, pre)
    }
}

/// One side of a hyphen range: a partial version with any number of `v` and `=` before it, even apart.
fn hyphen_side(words: &[&str]) -> Option<Partial> {
    let (last, before) = words.split_last()?;
    let only_prefix = before.iter().all(|word| word.bytes().all(|b| matches!(b, b'v' | b'=')));
    let partial = Partial::read(last).filter(|_| only_prefix && last.len() <= VERSION_BYTES_MAX)?;
    Some(Partial { clean: partial.clean && before.is_empty(), ..partial })
}

/// Takes the operator off the front of a word.
fn operator(word: &str) -> (Operator, &str) {
    let table = [
        ("<=", Operator::LessOrEqual),
        ("<", Operator::Less),
        (">=", Operator::GreaterOrEqual),
        (">", Operator::Greater),
        ("=", Operator::Equal),
    ];
    table
        .into_iter()
        .find_map(|(sign, operator)| word.strip_prefix(sign).map(|rest| (operator, rest)))
        .unwrap_or((Operator::Equal, word))
}

/// An upper bound that keeps out the pre-releases of what it excludes.
fn below(word: &str, numbers: [u64; 3]) -> Result<Comparator, RangeError> {
    bound(word, Operator::Less, numbers, first_prerelease())
}

fn bound(word: &str, operator: Operator, numbers: [u64; 3], pre: Prerelease) -> Result<Comparator, RangeError> {
    let version = Version::from_parts(numbers, pre).ok_or_else(|| RangeError::NumberTooLarge { word: shown(word) })?;
    Ok(Comparator { operator, version })
}

/// The lowest pre-release tag there is.
fn first_prerelease() -> Prerelease {
    Prerelease::new("0").unwrap_or(Prerelease::EMPTY)
}

#[cfg(test)]
mod tests {
    use super::super::VersionRange;
    use super::*;

    fn canonical(text: &str, prereleases: Prereleases) -> Option<String> {
        VersionRange::parse_with(text, prereleases).ok().map(|range| range.to_string())
    }

    #[test]
    fn sugar_becomes_comparators() {
        for (text, expected) in [
            ("", "*"),
            (" ", "*"),
            ("||", "*"),
            ("^1 || *", "*"),
            ("+build", "*"),
            ("1.0.0+a+b.c", "1.0.0"),
            ("1.2.3 1.2.3", "1.2.3"),
            ("^0.0", "<0.1.0-0"),
            ("^0.0.3-beta", ">=0.0.3-beta <0.0.4-0"),
            ("~1.2.x-rc", ">=1.2.0 <1.3.0-0"),
            ("= v1.x", ">=1.0.0 <2.0.0-0"),
            ("==1.2", ">=1.2.0 <1.3.0-0"),
            ("> =1", ">=1.0.0"),
            ("~ > 1.2.3", ">=1.2.3 <1.3.0-0"),
            ("^ = 1.2", ">=1.2.0 <2.0.0-0"),
            (">1", ">=2.0.0"),
            ("<=1.2", "<1.3.0-0"),
            ("<x || 1", ">=1.0.0 <2.0.0-0"),
            ("<x || >*", "<0.0.0-0"),
            ("1 <0.0.0-0", "<0.0.0-0"),
            ("* - 2", "<3.0.0-0"),
            ("= 1.2 - v2", ">=1.2.0 <3.0.0-0"),
            ("1.2.3 - = 2.0.0-rc", ">=1.2.3 <=2.0.0-rc"),
            ("9007199254740990", ">=9007199254740990.0.0 <9007199254740991.0.0-0"),
        ] {
            assert_eq!(canonical(text, Prereleases::OnRequest).as_deref(), Some(expected), "`{text}`");
        }
    }

    #[test]
    fn bounds_reach_down_to_pre_releases_when_all_count() {
        for (text, expected) in [
            ("^1.2", ">=1.2.0-0 <2.0.0-0"),
            ("^1.2.3", ">=1.2.3 <2.0.0-0"),
            (">1.2", ">=1.3.0-0"),
            ("1.2.3 - 2.3.4", ">=1.2.3-0 <2.3.5-0"),
            ("1.2.3 - == 2.3.4", ">=1.2.3-0 <2.3.5-0"),
            (">=0.0.0", ">=0.0.0"),
            (">=0", "*"),
        ] {
            assert_eq!(canonical(text, Prereleases::Always).as_deref(), Some(expected), "`{text}`");
        }
    }

    #[test]
    fn what_is_not_a_range_is_refused() {
        let long = format!("1.2.3-{}", "a".repeat(300));
        let many = "1 || ".repeat(70);
        for text in [
            "blerg",
            "1.2.3.4",
            "1.2-rc",
            "01",
            "1.2.3-01",
            "1.2.3-",
            "~",
            "^",
            ">",
            "> = 1",
            "> >1",
            "v 1.2.3",
            "= = 1.2.3",
            "==1.2.3",
            ">==1.2.3",
            "x.1",
            "1.x.2",
            "^1 |",
            "1.2.3*",
            "**",
            "1 -",
            "- 1",
            "1 - 2 - 3",
            "1 -2",
            "=1.2.3 - 2.0.0",
            "1.0.0 - =2.0.0",
            "9007199254740991",
            ">=9007199254740992.0.0",
            "1.2.3+",
            &long,
            &many,
        ] {
            assert_eq!(canonical(text, Prereleases::OnRequest), None, "`{text}`");
        }
    }
}
