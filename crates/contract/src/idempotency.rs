//! Keys that make two calls one: how a caller derives them (IDEM-002…005, X-06). The server never invents a key; these are
//! the recipes, the same for clients, command line and kernel.
//!
//! Parts are put together with their lengths, so that (`a:b`, `c`) and (`a`, `b:c`) differ, and hashes are kept whole.

use crate::hex::lower_hex;
use base::SaturatingFrom as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::canonical;

/// Bytes in one block of SHA-256, which HMAC is built on.
const BLOCK_BYTES: usize = 64;

/// The key of one step of one session (IDEM-003): HMAC-SHA256 over session, tool, step and canonical parameters. The secret
/// is the caller's own; it keeps others from guessing keys, and must stay the same for as long as calls are repeated.
///
/// ```
/// use gantry_contract::idempotency::step_key;
/// use serde_json::json;
/// let key = |amount| step_key(b"secret", "s-1", "bank.transfer", "pay", &json!({ "amount": amount, "to": "x" }));
/// assert_eq!(key(5), step_key(b"secret", "s-1", "bank.transfer", "pay", &json!({ "to": "x", "amount": 5 })));
/// assert_ne!(key(5), key(6));
/// ```
pub fn step_key(secret: &[u8], session: &str, tool: &str, step: &str, parameters: &Value) -> String {
    let parameters = canonical::digest(parameters).to_string();
    lower_hex(&hmac(secret, &[session, tool, step, &parameters]))
}

/// The key of a business act within one turn (IDEM-004, IDEM-005): whatever supersedes the turn keeps its `turn_group`, and
/// with it the key. The act is what the named members say, or all parameters if none are named.
pub fn turn_key(tool: &str, key_fields: &[String], parameters: &Value, turn_group: &str) -> String {
    let act = if key_fields.is_empty() {
        canonical::digest(parameters)
    } else {
        // By name and value, so that a missing member and one that is null differ.
        let named = key_fields.iter().map(|name| (name.as_str(), parameters.get(name)));
        canonical::digest(
            &named.map(|(name, value)| serde_json::json!([name, value.map(|value| vec![value])])).collect(),
        )
    };
    let digest = Sha256::digest(together(&[tool, &act.to_string(), "turn_group", turn_group]));
    format!("turn:{}", lower_hex(&digest))
}

/// HMAC (RFC 2104) with SHA-256 over the parts with their lengths.
fn hmac(secret: &[u8], parts: &[&str]) -> [u8; 32] {
    let mut key = [0u8; BLOCK_BYTES];
    let hashed = Sha256::digest(secret);
    let short: &[u8] = if secret.len() > BLOCK_BYTES { &hashed } else { secret };
    key.iter_mut().zip(short).for_each(|(byte, given)| *byte = *given);
    let inner = Sha256::new().chain_update(key.map(|byte| byte ^ 0x36)).chain_update(together(parts)).finalize();
    Sha256::new().chain_update(key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

fn together(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&u64::saturating_from(part.len()).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

/// One name for several parts, none of which can be mistaken for another: for the scope of a key.
pub fn scope_of(parts: &[&str]) -> String {
    lower_hex(&Sha256::digest(together(parts)))
}

/// What stands for a key that cannot be kept as it is. The same key gives the same word.
pub fn kept_key(key: &str) -> String {
    format!("digest:{}", lower_hex(&Sha256::digest(together(&["idempotency_key", key]))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_code_is_the_hmac_of_rfc_4231() {
        // The vectors are of plain messages; a part has its length before it, so the message is put in by hand.
        let plain = |secret: &[u8], message: &[u8]| {
            let mut key = [0u8; BLOCK_BYTES];
            let hashed = Sha256::digest(secret);
            let short: &[u8] = if secret.len() > BLOCK_BYTES { &hashed } else { secret };
            key.iter_mut().zip(short).for_each(|(byte, given)| *byte = *given);
            let inner = Sha256::new().chain_update(key.map(|b| b ^ 0x36)).chain_update(message).finalize();
            lower_hex(&Sha256::new().chain_update(key.map(|b| b ^ 0x5c)).chain_update(inner).finalize())
        };
        assert_eq!(
            plain(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let parts = ["a", "bc"];
        assert_eq!(
            lower_hex(&hmac(b"Jefe", &parts)),
            plain(b"Jefe", &together(&parts)),
            "and ours is made the same way"
        );
        assert_eq!(lower_hex(&hmac(&[7; 200], &parts)), plain(&[7; 200], &together(&parts)));
    }

    #[test]
    fn a_turn_is_known_by_what_it_does_and_not_by_the_rest() {
        let fields = vec!["order".to_owned()];
        let key = |value: Value| turn_key("shop.refund", &fields, &value, "g-1");
        assert_eq!(key(json!({ "order": 7, "note": "a" })), key(json!({ "note": "b", "order": 7 })));
        assert_ne!(key(json!({ "order": 7 })), key(json!({ "order": "7" })));
        assert_ne!(key(json!({ "order": null })), key(json!({})), "nothing is not null");
        assert_ne!(key(json!({ "order": 7 })), turn_key("shop.refund", &fields, &json!({ "order": 7 }), "g-2"));
        assert_ne!(turn_key("a", &[], &json!({ "x": 1 }), "g"), turn_key("a", &[], &json!({ "x": 2 }), "g"));
    }

    proptest! {
        #[test]
        fn no_two_lists_of_parts_are_taken_for_each_other(a in prop::collection::vec(".{0,6}", 0..4), b in prop::collection::vec(".{0,6}", 0..4)) {
            let (left, right): (Vec<&str>, Vec<&str>) = (a.iter().map(String::as_str).collect(), b.iter().map(String::as_str).collect());
            prop_assert_eq!(scope_of(&left) == scope_of(&right), left == right);
        }
    }
}
