//! What claims try, under good signatures: other issuers and audiences, times on the edge, shapes, and roles.

use serde_json::{Value, json};

use crate::case::{Case, accepted, expired, malformed};
use crate::forge::{Forge, ISSUER, MARK, NOW, claims_with, claims_without, our_claims, their_claims};

pub(crate) fn cases(forge: &Forge) -> Vec<Case> {
    [parties(forge), times(forge), required(forge), shapes(forge), roles(forge)].concat()
}

fn parties(forge: &Forge) -> Vec<Case> {
    let with = |name: &str, value: Value| forge.own(&claims_with(name, value));
    let mut for_us_by_rsa = their_claims();
    for_us_by_rsa["iss"] = json!("gantry");
    let many: Vec<String> = (0..65).map(|n| if n == 0 { "gantry".into() } else { format!("a{n}") }).collect();
    vec![
        malformed("aud is somebody else", with("aud", json!("billing"))),
        malformed("aud in upper case", with("aud", json!("GANTRY"))),
        malformed("aud with a slash behind", with("aud", json!("gantry/"))),
        malformed("aud is a list of others", with("aud", json!(["billing", "search"]))),
        malformed("aud is an empty list", with("aud", json!([]))),
        malformed("aud is a list with a number", with("aud", json!(["gantry", 1]))),
        malformed("aud is an object", with("aud", json!({ "gantry": true }))),
        malformed("aud is null", with("aud", Value::Null)),
        malformed("aud has 65 entries", with("aud", json!(many))),
        accepted("aud has us among others", with("aud", json!(["billing", "gantry"]))),
        malformed("iss is a stranger", with("iss", json!("https://evil.example"))),
        malformed("iss is like an issuer's", with("iss", json!(format!("{ISSUER}.evil.example")))),
        malformed("iss is a list", with("iss", json!(["gantry"]))),
        malformed("iss is empty", with("iss", json!(""))),
        malformed("issuer A by the key of issuer B", with("iss", json!(ISSUER))),
        malformed("issuer B by the key of issuer A", forge.rsa(&for_us_by_rsa)),
    ]
}

fn times(forge: &Forge) -> Vec<Case> {
    let with = |name: &str, value: Value| forge.own(&claims_with(name, value));
    let (exp, nbf, iat) =
        (|at: i64| with("exp", json!(at)), |at: i64| with("nbf", json!(at)), |at: i64| with("iat", json!(at)));
    let mut cases = vec![
        expired("exp a second ago", exp(NOW - 1)),
        expired("exp is now", exp(NOW)),
        accepted("exp in a second", exp(NOW + 1)),
        expired("exp in 1970", exp(0)),
        expired("exp a minute ago, under a minute of leeway", exp(NOW - 60)).lenient(),
        accepted("exp 59 seconds ago, under a minute of leeway", exp(NOW - 59)).lenient(),
        expired("exp, seen later", exp(NOW + 60)).at(NOW + 60),
        accepted("a life of a year", exp(NOW + 31_536_000)),
        malformed("a life of a year and a second", exp(NOW + 31_536_001)),
        malformed("exp in the year 9999", exp(253_402_300_799)),
        malformed("exp in the year 10000", exp(253_402_300_800)),
        malformed("nbf in a second", nbf(NOW + 1)),
        accepted("nbf is now", nbf(NOW)),
        accepted("nbf in a minute, under a minute of leeway", nbf(NOW + 60)).lenient(),
        malformed("nbf in 61 seconds, under a minute of leeway", nbf(NOW + 61)).lenient(),
        malformed("iat in a second", iat(NOW + 1)),
        accepted("iat in a minute, under a minute of leeway", iat(NOW + 60)).lenient(),
        malformed("iat in 61 seconds, under a minute of leeway", iat(NOW + 61)).lenient(),
        accepted("iat almost a year ago", iat(NOW + 60 - 31_536_000)),
        malformed("iat more than a year before exp", iat(NOW + 59 - 31_536_000)),
    ];
    let shapes = [
        ("a text", json!((NOW + 60).to_string())),
        ("a fraction", json!(1_800_000_060.5)),
        ("a whole number written as a fraction", json!(1_800_000_060.0)),
        ("negative", json!(-1)),
        ("huge", json!(u64::MAX)),
        ("milliseconds", json!(NOW * 1000 * 1000)),
        ("a list", json!([NOW + 60])),
        ("true", json!(true)),
        ("null", Value::Null),
    ];
    for name in ["exp", "nbf", "iat"] {
        cases.extend(
            shapes.iter().map(|(what, value)| malformed(format!("{name} is {what}"), with(name, value.clone()))),
        );
    }
    let text = our_claims().to_string();
    let spelt = |number: &str| text.replace(&format!("\"exp\":{}", NOW + 60), &format!("\"exp\":{number}"));
    for (what, number) in
        [("with an exponent", "18e8"), ("beyond every number", "1e999"), ("with many digits", "18446744073709551616")]
    {
        let claims = spelt(number);
        cases.push(malformed(
            format!("exp {what}"),
            forge.raw(forge.header().to_string().as_bytes(), claims.as_bytes()),
        ));
    }
    cases
}

fn required(forge: &Forge) -> Vec<Case> {
    ["iss", "aud", "sub", "exp", "nbf", "iat", "jti", "tenant"]
        .into_iter()
        .map(|name| malformed(format!("no {name}"), forge.own(&claims_without(name))))
        .collect()
}

