//! What signatures try: other lengths, other encodings, values on the edge, and keys that sign everything.

use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::json;

use crate::case::{Case, accepted, malformed, unsigned};
use crate::forge::{Forge, claims_with, our_claims, resigned, sealed, their_claims};

/// The order of P-256, big-endian.
const P256_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
    0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];
/// The order of Ed25519's base point, little-endian.
const ED25519_ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

pub(crate) fn cases(forge: &Forge) -> Vec<Case> {
    [lengths(forge), edwards(forge), ecdsa(forge), rsa(forge), strangers(forge)].concat()
}

fn lengths(forge: &Forge) -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, token) in tokens(forge) {
        let change = |what: &str, token: String| unsigned(format!("{kind}: {what}"), token);
        cases.push(change("no signature", resigned(&token, |_| Vec::new())));
        cases.push(change(
            "a signature cut by one octet",
            resigned(&token, |mut s| {
                s.pop();
                s
            }),
        ));
        cases.push(change(
            "a signature longer by one octet",
            resigned(&token, |mut s| {
                s.push(0);
                s
            }),
        ));
        cases.push(change(
            "a signature with a zero before it",
            resigned(&token, |mut s| {
                s.insert(0, 0);
                s
            }),
        ));
        cases.push(change("a signature twice", resigned(&token, |s| s.repeat(2))));
        cases.push(change("a signature of zeros", resigned(&token, |s| vec![0; s.len()])));
        cases.push(change("a signature of ones", resigned(&token, |s| vec![0xff; s.len()])));
    }
    cases
}

fn edwards(forge: &Forge) -> Vec<Case> {
    let token = forge.own(&our_claims());
    // s + L is the same number to whoever forgets to reduce it.
    let raised = resigned(&token, |signature| {
        let mut carry = 0;
        let mut raised = signature[..32].to_vec();
        for (s, order) in signature[32..].iter().zip(ED25519_ORDER) {
            let sum = u16::from(*s) + u16::from(order) + carry;
            raised.push(u8::try_from(sum & 0xff).unwrap());
            carry = sum >> 8;
        }
        raised
    });
    vec![unsigned("Ed25519: s is not reduced", raised)]
}

fn ecdsa(forge: &Forge) -> Vec<Case> {
    let token = forge.ec(&their_claims());
    // n - s is as good a solution as s. RFC 7518 does not forbid it, ring accepts it, and so do we: a token's name is its
    // `jti`, and nothing here takes the bytes of a signature for one.
    let other_half = resigned(&token, |signature| [&signature[..32], &minus(&P256_ORDER, &signature[32..])].concat());
    let (zero, one) = ([0; 32], {
        let mut one = [0; 32];
        one[31] = 1;
        one
    });
    let made_of = |r: [u8; 32], s: [u8; 32]| resigned(&token, |_| [r, s].concat());
    vec![
        accepted("ES256: s and n - s are both solutions", other_half),
        unsigned("ES256: a signature in DER", forge.ec_in_der(&their_claims())),
        unsigned("ES256: r is zero", made_of(zero, one)),
        unsigned("ES256: s is zero", made_of(one, zero)),
        unsigned("ES256: r and s are one", made_of(one, one)),
        unsigned("ES256: r is the order", made_of(P256_ORDER, one)),
        unsigned("ES256: s is the order", made_of(one, P256_ORDER)),
        unsigned("ES256: r and s exchanged", resigned(&token, |s| [&s[32..], &s[..32]].concat())),
    ]
}

fn rsa(forge: &Forge) -> Vec<Case> {
    let token = forge.rsa(&their_claims());
    vec![
        unsigned("RS256: the signature is one", resigned(&token, |s| [vec![0; s.len() - 1], vec![1]].concat())),
        unsigned("RS256: the signature of other claims", {
            let other = forge.rsa(&{
                let mut claims = their_claims();
                claims["tenant"] = json!("evil");
                claims
            });
            format!("{}.{}", token.rsplit_once('.').unwrap().0, other.rsplit_once('.').unwrap().1)
        }),
    ]
}

fn strangers(forge: &Forge) -> Vec<Case> {
    let claims = our_claims();
    let by_stranger =
        |header: &serde_json::Value| sealed(header, &claims, |message| forge.stranger.sign(message).to_vec());
    let token = forge.own(&claims);
    let (header, rest) = token.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let promoted = crate::forge::encode(claims_with("roles", json!(["admin"])).to_string());
    vec![
        unsigned("another key under our name", by_stranger(&forge.header())),
        unsigned("another key under its own name", by_stranger(&forge.header_with("kid", json!(forge.stranger.id())))),
        unsigned("claims exchanged under a signature", format!("{header}.{promoted}.{signature}")),
        malformed("the secret of nobody", "not-a-token".into()),
    ]
}

fn tokens(forge: &Forge) -> [(&'static str, String); 3] {
    [("EdDSA", forge.own(&our_claims())), ("RS256", forge.rsa(&their_claims())), ("ES256", forge.ec(&their_claims()))]
}

fn minus(a: &[u8; 32], b: &[u8]) -> Vec<u8> {
    let mut difference = [0; 32];
    let mut borrow = 0;
    for place in (0..32).rev() {
        let value = 256 + i32::from(a[place]) - i32::from(b[place]) - borrow;
        difference[place] = u8::try_from(value % 256).unwrap();
        borrow = i32::from(value < 256);
    }
    difference.to_vec()
}

/// The identity as a key "verifies" a signature of anything: with R and s zero both sides are the identity. ring lets it
/// through, so such keys must never be read.
#[test]
fn a_key_of_small_order_would_sign_everything_and_cannot_be_had() {
    let mut identity = [0; 32];
    identity[0] = 1;
    let signature = [identity, [0; 32]].concat();
    let by_ring = UnparsedPublicKey::new(&ED25519, identity).verify(b"anything", &signature);
    assert!(by_ring.is_ok(), "ring refuses small orders by now: the check of ours may go");
    let jwk = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "k", "x": crate::forge::encode(identity) }] });
    assert!(gantry_policy::KeySet::from_jwks(jwk.to_string().as_bytes()).is_err());
}
