//! Everything that begins with a digit: cards, social security numbers, telephone numbers, addresses of version 4.
//!
//! Digits with at most a blank, a hyphen, a dot or a bracket between them are one *phrase*, and its groups are what the
//! judges look at. A group that is glued to a word belongs to that word: parts of identifiers, hashes and versions are never
//! numbers of people.

mod card;
mod phone;
mod ssn;

use crate::addresses;
use crate::boundary::{at, before, begins, is_word};
use crate::findings::{RedactionFinding, RedactionKind};

/// What the name of the field around a text says about numbers in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NumberHint {
    pub(crate) phone: bool,
    pub(crate) ssn: bool,
}

/// Most groups that are looked at together. Longer phrases are taken in pieces that overlap.
const GROUPS_MAX: usize = 48;
/// What two pieces have in common: more groups than any number has.
const GROUPS_SHARED: usize = 12;
/// More digits in a row than any number of a person has. What is longer is data.
const DIGITS_MAX: usize = 40;

/// Shortest run of digits that means something without any mark in it.
const ALONE_MIN: usize = 7;

/// One run of digits and what stands before it.
#[derive(Debug, Clone, Copy)]
struct Group {
    start: usize,
    end: usize,
    /// The mark before it: `' '`, `-`, `.`, `/`, `(`, `)`, or 0 for the first.
    mark: u8,
}

impl Group {
    const fn len(self) -> usize {
        self.end - self.start
    }
}

/// Room for groups, used again for every phrase.
#[derive(Debug, Default)]
pub(crate) struct GroupBuffer(Vec<Group>);

/// Groups, and the text they are in.
struct Phrase<'a> {
    bytes: &'a [u8],
    groups: &'a mut Vec<Group>,
    hint: NumberHint,
}

impl Phrase<'_> {
    fn group(&self, index: usize) -> Option<Group> {
        self.groups.get(index).copied()
    }

    fn digits(&self, index: usize) -> &[u8] {
        self.group(index).and_then(|group| self.bytes.get(group.start..group.end)).unwrap_or_default()
    }

    fn lengths(&self, from: usize, wanted: &[usize]) -> bool {
        wanted.iter().enumerate().all(|(place, length)| self.group(from + place).is_some_and(|it| it.len() == *length))
    }

    fn mark(&self, index: usize) -> u8 {
        self.group(index).map_or(0, |group| group.mark)
    }

    /// Whether a number can begin with this group. `open` is whether a bracket or plus may stand before.
    fn can_begin(&self, index: usize) -> bool {
        let Some(group) = self.group(index) else { return false };
        if group.mark != 0 {
            return matches!(group.mark, b' ' | b'/' | b'(');
        }
        let mut start = group.start;
        while matches!(before(self.bytes, start), b'+' | b'(') && group.start - start < 2 {
            start -= 1;
        }
        let attached =
            matches!(before(self.bytes, start), b'-' | b'.') && start >= 2 && is_word(at(self.bytes, start - 2));
        begins(self.bytes, start) && !attached
    }

    /// Whether a number can end with this group.
    fn can_end(&self, index: usize) -> bool {
        let Some(group) = self.group(index) else { return false };
        match self.group(index + 1) {
            Some(next) => matches!(next.mark, b' ' | b'/' | b'('),
            None => !is_word(at(self.bytes, group.end)),
        }
    }
}

/// Looks at the phrase whose first digit is at `start`: appends what it holds and says where to go on.
pub(crate) fn phrase(
    bytes: &[u8],
    start: usize,
    hint: NumberHint,
    scratch: &mut GroupBuffer,
    found: &mut Vec<RedactionFinding>,
) -> usize {
    scratch.0.clear();
    let phrase = Phrase { bytes, groups: &mut scratch.0, hint };
    let (mut place, mut mark) = (start, 0);
    let whole = loop {
        let mut end = place;
        while at(bytes, end).is_ascii_digit() {
            end += 1;
        }
        phrase.groups.push(Group { start: place, end, mark });
        if phrase.groups.len() == GROUPS_MAX {
            break false;
        }
        match separator(bytes, end) {
            Some((next_mark, next)) => (mark, place) = (next_mark, next),
            // Most numbers are short and alone, and nothing to anybody.
            None if mark == 0 && end - start < ALONE_MIN => return end,
            None => break true,
        }
    };
    let mut index = 0;
    while index < phrase.groups.len() {
        index = match judge(&phrase, index) {
            Some((finding, next)) => {
                found.push(finding);
                next
            }
            None => index + date(&phrase, index).max(1),
        };
    }
    let next = if whole { phrase.groups.len() - 1 } else { GROUPS_MAX - GROUPS_SHARED };
    let end = phrase.group(next).map_or(start + 1, |group| if whole { group.end } else { group.start });
    // An extension, or the word that the last group was glued to, is no beginning of another number.
    found.last().map_or(end, |last| last.end.max(end))
}