fn shapes(forge: &Forge) -> Vec<Case> {
    let with = |name: &str, value: Value| forge.own(&claims_with(name, value));
    let raw = |claims: &[u8]| forge.raw(forge.header().to_string().as_bytes(), claims);
    let text = our_claims().to_string();
    let inside = |more: &str| text.replacen('{', &format!("{{{more},"), 1);
    let mut not_utf8 = text.clone().into_bytes();
    let place = text.find("acme").unwrap();
    not_utf8[place] = 0xff;
    let deep = format!(r#""x":{}1{}"#, "[".repeat(70), "]".repeat(70));
    let [wide, wider] = [5_000, 8_000].map(|more| format!(r#""x":[{}1]"#, "1,".repeat(more)));
    let bad_list = |name: &str, value: Value| malformed(format!("{name} is {value}"), with(name, value));
    vec![
        malformed("a claim twice", raw(inside(r#""tenant":"evil""#).as_bytes())),
        malformed("a claim twice, once with an escape", raw(inside(r#""ten\u0061nt":"evil""#).as_bytes())),
        malformed("a nested claim twice", raw(inside(r#""x":{"a":1,"a":2}"#).as_bytes())),
        malformed(
            "a grant's tool twice",
            raw(text.replace(r#"{"tool_id":"#, r#"{"tool_id":"*","tool_id":"#).as_bytes()),
        ),
        malformed("claims that are not UTF-8", raw(&not_utf8)),
        malformed("half a surrogate pair", raw(inside(r#""x":"\ud800""#).as_bytes())),
        malformed("claims that are not JSON", raw(b"sub=admin")),
        malformed("claims that are a list", raw(format!("[{text}]").as_bytes())),
        malformed("claims that are a text", raw(b"\"claims\"")),
        malformed("no claims", raw(b"")),
        malformed("claims with something behind them", raw(format!("{text}{{}}").as_bytes())),
        malformed("claims 70 levels deep", raw(inside(&deep).as_bytes())),
        accepted("a list of 5,000 numbers that nobody asked for", raw(inside(&wide).as_bytes())),
        malformed("a list that makes the token too long", raw(inside(&wider).as_bytes())),
        accepted("a claim nobody knows", with("scope", json!("tool:read"))),
        malformed("sub is empty", with("sub", json!(""))),
        malformed("sub is a number", with("sub", json!(7))),
        malformed("sub has a space", with("sub", json!(format!("did:key:{MARK} admin")))),
        malformed("sub is too long", with("sub", json!("s".repeat(501)))),
        malformed("tenant is empty", with("tenant", json!(""))),
        malformed("tenant is a list", with("tenant", json!(["acme", "evil"]))),
        malformed("jti is empty", with("jti", json!(""))),
        malformed("jti is a number", with("jti", json!(7))),
        malformed("jti is too long", with("jti", json!("j".repeat(257)))),
        malformed("jti has a control character", with("jti", json!("a\u{7}b"))),
        malformed("session_id is empty", with("session_id", json!(""))),
        malformed("user_did has a newline", with("user_did", json!("did:key:x\n"))),
        bad_list("tools", json!("*")),
        bad_list("tools", json!(["*"])),
        bad_list("tools", json!([{ "tool_id": "de*" }])),
        bad_list("tools", json!([{ "tool_id": "demo.*", "version_range": "newest" }])),
        bad_list("tools", json!([{ "tool_id": "demo.*", "versions": "^1" }])),
        bad_list("scopes", json!("tool:read")),
        bad_list("scopes", json!(["tool read"])),
        bad_list("limits", json!([{ "tool_id": "*" }])),
        bad_list("limits", json!([{ "tool_id": "*", "argument": "/a", "maximum": 5 }])),
        bad_list("budget", json!({ "calls": -1 })),
        bad_list("budget", json!({ "call": 1 })),
        accepted("limits and a budget", {
            let mut claims = claims_with("budget", json!({ "calls": 3 }));
            claims["limits"] = json!([{ "tool_id": "demo.*", "argument": "/amount", "max": 100 }]);
            forge.own(&claims)
        }),
        accepted("no tools, scopes or roles at all", {
            let mut claims = our_claims();
            for name in ["tools", "scopes", "roles"] {
                claims.as_object_mut().unwrap().remove(name);
            }
            forge.own(&claims)
        }),
    ]
}

fn roles(forge: &Forge) -> Vec<Case> {
    let issued = |roles: Value| {
        let mut claims = their_claims();
        claims["roles"] = roles;
        forge.rsa(&claims)
    };
    vec![
        malformed("admin from an issuer of agents", issued(json!(["admin"]))),
        malformed("agent and approver from an issuer of agents", issued(json!(["agent", "approver"]))),
        accepted("agent from an issuer of agents", issued(json!(["agent"]))),
        accepted("admin from this server", forge.own(&claims_with("roles", json!(["admin"])))),
        malformed("a role nobody knows", forge.own(&claims_with("roles", json!(["root"])))),
        malformed("roles is a text", forge.own(&claims_with("roles", json!("agent")))),
        malformed("a role in upper case", forge.own(&claims_with("roles", json!(["Admin"])))),
    ]
}
