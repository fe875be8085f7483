//! A value that is given to a name which says that it is a secret: `API_KEY="…"`, `"token": "…"`, `--password …`,
//! `<secret>…</secret>`, `name: X_TOKEN` with its `value:` on the next line.
//!
//! The name says how much the value must look like a secret. A password may be any word; a key must be random. What stands
//! in place of a secret, or refers to one (`${TOKEN}`, `config.token`, `getToken()`), stays.

use super::open_end::{OpenEnd, Quotes};
use super::plausible;
use crate::boundary::{at, before, run, run_back};
use crate::names::{NameMeaning, says, words};

/// How much of a name before the word that gave it away is looked at.
const NAME_MAX: usize = 48;
/// How much of a value is looked at to judge it, in quotes and without. What is hidden goes on to its end.
const QUOTED_MAX: usize = 2048;
const UNQUOTED_MAX: usize = 256;
/// Shortest values of each kind.
const PASSWORD_MIN: usize = 5;
const SECRET_MIN: usize = 8;
const KEY_MIN: usize = 20;

/// Looks at the name around `start..end`: where the name ends, and the value that is a secret, with how it goes on.
pub(super) fn around(text: &str, start: usize, end: usize) -> (usize, Option<(usize, usize, OpenEnd)>) {
    let bytes = text.as_bytes();
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let mut name_start = run_back(bytes, start, NAME_MAX, in_name);
    // The `n` of an escaped line end is no part of the name.
    if name_start > 0
        && before(bytes, name_start) == b'\\'
        && matches!(at(bytes, name_start), b'n' | b't' | b'r')
        && name_start < start
    {
        name_start += 1;
    }
    let name_end = run(bytes, end, usize::MAX, in_name);
    let trimmed = run_back(bytes, name_end, 2, |byte| matches!(byte, b'.' | b'-' | b'_')).max(end);
    let Some(name) = text.get(name_start..trimmed) else { return (end, None) };
    let says = says(&words(name));
    if says == NameMeaning::Nothing {
        return (name_end, None);
    }
    let Some(value) = value(bytes, name_start, trimmed) else { return (name_end, None) };
    // A quote inside of a value may be its end in the eyes of whoever wrote it, so that part is judged by itself as well.
    let judged = |end: usize| bytes.get(value.start..end).is_some_and(|content| is_secret(says, content, &value));
    let secret = judged(value.judged) || (value.end != value.judged && judged(value.end));
    (name_end, secret.then_some((value.start, value.end, value.rest)))
}

/// Where a value stands and how it is written.
struct Value {
    start: usize,
    /// So far it is judged.
    judged: usize,
    end: usize,
    quoted: bool,
    /// Something that calls or refers follows.
    called: bool,
    /// Said in a sentence: `the password is …`.
    said: bool,
    /// How it goes on behind what was looked at.
    rest: OpenEnd,
}

