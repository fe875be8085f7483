//! Bytes and where words begin and end. Texts are looked at as bytes, because everything that is looked for is ASCII.

/// Characters of a context that are looked at before and after a candidate.
const WINDOW: usize = 48;

/// The byte at a place, 0 past the end.
pub(crate) fn at(bytes: &[u8], index: usize) -> u8 {
    bytes.get(index).copied().unwrap_or(0)
}

/// The byte before a place, 0 at the start.
pub(crate) fn before(bytes: &[u8], index: usize) -> u8 {
    index.checked_sub(1).map_or(0, |index| at(bytes, index))
}

/// Whether a byte belongs to a word.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether something can begin here: no word goes on from the left. The `n` of an escaped line end and the last digit of a
/// percent escape are no words.
pub(crate) fn begins(bytes: &[u8], index: usize) -> bool {
    let last = before(bytes, index);
    if !is_word(last) {
        return true;
    }
    if index >= 2 && matches!(last, b'n' | b'r' | b't') && at(bytes, index - 2) == b'\\' {
        return true;
    }
    index >= 3
        && at(bytes, index - 3) == b'%'
        && at(bytes, index - 2).is_ascii_hexdigit()
        && last.is_ascii_hexdigit()
        && !last.is_ascii_lowercase()
}

/// Whether something can end here: no word goes on to the right.
pub(crate) fn ends(bytes: &[u8], index: usize) -> bool {
    !is_word(at(bytes, index))
}

/// Where the run of bytes that `belongs` accepts ends, going right from `from`, at most `most` bytes.
pub(crate) fn run(bytes: &[u8], from: usize, most: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let mut end = from;
    while end - from < most && bytes.get(end).is_some_and(|byte| belongs(*byte)) {
        end += 1;
    }
    end
}

/// Where the run of bytes that `belongs` accepts begins, going left from `to`, at most `most` bytes.
pub(crate) fn run_back(bytes: &[u8], to: usize, most: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let mut start = to;
    while to - start < most && start > 0 && belongs(before(bytes, start)) {
        start -= 1;
    }
    start
}

/// What stands before a place on its line, the nearest part of it.
pub(crate) fn line_before(bytes: &[u8], index: usize) -> &[u8] {
    let window = bytes.get(index.saturating_sub(WINDOW)..index).unwrap_or_default();
    let start = window.iter().rposition(|byte| matches!(byte, b'\n' | b'{' | b'}')).map_or(0, |last| last + 1);
    window.get(start..).unwrap_or_default()
}

/// What stands after a place on its line, the nearest part of it.
pub(crate) fn line_after(bytes: &[u8], index: usize) -> &[u8] {
    let window = bytes.get(index..bytes.len().min(index + WINDOW)).unwrap_or_default();
    let end = window.iter().position(|byte| matches!(byte, b'\n' | b'{' | b'}')).unwrap_or(window.len());
    window.get(..end).unwrap_or_default()
}

/// Whether a word stands somewhere in `text`, alone, in the plural or as a part of `aName` or `a_name`; `needle` is lower
/// case. The words that redaction itself leaves behind do not count.
pub(crate) fn mentions(text: &[u8], needle: &str) -> bool {
    text.windows(needle.len()).enumerate().any(|(place, window)| {
        if !window.eq_ignore_ascii_case(needle.as_bytes()) {
            return false;
        }
        let camel = at(window, 0).is_ascii_uppercase() && before(text, place).is_ascii_lowercase();
        let rest = text.get(place + needle.len()..).unwrap_or_default();
        let plural = usize::from(at(rest, 0) == b's');
        let upper = window.iter().all(u8::is_ascii_uppercase);
        let next = at(rest, plural);
        let goes_on = next.is_ascii_lowercase() || (upper && next.is_ascii_uppercase());
        (!before(text, place).is_ascii_alphabetic() || camel) && !goes_on && !rest.starts_with(b"_REDACTED")
    })
}
