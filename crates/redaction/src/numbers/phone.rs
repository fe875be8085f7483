//! Telephone numbers: international (E.164, `+` or `00`), North American, with the area in brackets, national with a leading
//! zero; and anything of six to thirteen digits where somebody speaks of calling.
//!
//! The shapes of the first sentence are enough by themselves. The others are shapes of dates, amounts and counters as well,
//! so that a word before them, or `office`, `fax` and the like after them, must say what they are.

use super::Phrase;
use crate::boundary::{at as byte_at, before, is_word, line_after, line_before, mentions, run};
use crate::findings::{RedactionFinding, RedactionKind};

/// Most digits of a number, E.164.
const DIGITS_MAX: usize = 15;
/// Words before a number that make it one.
const WORDS: [&str; 25] = [
    "phone",
    "call",
    "tel",
    "telephone",
    "mobile",
    "cell",
    "fax",
    "reach",
    "answering",
    "dial",
    "sms",
    "whatsapp",
    "hotline",
    "text me",
    "contact number",
    "cellphone",
    "voicemail",
    "pager",
    "landline",
    "calling",
    "telefon",
    "mobil",
    "móvil",
    "phoned",
    "my number",
];
/// Of these, the ones that are about telephones only. A run of digits without any mark needs one of them.
const SURE_WORDS: [&str; 14] = [
    "phone",
    "tel",
    "telephone",
    "mobile",
    "cell",
    "fax",
    "dial",
    "sms",
    "whatsapp",
    "call me",
    "can call",
    "hotline",
    "telefon",
    "reach",
];
/// Words right after a number that make it one.
const LABELS: [&str; 9] = ["office", "fax", "mobile", "cell", "home", "work", "phone", "tel", "main"];
/// Words after a number that make a house of it.
const STREETS: [&str; 9] = ["street", "road", "avenue", "lane", "suite", "drive", "boulevard", "st", "rd"];
/// Longest extension.
const EXTENSION_MAX: usize = 7;

/// The number that begins with this group.
pub(super) fn at(phrase: &Phrase<'_>, index: usize) -> Option<(RedactionFinding, usize)> {
    let bytes = phrase.bytes;
    let first = phrase.group(index)?;
    let last = international(phrase, index)
        .or_else(|| north_american(phrase, index))
        .or_else(|| bracketed(phrase, index))
        .or_else(|| leading_zero(phrase, index))
        .or_else(|| spoken_of(phrase, index))?;
    let mut start = first.start;
    if opened(phrase, index) {
        start -= 1;
    }
    if before(bytes, start) == b'+' {
        start -= 1;
    }
    if matches!(before(bytes, start), b'$') {
        return None;
    }
    let end = extension(bytes, phrase.group(last)?.end);
    Some((RedactionFinding { kind: RedactionKind::Phone, start, end }, last + 1))
}

/// Whether a bracket opens right before the group and closes right after it.
fn opened(phrase: &Phrase<'_>, index: usize) -> bool {
    phrase.group(index).is_some_and(|group| before(phrase.bytes, group.start) == b'(') && phrase.mark(index + 1) == b')'
}

/// Whether the number may end with this group: also before an extension or a label.
fn can_end(phrase: &Phrase<'_>, index: usize) -> bool {
    let Some(group) = phrase.group(index) else { return false };
    if phrase.group(index + 1).is_some() {
        return phrase.can_end(index);
    }
    let bytes = phrase.bytes;
    if extension(bytes, group.end) > group.end {
        return true;
    }
    match byte_at(bytes, group.end) {
        b'-' if is_word(byte_at(bytes, group.end + 1)) => label_after(bytes, group.end),
        b':' => !byte_at(bytes, group.end + 1).is_ascii_digit(),
        b'%' => false,
        next => !is_word(next),
    }
}

/// Takes groups from `index` on while they can belong to one number of at most `most` digits; the last group and the digits.
fn gather(phrase: &Phrase<'_>, index: usize, least: usize, most: usize) -> Option<usize> {
    let (mut last, mut digits) = (None, 0);
    let mut place = index;
    while let Some(group) = phrase.group(place) {
        let (mark, length) = (group.mark, group.len());
        if place > index {
            let changes = mark == b' ' && !matches!(phrase.mark(place - 1), b' ' | b')' | 0 | b'(');
            let enough = digits >= least && mark == b' ' && (changes || digits >= 10 || length == 1 || length > 4);
            if mark == b'/' && digits > 5 || enough {
                break;
            }
        }
        digits += length;
        if digits > most {
            break;
        }
        if digits >= least && can_end(phrase, place) {
            last = Some(place);
        }
        place += 1;
    }
    last
}

