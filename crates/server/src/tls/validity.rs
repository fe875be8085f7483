//! The validity of a certificate, read from its DER (RFC 5280 §4.1): the one member that the TLS library does not tell.
//!
//! Only the way to that member is walked. Whether the rest of the certificate makes sense is the TLS library's to judge.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Two-digit years from here on are of the last century (RFC 5280 §4.1.2.5.1).
const CENTURY_PIVOT: i16 = 50;

/// From when until when, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before_s: i64,
    pub(super) not_after_s: i64,
}

/// The validity of this certificate.
pub(super) fn of(certificate: &[u8]) -> Option<Validity> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (mut rest, _) = expect(SEQUENCE, certificate)?;
    if rest.first() == Some(&VERSION) {
        (_, rest) = expect(VERSION, rest)?;
    }
    // Serial number, algorithm of the signature, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, rest) = expect(tag, rest)?;
    }
    let (validity, _) = expect(SEQUENCE, rest)?;
    let (not_before_s, rest) = time(validity)?;
    let (not_after_s, _) = time(rest)?;
    Some(Validity { not_before_s, not_after_s })
}

/// The content of the first element, which must have this tag, and what follows the element.
fn expect(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// A time in seconds since 1970, and what follows it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, clock) = match tag {
        UTC_TIME => {
            let (year, clock) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < CENTURY_PIVOT { 2000 + year } else { 1900 + year }, clock)
        }
        GENERALIZED_TIME => {
            let (year, clock) = text.split_at_checked(4)?;
            (year.parse().ok()?, clock)
        }
        _ => return None,
    };
    let digits: [u8; 10] = clock.as_bytes().try_into().ok()?;
    let [month, day, hour, minute, second] = pairs(digits);
    let moment = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Some((TimeZone::UTC.to_timestamp(moment).ok()?.as_second(), rest))
}

/// Ten ASCII digits as five numbers.
fn pairs([a, b, c, d, e, f, g, h, i, j]: [u8; 10]) -> [i8; 5] {
    [[a, b], [c, d], [e, f], [g, h], [i, j]].map(|[tens, ones]| {
        i8::try_from((tens.saturating_sub(b'0')) * 10 + ones.saturating_sub(b'0')).unwrap_or(i8::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element of DER that is shorter than 128 bytes.
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn certificate(version: bool, validity: &[u8]) -> Vec<u8> {
        let mut tbs = if version { der(VERSION, &der(INTEGER, &[2])) } else { Vec::new() };
        tbs.extend(der(INTEGER, &[1]));
        tbs.extend(der(SEQUENCE, b""));
        tbs.extend(der(SEQUENCE, b""));
        tbs.extend(der(SEQUENCE, validity));
        der(SEQUENCE, &der(SEQUENCE, &tbs))
    }

    #[test]
    fn both_kinds_of_time_are_read_with_and_without_a_version() {
        let times = [der(UTC_TIME, b"700101000001Z"), der(GENERALIZED_TIME, b"20500101000000Z")].concat();
        for version in [true, false] {
            let validity = of(&certificate(version, &times)).unwrap();
            assert_eq!(validity, Validity { not_before_s: 1, not_after_s: 2_524_608_000 });
        }
        let (seconds, _) = time(&der(UTC_TIME, b"491231235959Z")).unwrap();
        assert_eq!(seconds, 2_524_607_999);
    }

    #[test]
    fn what_is_cut_off_or_strange_has_no_validity() {
        let times = [der(UTC_TIME, b"700101000001Z"), der(UTC_TIME, b"300101000000Z")].concat();
        let whole = certificate(true, &times);
        for length in 0..whole.len() {
            assert_eq!(of(&whole[..length]), None, "{length}");
        }
        for bad in
            [&b"700101000001"[..], b"700101000001+0100Z", b"701301000001Z", b"7001010000Z", b"", b"7001\xff1000001Z"]
        {
            assert_eq!(time(&der(UTC_TIME, bad)), None);
        }
        assert_eq!(element(&[SEQUENCE, 0x85, 1, 1, 1, 1, 1]), None);
        assert_eq!(element(&[SEQUENCE, 0x80, 0, 0]), None);
    }
}
