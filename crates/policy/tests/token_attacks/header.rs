//! What headers try: other algorithms, other keys, extensions.

use ring::hmac;
use serde_json::{Value, json};

use crate::case::{Case, accepted, malformed, unsigned};
use crate::forge::{Forge, MARK, RSA_PUBLIC, encode, our_claims, sealed, their_claims};

pub(crate) fn cases(forge: &Forge) -> Vec<Case> {
    [algorithms(forge), confusions(forge), key_names(forge), brought_keys(forge), extensions(forge)].concat()
}

fn algorithms(forge: &Forge) -> Vec<Case> {
    let claims = our_claims();
    let mut cases = Vec::new();
    for none in ["none", "None", "NONE", "nOnE", "none ", ""] {
        let header = forge.header_with("alg", json!(none));
        cases.push(malformed(format!("alg `{none}`, signed"), forge.with_header(&header, &claims)));
        cases.push(malformed(
            format!("alg `{none}`, without signature"),
            format!("{}.{}.", encode(header.to_string()), encode(claims.to_string())),
        ));
    }
    for other in ["HS256", "HS512", "RS384", "PS256", "ES256K", "ES384", "Ed25519", "eddsa", "EDDSA", "dir"] {
        let header = forge.header_with("alg", json!(other));
        cases.push(malformed(format!("alg {other} over an EdDSA signature"), forge.with_header(&header, &claims)));
    }
    for (what, alg) in [("null", Value::Null), ("a number", json!(5)), ("a list", json!(["EdDSA"]))] {
        let header = forge.header_with("alg", alg);
        cases.push(malformed(format!("alg is {what}"), forge.with_header(&header, &claims)));
    }
    let absent = json!({ "kid": forge.own.id() });
    cases.push(malformed("no alg", forge.with_header(&absent, &claims)));
    cases.push(malformed("an empty header", forge.with_header(&json!({}), &claims)));
    cases.push(accepted("EdDSA by the own key", forge.own(&claims)));
    cases.push(accepted("RS256 by the other issuer", forge.rsa(&their_claims())));
    cases.push(accepted("ES256 by the other issuer", forge.ec(&their_claims())));
    cases
}

/// A key used with an algorithm that is not its own.
fn confusions(forge: &Forge) -> Vec<Case> {
    let issued = their_claims();
    let mac = |secret: &[u8]| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        sealed(&json!({ "alg": "HS256", "kid": "rsa-1" }), &issued, |message| {
            hmac::sign(&key, message).as_ref().to_vec()
        })
    };
    let trust = forge.trust();
    let jwk = trust.issuers[1].keys.get("rsa-1").unwrap().to_jwk();
    let modulus = jwk["n"].as_str().unwrap();
    let named = |alg: &str, kid: &str| json!({ "alg": alg, "kid": kid });
    vec![
        malformed("HS256 with the public PEM as secret", mac(RSA_PUBLIC.as_bytes())),
        malformed("HS256 with the trimmed public PEM as secret", mac(RSA_PUBLIC.trim().as_bytes())),
        malformed("HS256 with the JWK as secret", mac(jwk.to_string().as_bytes())),
        malformed("HS256 with the modulus as secret", mac(modulus.as_bytes())),
        malformed("RS256 under the P-256 key", forge.rsa_as(&named("RS256", "ec-1"), &issued)),
        malformed("ES256 under the RSA key", forge.ec_as(&named("ES256", "rsa-1"), &issued)),
        malformed("EdDSA under the RSA key", forge.with_header(&named("EdDSA", "rsa-1"), &issued)),
        malformed("RS256 under the Ed25519 key", forge.rsa_as(&named("RS256", forge.own.id()), &our_claims())),
        unsigned("an RS256 signature that says ES256", forge.rsa_as(&named("ES256", "ec-1"), &issued)),
        unsigned("an ES256 signature that says RS256", forge.ec_as(&named("RS256", "rsa-1"), &issued)),
        unsigned("an EdDSA signature that says RS256", forge.with_header(&named("RS256", "rsa-1"), &issued)),
    ]
}

