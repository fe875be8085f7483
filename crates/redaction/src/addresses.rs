//! Addresses of machines. Version 4 comes from the numbers of a text (`numbers`), version 6 is found from its colons.
//!
//! Look-alikes that stay: times, hardware addresses, fingerprints, paths of code (`a::b`), versions in four parts.

use std::net::Ipv6Addr;

use crate::boundary::{at, before, begins, is_word, line_before, mentions, run, run_back};

/// The longest address in text, with a version 4 address at its end.
const V6_MAX: usize = 45;
/// Words before four numbers with dots that make a version or a place in a document of them.
const VERSION_WORDS: [&str; 8] = ["version", "ver.", "release", "section", "build", "rev", "oid", "chapter"];
/// How far before the numbers such a word may stand.
const VERSION_WORD_REACH: usize = 14;

/// What the colon at `colon` is part of: the place to go on from, and the address if it is one. Not left of `floor`.
pub(crate) fn v6(text: &str, colon: usize, floor: usize) -> (usize, Option<(usize, usize)>) {
    let bytes = text.as_bytes();
    let belongs = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let mut end = run(bytes, colon, V6_MAX + 2, belongs);
    let mut start = run_back(bytes, colon, (V6_MAX + 1).min(colon - floor), belongs);
    if !begins(bytes, start) {
        // `host:fe80::1`: the word before the colon ends with letters that could be digits.
        start = colon;
    }
    if at(bytes, start) == b':' && at(bytes, start + 1) != b':' {
        start += 1;
    }
    while end > start
        && matches!(before(bytes, end), b'.' | b':')
        && !bytes.get(start..end).unwrap_or_default().ends_with(b"::")
    {
        end -= 1;
    }
    let whole = end.saturating_sub(start) <= V6_MAX && !is_word(at(bytes, end)) && at(bytes, end) != b':';
    match text.get(start..end) {
        Some(address) if whole && is_v6(address) => (end, Some((start, end))),
        _ => (colon + 1, None),
    }
}

fn is_v6(address: &str) -> bool {
    if address.matches(':').count() < 2 || address.parse::<Ipv6Addr>().is_err() {
        return false;
    }
    let groups = || address.split(':').filter(|group| !group.is_empty());
    if !address.contains("::") {
        // Eight pairs of digits are a hardware address of the longer kind.
        return !groups().all(|group| group.len() == 2);
    }
    // Paths of code look like short addresses: `a::b`, `dead::beef`.
    let digits = address.bytes().any(|byte| byte.is_ascii_digit());
    let global = groups().next().is_some_and(|first| {
        let first = first.to_ascii_lowercase();
        first.len() >= 3
            && (first.starts_with("fe8")
                || first.starts_with("fc")
                || first.starts_with("fd")
                || first.starts_with("ff")
                || first.starts_with(['2', '3']))
    });
    let mapped = address.starts_with("::") && (address.contains('.') || address == "::1");
    let hex_only = !address.starts_with("::") || groups().count() > 1;
    digits && (global || mapped || (hex_only && groups().count() >= 3))
}

/// Whether four numbers with dots between them, none above 255, stand where an address can stand.
pub(crate) fn v4_fits(bytes: &[u8], start: usize, end: usize) -> bool {
    let reach = line_before(bytes, start);
    let near = reach.get(reach.len().saturating_sub(VERSION_WORD_REACH)..).unwrap_or_default();
    if VERSION_WORDS.iter().any(|word| mentions(near, word)) {
        return false;
    }
    // `Chrome/120.0.0.0`: a product and its version.
    let product = before(bytes, start) == b'/' && start >= 2 && at(bytes, start - 2).is_ascii_alphabetic();
    if product && bytes.get(start..end).is_some_and(|address| address.ends_with(b".0.0")) {
        return false;
    }
    // `1.2.3.4-beta`, `1.2.3.4+5`
    let suffix = matches!(at(bytes, end), b'-' | b'+') && is_word(at(bytes, end + 1));
    !suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_version_6_are_found_and_look_alikes_left() {
        let cases = [
            ("from 3b20:9a3a:1b2f:7ce:9ef1:4787:85fc:261e.", Some("3b20:9a3a:1b2f:7ce:9ef1:4787:85fc:261e")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("listen ::1 only", Some("::1")),
            ("::ffff:192.0.2.128", Some("::ffff:192.0.2.128")),
            ("64:ff9b::192.0.2.33", Some("64:ff9b::192.0.2.33")),
            ("2001:db8::/32", Some("2001:db8::")),
            ("addr:fe80::1", Some("fe80::1")),
            ("12:34:56", None),
            ("2005-10-08 22:58:39", None),
            ("aa:bb:cc:dd:ee:ff", None),
            ("00:11:22:33:44:55:66:77", None),
            ("std::vec::Vec", None),
            ("a::b", None),
            ("dead::beef", None),
            ("{\"a\":1,\"b\":2}", None),
            ("SHA256 ab:cd:ef:01:23:45:67:89:ab:cd:ef:01:23:45:67:89", None),
        ];
        for (text, expected) in cases {
            let mut found = None;
            let mut place = 0;
            while let Some(colon) = text.get(place..).and_then(|rest| rest.find(':')) {
                let (next, address) = v6(text, place + colon, place);
                found = found.or(address);
                place = next;
            }
            assert_eq!(found.map(|(start, end)| text.get(start..end).unwrap()), expected, "{text}");
        }
    }
}
