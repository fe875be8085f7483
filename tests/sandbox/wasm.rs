//! The words of a manifest mean for a WASM component what they mean for a process.

use super::loopback::Loopback;
use super::*;

/// A `wasi:cli/command` component that does what it is told (`testdata/wasm/probe`).
fn probe(id: &str) -> Tool {
    let component = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/wasm/probe.wasm")).unwrap();
    let mut tool = Tool::new(id, &[]).file("probe.wasm", component);
    tool.manifest["execution"] = json!({ "type": "wasm", "component": "probe.wasm" });
    tool.with("resource_limits", json!({ "cpu": "1", "memory": "64Mi" }))
}

async fn tried(gantry: &Gantry, id: &str, words: &[&str]) -> Value {
    result(gantry, id, json!({ "do": words })).await
}

fn is_refused(value: &Value) -> bool {
    value["refused"].is_string()
}

#[tokio::test]
async fn a_component_has_the_variables_of_its_manifest() {
    let mut tool = probe("named");
    tool.manifest["execution"]["env"] = json!({ "GREETING": "declared" });
    let workshop = Workshop::with([tool]);
    let gantry = workshop.open().await;
    let seen = tried(&gantry, "named", &["environment"]).await;
    assert!(seen["answer"].as_str().unwrap().contains("GREETING=declared;"), "{seen}");
}

#[tokio::test]
async fn each_word_opens_exactly_what_it_says() {
    let (declared, other) = (Loopback::start().await, Loopback::start().await);
    let workshop = Workshop::new();
    let open = workshop.place("open", &[("file", "text")]);
    // The tool is nobody, and nobody may write where everybody may.
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    write(&open.join("private"), b"of the server's user alone", 0o600);
    let at = |name: &str| open.join(name).to_str().unwrap().to_owned();
    workshop.add(&probe("bare"));
    workshop.add(&probe("reads").may(&[format!("filesystem:read:{}", open.display())]));
    workshop.add(&probe("writes").may(&[format!("filesystem:write:{}", open.display())]));
    workshop.add(&probe("speaks").may(&[declared.permission()]));
    workshop.add(&probe("asks_for_secrets").may(&["credentials:api_key".to_owned()]));
    let gantry = workshop.open().await;

    assert!(is_refused(&tried(&gantry, "bare", &["read", &at("file")]).await));
    assert_eq!(tried(&gantry, "reads", &["read", &at("file")]).await, json!({ "answer": "text" }));
    assert!(is_refused(&tried(&gantry, "reads", &["write", &at("new"), "x"]).await));
    assert_eq!(tried(&gantry, "writes", &["write", &at("new"), "x"]).await, json!({ "answer": "written" }));
    assert_eq!(std::fs::read_to_string(open.join("new")).unwrap(), "x");
    for id in ["reads", "writes"] {
        assert!(is_refused(&tried(&gantry, id, &["read", "/etc/passwd"]).await), "{id}");
        if rustix::process::geteuid().is_root() {
            assert!(is_refused(&tried(&gantry, id, &["read", &at("private")]).await), "{id}: as for a process");
        }
    }

    let authority = |server: &Loopback| format!("127.0.0.1:{}", server.port);
    let answer = tried(&gantry, "speaks", &["get", "http", &authority(&declared), "/1"]).await;
    assert_eq!(answer, json!({ "answer": "status 200" }));
    for (id, server) in [("speaks", &other), ("bare", &declared)] {
        let answer = call(&gantry, id, json!({ "do": ["get", "http", authority(server), "/1"] })).await;
        assert_eq!(answer.refusal(), (403, "E3406"), "{id}: {}", answer.text);
    }
    assert_eq!((declared.connections(), other.connections()), (1, 0));

    // A command has nowhere to be given one; the world `gantry:tool` has.
    let answer = call(&gantry, "asks_for_secrets", json!({ "do": ["raw", "1"] })).await;
    assert_eq!(answer.refusal().1, "E3405", "{}", answer.text);
    assert!(answer.text.contains("gantry:tool/tool"), "{}", answer.text);
}

#[tokio::test]
async fn each_bad_end_has_the_code_that_it_has_for_a_process() {
    let workshop = Workshop::with([probe("probe")]);
    let gantry = workshop.open().await;
    for (words, code) in [
        (&["eat"][..], "E3403"),
        (&["panic"], "E3404"),
        (&["exit", "3"], "E3401"),
        (&["raw", "junk"], "E3401"),
        (&["flood", "stdout"], "E3407"),
    ] {
        let answer = call(&gantry, "probe", json!({ "do": words })).await;
        assert_eq!(answer.refusal().1, code, "{words:?}: {}", answer.text);
    }
    let answer = bounded(&gantry, "probe", json!({ "do": ["spin"] }), json!({ "timeout_seconds": 0.5 })).await;
    assert_eq!(answer.refusal(), (504, "E3402"), "{}", answer.text);
    assert_eq!(tried(&gantry, "probe", &["raw", "1"]).await, 1);
}