fn international(phrase: &Phrase<'_>, index: usize) -> Option<usize> {
    let group = phrase.group(index)?;
    let digits = phrase.digits(index);
    let sign = before(phrase.bytes, group.start);
    let plus = group.mark == 0
        && (sign == b'+' || (sign == b'(' && group.start >= 2 && byte_at(phrase.bytes, group.start - 2) == b'+'));
    if plus && byte_at(digits, 0) != b'0' {
        // North American numbers have eleven digits, so that what follows is not taken along.
        let most = if digits == b"1" { 11 } else { DIGITS_MAX };
        return gather(phrase, index, 8, most);
    }
    let zeros = digits.starts_with(b"00") && byte_at(digits, 2) != b'0' && (3..=6).contains(&digits.len());
    if zeros && matches!(phrase.mark(index + 1), b' ' | b'-' | b'.' | b'(') {
        let most = if digits == b"001" { 13 } else { DIGITS_MAX + 2 };
        return gather(phrase, index, 10, most);
    }
    None
}

fn north_american(phrase: &Phrase<'_>, index: usize) -> Option<usize> {
    let from = if phrase.digits(index) == b"1" && matches!(phrase.mark(index + 1), b' ' | b'-' | b'.' | b'(') {
        index + 1
    } else {
        index
    };
    let marks = matches!(phrase.mark(from + 1), b' ' | b'-' | b'.' | b')' | b'/')
        && matches!(phrase.mark(from + 2), b' ' | b'-' | b'.');
    let last = from + 2;
    (marks && phrase.lengths(from, &[3, 3, 4]) && can_end(phrase, last)).then_some(last)
}

fn bracketed(phrase: &Phrase<'_>, index: usize) -> Option<usize> {
    let area = phrase.digits(index);
    if !opened(phrase, index) || !(2..=5).contains(&area.len()) {
        return None;
    }
    gather(phrase, index, 8.max(area.len() + 5), 12)
}

fn leading_zero(phrase: &Phrase<'_>, index: usize) -> Option<usize> {
    let digits = phrase.digits(index);
    let area = byte_at(digits, 0) == b'0' && byte_at(digits, 1) != b'0' && (2..=5).contains(&digits.len());
    if !area || !matches!(phrase.mark(index + 1), b' ' | b'-' | b'.' | b'/') {
        return None;
    }
    let last = gather(phrase, index, 9, 12)?;
    let dotted = phrase.mark(index + 1) == b'.' && last < index + 3;
    // Counters with leading zeros: 010 020 030.
    let counter = (index..=last).all(|place| byte_at(phrase.digits(place), 0) == b'0') && last < index + 4;
    let national = index + 2 == last && phrase.lengths(index, &[3, 3, 3]) && phrase.mark(index + 1) == b'-';
    (!dotted && (!counter || national)).then_some(last)
}

/// Shapes that are telephone numbers where somebody says so.
fn spoken_of(phrase: &Phrase<'_>, index: usize) -> Option<usize> {
    let first = phrase.group(index)?;
    let mark = phrase.mark(index + 1);
    let last = if matches!(mark, b' ' | b'-' | b'.' | b'/') { gather(phrase, index, 6, 13)? } else { index };
    let digits: usize = (index..=last).map(|place| phrase.digits(place).len()).sum();
    let alone = last == index;
    if !can_end(phrase, last) || !(if alone { 7..=13 } else { 6..=13 }).contains(&digits) {
        return None;
    }
    if (index..=last).any(|place| phrase.digits(place).len() == 1 && place > index) {
        return None;
    }
    // `14 3684 Court Street`: a house, whoever is called to it.
    let rest = line_after(phrase.bytes, phrase.group(last)?.end);
    if byte_at(rest, 0) == b' ' && STREETS.iter().any(|street| mentions(rest, street)) {
        return None;
    }
    let words: &[&str] = if alone { &SURE_WORDS } else { &WORDS };
    let line = line_before(phrase.bytes, first.start);
    let end = extension(phrase.bytes, phrase.group(last)?.end);
    (phrase.hint.phone || label_after(phrase.bytes, end) || words.iter().any(|word| mentions(line, word)))
        .then_some(last)
}

/// Whether a label stands right after the number.
fn label_after(bytes: &[u8], end: usize) -> bool {
    let rest = line_after(bytes, end);
    let start = run(rest, 0, 3, |byte| matches!(byte, b' ' | b'-' | b'(' | b'\t' | b','));
    let label = rest.get(start..).unwrap_or_default();
    start > 0
        && LABELS.iter().any(|word| {
            label.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()))
                && !byte_at(label, word.len()).is_ascii_alphabetic()
        })
}

/// The end of the number with its extension, or without: `x1711`, ` ext. 12`, ` extension 7`.
fn extension(bytes: &[u8], end: usize) -> usize {
    let blank = run(bytes, end, 2, |byte| matches!(byte, b' ' | b','));
    let rest = bytes.get(blank..).unwrap_or_default();
    let word = ["extension", "ext.", "ext", "x.", "x", "#"]
        .iter()
        .find(|word| rest.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes())));
    let Some(word) = word else { return end };
    let from = run(bytes, blank + word.len(), 2, |byte| matches!(byte, b' ' | b':'));
    let digits = run(bytes, from, EXTENSION_MAX, |byte| byte.is_ascii_digit());
    if digits > from && !is_word(byte_at(bytes, digits)) { digits } else { end }
}
