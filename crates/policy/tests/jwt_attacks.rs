//! A published list of attacks on JWTs, verified as far as such tokens go: signature, issuer, audience and time.
//!
//! They lack what makes a capability token (tenant, jti, rights), so [`verify_registered`] is asked, which is the first
//! half of `verify`. The list accepts HS256; Gantry refuses it, because a shared secret lets every verifier mint.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test crate")]

use gantry_policy::{KeySet, TokenError, TokenIssuerKeys, TokenTrust, verify, verify_registered};
use serde_json::{Value, json};

const ROWS: &str = include_str!("../../../testdata/vectors/jwt_attacks_dev.jsonl");

#[test]
fn every_attack_is_refused_and_every_token_of_our_algorithms_accepted() {
    let mut rows = ROWS.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rules = rows.next().unwrap();
    let trust = trust(&rules);
    let now_ms = rules["verify"]["now"].as_i64().unwrap() * 1000;
    let (mut accepted, mut refused, mut shared_secret) = (0, 0, 0);
    for row in rows {
        let token = row["token"].as_str().unwrap();
        let result = verify_registered(token, &trust, now_ms);
        match (row["expect"].as_str().unwrap(), row["key"].as_str()) {
            ("accept", Some("hs1")) => {
                shared_secret += 1;
                assert!(matches!(result, Err(TokenError::Malformed(_))), "{row}");
            }
            ("accept", _) => {
                accepted += 1;
                assert!(result.is_ok(), "{row}: {result:?}");
                assert!(
                    matches!(verify(token, &trust, now_ms), Err(TokenError::Malformed(_))),
                    "no capabilities: {row}"
                );
            }
            _ => {
                refused += 1;
                assert!(result.is_err(), "{row}");
            }
        }
    }
    assert_eq!((accepted, refused, shared_secret), (2, 9, 1));
}

/// One issuer with all keys of the first row. The shared secret among them is passed over.
fn trust(rules: &Value) -> TokenTrust {
    let named = |(name, key): (&String, &Value)| {
        let mut key = key.clone();
        key["kid"] = json!(name);
        key
    };
    let keys: Vec<Value> = rules["keys"].as_object().unwrap().iter().map(named).collect();
    let (keys, skipped) = KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes()).unwrap();
    assert_eq!((keys.len(), skipped), (2, 1));
    let rule = |name: &str| rules["verify"][name].as_str().unwrap().to_owned();
    let issuer = TokenIssuerKeys { name: rule("iss"), keys, roles: Vec::new() };
    let leeway_seconds = u32::try_from(rules["verify"]["leeway_seconds"].as_u64().unwrap()).unwrap();
    TokenTrust { leeway_seconds, ..TokenTrust::new(rule("aud"), vec![issuer]) }
}
