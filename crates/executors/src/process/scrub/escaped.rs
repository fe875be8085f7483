//! Secrets of which some characters are escaped: as JSON writes them (`\u003d`, `\/`, `\"`, in a string in a string with more
//! backslashes), as addresses and forms do (`%3D`, `%253D`, `+`), each character in its own way.
//!
//! Text and secret are brought into one form, in which all spellings of a character are the same, and the one is looked for in
//! the other; a place in that form is known by its place in the text. Backslashes are left out of it, because how many there
//! are says only how often the text was quoted. So a little more is found than was meant (`a\b` in `ab`), and nothing less.
//! Each pass is linear, there are at most [`PASSES_MAX`], and a text without any sign of an escape is not read at all.
//!
//! Not found: a secret whose first or last characters have become part of an escape of what stands beside it.

use std::ops::Range;

/// How often what was unescaped is looked at again: what is escaped twice each way needs four.
const PASSES_MAX: usize = 6;

/// A secret in the form in which it is looked for.
pub(super) struct Plain {
    text: String,
    pub(super) label: String,
}

impl Plain {
    /// `None` for one of which too little is left.
    pub(super) fn of(secret: &str, label: &str) -> Option<Self> {
        let mut text = stream(&unescaped(secret.bytes().collect()));
        // What could be the beginning of an escape says nothing about how it goes on in the text.
        while let Some(at) = text.rfind('%').filter(|at| text.len() - at <= 2) {
            text.truncate(at);
        }
        (text.chars().count() >= super::SECRET_BYTES_MIN).then(|| Self { text, label: label.to_owned() })
    }
}

/// Where in the text these secrets stand, each with what is to stand there; in order, none over another.
pub(super) fn places<'p>(text: &str, all: &'p [Plain]) -> Vec<(Range<usize>, &'p str)> {
    if all.is_empty() || !text.bytes().any(|byte| matches!(byte, b'\\' | b'%' | b'+')) {
        return Vec::new();
    }
    let plain = stream(&unescaped(text.bytes().collect::<Vec<u8>>()));
    let mut hits: Vec<(Range<usize>, &str)> = Vec::new();
    for secret in all {
        let found = plain.match_indices(&secret.text);
        hits.extend(found.map(|(at, _)| (at..at + secret.text.len(), secret.label.as_str())));
    }
    if hits.is_empty() {
        return Vec::new();
    }
    // Only now, because most texts have none.
    let spots = text.bytes().enumerate().map(|(at, byte)| Spot { byte, from: at, to: at + 1 });
    let spots = unescaped(spots.collect::<Vec<Spot>>());
    // A byte beyond ASCII takes two in the stream.
    let at: Vec<usize> = (spots.iter().enumerate())
        .flat_map(|(index, spot)| std::iter::repeat_n(index, char::from(folded(spot.byte)).len_utf8()))
        .collect();
    let spot = |place: usize| spots.get(*at.get(place)?);
    let found: Vec<(Range<usize>, &str)> = (hits.into_iter())
        .filter_map(|(hit, label)| Some((spot(hit.start)?.from..spot(hit.end.checked_sub(1)?)?.to, label)))
        .map(|(range, label)| (whole_characters(text, range), label))
        .collect();
    super::without_overlaps(found)
}

/// Whether there is such a place.
pub(super) fn finds(text: &str, all: &[Plain]) -> bool {
    !places(text, all).is_empty()
}

fn whole_characters(text: &str, range: Range<usize>) -> Range<usize> {
    let from = (0..=range.start).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let to = (range.end..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    from..to
}

/// One character for each byte, so that text can be searched that is none.
fn stream<U: Unit>(units: &[U]) -> String {
    units.iter().map(|unit| char::from(folded(unit.byte()))).collect()
}

/// What has a letter as its escape is that letter, and what may stand for a space is one.
fn folded(byte: u8) -> u8 {
    match byte {
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        b'+' => b' ',
        byte => byte,
    }
}

// ------------------------------------------------------------------------------------------------------- unescaping

/// A byte, with or without its place.
trait Unit: Copy {
    fn byte(self) -> u8;
    /// A byte that these together stood for, from the first to the last.
    fn instead(first: Self, last: Self, byte: u8) -> Self;
}

impl Unit for u8 {
    fn byte(self) -> u8 {
        self
    }

    fn instead(_: Self, _: Self, byte: u8) -> Self {
        byte
    }
}

#[derive(Clone, Copy)]
struct Spot {
    byte: u8,
    from: usize,
    to: usize,
}

impl Unit for Spot {
    fn byte(self) -> u8 {
        self.byte
    }

    fn instead(first: Self, last: Self, byte: u8) -> Self {
        Self { byte, from: first.from, to: last.to }
    }
}

fn unescaped<U: Unit>(mut units: Vec<U>) -> Vec<U> {
    for _ in 0..PASSES_MAX {
        let before = units.len();
        units = pass(&units);
        // Every escape is longer than what it stands for.
        if units.len() == before {
            break;
        }
    }
    units
}

/// Everything that is escaped, once.
fn pass<U: Unit>(units: &[U]) -> Vec<U> {
    let mut plain = Vec::with_capacity(units.len());
    let mut rest = units;
    while let [first, after @ ..] = rest {
        let escape = match first.byte() {
            b'%' => percent(after),
            b'\\' => unicode(after),
            byte => {
                plain.push(U::instead(*first, *first, byte));
                rest = after;
                continue;
            }
        };
        let Some(Escape { meant, taken }) = escape else {
            if first.byte() == b'%' {
                plain.push(*first);
            }
            rest = after;
            continue;
        };
        let (escaped, left) = after.split_at(taken.min(after.len()));
        let last = *escaped.last().unwrap_or(first);
        let mut room = [0; 4];
        let bytes = match meant {
            Meant::Byte(byte) => {
                room = [byte, 0, 0, 0];
                room.get(..1).unwrap_or_default()
            }
            Meant::Character(character) => character.encode_utf8(&mut room).as_bytes(),
        };
        plain.extend(bytes.iter().map(|byte| U::instead(*first, last, *byte)));
        rest = left;
    }
    plain
}

/// What was meant, and how much of what follows the sign belongs to it.
struct Escape {
    meant: Meant,
    taken: usize,
}

enum Meant {
    Byte(u8),
    Character(char),
}

/// Behind `%`.
fn percent<U: Unit>(after: &[U]) -> Option<Escape> {
    let byte = u8::try_from(hexadecimal(after.get(..2)?)?).ok()?;
    Some(Escape { meant: Meant::Byte(byte), taken: 2 })
}

/// Behind a backslash: `uXXXX`, or two of them for a character beyond the first 65536.
fn unicode<U: Unit>(after: &[U]) -> Option<Escape> {
    let unit = code_unit(after)?;
    let between = after.iter().skip(5).take_while(|unit| unit.byte() == b'\\').count();
    let second = after.get(5 + between..).filter(|_| (0xd800..0xdc00).contains(&unit) && between > 0);
    if let Some(low) = second.and_then(code_unit).filter(|low| (0xdc00..0xe000).contains(low)) {
        let meant = char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))?;
        return Some(Escape { meant: Meant::Character(meant), taken: 10 + between });
    }
    let meant = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(Escape { meant: Meant::Character(meant), taken: 5 })
}

fn code_unit<U: Unit>(units: &[U]) -> Option<u32> {
    units.first().filter(|unit| unit.byte() == b'u')?;
    hexadecimal(units.get(1..5)?)
}

fn hexadecimal<U: Unit>(digits: &[U]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| Some(number * 16 + char::from(digit.byte()).to_digit(16)?))
}
