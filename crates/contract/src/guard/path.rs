//! The path guard: a relative path must stay under the directory it is joined to.
//!
//! Readers of paths differ in what they decode, so a text is looked at as it stands and with its percent escapes taken
//! away, several times over, and both kinds of slash separate. Characters that normalisation turns into dots and slashes
//! count as such, and so do the overlong UTF-8 forms that some decoders still accept.
//!
//! Not here: symbolic links and what exists (the executor resolves under its root), which names a file system dislikes.

/// How many times escapes are taken away: `%252e` needs two.
const DECODINGS_MAX: usize = 4;

pub(super) fn broken_by(text: &str) -> Option<&'static str> {
    let mut current = text.to_owned();
    for _ in 0..DECODINGS_MAX {
        if let Some(rule) = broken_as_it_stands(&current) {
            return Some(rule);
        }
        match decoded(&current) {
            Some(next) => current = next,
            None => return None,
        }
    }
    Some("it is percent-encoded over and over")
}

fn broken_as_it_stands(text: &str) -> Option<&'static str> {
    if text.chars().any(char::is_control) {
        return Some("it has a control character");
    }
    if text.starts_with(is_separator) {
        return Some("it is absolute");
    }
    if text.trim_start().starts_with('~') {
        return Some("it starts with `~`, a home directory");
    }
    let mut start = text.trim_start().chars();
    if start.next().is_some_and(|c| c.is_ascii_alphabetic()) && start.next() == Some(':') {
        return Some("it starts with a drive letter");
    }
    if text.contains("://") {
        return Some("it is a URL");
    }
    if text.split(is_separator).any(leads_up) {
        return Some("it has a `..` segment");
    }
    None
}

fn is_separator(c: char) -> bool {
    // Full-width forms normalise to the plain ones.
    matches!(c, '/' | '\\' | '\u{ff0f}' | '\u{ff3c}')
}

/// `..`, also with what some systems ignore behind it (white space; `;` and parameters). No honest segment is dots alone.
fn leads_up(segment: &str) -> bool {
    let name = segment.split(';').next().unwrap_or_default().trim();
    // The two-dot leader normalises to `..` by itself.
    let dots: usize = name.chars().map(|c| if c == '\u{2025}' { 2 } else { 1 }).sum();
    dots >= 2 && name.chars().all(|c| matches!(c, '.' | '\u{ff0e}' | '\u{2024}' | '\u{2025}'))
}

/// The text without one layer of percent escapes; `None` if it has none.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut found = false;
    while let Some((&first, tail)) = rest.split_first() {
        match (first == b'%').then(|| escape(tail)).flatten() {
            Some(byte) => {
                found = true;
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    found.then(|| String::from_utf8_lossy(&without_overlong(&bytes)).into_owned())
}

fn escape(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| digits.get(at).and_then(|b| char::from(*b).to_digit(16));
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// ASCII characters written in two bytes (`C0 AE` for a dot) become the characters that lax decoders make of them.
fn without_overlong(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        match (first, tail.split_first()) {
            (0xc0 | 0xc1, Some((&second, after))) if second & 0xc0 == 0x80 => {
                plain.push(((first & 1) << 6) | (second & 0x3f));
                rest = after;
            }
            _ => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::expectations::{names_the_rule, tells_apart};
    use super::*;

    const HOSTILE: [&str; 34] = [
        "..",
        "../x",
        "a/../../b",
        "a/..",
        "..\\x",
        "a\\..\\b",
        "%2e%2e/x",
        "%2E%2E%2Fetc",
        "..%2fx",
        "..%5cx",
        "a%2f..%2fb",
        "%252e%252e%252fx",
        "%25252e%25252e/x",
        "%c0%ae%c0%ae/x",
        "..%c0%afx",
        "/etc/passwd",
        "//host/share",
        "\\\\host\\share",
        "\\windows",
        "%2fetc/passwd",
        "C:\\windows",
        "c:relative",
        "~",
        "~root/.ssh",
        "%7e/x",
        "a\0.txt",
        "a%00.txt",
        "a\nb",
        "....//x",
        "..;/admin",
        ".. /x",
        "\u{ff0e}\u{ff0e}/x",
        "a/\u{2025}/x",
        "file:///etc/passwd",
    ];

    const HONEST: [&str; 22] = [
        "",
        ".",
        "a",
        "a/b/c.txt",
        "./a",
        "a/./b",
        "a//b",
        ".hidden",
        "..hidden",
        "file..txt",
        "v1..v2",
        "wait...txt",
        "backup~",
        "PROGRA~1/x",
        "100%.txt",
        "50%25 off.txt",
        "a b/c d",
        "größe/日本.txt",
        "ab:c",
        "2024-01-01T10:00.log",
        "a\\b",
        "x%zz",
    ];

    #[test]
    fn ways_out_are_refused_and_ways_down_pass() {
        tells_apart(broken_by, &HOSTILE, &HONEST);
    }

    #[test]
    fn the_broken_rule_is_named() {
        names_the_rule(
            broken_by,
            &[
                ("a/%2e%2e", "segment"),
                ("/a", "absolute"),
                ("~a", "home"),
                ("d:/", "drive"),
                ("a\0", "control"),
                ("%2525252525252e", "over and over"),
            ],
        );
    }
}
