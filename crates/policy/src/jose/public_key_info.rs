//! Public keys in PEM: `BEGIN PUBLIC KEY`, that is SubjectPublicKeyInfo (RFC 5280 §4.1, RFC 8410) in DER.
//!
//! The crates `spki` and `der` read the frame and refuse every second spelling of a value. The armour is read here, because
//! lines of any length are good enough for a key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use spki::SubjectPublicKeyInfoRef;
use spki::der::asn1::{AnyRef, ObjectIdentifier, UintRef};
use spki::der::{Decode as _, Reader as _, SliceReader};

use super::KeyError;
use super::verifying_key::KeyMaterial;

const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const PRIME256V1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

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
    let info = SubjectPublicKeyInfoRef::from_der(der).map_err(|_| NOT_DER)?;
    // A key has whole octets.
    let key = info.subject_public_key.as_bytes().ok_or(NOT_DER)?;
    match (info.algorithm.oid, info.algorithm.parameters) {
        (RSA_ENCRYPTION, Some(AnyRef::NULL)) => rsa_public_key(key),
        (EC_PUBLIC_KEY, Some(curve)) => match curve.decode_as::<ObjectIdentifier>() {
            Ok(PRIME256V1) => KeyMaterial::p256(key),
            Ok(_) => Err(KeyError::Unusable("its curve is not P-256")),
            Err(_) => Err(NOT_DER),
        },
        (ED25519, None) => KeyMaterial::ed25519(key),
        (RSA_ENCRYPTION | EC_PUBLIC_KEY | ED25519, _) => Err(NOT_DER),
        _ => Err(KeyError::Unusable("it is neither RSA nor P-256 nor Ed25519")),
    }
}

/// PKCS#1 `RSAPublicKey`: modulus and exponent.
pub(crate) fn rsa_public_key(der: &[u8]) -> Result<KeyMaterial, KeyError> {
    let (modulus, exponent) = two_numbers(der).map_err(|_| NOT_DER)?;
    KeyMaterial::rsa(modulus.as_bytes(), exponent.as_bytes())
}

/// A sequence of two numbers that are not negative, and nothing else.
fn two_numbers(der: &[u8]) -> spki::der::Result<(UintRef<'_>, UintRef<'_>)> {
    let mut reader = SliceReader::new(der)?;
    let numbers = reader.sequence(|numbers| Ok((numbers.decode()?, numbers.decode()?)))?;
    reader.finish(numbers)
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