fn value(bytes: &[u8], name_start: usize, name_end: usize) -> Option<Value> {
    let is_blank = |byte: u8| matches!(byte, b' ' | b'\t');
    let is_quote = |byte: u8| matches!(byte, b'"' | b'\'' | b'`');
    let is_escape = |byte: u8| byte == b'\\';
    let mut place = run(bytes, name_end, usize::MAX, is_escape);
    let quoted_name = is_quote(at(bytes, place));
    place += usize::from(quoted_name);
    let bracket = at(bytes, place) == b']';
    place += usize::from(bracket);
    let after_name = place;
    place = run(bytes, place, usize::MAX, is_blank);
    let rest = bytes.get(place..)?;
    let (operator, said) = if let Some(length) = operator(rest) {
        (length, false)
    } else if (rest.first() == Some(&b',') && quoted_name)
        || (rest.first() == Some(&b'>') && matches!(before(bytes, name_start), b'<' | b':'))
    {
        (1, false)
    } else if rest.get(..7).is_some_and(|it| it.eq_ignore_ascii_case(b"value=\"")) && quoted_name {
        (6, false)
    } else if rest.starts_with(b"is ") && place > after_name {
        (3, true)
    } else if rest.starts_with(b"is: ") && place > after_name {
        (4, true)
    } else if bytes.get(name_start..name_end)?.starts_with(b"--") && place > after_name {
        (0, false)
    } else {
        (value_on_next_line(bytes, after_name).map(|next| next - place)?, false)
    };
    place = run(bytes, place + operator, usize::MAX, is_blank);
    // `token: string = "…"`
    for kind in [&b"string = "[..], b"str = ", b"String = ", b"&str = "] {
        if bytes.get(place..)?.starts_with(kind) {
            place += kind.len();
        }
    }
    let escapes = place;
    place = run(bytes, place, usize::MAX, is_escape);
    let (quote, escapes) = (at(bytes, place), place - escapes);
    if is_quote(quote) {
        let start = place + 1;
        let quotes = Quotes { quote, escapes };
        let first = run(bytes, start, QUOTED_MAX, |byte| !quotes.may_end_at(byte));
        let stop = quotes.close_or_line_end(bytes, start, start.saturating_add(QUOTED_MAX));
        let is_closed = at(bytes, stop) == quote && stop - start < QUOTED_MAX;
        // The backslashes of an escaped quote are not part of the value.
        let bare = |stop: usize| run_back(bytes, stop, escapes.min(stop - start), is_escape);
        let end = if is_closed { bare(stop) } else { stop };
        let rest = if is_closed { OpenEnd::None } else { OpenEnd::Quoted(quotes) };
        return Some(Value { start, judged: bare(first).min(end), end, quoted: true, called: false, said, rest });
    }
    let whole = run(bytes, place, UNQUOTED_MAX, |byte| byte < 0x7f && OpenEnd::Unquoted.has(byte));
    let mut end = whole;
    // `=` ends base64; before something else it may begin another assignment, so what stands before it is judged.
    let equals = bytes.get(place..end)?.windows(2).position(|pair| at(pair, 0) == b'=' && at(pair, 1) != b'=');
    end = equals.map_or(end, |equals| place + equals);
    let called = bytes.get(place..end)?.iter().any(|byte| matches!(byte, b'(' | b'[' | b'{'));
    let goes_on = end < whole || OpenEnd::Unquoted.has(at(bytes, whole));
    if !goes_on && (said || matches!(before(bytes, end), b'.' | b':' | b'!' | b'?')) {
        end = run_back(bytes, end, (end - place).min(3), |byte| matches!(byte, b'.' | b'!' | b'?' | b':'));
    }
    let rest = if goes_on { OpenEnd::Unquoted } else { OpenEnd::None };
    Some(Value { start: place, judged: end, end, quoted: false, called, said, rest })
}

/// The length of the operator that a text begins with.
fn operator(text: &[u8]) -> Option<usize> {
    [&b":="[..], b"=>", b"->", b"===", b"!==", b"==", b"!=", b"||=", b"?=", b"=", b":"]
        .iter()
        .find(|operator| text.starts_with(operator))
        .map(|operator| operator.len())
        .or_else(|| text.starts_with(b"%3D").then_some(3))
}

/// Lists of variables have the name in one line and the value in the next. Where the value begins, before its quote.
fn value_on_next_line(bytes: &[u8], after_name: usize) -> Option<usize> {
    let is_gap = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',');
    let place = run(bytes, after_name, 40, is_gap);
    let quote = usize::from(matches!(at(bytes, place), b'"' | b'\''));
    let word = bytes.get(place + quote..)?.get(..5)?;
    let colon = run(bytes, place + quote + 5, 3, |byte| matches!(byte, b'"' | b'\'' | b' '));
    (place > after_name && word.eq_ignore_ascii_case(b"value") && at(bytes, colon) == b':').then_some(colon + 1)
}

