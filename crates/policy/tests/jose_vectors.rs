//! Wycheproof's vectors for signed tokens: what is signed by a key of ours is accepted or refused as the vectors say.
//!
//! Rows of other algorithms (shared secrets, RSA-PSS, SHA-384 and SHA-512, encryption) are refused whatever their result:
//! Gantry does not speak them, and a vector that is valid under one of them must not get through as something else.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::collections::BTreeMap;

use gantry_policy::jose::{self, KeySet, SignatureAlgorithm};
use serde_json::{Value, json};

const SIGNATURES: &str = include_str!("../../../testdata/vectors/jose_signature_dev.jsonl");
const CRYPTO: &str = include_str!("../../../testdata/vectors/jose_crypto_dev.jsonl");
const KEYS: &str = include_str!("../../../testdata/vectors/jose_key_dev.jsonl");

/// Whose row it is, and what should become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    OursValid,
    OursInvalid,
    OtherAlgorithm,
    Encrypted,
}

#[test]
fn every_row_of_our_algorithms_comes_out_as_it_should_and_every_other_is_refused() {
    let (mut counts, mut wrong) = (BTreeMap::<(&str, Class), usize>::new(), Vec::new());
    for (file, rows) in [("signature", SIGNATURES), ("crypto", CRYPTO), ("key", KEYS)] {
        for line in rows.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let class = class(&row);
            *counts.entry((file, class)).or_default() += 1;
            if is_accepted(&row) != (class == Class::OursValid) {
                wrong.push(format!("{} {}: {class:?}", row["id"], row["comment"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows came out wrong:\n{}", wrong.len(), wrong.join("\n"));
    let expected = [
        (("crypto", Class::OursValid), 1),
        (("crypto", Class::OursInvalid), 7),
        (("crypto", Class::OtherAlgorithm), 3),
        (("crypto", Class::Encrypted), 9),
        (("key", Class::OursInvalid), 1),
        (("key", Class::OtherAlgorithm), 5),
        (("signature", Class::OursValid), 1),
        (("signature", Class::OursInvalid), 77),
        (("signature", Class::OtherAlgorithm), 22),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

/// The algorithm is the key's, as everywhere; a header that says otherwise is part of the attack.
fn class(row: &Value) -> Class {
    if row.get("jwe").is_some() {
        return Class::Encrypted;
    }
    let ours = keys(row).iter().any(|key| key["alg"].as_str().and_then(SignatureAlgorithm::named).is_some());
    match (ours, row["result"].as_str()) {
        (true, Some("valid")) => Class::OursValid,
        (true, _) => Class::OursInvalid,
        (false, _) => Class::OtherAlgorithm,
    }
}

fn is_accepted(row: &Value) -> bool {
    let token = row.get("jws").or_else(|| row.get("jwe")).and_then(Value::as_str).unwrap();
    KeySet::from_jwks(json!({ "keys": keys(row) }).to_string().as_bytes())
        .is_ok_and(|(keys, _)| jose::verified_payload(token, &keys).is_ok())
}

/// Some rows have a set, some a key.
fn keys(row: &Value) -> Vec<Value> {
    match row["key"].get("keys") {
        Some(keys) => keys.as_array().unwrap().clone(),
        None => vec![row["key"].clone()],
    }
}
