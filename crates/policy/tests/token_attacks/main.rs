//! Attacks on tokens and the edges of the rules, each with the code and status it must get.
//!
//! Three signers are trusted: this server's own Ed25519 key, and an issuer with an RSA and a P-256 key that may give the
//! role of an agent only. Every case goes through the [`Authenticator`], so what is asserted is what a caller is told.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test crate")]

mod case;
mod chain;
mod claims;
mod encodings;
mod forge;
mod header;
mod signature;

use std::collections::HashSet;

use gantry_policy::{Authenticator, BearerSecret};

use case::{Case, Expected};
use forge::{Forge, MARK, our_claims, their_claims};

/// With fewer, some have got lost.
const CASES_MIN: usize = 300;

#[test]
fn every_attack_and_edge_case_gets_its_code_and_status() {
    let forge = Forge::new();
    let cases: Vec<Case> = [
        header::cases(&forge),
        signature::cases(&forge),
        encodings::cases(&forge),
        claims::cases(&forge),
        chain::cases(&forge),
    ]
    .concat();
    let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "every case has a name of its own");
    assert!(cases.len() >= CASES_MIN, "{} cases", cases.len());

    let strict = Authenticator::new("the admin's secret", forge.trust()).unwrap();
    let lenient = {
        let mut trust = forge.trust();
        trust.leeway_seconds = 60;
        strict.with_trust(trust)
    };
    let mut wrong = Vec::new();
    for case in &cases {
        let authenticator = if case.lenient { &lenient } else { &strict };
        let found = match authenticator.authenticate(Some(BearerSecret(&case.token)), case.now * 1000) {
            Ok(_) => Expected::Accepted,
            Err(error) => {
                let refusal = error.refusal();
                let said = format!("{} {}", refusal.message, refusal.resolution());
                if said.contains(MARK) {
                    wrong.push(format!("{}: the answer repeats the token: {said}", case.name));
                }
                Expected::Refused(refusal.code, refusal.code.http())
            }
        };
        if found != case.expected {
            wrong.push(format!("{}: {found:?} instead of {:?}", case.name, case.expected));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases are wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn no_other_character_anywhere_in_a_token_is_accepted() {
    let forge = Forge::new();
    let authenticator = Authenticator::new("the admin's secret", forge.trust()).unwrap();
    for token in [forge.own(&our_claims()), forge.rsa(&their_claims()), forge.ec(&their_claims())] {
        assert!(authenticator.authenticate(Some(BearerSecret(&token)), forge::NOW * 1000).is_ok());
        for place in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            let result = authenticator.authenticate(Some(BearerSecret(&changed)), forge::NOW * 1000);
            assert!(result.is_err(), "character {place}");
        }
    }
}
