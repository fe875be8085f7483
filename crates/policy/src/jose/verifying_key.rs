//! Public keys. A key's kind decides its algorithm, so a key cannot be used with another one by mistake.
//!
//! ring does the arithmetic of every signature; ed25519-dalek and p256 are asked once, when a key is read, whether it is
//! a point worth having, because ring only says so at the first signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::pkcs8::EncodePublicKey as _;
use p256::elliptic_curve::sec1::ToEncodedPoint as _;
use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use ring::signature::{UnparsedPublicKey, VerificationAlgorithm};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use spki::der::pem::LineEnding;

use super::{KeyError, SignatureAlgorithm, is_printable_name, public_key_info};

/// What RSA keys may have, in bits.
const MODULUS_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// ring's bound; real exponents are 3, 17 and 65537.
const EXPONENT_MAX: u64 = (1 << 33) - 1;
/// SEC 1: an uncompressed point.
const UNCOMPRESSED: usize = 65;

/// A public key that verifies tokens, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    id: String,
    material: KeyMaterial,
}

/// The key itself, without name. Only sound material gets here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyMaterial {
    /// Modulus and exponent, big-endian without leading zeros.
    Rsa {
        n: Box<[u8]>,
        e: Box<[u8]>,
    },
    /// SEC 1, uncompressed.
    P256(Box<[u8; UNCOMPRESSED]>),
    Ed25519([u8; 32]),
}

impl VerifyingKey {
    /// From a public key in PEM (`BEGIN PUBLIC KEY`): RSA, P-256 or Ed25519. The kind decides the algorithm.
    pub fn from_public_pem(pem: &str, id: &str) -> Result<Self, KeyError> {
        Self::new(id, public_key_info::from_pem(pem)?)
    }

    pub(crate) fn new(id: &str, material: KeyMaterial) -> Result<Self, KeyError> {
        if is_printable_name(id) { Ok(Self { id: id.to_owned(), material }) } else { Err(KeyError::Name) }
    }

    /// For names that are made here: a digest, or a DID with its fragment.
    pub(crate) fn named(id: String, material: KeyMaterial) -> Self {
        Self { id, material }
    }

    /// The key's name in token headers.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The one algorithm it is for.
    pub fn algorithm(&self) -> SignatureAlgorithm {
        match self.material {
            KeyMaterial::Rsa { .. } => SignatureAlgorithm::Rs256,
            KeyMaterial::P256(_) => SignatureAlgorithm::Es256,
            KeyMaterial::Ed25519(_) => SignatureAlgorithm::EdDsa,
        }
    }

    /// As a member of a JWK set (RFC 7517, RFC 8037).
    pub fn to_jwk(&self) -> Value {
        let mut jwk = self.required_members();
        if let Value::Object(members) = &mut jwk {
            members.insert("alg".into(), self.algorithm().as_str().into());
            members.insert("use".into(), "sig".into());
            members.insert("kid".into(), self.id.as_str().into());
        }
        jwk
    }

    /// The key in PEM, as [`from_public_pem`](Self::from_public_pem) reads it; `None` for keys of other kinds than Ed25519,
    /// which never sign here.
    pub fn to_public_pem(&self) -> Option<String> {
        let KeyMaterial::Ed25519(bytes) = &self.material else { return None };
        ed25519_dalek::VerifyingKey::from_bytes(bytes).ok()?.to_public_key_pem(LineEnding::LF).ok()
    }

    /// RFC 7638: the SHA-256 of the key's required members, in base64url. The same key has the same thumbprint under
    /// every name.
    pub fn thumbprint(&self) -> String {
        let text = contract::canonical::to_canonical_string(&self.required_members());
        URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes()))
    }

    /// Is this the key's signature of the message?
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let unparsed = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        match &self.material {
            KeyMaterial::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            KeyMaterial::P256(point) => unparsed(&ECDSA_P256_SHA256_FIXED, point.as_slice()),
            KeyMaterial::Ed25519(key) => unparsed(&ED25519, key),
        }
        .is_ok()
    }

    /// What RFC 7638 takes the thumbprint of.
    fn required_members(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.material {
            KeyMaterial::Rsa { n, e } => json!({ "kty": "RSA", "n": text(n), "e": text(e) }),
            KeyMaterial::P256(point) => {
                let (x, y) = point.get(1..).unwrap_or(&[]).split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "x": text(x), "y": text(y) })
            }
            KeyMaterial::Ed25519(key) => json!({ "kty": "OKP", "crv": "Ed25519", "x": text(key) }),
        }
    }
}

