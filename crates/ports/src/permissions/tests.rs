//! What words open, what they cannot open, and that nothing else is open.

use contract::manifest::Manifest;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn manifest(change: &Value) -> Manifest {
    let mut manifest = json!({
        "tool_id": "word_stats", "version": "1.0.0", "name": "Words", "description": "Counts the words of a text.",
        "provider": "Test", "protocol": "native", "side_effect_policy": "idempotent", "timeout_class": "standard",
        "side_effects": [{ "resource": "r", "op": "UPDATE", "scope": "s" }], "idempotency": {},
        "parameters": { "type": "object" }, "result_schema": {},
    });
    for (member, value) in change.as_object().unwrap() {
        manifest[member] = value.clone();
    }
    Manifest::from_value(manifest).unwrap()
}

fn of_words(words: &[&str]) -> Result<DeclaredPermissions, Vec<AdmissionFinding>> {
    DeclaredPermissions::of(&manifest(&json!({ "required_permissions": words })))
}

fn places(permissions: &DeclaredPermissions) -> Vec<(&str, Option<u16>)> {
    permissions.network.iter().map(|place| (&*place.host, place.port)).collect()
}

#[test]
fn each_word_opens_exactly_what_it_says() {
    let permissions = of_words(&[
        "filesystem:read:/data/./in/",
        "filesystem:read:/data/in",
        "filesystem:write:/data/out",
        "network:https://api.example.com/v1",
        "network:https://api.example.com:8443",
        "network:*.example.org",
        "credentials:mail",
        "tool:web_search",
        "database:postgresql:read",
    ])
    .unwrap();
    assert_eq!(permissions.read, ["/data/in".into()]);
    assert_eq!(permissions.write, ["/data/out".into()]);
    assert_eq!(permissions.credentials, ["mail".into()]);
    assert_eq!(
        places(&permissions),
        [
            ("*.example.org", Some(80)),
            ("*.example.org", Some(443)),
            ("api.example.com", Some(443)),
            ("api.example.com", Some(8443))
        ]
    );
    assert_eq!(permissions.needs().count(), 0, "the words themselves are asked of the token");
}

#[test]
fn stars_are_kept_for_the_executor_to_judge() {
    let permissions = of_words(&["filesystem:read:*", "filesystem:*", "network:h.example:*"]).unwrap();
    assert_eq!((permissions.read, permissions.write), (vec!["/".into()], vec!["/".into()]));
    let permissions = of_words(&["network:h.example:*", "network:https:*"]).unwrap();
    assert_eq!(places(&permissions), [("*", Some(443)), ("h.example", None)]);
}

#[test]
fn every_word_that_cannot_be_granted_is_named() {
    let findings = of_words(&[
        "filesystem:read:/a/../b",
        "tool:fine",
        "filesystem:append:/a",
        "network:https://user@h",
        "network:ssh://h",
        "credentials:*",
        "credentials:../mail",
        "credentials:.netrc",
        "network:127.1",
    ])
    .unwrap_err();
    let paths: Vec<_> = findings.iter().map(|finding| finding.path.as_str()).collect();
    let expected = [0, 2, 3, 4, 5, 6, 7, 8].map(|index| format!("/required_permissions/{index}"));
    assert_eq!(paths, expected);
}

#[test]
fn a_word_that_nobody_knows_is_refused_with_those_that_are_known() {
    for word in ["foo:bar", "filesytem:read:/data", "credential:mail", "foo:*", "tools:x"] {
        let findings = of_words(&[word]).unwrap_err();
        assert!(findings[0].message.contains(word), "{word}: {}", findings[0].message);
        for known in ["filesystem:read:/path", "network:https://host", "credentials:name", "tool:name"] {
            assert!(findings[0].message.contains(known), "{word}: {}", findings[0].message);
        }
    }
    assert!(of_words(&["network:*"]).unwrap_err()[0].message.contains("network:https:*"));
    assert!(of_words(&["tool:x", "tool:*", "database:postgresql:read", "database:*"]).is_ok());
}

