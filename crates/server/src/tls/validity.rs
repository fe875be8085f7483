//! The validity of a certificate, read from its DER (RFC 5280 §4.1): the one member that the TLS library does not tell.
//!
//! Only the way to that member is walked. Whether the rest of the certificate makes sense is the TLS library's to judge. A
//! time before 1970, which no certificate of a server has, is not readable here.

use std::time::Duration;

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{FixedTag as _, Reader, SliceReader, Tag, TagNumber};

const VERSION: Tag = Tag::ContextSpecific { constructed: true, number: TagNumber::N0 };

/// From when until when, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before_s: i64,
    pub(super) not_after_s: i64,
}

/// The validity of this certificate.
pub(super) fn of(certificate: &[u8]) -> Option<Validity> {
    read(certificate).ok()
}

fn read(certificate: &[u8]) -> der::Result<Validity> {
    let mut signed = contents(&mut SliceReader::new(certificate)?, Tag::Sequence)?;
    let mut rest = contents(&mut signed, Tag::Sequence)?;
    if rest.peek_tag()? == VERSION {
        contents(&mut rest, VERSION)?;
    }
    // Serial number, algorithm of the signature, issuer.
    for tag in [Tag::Integer, Tag::Sequence, Tag::Sequence] {
        contents(&mut rest, tag)?;
    }
    let mut validity = contents(&mut rest, Tag::Sequence)?;
    Ok(Validity { not_before_s: time_s(&mut validity)?, not_after_s: time_s(&mut validity)? })
}

/// The content of the next element, which must have this tag.
fn contents<'c>(reader: &mut SliceReader<'c>, tag: Tag) -> der::Result<SliceReader<'c>> {
    let element: AnyRef<'c> = reader.decode()?;
    der::Tagged::tag(&element).assert_eq(tag)?;
    SliceReader::new(element.value())
}

/// A time in seconds since 1970.
fn time_s(reader: &mut SliceReader<'_>) -> der::Result<i64> {
    let since_1970: Duration = match reader.peek_tag()? {
        UtcTime::TAG => reader.decode::<UtcTime>()?.to_unix_duration(),
        _ => reader.decode::<GeneralizedTime>()?.to_unix_duration(),
    };
    Ok(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    const EXPLICIT_VERSION: u8 = 0xa0;
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;

    /// An element of DER that is shorter than 128 bytes.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn time(der: &[u8]) -> Option<i64> {
        time_s(&mut SliceReader::new(der).unwrap()).ok()
    }

    fn certificate(version: bool, validity: &[u8]) -> Vec<u8> {
        let mut tbs = if version { element(EXPLICIT_VERSION, &element(INTEGER, &[2])) } else { Vec::new() };
        tbs.extend(element(INTEGER, &[1]));
        tbs.extend(element(SEQUENCE, b""));
        tbs.extend(element(SEQUENCE, b""));
        tbs.extend(element(SEQUENCE, validity));
        element(SEQUENCE, &element(SEQUENCE, &tbs))
    }

    #[test]
    fn both_kinds_of_time_are_read_with_and_without_a_version() {
        let times = [element(UTC_TIME, b"700101000001Z"), element(GENERALIZED_TIME, b"20500101000000Z")].concat();
        for version in [true, false] {
            let validity = of(&certificate(version, &times)).unwrap();
            assert_eq!(validity, Validity { not_before_s: 1, not_after_s: 2_524_608_000 });
        }
        assert_eq!(time(&element(UTC_TIME, b"491231235959Z")), Some(2_524_607_999));
    }

    #[test]
    fn what_is_cut_off_or_strange_has_no_validity() {
        let times = [element(UTC_TIME, b"700101000001Z"), element(UTC_TIME, b"300101000000Z")].concat();
        let whole = certificate(true, &times);
        for length in 0..whole.len() {
            assert_eq!(of(&whole[..length]), None, "{length}");
        }
        for bad in
            [&b"700101000001"[..], b"700101000001+0100Z", b"701301000001Z", b"7001010000Z", b"", b"7001\xff1000001Z"]
        {
            assert_eq!(time(&element(UTC_TIME, bad)), None);
        }
        assert_eq!(of(&[SEQUENCE, 0x85, 1, 1, 1, 1, 1]), None);
        assert_eq!(of(&[SEQUENCE, 0x80, 0, 0]), None);
    }
}
