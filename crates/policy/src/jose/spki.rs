//! Public keys in PEM: `BEGIN PUBLIC KEY`, that is SubjectPublicKeyInfo (RFC 5280 §4.1, RFC 8410) in DER.
//!
//! DER has one encoding per value, and the reader here knows only the few that a public key needs: short and long
//! definite lengths in their shortest form. What it does not expect it refuses; nothing is skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::KeyError;
use super::verifying_key::KeyMaterial;

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const NULL: u8 = 0x05;

/// 1.2.840.113549.1.1.1
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// 1.2.840.10045.2.1
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// 1.2.840.10045.3.1.7
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// 1.3.101.112
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

const NOT_DER: KeyError = KeyError::Unusable("its contents are not a public key in DER");

/// A longer text is not a public key.
const PEM_BYTES_MAX: usize = 16 * 1024;

/// The key of a PEM text with one public key.
pub(super) fn from_pem(pem: &str) -> Result<KeyMaterial, KeyError> {
    if pem.len() > PEM_BYTES_MAX {
        return Err(KeyError::NotPublicPem);
    }
    if pem.contains("PRIVATE KEY-----") {
        return Err(KeyError::Private);
    }
    let inner = pem.trim().strip_prefix("-----BEGIN PUBLIC KEY-----").ok_or(KeyError::NotPublicPem)?;
    let body = inner.strip_suffix("-----END PUBLIC KEY-----").ok_or(KeyError::NotPublicPem)?;
    // Text between two blocks, and a second block, fail here: dashes are not base64.
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let der = STANDARD.decode(body).map_err(|_| KeyError::NotPublicPem)?;
    from_der(&der)
}

fn from_der(der: &[u8]) -> Result<KeyMaterial, KeyError> {
    let mut outer = Der(der);
    let mut info = Der(outer.only(SEQUENCE)?);
    let mut algorithm = Der(info.take(SEQUENCE)?);
    let key = info.only(BIT_STRING)?;
    // The first octet counts unused bits, of which a key has none.
    let key = key.strip_prefix(&[0]).ok_or(NOT_DER)?;
    match algorithm.take(OBJECT_ID)? {
        RSA_ENCRYPTION => {
            if !algorithm.only(NULL)?.is_empty() {
                return Err(NOT_DER);
            }
            rsa_public_key(key)
        }
        EC_PUBLIC_KEY => {
            if algorithm.only(OBJECT_ID)? != PRIME256V1 {
                return Err(KeyError::Unusable("its curve is not P-256"));
            }
            KeyMaterial::p256(key)
        }
        ED25519 => {
            algorithm.end()?;
            KeyMaterial::ed25519(key)
        }
        _ => Err(KeyError::Unusable("it is neither RSA nor P-256 nor Ed25519")),
    }
}

/// PKCS#1 `RSAPublicKey`: modulus and exponent.
pub(crate) fn rsa_public_key(der: &[u8]) -> Result<KeyMaterial, KeyError> {
    let mut outer = Der(der);
    let mut numbers = Der(outer.only(SEQUENCE)?);
    let (n, e) = (numbers.positive()?, numbers.positive()?);
    numbers.end()?;
    KeyMaterial::rsa(n, e)
}

// -------------------------------------------------------------------------------------------------------------- DER