#[test]
fn a_pure_tool_may_read_but_not_write() {
    let pure = |words: &[&str]| {
        let change = json!({ "required_permissions": words, "side_effect_policy": "pure", "side_effects": [] });
        DeclaredPermissions::of(&manifest(&change))
    };
    assert!(pure(&["filesystem:read:/data"]).is_ok());
    for word in ["filesystem:write:/data", "filesystem:*"] {
        let findings = pure(&["filesystem:read:/data", word]).unwrap_err();
        assert_eq!(findings[0].path, "/required_permissions/1", "{word}");
        assert!(findings[0].message.contains("pure"), "{word}");
    }
}

#[test]
fn the_network_policy_opens_more_and_asks_the_token_for_it() {
    let of = |policy: Value| {
        let change = json!({ "required_permissions": ["network:https://a.example"], "network_policy": policy });
        DeclaredPermissions::of(&manifest(&change))
    };
    let permissions = of(json!({ "allowed_domains": ["A.example", "*.b.example"] })).unwrap();
    let expected =
        [("*.b.example", Some(80)), ("*.b.example", Some(443)), ("a.example", Some(80)), ("a.example", Some(443))];
    assert_eq!(places(&permissions), expected);
    let needs: Vec<_> = permissions.needs().collect();
    assert_eq!(needs, ["network:http://*.b.example", "network:http://a.example", "network:https://*.b.example"]);

    let permissions = of(json!({ "allowed_domains": ["b.example"], "allowed_ports": [5432] })).unwrap();
    assert_eq!(places(&permissions), [("a.example", Some(443)), ("b.example", Some(5432))]);
    assert_eq!(permissions.needs().collect::<Vec<_>>(), ["network:b.example:5432"]);

    let closed = of(json!({ "allowed_domains": ["b.example"], "deny_all_egress": true })).unwrap();
    assert_eq!(closed, DeclaredPermissions::default(), "deny closes what either has opened");

    let findings = of(json!({ "allowed_domains": ["b.example", "127.1"] })).unwrap_err();
    assert_eq!(findings[0].path, "/network_policy/allowed_domains/1");
    let domains: Vec<_> = (0..200).map(|n| format!("h{n}.example")).collect();
    let ports: Vec<_> = (1..=200).collect();
    assert!(of(json!({ "allowed_domains": domains, "allowed_ports": ports })).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// PRM-1 and PRM-2: a token that covers words and needs covers every open place, and a closed network has none.
    #[test]
    fn whatever_is_open_was_asked_for(
        words in proptest::collection::vec((0_usize..4, prop_oneof![Just(80_u16), Just(443), Just(8080)]), 0..4),
        domains in proptest::collection::vec(0_usize..4, 0..4),
        ports in proptest::option::of(proptest::collection::vec(prop_oneof![Just(80_u16), Just(443), Just(8080)], 0..3)),
        denied in any::<bool>(),
    ) {
        const HOSTS: [&str; 4] = ["a.example", "b.example", "*.c.example", "10.0.0.1"];
        let words: Vec<String> = words.iter().map(|(host, port)| scope_for(HOSTS[*host], *port)).collect();
        let listed: Vec<&str> = domains.iter().map(|host| HOSTS[*host]).filter(|host| *host != "10.0.0.1").collect();
        let mut policy = json!({ "allowed_domains": listed, "deny_all_egress": denied });
        // Ports without hosts, and no ports, are refused.
        if let Some(ports) = ports.as_ref().filter(|ports| !ports.is_empty() && !listed.is_empty()) {
            policy["allowed_ports"] = json!(ports);
        }
        let permissions = DeclaredPermissions::of(&manifest(&json!({ "required_permissions": words, "network_policy": policy }))).unwrap();
        let asked: Vec<PermissionScope> =
            words.iter().map(String::as_str).chain(permissions.needs()).map(|word| word.parse().unwrap()).collect();
        prop_assert!(!denied || permissions.network.is_empty());
        for place in &permissions.network {
            let word = scope_for(&place.host, place.port.unwrap());
            prop_assert!(asked.iter().any(|scope| scope.covers(&word)), "{word}");
        }
    }
}