fn key_names(forge: &Forge) -> Vec<Case> {
    let claims = our_claims();
    let named = |kid: Value| forge.with_header(&forge.header_with("kid", kid), &claims);
    let mut cases: Vec<Case> = [
        ("a stranger", format!("unknown-{MARK}")),
        ("a path", "../../../../etc/passwd".into()),
        ("an empty file", "/dev/null".into()),
        ("SQL", "x' UNION SELECT 'key' --".into()),
        ("a URL", "https://evil.example/key.json".into()),
        ("a command", "k$(id)|id;`id`".into()),
        ("the right name in upper case", forge.own.id().to_uppercase()),
        ("the right name with a space", format!("{} ", forge.own.id())),
        ("256 letters", "k".repeat(256)),
        ("256 letters of four bytes", "𝔎".repeat(256)),
    ]
    .into_iter()
    .map(|(what, kid)| unsigned(format!("kid is {what}"), named(json!(kid))))
    .collect();
    let others = [
        ("empty", json!("")),
        ("257 letters", json!("k".repeat(257))),
        ("a megabyte", json!("k".repeat(1 << 20))),
        ("a list", json!([forge.own.id()])),
        ("an object", json!({ "kid": forge.own.id() })),
        ("a number", json!(0)),
        ("null", Value::Null),
        ("two lines", json!(format!("{}\n", forge.own.id()))),
        ("cut by a zero byte", json!(format!("{}\u{0}x", forge.own.id()))),
    ];
    cases.extend(others.into_iter().map(|(what, kid)| malformed(format!("kid is {what}"), named(kid))));
    cases.push(malformed("no kid", forge.with_header(&json!({ "alg": "EdDSA" }), &claims)));
    cases
}

/// Headers that bring a key or say where one is. They are not looked at, so they neither help nor hurt.
fn brought_keys(forge: &Forge) -> Vec<Case> {
    let claims = our_claims();
    let jwk = forge.stranger.verifying_key().to_jwk();
    let offers = [
        ("jwk", jwk),
        ("jku", json!("https://evil.example/jwks.json")),
        ("x5u", json!("file:///etc/ssl/evil.pem")),
        ("x5c", json!(["MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A"])),
    ];
    let mut cases = Vec::new();
    for (name, value) in offers {
        let under_our_name = forge.header_with(name, value.clone());
        let by_stranger = |header: &Value| sealed(header, &claims, |message| forge.stranger.sign(message).to_vec());
        cases.push(unsigned(format!("{name} of a stranger under our kid"), by_stranger(&under_our_name)));
        let mut own_name = under_our_name.clone();
        own_name["kid"] = json!(forge.stranger.id());
        cases.push(unsigned(format!("{name} of a stranger under its own kid"), by_stranger(&own_name)));
        cases.push(accepted(format!("{name} beside our signature"), forge.with_header(&under_our_name, &claims)));
    }
    cases
}

fn extensions(forge: &Forge) -> Vec<Case> {
    let claims = our_claims();
    let with = |name: &str, value: Value| forge.with_header(&forge.header_with(name, value), &claims);
    let text = forge.header().to_string();
    let twice = text.replacen('{', r#"{"alg":"none","#, 1);
    let not_utf8: Vec<u8> = text.bytes().map(|byte| if byte == b'W' { 0xff } else { byte }).collect();
    let deep = format!(r#"{},"x":{}1{}}}"#, &text.strip_suffix('}').unwrap(), "[".repeat(70), "]".repeat(70));
    let raw = |header: &[u8]| forge.raw(header, claims.to_string().as_bytes());
    vec![
        malformed("crit", with("crit", json!(["exp"]))),
        malformed("crit with an extension that is there", {
            let mut header = forge.header_with("crit", json!(["http://x.example/e"]));
            header["http://x.example/e"] = json!(true);
            forge.with_header(&header, &claims)
        }),
        malformed("an empty crit", with("crit", json!([]))),
        malformed("crit is null", with("crit", Value::Null)),
        malformed("b64 is false", with("b64", json!(false))),
        malformed("zip", with("zip", json!("DEF"))),
        malformed("typ JWE", with("typ", json!("JWE"))),
        malformed("typ JOSE+JSON", with("typ", json!("JOSE+JSON"))),
        malformed("typ is a list", with("typ", json!(["JWT"]))),
        malformed("typ dpop+jwt", with("typ", json!("dpop+jwt"))),
        accepted("typ jwt", with("typ", json!("jwt"))),
        accepted("typ at+JWT", with("typ", json!("at+JWT"))),
        accepted("no typ", forge.with_header(&json!({ "alg": "EdDSA", "kid": forge.own.id() }), &claims)),
        accepted("a header member nobody knows", with("x-trace", json!({ "a": [1] }))),
        malformed("a header member twice", raw(twice.as_bytes())),
        malformed("a nested header member twice", raw(text.replacen('{', r#"{"x":{"a":1,"a":2},"#, 1).as_bytes())),
        malformed("a header that is not UTF-8", raw(&not_utf8)),
        malformed("a header with a byte order mark", raw(&[b"\xef\xbb\xbf", text.as_bytes()].concat())),
        malformed("a header that is a list", raw(b"[]")),
        malformed("a header that is not JSON", raw(b"alg=EdDSA")),
        malformed("a header with something behind it", raw(format!("{text}{{}}").as_bytes())),
        malformed("a header 70 levels deep", raw(deep.as_bytes())),
    ]
}
