//! E-mail addresses, found from their `@` (RFC 5321 in the form people use: dot-atoms, letters of other alphabets allowed).
//!
//! Look-alikes that stay: package versions (`left-pad@1.3.0`), images for dense screens (`logo@2x.png`), remotes of
//! repositories (`git@host:path`), the user of an URL, which is a secret if anything.

use crate::boundary::{at, before, run, run_back};

/// RFC 5321: the longest local part.
const LOCAL_MAX: usize = 64;
/// The longest domain.
const DOMAIN_MAX: usize = 253;

/// The address around the `@` at `sign`, not reaching left of `floor`.
pub(crate) fn around(text: &str, sign: usize, floor: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let start = local_start(text, sign, floor)?;
    let end = domain_end(text, sign + 1)?;
    let host = text.get(sign + 1..end)?;
    let local = text.get(start..sign)?;
    let image = |name: &str| {
        let dense = name.as_bytes();
        at(dense, 0).is_ascii_digit() && at(dense, 1) == b'x' && at(dense, 2) == b'.'
    };
    let remote = local == "git" && matches!(at(bytes, end), b':' | b'/');
    (!image(host) && !remote && !is_user_of_url(bytes, start)).then_some((start, end))
}

/// Whether this is the user, or the end of the password, in the authority of an URL.
fn is_user_of_url(bytes: &[u8], start: usize) -> bool {
    let authority = run_back(bytes, start, LOCAL_MAX, |byte| {
        byte > b' ' && !matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'=' | b'&')
    });
    authority >= 3 && bytes.get(authority - 3..authority) == Some(b"://")
}

/// Letters beyond ASCII that can be part of an address in a running text. Scripts that are written without blanks cannot be
/// told from the sentence around.
fn is_letter(letter: char) -> bool {
    !letter.is_ascii() && letter.is_alphabetic() && u32::from(letter) < 0x2E80
}

fn local_start(text: &str, sign: usize, floor: usize) -> Option<usize> {
    let belongs = |letter: char| {
        letter.is_ascii_alphanumeric()
            || matches!(letter, '.' | '_' | '%' | '+' | '-' | '\'' | '&' | '~' | '!' | '$' | '*' | '=' | '^' | '#')
            || is_letter(letter)
    };
    let mut start = sign;
    for (place, letter) in text.get(floor..sign)?.char_indices().rev() {
        if !belongs(letter) || sign - (floor + place) > LOCAL_MAX {
            break;
        }
        start = floor + place;
    }
    // An assignment or a quotation is not part of the address; neither is the `n` of an escaped line end.
    let local = text.get(start..sign)?;
    let after_mark = local.rfind(['=', '#', '$', '!', '*', '^', '&', '\'']).map_or(0, |mark| mark + 1);
    start += after_mark;
    let bytes = text.as_bytes();
    if matches!(at(bytes, start), b'n' | b'r' | b't') && before(bytes, start) == b'\\' {
        start += 1;
    }
    start = run(bytes, start, LOCAL_MAX, |byte| matches!(byte, b'.' | b'-' | b'+' | b'%' | b'~'));
    (start < sign && before(bytes, sign) != b'.').then_some(start)
}

fn domain_end(text: &str, start: usize) -> Option<usize> {
    let rest = text.get(start..)?;
    let belongs = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.') || is_letter(letter);
    let mut end = 0;
    for (place, letter) in rest.char_indices() {
        if !belongs(letter) || place > DOMAIN_MAX {
            break;
        }
        end = place + letter.len_utf8();
    }
    let mut host = rest.get(..end)?.trim_end_matches(['.', '-']);
    if let Some(two_dots) = host.find("..") {
        host = host.get(..two_dots)?;
    }
    // The end of a sentence without a blank, `a@b.com.Thanks`, is taken along: better too much than too little.
    let (labels, top) = host.rsplit_once('.')?;
    let fine = |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    let letters = top.chars().filter(|letter| letter.is_alphabetic()).count();
    let top_fine = top.starts_with("xn--") || (letters >= 2 && letters == top.chars().count());
    (top_fine && labels.split('.').all(fine)).then_some(start + host.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_whole_and_look_alikes_are_left() {
        let cases = [
            ("mail RichardYGreen@cuvox.de.", Some("RichardYGreen@cuvox.de")),
            ("<first.last+tag@mail.example.co.uk>", Some("first.last+tag@mail.example.co.uk")),
            ("josé.müller@exämple.de", Some("josé.müller@exämple.de")),
            ("请发邮件到zhang@example.com谢谢", Some("zhang@example.com")),
            ("to=o'neil@example.org", Some("neil@example.org")),
            (r"line\nbob@example.com", Some("bob@example.com")),
            ("a@xn--bcher-kva.xn--p1ai", Some("a@xn--bcher-kva.xn--p1ai")),
            ("mailto:x_y@a-b.io?subject", Some("x_y@a-b.io")),
            ("left-pad@1.3.0", None),
            ("strict-uri-encode@npm:^2.0.0", None),
            ("logo@2x.png", None),
            ("git@github.com:org/repo", None),
            ("user@localhost", None),
            ("@decorator.name", None),
            ("a@-x.de", None),
            ("a.@b.de", None),
        ];
        for (text, expected) in cases {
            let sign = text.find('@').unwrap();
            let found = around(text, sign, 0).map(|(start, end)| text.get(start..end).unwrap());
            assert_eq!(found, expected, "{text}");
        }
    }
}
