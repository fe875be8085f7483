//! How a body proves where it comes from and when: `Gantry-Signature: t=1800000000,v1=5257a8…`. (ASYNC-007, FLOW-006)
//!
//! `t` is the time of sending in seconds since 1970, `v1` the HMAC-SHA256 of `t`, a dot and the raw body, in lower-case hex.
//! While a secret is being replaced there are two `v1`, one of each; one that fits is enough. A name other than `t` and
//! `v1` is left unread, so that a `v2` can come beside `v1` without breaking anybody.
//!
//! Invariants
//! - SIG-1: the time is covered, and old signatures are refused, so that a caught request is soon worth nothing.
//! - SIG-2: codes are compared in constant time, and all are compared, whichever fits.

use std::time::Duration;

use contract::hex::lower_hex;
use policy::{CODE_BYTES, is_message_code, message_code};
use ports::clock::UnixMillis;
use ports::secret_source::SecretValue;

/// The header.
pub const SIGNATURE_HEADER: &str = "gantry-signature";
/// How old a signature may be, and how far ahead its clock.
pub const SIGNATURE_TOLERANCE: Duration = Duration::from_secs(300);
/// Codes that are looked at in one header.
const CODES_MAX: usize = 4;
/// Longest header that is read.
const HEADER_BYTES_MAX: usize = 1024;

/// Why a signature was refused. For the log: strangers only learn that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no header of this shape.
    #[error("the signature is missing or malformed")]
    Malformed,
    /// None of the secrets has made it.
    #[error("the signature does not fit")]
    Mismatch,
    /// Too old, or from the future.
    #[error("the signature is too old, or a clock is wrong")]
    Time,
}

/// The header for a body: one code for each secret.
///
/// ```
/// # use gantry_jobs::webhooks::{sign, verify};
/// # use ports::{clock::UnixMillis, secret_source::SecretValue};
/// let (secret, now) = (SecretValue::new("whsec_1").unwrap(), UnixMillis(1_800_000_000_000));
/// let header = sign(std::slice::from_ref(&secret), now, b"{}");
/// assert!(header.starts_with("t=1800000000,v1="));
/// assert!(verify(&header, &[secret], b"{}", now).is_ok());
/// ```
pub fn sign(secrets: &[SecretValue], now: UnixMillis, body: &[u8]) -> String {
    let time = now.0.div_euclid(1000).to_string();
    let mut header = format!("t={time}");
    for secret in secrets {
        header.push_str(",v1=");
        header.push_str(&lower_hex(&message_code(secret.expose(), &[time.as_bytes(), b".", body])));
    }
    header
}

/// Is this a signature of now, whatever it is of? What can be told before the body is read.
pub fn is_of_now(header: &str, now: UnixMillis) -> Result<(), SignatureError> {
    let (time, _) = read(header).ok_or(SignatureError::Malformed)?;
    timely(time, now)
}

/// Was this body signed with one of the secrets, lately?
pub fn verify(header: &str, secrets: &[SecretValue], body: &[u8], now: UnixMillis) -> Result<(), SignatureError> {
    let (time, codes) = read(header).ok_or(SignatureError::Malformed)?;
    let mut fits = false;
    for code in &codes {
        for secret in secrets.iter().filter(|secret| !secret.expose().is_empty()) {
            // SIG-2: no early end.
            fits |= is_message_code(secret.expose(), &[time.as_bytes(), b".", body], code);
        }
    }
    if !fits {
        return Err(SignatureError::Mismatch);
    }
    timely(time, now)
}

/// SIG-1.
fn timely(time: &str, now: UnixMillis) -> Result<(), SignatureError> {
    let seconds: i64 = time.parse().map_err(|_| SignatureError::Malformed)?;
    let apart = now.0.div_euclid(1000).abs_diff(seconds);
    if apart <= SIGNATURE_TOLERANCE.as_secs() { Ok(()) } else { Err(SignatureError::Time) }
}

fn read(header: &str) -> Option<(&str, Vec<[u8; CODE_BYTES]>)> {
    if header.len() > HEADER_BYTES_MAX {
        return None;
    }
    let (mut time, mut codes) = (None, Vec::new());
    for part in header.split(',') {
        match part.trim().split_once('=')? {
            ("t", _) if time.is_some() => return None,
            ("t", text) => time = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())),
            ("v1", text) if codes.len() < CODES_MAX => codes.push(code(text)?),
            ("v1", _) => return None,
            _ => {}
        }
    }
    Some((time?, codes)).filter(|(_, codes)| !codes.is_empty())
}

