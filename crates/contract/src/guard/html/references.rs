//! Character references as browsers read them, and letter case folded: the text that the rules of `html` look at.
//!
//! Numbers of any length with or without the semicolon, and the named references that stand for signs of markup and
//! addresses. References inside references are decoded once more, for tools that decode before a browser does.
//!
//! Not here: the other two thousand names; they stand for letters and symbols that no rule asks about.

/// How often references are decoded.
const DECODINGS: usize = 2;
/// Longest reference worth decoding; leading zeros are free.
const DIGITS_MAX: usize = 32;

/// The names, without `&`; the flag says whether they are read without a semicolon too.
const NAMED: [(&str, char, bool); 15] = [
    ("lt", '<', true),
    ("gt", '>', true),
    ("amp", '&', true),
    ("quot", '"', true),
    ("apos", '\'', false),
    ("colon", ':', false),
    ("tab", '\t', false),
    ("newline", '\n', false),
    ("lpar", '(', false),
    ("rpar", ')', false),
    ("equals", '=', false),
    ("sol", '/', false),
    ("grave", '`', false),
    ("lbrack", '[', false),
    ("nbsp", '\u{a0}', true),
];

/// The text in lower case, with references decoded and NUL left out.
pub(super) fn decoded(text: &str) -> String {
    let mut now: String = text.chars().filter(|c| *c != '\0').map(|c| c.to_ascii_lowercase()).collect();
    for _ in 0..DECODINGS {
        if !now.contains('&') {
            break;
        }
        now = decoded_once(&now);
    }
    now
}

fn decoded_once(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, after)) = rest.split_once('&') {
        out.push_str(plain);
        match reference(after) {
            Some((c, length)) => {
                if c != '\0' {
                    out.push(c.to_ascii_lowercase());
                }
                rest = after.get(length..).unwrap_or_default();
            }
            None => {
                out.push('&');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The character a reference stands for, and how many bytes after the `&` it takes.
fn reference(after: &str) -> Option<(char, usize)> {
    if let Some(number) = after.strip_prefix('#') {
        let (digits, radix, prefix) = match number.strip_prefix('x') {
            Some(hex) => (hex, 16, 2),
            None => (number, 10, 1),
        };
        let length = digits.chars().take(DIGITS_MAX).take_while(|c| c.is_digit(radix)).count();
        let code = u32::from_str_radix(digits.get(..length)?, radix).ok()?;
        let semicolon = digits.get(length..).is_some_and(|tail| tail.starts_with(';'));
        return Some((char::from_u32(code)?, prefix + length + usize::from(semicolon)));
    }
    NAMED.iter().find_map(|(name, c, bare)| {
        let tail = after.strip_prefix(name)?;
        if tail.starts_with(';') { Some((*c, name.len() + 1)) } else { bare.then_some((*c, name.len())) }
    })
}
