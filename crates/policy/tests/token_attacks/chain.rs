//! What chains of delegation try: dead parents, circles, length, and more rights than there were.

use serde_json::{Value, json};

use crate::case::{Case, accepted, expired, malformed, widened};
use crate::forge::{Forge, MARK, NOW, our_claims};

pub(crate) fn cases(forge: &Forge) -> Vec<Case> {
    [structure(forge), lifetime(forge), widenings(forge), narrowings(forge)].concat()
}

/// A child with everything that can be compared.
fn child() -> Value {
    let mut claims = our_claims();
    claims["limits"] = json!([limit(100)]);
    claims["budget"] = json!({ "calls": 10 });
    claims
}

/// A parent with the same rights.
fn parent(number: u32) -> Value {
    let child = child();
    json!({
        "sub": format!("did:key:parent{number}"), "jti": format!("parent-{number}-{MARK}"), "iat": NOW - 10, "exp": child["exp"],
        "tools": child["tools"], "scopes": child["scopes"], "limits": child["limits"], "budget": child["budget"],
    })
}

fn limit(max: u64) -> Value {
    json!({ "tool_id": "demo.*", "argument": "/amount", "max": max })
}

/// A token with these links, nearest first.
fn handed_on(forge: &Forge, mut claims: Value, links: Vec<Value>) -> String {
    let nested = links.into_iter().rev().reduce(|behind, mut link| {
        link["act"] = behind;
        link
    });
    if let Some(act) = nested {
        claims["act"] = act;
    }
    forge.own(&claims)
}

fn changed(mut value: Value, name: &str, new: Value) -> Value {
    value[name] = new;
    value
}

fn without(mut value: Value, name: &str) -> Value {
    value.as_object_mut().unwrap().remove(name).unwrap();
    value
}

fn structure(forge: &Forge) -> Vec<Case> {
    let chain = |links: Vec<Value>| handed_on(forge, child(), links);
    let link = |number| parent(number);
    let act = |act: Value| forge.own(&changed(child(), "act", act));
    let own_sub = child()["sub"].clone();
    let own_jti = child()["jti"].clone();
    vec![
        accepted("a chain of one", chain(vec![link(1)])),
        accepted("a chain of five", chain((1..=5).map(link).collect())),
        malformed("a chain of six", chain((1..=6).map(link).collect())),
        malformed("a chain of thirty", chain((1..=30).map(|n| json!({ "sub": format!("s{n}") })).collect())),
        malformed("a chain that has the token itself", chain(vec![link(1), changed(link(2), "jti", own_jti)])),
        accepted("a token its own subject has narrowed", chain(vec![changed(link(1), "sub", own_sub.clone())])),
        malformed("a chain that comes back to the subject", chain(vec![link(1), changed(link(2), "sub", own_sub)])),
        malformed("a subject twice", chain(vec![link(1), link(2), changed(link(3), "sub", json!("did:key:parent1"))])),
        malformed("a token twice", chain(vec![link(1), changed(link(2), "jti", link(1)["jti"].clone())])),
        accepted("act as RFC 8693 has it", chain(vec![json!({ "sub": "https://service.example" })])),
        accepted(
            "act with members nobody knows",
            chain(vec![json!({ "sub": "a", "iss": "https://b.example", "x": 1 })]),
        ),
        malformed("act without sub", chain(vec![json!({ "iss": "https://service.example" })])),
        malformed("act is a text", act(json!("did:key:parent"))),
        malformed("act is a list", act(json!([link(1)]))),
        accepted("act is null, which is none", act(Value::Null)),
        malformed("a link with exp as a text", chain(vec![changed(link(1), "exp", json!("soon"))])),
        malformed("a link with a negative exp", chain(vec![changed(link(1), "exp", json!(-1))])),
        malformed(
            "a link with an exp in the year 10000",
            chain(vec![changed(link(1), "exp", json!(253_402_300_800_i64))]),
        ),
        malformed("a link with an empty jti", chain(vec![changed(link(1), "jti", json!(""))])),
        malformed("a link with a budget of another form", chain(vec![changed(link(1), "budget", json!(5))])),
    ]
}