/// 64 digits of hex, in lower case: a code has one spelling.
fn code(text: &str) -> Option<[u8; CODE_BYTES]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != CODE_BYTES || !rest.is_empty() {
        return None;
    }
    let mut code = [0; CODE_BYTES];
    for (byte, [high, low]) in code.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_500);

    fn secret(text: &str) -> SecretValue {
        SecretValue::new(text).unwrap()
    }

    #[test]
    fn a_known_body_has_a_known_signature() {
        // openssl dgst -sha256 -hmac whsec_test <(printf '1800000000.{"id":1}')
        let header = sign(&[secret("whsec_test")], NOW, br#"{"id":1}"#);
        assert_eq!(header, "t=1800000000,v1=7495c40cde012282a92344d8fb4be1ab35233b78ec3445b87d96078f53374ee5");
    }

    #[test]
    fn two_secrets_are_valid_while_one_is_being_replaced() {
        let header = sign(&[secret("new"), secret("old")], NOW, b"{}");
        for (known, expected) in [
            (&["new"][..], Ok(())),
            (&["old"], Ok(())),
            (&["old", "new"], Ok(())),
            (&["other"], Err(SignatureError::Mismatch)),
            (&[""], Err(SignatureError::Mismatch)),
            (&[], Err(SignatureError::Mismatch)),
        ] {
            let secrets: Vec<SecretValue> = known.iter().map(|text| secret(text)).collect();
            assert_eq!(verify(&header, &secrets, b"{}", NOW), expected, "{known:?}");
        }
        assert_eq!(verify(&sign(&[secret("")], NOW, b"{}"), &[secret("")], b"{}", NOW), Err(SignatureError::Mismatch));
    }

    #[test]
    fn old_and_early_signatures_are_refused() {
        let secrets = [secret("s")];
        let header = sign(&secrets, NOW, b"{}");
        for (later_s, expected) in [
            (0, Ok(())),
            (300, Ok(())),
            (-300, Ok(())),
            (301, Err(SignatureError::Time)),
            (-301, Err(SignatureError::Time)),
        ] {
            assert_eq!(verify(&header, &secrets, b"{}", UnixMillis(NOW.0 + later_s * 1000)), expected, "{later_s}");
        }
    }

    #[test]
    fn other_shapes_are_refused_and_other_names_are_left_unread() {
        let secrets = [secret("s")];
        let good = sign(&secrets, NOW, b"{}");
        let (_, code) = good.split_once("v1=").unwrap();
        assert_eq!(verify(&format!("{good},v2=abc"), &secrets, b"{}", NOW), Ok(()));
        assert_eq!(verify(&good.replace(',', ", "), &secrets, b"{}", NOW), Ok(()));
        for header in [
            String::new(),
            "t=1800000000".into(),
            format!("v1={code}"),
            format!("t=,v1={code}"),
            format!("t=-1,v1={code}"),
            format!("t=1800000000,t=1800000000,v1={code}"),
            format!("t=1800000000,v1={}", code.to_uppercase()),
            format!("t=1800000000,v1={}", code.get(2..).unwrap()),
            format!("t=1800000000{}", format!(",v1={code}").repeat(5)),
            format!("{good},{}", "x=y,".repeat(400)),
            "t".into(),
        ] {
            assert!(verify(&header, &secrets, b"{}", NOW).is_err(), "{header:.60}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_is_signed_is_verified_and_nothing_else(
            body in prop::collection::vec(any::<u8>(), 0..200), key in "[a-z]{1,20}", flip in any::<prop::sample::Index>(),
        ) {
            let secrets = [secret(&key)];
            let header = sign(&secrets, NOW, &body);
            prop_assert_eq!(verify(&header, &secrets, &body, NOW), Ok(()));
            let mut other = body.clone();
            other.push(0);
            prop_assert!(verify(&header, &secrets, &other, NOW).is_err());
            let mut changed = header.into_bytes();
            let at = flip.index(changed.len());
            changed[at] ^= 1;
            if let Ok(changed) = String::from_utf8(changed) {
                prop_assert!(verify(&changed, &secrets, &body, NOW).is_err());
            }
        }
    }
}