fn is_secret(says: NameMeaning, content: &[u8], value: &Value) -> bool {
    let quoted = value.quoted;
    if value.called || refers(content, quoted) || plausible::stand_in(content) {
        return false;
    }
    if plausible::longest_row(content) >= 6 || plausible::longest_ascent(content) >= 12 {
        return false;
    }
    let digits = content.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = content.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let blank = content.iter().any(u8::is_ascii_whitespace);
    let long_enough = |least: usize| content.len() >= least;
    match says {
        NameMeaning::Nothing => false,
        NameMeaning::Password => {
            long_enough(PASSWORD_MIN) && !blank && !is_plain(content) && (!value.said || digits > 0 || marks(content))
        }
        NameMeaning::Secret => {
            let humps = content
                .windows(2)
                .filter(|pair| at(pair, 0).is_ascii_lowercase() && at(pair, 1).is_ascii_uppercase())
                .count();
            let mixed = digits > 0 || (long_enough(16) && humps >= 4 && !content.contains(&b'.'));
            let random = plausible::entropy(content) >= if long_enough(20) { 3.0 } else { 2.4 };
            let wordy = plausible::is_wordy(content) && !plausible::is_uuid(content);
            long_enough(SECRET_MIN) && !blank && letters > 0 && mixed && random && !wordy
        }
        NameMeaning::SomeKey => {
            let digest =
                matches!(content.len(), 32 | 40 | 56 | 64 | 96 | 128) && content.iter().all(u8::is_ascii_hexdigit);
            let alphabet = content
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'+' | b'/' | b'='));
            long_enough(KEY_MIN)
                && alphabet
                && digits >= 2
                && letters >= 2
                && plausible::entropy(content) >= 3.5
                && !digest
                && !plausible::is_uuid(content)
                && !plausible::is_wordy(content)
        }
    }
}

/// Whether a value is a reference to where the secret is: a variable, a member, a path.
fn refers(content: &[u8], quoted: bool) -> bool {
    let text = String::from_utf8_lossy(content);
    let variable = text.starts_with('$')
        && text.get(1..).is_some_and(|rest| {
            rest.starts_with(['{', '('])
                || (!rest.is_empty()
                    && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_'))
        });
    let template = text.contains("${")
        || text.contains("{{")
        || text.contains("$(")
        || (text.starts_with('%') && text.ends_with('%'))
        || text.contains("%(");
    let path = text.starts_with('/') && text.matches('/').count() >= 2
        || text.starts_with("./")
        || text.starts_with("../")
        || text.starts_with("~/")
        || text.contains("://")
        || has_extension(&text);
    let member = !quoted
        && text.contains('.')
        && text.split('.').all(|part| part.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_'))
        && text.len() < 80;
    let source =
        ["process.env", "os.environ", "getenv", "secrets.", "vault:", "arn:aws"].iter().any(|word| text.contains(word));
    variable || template || path || member || source
}

fn has_extension(text: &str) -> bool {
    let Some((_, extension)) = text.rsplit_once('.') else { return false };
    [
        "pem", "key", "p12", "pfx", "json", "yaml", "yml", "txt", "js", "ts", "py", "go", "rs", "java", "jks", "crt",
        "com", "org", "net", "io", "html", "xml",
    ]
    .contains(&extension)
}

/// Words that stand where a password would: types, states, the name itself.
fn is_plain(content: &[u8]) -> bool {
    const PLAIN: [&[u8]; 28] = [
        b"string",
        b"password",
        b"passwd",
        b"secret",
        b"required",
        b"optional",
        b"null",
        b"none",
        b"true",
        b"false",
        b"undefined",
        b"hidden",
        b"prompt",
        b"empty",
        b"value",
        b"field",
        b"input",
        b"invalid",
        b"incorrect",
        b"wrong",
        b"missing",
        b"expired",
        b"reset",
        b"changed",
        b"integer",
        b"object",
        b"token",
        b"basic",
    ];
    let lower = content.to_ascii_lowercase();
    let constant = content.contains(&b'_') && content.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    PLAIN.contains(&lower.as_slice()) || constant
}

/// Whether a mark is in it that words do not have.
fn marks(content: &[u8]) -> bool {
    content.iter().any(|byte| matches!(byte, b'!' | b'@' | b'#' | b'$' | b'%' | b'^' | b'&' | b'*' | b'~' | b'+'))
}
