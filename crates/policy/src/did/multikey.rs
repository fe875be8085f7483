//! Keys as `did:key` and `publicKeyMultibase` spell them: `z`, base58btc, a multicodec prefix, the key.
//!
//! Every key has one spelling here: prefixes are varints in their shortest form, points are compressed, and nothing may
//! follow.

use crate::jose::{KeyMaterial, rsa_public_key};

/// 0xed, ed25519-pub.
const ED25519: &[u8] = &[0xed, 0x01];
/// 0x1200, p256-pub.
const P256: &[u8] = &[0x80, 0x24];
/// 0x1205, rsa-pub.
const RSA: &[u8] = &[0x85, 0x24];

/// Longest text that is decoded: base58 takes time in the square of its length, and an RSA key of 8192 bits has 1,400.
const CHARS_MAX: usize = 2048;

/// The key, if there is one that can be used.
pub(super) fn decode(text: &str) -> Option<KeyMaterial> {
    let base58 = text.strip_prefix('z')?;
    if base58.len() > CHARS_MAX {
        return None;
    }
    let bytes = bs58::decode(base58).into_vec().ok()?;
    let (prefix, key) = bytes.split_at_checked(2)?;
    match prefix {
        ED25519 => KeyMaterial::ed25519(key).ok(),
        // Compressed: 33 octets.
        P256 if key.len() == 33 => KeyMaterial::p256(key).ok(),
        RSA => rsa_public_key(key).ok(),
        _ => None,
    }
}

/// The one spelling of an Ed25519 key.
pub(super) fn encode_ed25519(key: &[u8; 32]) -> String {
    format!("z{}", bs58::encode([ED25519, key].concat()).into_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::did::Did;
    use crate::jose::{SignatureAlgorithm, SigningKey, VerifyingKey};
    use base64::Engine as _;

    fn algorithm(did: &str) -> Option<SignatureAlgorithm> {
        did.parse::<Did>().unwrap().self_certified_key().ok().map(|key| key.algorithm())
    }

    #[test]
    fn published_examples_are_read() {
        for (did, expected) in [
            ("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK", SignatureAlgorithm::EdDsa),
            ("did:key:zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169", SignatureAlgorithm::Es256),
        ] {
            assert_eq!(algorithm(did), Some(expected), "{did}");
        }
    }

    #[test]
    fn an_rsa_key_is_read_and_is_the_one_of_its_pem() {
        let pem = include_str!("../../../../testdata/keys/rsa_public.pem");
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = base64::engine::general_purpose::STANDARD.decode(body).unwrap();
        // Of 2048 bits, the frame that SPKI puts around the key of PKCS#1 has 24 octets.
        let did = format!("did:key:z{}", bs58::encode([RSA, &der[24..]].concat()).into_string());
        let key = did.parse::<Did>().unwrap().self_certified_key().unwrap();
        assert_eq!(key.thumbprint(), VerifyingKey::from_public_pem(pem, "k").unwrap().thumbprint());
    }

    #[test]
    fn other_spellings_kinds_and_lengths_are_refused() {
        let spelt = |bytes: &[u8]| format!("z{}", bs58::encode(bytes).into_string());
        let key = *SigningKey::from_seed(&[1; 32]).public_bytes();
        assert!(decode(&spelt(&[ED25519, &key].concat())).is_some());
        let cases: [(&str, String); 12] = [
            ("nothing", String::new()),
            ("only z", "z".into()),
            ("only a prefix", spelt(ED25519)),
            ("other base", encode_ed25519(&key).replacen('z', "m", 1)),
            ("not base58", "z0OIl".into()),
            ("a trailing octet", spelt(&[ED25519, &key, &[0]].concat())),
            ("a short key", spelt(&[ED25519, &key[..31]].concat())),
            ("a longer varint", spelt(&[&[0xed, 0x81, 0x00], &key[..]].concat())),
            ("x25519-pub", spelt(&[&[0xec, 0x01], &key[..]].concat())),
            ("small order", spelt(&[ED25519, &[0; 32]].concat())),
            ("off the curve", spelt(&[P256, &[2], &[0xff; 32]].concat())),
            ("RSA without a frame", spelt(&[RSA, &[1; 256]].concat())),
        ];
        for (what, text) in cases {
            assert!(decode(&text).is_none(), "{what}");
        }
        assert!(decode(&format!("z{}", "1".repeat(CHARS_MAX + 1))).is_none());
        // Uncompressed points are another spelling of the same key.
        let point = p256::SecretKey::from_slice(&[1; 32]).unwrap().public_key();
        let uncompressed = p256::elliptic_curve::sec1::ToEncodedPoint::to_encoded_point(&point, false);
        let compressed = p256::elliptic_curve::sec1::ToEncodedPoint::to_encoded_point(&point, true);
        assert!(decode(&spelt(&[P256, uncompressed.as_bytes()].concat())).is_none());
        assert!(decode(&spelt(&[P256, compressed.as_bytes()].concat())).is_some());
    }
}