/// What is left to read.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    /// The contents of the next value, which must have this tag.
    fn take(&mut self, tag: u8) -> Result<&'d [u8], KeyError> {
        let (found, rest) = self.0.split_first().ok_or(NOT_DER)?;
        let (first, rest) = rest.split_first().ok_or(NOT_DER)?;
        let (length, rest) = match *first {
            short @ 0..=0x7f => (usize::from(short), rest),
            0x81 => {
                let (length, rest) = rest.split_first().ok_or(NOT_DER)?;
                // Shortest form only.
                if *length < 0x80 {
                    return Err(NOT_DER);
                }
                (usize::from(*length), rest)
            }
            0x82 => {
                let (length, rest) = rest.split_first_chunk::<2>().ok_or(NOT_DER)?;
                let length = u16::from_be_bytes(*length);
                if length < 0x100 {
                    return Err(NOT_DER);
                }
                (usize::from(length), rest)
            }
            // Indefinite, or longer than any key.
            _ => return Err(NOT_DER),
        };
        let (contents, rest) = rest.split_at_checked(length).ok_or(NOT_DER)?;
        if *found != tag {
            return Err(NOT_DER);
        }
        self.0 = rest;
        Ok(contents)
    }

    /// Like [`take`](Self::take), and nothing may follow.
    fn only(&mut self, tag: u8) -> Result<&'d [u8], KeyError> {
        let contents = self.take(tag)?;
        self.end()?;
        Ok(contents)
    }

    fn end(&self) -> Result<(), KeyError> {
        if self.0.is_empty() { Ok(()) } else { Err(NOT_DER) }
    }

    /// A positive integer in its shortest form, without the octet for the sign.
    fn positive(&mut self) -> Result<&'d [u8], KeyError> {
        match self.take(INTEGER)? {
            [] | [0x80..=0xff, ..] | [0] | [0, 0..=0x7f, ..] => Err(NOT_DER),
            [0, number @ ..] | number => Ok(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::{SignatureAlgorithm, VerifyingKey};

    const RSA: &str = include_str!("../../../../testdata/keys/rsa_public.pem");
    const P256: &str = include_str!("../../../../testdata/keys/p256_public.pem");
    const ED: &str = include_str!("../../../../testdata/keys/ed25519_public.pem");

    fn der(pem: &str) -> Vec<u8> {
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        STANDARD.decode(body).unwrap()
    }

    #[test]
    fn the_three_kinds_are_read_and_pinned() {
        for (pem, algorithm) in
            [(RSA, SignatureAlgorithm::Rs256), (P256, SignatureAlgorithm::Es256), (ED, SignatureAlgorithm::EdDsa)]
        {
            let key = VerifyingKey::from_public_pem(pem, "k").unwrap();
            assert_eq!((key.algorithm(), key.id()), (algorithm, "k"));
            let crlf = pem.replace('\n', "\r\n");
            assert_eq!(VerifyingKey::from_public_pem(&crlf, "k"), Ok(key));
        }
    }

    #[test]
    fn private_keys_are_refused_with_a_clear_word() {
        let private = include_str!("../../../../testdata/keys/rsa_private.pem");
        let both = format!("{RSA}{private}");
        for pem in [private, &both, "-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----"] {
            let error = VerifyingKey::from_public_pem(pem, "k").unwrap_err();
            assert_eq!(error, KeyError::Private);
            assert!(error.to_string().contains("give the public half"));
        }
    }

    #[test]
    fn other_pem_is_refused() {
        let certificate = RSA.replace("PUBLIC KEY", "CERTIFICATE");
        let twice = format!("{RSA}{RSA}");
        for pem in ["", "x", &certificate, &twice, &RSA.replace('M', "!"), &"A".repeat(PEM_BYTES_MAX + 1)] {
            assert_eq!(VerifyingKey::from_public_pem(pem, "k").unwrap_err(), KeyError::NotPublicPem);
        }
    }

    #[test]
    fn every_truncation_every_added_byte_and_every_changed_frame_is_refused() {
        for pem in [RSA, P256, ED] {
            let der = der(pem);
            assert!(from_der(&der).is_ok());
            for end in 0..der.len() {
                assert!(from_der(&der[..end]).is_err(), "{end}");
            }
            assert!(from_der(&[&der[..], &[0]].concat()).is_err());
            // Tags, lengths and object ids: every other value is refused.
            for place in 0..12.min(der.len()) {
                for bit in 0..8 {
                    let mut changed = der.clone();
                    changed[place] ^= 1 << bit;
                    assert!(from_der(&changed).is_err(), "octet {place} bit {bit}");
                }
            }
        }
    }
}