fn lifetime(forge: &Forge) -> Vec<Case> {
    let chain = |links: Vec<Value>| handed_on(forge, child(), links);
    let ending = |number, exp: i64| changed(parent(number), "exp", json!(exp));
    vec![
        expired("a parent that ended a second ago", chain(vec![ending(1, NOW - 1)])),
        expired("a parent that ends now", chain(vec![ending(1, NOW)])),
        expired("a grandparent that has ended", chain(vec![parent(1), ending(2, NOW - 1)])),
        expired("a child that has ended under a living parent", {
            handed_on(forge, changed(child(), "exp", json!(NOW)), vec![parent(1)])
        }),
        accepted("child and parent a minute dead, under leeway", {
            handed_on(forge, changed(child(), "exp", json!(NOW - 30)), vec![ending(1, NOW - 30)])
        })
        .lenient(),
    ]
}

fn widenings(forge: &Forge) -> Vec<Case> {
    let chain = |links: Vec<Value>| handed_on(forge, child(), links);
    let narrower = |name: &str, value: Value| chain(vec![changed(parent(1), name, value)]);
    let wider = |name: &str, value: Value| handed_on(forge, changed(child(), name, value), vec![parent(1)]);
    let tool = |id: &str, range: &str| json!([{ "tool_id": id, "version_range": range }]);
    vec![
        widened("a tool the parent has not", wider("tools", tool("calculator", "^1.0.0"))),
        widened("a namespace for a tool", narrower("tools", tool("demo.word_stats", "^1.0.0"))),
        widened("every tool for a namespace", wider("tools", json!([{ "tool_id": "*", "version_range": "^1.0.0" }]))),
        widened("tools of a parent without any", narrower("tools", json!([]))),
        widened("versions the parent has not", wider("tools", tool("demo.*", ">=1.0.0"))),
        widened("every version for some", wider("tools", json!([{ "tool_id": "demo.*" }]))),
        widened("a scope the parent has not", wider("scopes", json!(["tool:calculator", "tool:web_search"]))),
        widened("every scope for one", wider("scopes", json!(["*"]))),
        widened("scopes of a parent without any", narrower("scopes", json!([]))),
        widened("a limit left out", without_limits(forge)),
        widened("a limit raised", wider("limits", json!([limit(101)]))),
        widened(
            "a limit for fewer tools",
            wider("limits", json!([changed(limit(100), "tool_id", json!("demo.word_stats"))])),
        ),
        widened("a higher budget", wider("budget", json!({ "calls": 11 }))),
        widened("no budget under one", handed_on(forge, without(child(), "budget"), vec![parent(1)])),
        widened("an empty budget under one", wider("budget", json!({}))),
        widened("a longer life", wider("exp", json!(NOW + 61))),
        widened("a parent wider than the grandparent", chain(vec![parent(1), changed(parent(2), "scopes", json!([]))])),
        widened("wider than the grandparent, behind a link that states nothing", {
            chain(vec![json!({ "sub": "did:key:silent" }), changed(parent(2), "budget", json!({ "calls": 9 }))])
        }),
    ]
}

fn without_limits(forge: &Forge) -> String {
    handed_on(forge, without(child(), "limits"), vec![parent(1)])
}

fn narrowings(forge: &Forge) -> Vec<Case> {
    let narrower = |name: &str, value: Value| handed_on(forge, changed(child(), name, value), vec![parent(1)]);
    vec![
        accepted("no tools under some", narrower("tools", json!([]))),
        accepted("no scopes under some", narrower("scopes", json!([]))),
        accepted("one more limit", narrower("limits", json!([limit(100), limit(50)]))),
        accepted("a lower budget", narrower("budget", json!({ "calls": 9 }))),
        accepted("a shorter life", narrower("exp", json!(NOW + 30))),
        accepted("a budget under none", handed_on(forge, child(), vec![without(parent(1), "budget")])),
        accepted("a parent that states its end alone", {
            handed_on(forge, child(), vec![json!({ "sub": "did:key:user", "exp": NOW + 60 })])
        }),
    ]
}