// --------------------------------------------------------------------------------------------------------- Material

impl KeyMaterial {
    /// RSA, of a size and with an exponent that are worth a signature. Leading zeros are dropped: some writers add one.
    pub(crate) fn rsa(n: &[u8], e: &[u8]) -> Result<Self, KeyError> {
        let (n, e) = (without_leading_zeros(n), without_leading_zeros(e));
        if !MODULUS_BITS.contains(&bits(n)) {
            return Err(KeyError::Unusable("an RSA modulus must have 2048 to 8192 bits"));
        }
        if n.last().is_none_or(|last| last % 2 == 0) {
            return Err(KeyError::Unusable("its RSA modulus is even"));
        }
        if is_of_the_roca_family(n) {
            return Err(KeyError::Unusable("its RSA modulus is of a kind whose private half can be computed"));
        }
        let exponent = if e.len() <= 5 { e.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)) } else { 0 };
        if !(3..=EXPONENT_MAX).contains(&exponent) || exponent % 2 == 0 {
            return Err(KeyError::Unusable("an RSA exponent must be odd, at least 3 and at most 33 bits long"));
        }
        Ok(Self::Rsa { n: n.into(), e: e.into() })
    }

    /// A point of P-256 in any form of SEC 1. The identity is not one.
    pub(crate) fn p256(sec1: &[u8]) -> Result<Self, KeyError> {
        const PROBLEM: KeyError = KeyError::Unusable("it is not a point of the curve P-256");
        let point = p256::PublicKey::from_sec1_bytes(sec1).map_err(|_| PROBLEM)?.to_encoded_point(false);
        let bytes = <[u8; UNCOMPRESSED]>::try_from(point.as_bytes()).map_err(|_| PROBLEM)?;
        Ok(Self::P256(Box::new(bytes)))
    }

    /// A point of Ed25519 in its one spelling, and not of small order: such a key would "sign" every message.
    pub(crate) fn ed25519(bytes: &[u8]) -> Result<Self, KeyError> {
        const PROBLEM: KeyError = KeyError::Unusable("it is not a point of the curve Ed25519");
        let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| PROBLEM)?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&bytes).map_err(|_| PROBLEM)?;
        if key.is_weak() || key.to_edwards().compress().to_bytes() != bytes {
            return Err(PROBLEM);
        }
        Ok(Self::Ed25519(bytes))
    }
}

fn without_leading_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or(&[])
}

/// CVE-2017-15361: a library of smart cards made primes of the form k·M + 65537^a mod M, with M the product of the first
/// primes, for keys of 2048 bits and more at least those up to 701. Then the modulus is a power of 65537 modulo each of
/// them, which of honest keys not one in 2^100 is.
fn is_of_the_roca_family(n: &[u8]) -> bool {
    let primes =
        (3_u32..=701).step_by(2).filter(|p| (3..*p).step_by(2).take_while(|d| d * d <= *p).all(|d| p % d != 0));
    primes.into_iter().all(|prime| {
        let rest = n.iter().fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % prime);
        let mut power = 1;
        // The powers come back to one after at most `prime - 1` steps.
        for _ in 1..prime {
            if power == rest {
                return true;
            }
            power = power * (65_537 % prime) % prime;
        }
        false
    })
}