/// The mark between two groups, and where the next begins.
fn separator(bytes: &[u8], end: usize) -> Option<(u8, usize)> {
    let rest = bytes.get(end..)?;
    const MARKS: [(&[u8], u8); 13] = [
        (b" (", b'('),
        (b"-(", b'('),
        (b") ", b')'),
        (b")-", b')'),
        (b")", b')'),
        (b"(", b'('),
        (b" ", b' '),
        (b"-", b'-'),
        (b".", b'.'),
        (b"/", b'/'),
        ("\u{a0}".as_bytes(), b' '),
        ("\u{2011}".as_bytes(), b'-'),
        ("\u{2013}".as_bytes(), b'-'),
    ];
    let first = *rest.first()?;
    if !matches!(first, b' ' | b'-' | b')' | b'(' | b'.' | b'/' | 0xc2 | 0xe2) {
        return None;
    }
    MARKS.iter().find_map(|(text, mark)| {
        let next = end + text.len();
        (rest.starts_with(text) && at(bytes, next).is_ascii_digit()).then_some((*mark, next))
    })
}

/// What begins at a group, and the group to go on with.
fn judge(phrase: &Phrase<'_>, index: usize) -> Option<(RedactionFinding, usize)> {
    if phrase.group(index)?.len() > DIGITS_MAX || !phrase.can_begin(index) {
        return None;
    }
    address(phrase, index)
        .or_else(|| card::at(phrase, index))
        .or_else(|| ssn::at(phrase, index))
        .or_else(|| if date(phrase, index) > 0 { None } else { phone::at(phrase, index) })
}

fn address(phrase: &Phrase<'_>, index: usize) -> Option<(RedactionFinding, usize)> {
    let octet = |place: usize| {
        let digits = phrase.digits(place);
        let value = digits.iter().fold(0_u32, |value, digit| value.saturating_mul(10) + u32::from(digit - b'0'));
        (1..=3).contains(&digits.len()) && value <= 255 && (digits.len() == 1 || at(digits, 0) != b'0')
    };
    let dotted = (1..4).all(|step| phrase.mark(index + step) == b'.');
    if !dotted || !(0..4).all(|step| octet(index + step)) || !phrase.can_end(index + 3) {
        return None;
    }
    let (start, end) = (phrase.group(index)?.start, phrase.group(index + 3)?.end);
    addresses::v4_fits(phrase.bytes, start, end)
        .then_some((RedactionFinding { kind: RedactionKind::IpAddress, start, end }, index + 4))
}

/// How many groups from here are a date: three or none.
fn date(phrase: &Phrase<'_>, index: usize) -> usize {
    let mark = phrase.mark(index + 1);
    if !matches!(mark, b'-' | b'.' | b'/') || phrase.mark(index + 2) != mark || phrase.mark(index + 3) == mark {
        return 0;
    }
    let number = |place: usize| {
        phrase.digits(place).iter().fold(0_u32, |value, digit| value.saturating_mul(10) + u32::from(digit - b'0'))
    };
    let length = |place: usize| phrase.digits(place).len();
    let year = |place: usize| length(place) == 4 && (1900..2100).contains(&number(place));
    let day = |place: usize| length(place) <= 2 && (1..=31).contains(&number(place));
    let is = (year(index) && day(index + 1) && day(index + 2)) || (day(index) && day(index + 1) && year(index + 2));
    if is { 3 } else { 0 }
}