/// Of a number without leading zeros.
fn bits(bytes: &[u8]) -> usize {
    let unused = bytes.first().map_or(0, |first| first.leading_zeros());
    (bytes.len() * 8).saturating_sub(usize::try_from(unused).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thumbprints_are_those_of_the_rfcs() {
        // RFC 8037, appendix A.3.
        let x = URL_SAFE_NO_PAD.decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
        let key = VerifyingKey::new("k", KeyMaterial::ed25519(&x).unwrap()).unwrap();
        assert_eq!(key.thumbprint(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        assert_eq!(key.algorithm(), SignatureAlgorithm::EdDsa);
        // RFC 7638, section 3.1.
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let material = KeyMaterial::rsa(&URL_SAFE_NO_PAD.decode(n).unwrap(), &[1, 0, 1]).unwrap();
        let key = VerifyingKey::new("2011-04-29", material).unwrap();
        assert_eq!(key.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
        assert_eq!((key.to_jwk()["alg"].as_str(), key.to_jwk()["kid"].as_str()), (Some("RS256"), Some("2011-04-29")));
    }

    #[test]
    fn weak_material_is_no_key() {
        let modulus = |bytes: usize, first: u8, last: u8| {
            let mut n = vec![0xa5; bytes];
            (n[0], n[bytes - 1]) = (first, last);
            n
        };
        assert!(KeyMaterial::rsa(&modulus(256, 0x80, 1), &[3]).is_ok());
        assert!(KeyMaterial::rsa(&[&[0, 0], &*modulus(256, 0x80, 1)].concat(), &[0, 1, 0, 1]).is_ok(), "leading zeros");
        assert!(KeyMaterial::rsa(&modulus(1024, 0xff, 1), &[1, 0, 1]).is_ok(), "8192 bits");
        let refused: [(&str, Vec<u8>, &[u8]); 9] = [
            ("2047 bits", modulus(256, 0x7f, 1), &[1, 0, 1]),
            ("8200 bits", modulus(1025, 0x80, 1), &[1, 0, 1]),
            ("even modulus", modulus(256, 0x80, 2), &[1, 0, 1]),
            ("no modulus", vec![], &[1, 0, 1]),
            ("exponent 1", modulus(256, 0x80, 1), &[1]),
            ("exponent 0", modulus(256, 0x80, 1), &[0]),
            ("no exponent", modulus(256, 0x80, 1), &[]),
            ("even exponent", modulus(256, 0x80, 1), &[1, 0, 0]),
            ("exponent of 48 bits", modulus(256, 0x80, 1), &[1, 0, 0, 0, 0, 1]),
        ];
        for (what, n, e) in refused {
            assert!(KeyMaterial::rsa(&n, e).is_err(), "{what}");
        }
        let filled = |first: u8, others: u8, last: u8| {
            let mut bytes = [others; 32];
            (bytes[0], bytes[31]) = (first, last);
            bytes
        };
        let order_eight = [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
            0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
        ];
        // The last two are y = p - 1, of order 2, and y = p + 1, a second spelling of the identity.
        let small = [[0; 32], filled(1, 0, 0), order_eight, filled(0xec, 0xff, 0x7f), filled(0xee, 0xff, 0x7f)];
        for bytes in small {
            assert!(KeyMaterial::ed25519(&bytes).is_err(), "{bytes:?}");
        }
        assert!(KeyMaterial::ed25519(&[2; 31]).is_err() && KeyMaterial::p256(&[]).is_err());
        assert!(KeyMaterial::p256(&[0]).is_err(), "the identity");
        assert!(KeyMaterial::p256(&[&[4], &[1; 64][..]].concat()).is_err(), "not on the curve");
    }

    #[test]
    fn a_modulus_of_the_roca_family_is_refused() {
        // k·M + 65537^a mod M, with M the product of the primes up to 701.
        let n = "2QXT5xWCCj8IAprSAkAztwj709F9vZ7716iRSnUCU1Zg1nah7V58iZyCPav7WvC__aFvFi_X74XM5oZZ2s_r6ra9wBI-Ri1bGgMWlSPmxFN3d_2Gsa0y0ea4Sg_FrbBr83HmpUi67Kvu5L0qEwLsfcsNWcJ7-KkIkTH_XZvVCy5souG5wzMYqv-3R505eIAc5wEgRGhAIiNVidehZCWtRvCeCOWVIZungB0Zw7JPQNVxhvan8mPJiGOxlM9G-4Yzxh8uaIfA2RcfhXPDKObwYcCcvLiAl9p5fLGxBcsvevjSFq7HqKk95wkLJ8ejAIBOkPtyf4PfiQcuiOgadXsIGQ";
        let n = URL_SAFE_NO_PAD.decode(n).unwrap();
        assert!(matches!(KeyMaterial::rsa(&n, &[1, 0, 1]), Err(KeyError::Unusable(why)) if why.contains("computed")));
        let mut other = n;
        other[255] ^= 2;
        assert!(KeyMaterial::rsa(&other, &[1, 0, 1]).is_ok());
    }

    #[test]
    fn names_are_printable_and_short() {
        let material = || KeyMaterial::ed25519(super::super::SigningKey::from_seed(&[1; 32]).public_bytes()).unwrap();
        for bad in ["", "a\nb", &"k".repeat(257)] {
            assert_eq!(VerifyingKey::new(bad, material()).unwrap_err(), KeyError::Name);
        }
        assert!(VerifyingKey::new(&"k".repeat(256), material()).is_ok());
    }
}
