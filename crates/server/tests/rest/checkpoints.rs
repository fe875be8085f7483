//! Checkpoints over the wire: listed, named, rolled back to, deleted, and gone on from.

use serde_json::{Value, json};

use crate::stage::{Stage, manifest};

const CALL: &str = "019b0000-0000-7000-8000-000000000001";
const OTHER: &str = "019b0000-0000-7000-8000-00000000ffff";

async fn stage() -> Stage {
    let stage = Stage::new().await;
    let result = json!({ "type": "object" });
    let change = json!({ "timeout_class": "long_running", "result_schema": result,
        "checkpoint_config": { "enabled": true, "macro_events": ["event"] } });
    let reply = stage.admin("POST", "/v1/tools/register", Some(manifest("save", "1.0.0", &change))).await;
    assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
    stage
}

impl Stage {
    async fn save(&self, text: &str, change: Value) -> (u16, Value) {
        let mut body = json!({ "tool_id": "demo.save_tool", "parameters": { "text": text }, "invocation_id": CALL });
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let reply = self.admin("POST", "/v1/tools/invoke", Some(body)).await;
        (reply.status, reply.json())
    }

    async fn kept(&self, query: &str) -> Value {
        let reply = self.admin("GET", &format!("/v1/invocations/{CALL}/checkpoints{query}"), None).await;
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        reply.json()
    }
}

#[tokio::test]
async fn a_call_that_failed_is_resumed_from_where_it_had_come_to() {
    let stage = stage().await;
    let (status, failed) = stage.save("fail at 7", json!({})).await;
    assert_eq!(status, 500, "{failed}");
    let id = failed["error"]["details"]["checkpoint_ref"].as_str().unwrap().to_owned();
    let listed = stage.kept("").await;
    assert_eq!(listed["checkpoints"][0]["checkpoint_id"], json!(id));
    assert_eq!(listed["checkpoints"][0]["checkpoint_type"], json!("macro"));
    assert!(listed["checkpoints"][0]["expires_at"].is_string() && listed["next"].is_null());

    let resume = format!("/v1/tools/resume/{CALL}");
    let body = json!({ "parameters": { "text": "went on" } });
    let reply = stage.admin("POST", &resume, Some(body.clone())).await;
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    assert_eq!(reply.json()["result"], json!({ "text": "went on", "before": "fail at 7" }));
    assert_eq!(reply.json()["execution_metadata"]["checkpoints_created"][0]["checkpoint_type"], json!("macro"));
    assert_eq!(
        reply.json()["checkpoint_ref"],
        reply.json()["execution_metadata"]["checkpoints_created"][0]["checkpoint_id"]
    );
    // The same by the call itself.
    let wish = json!({ "checkpoint_config": { "resume_from_checkpoint_id": id }, "invocation_id": null });
    assert_eq!(stage.save("directly", wish).await.1["result"]["before"], json!("fail at 7"));

    let foreign = stage.ask("POST", &resume, Some(&stage.agent), Some(body.clone())).await;
    let unknown = stage.ask("POST", &format!("/v1/tools/resume/{OTHER}"), Some(&stage.agent), Some(body.clone())).await;
    assert_eq!((foreign.status, foreign.code()), (404, "E3903".to_owned()));
    assert_eq!((unknown.status, unknown.code()), (404, "E3903".to_owned()));
    let nonsense = stage.admin("POST", "/v1/tools/resume/nonsense", Some(body)).await;
    assert_eq!((nonsense.status, nonsense.code()), (400, "E3004".to_owned()));
}

#[tokio::test]
async fn checkpoints_are_paged_named_rolled_back_to_and_deleted() {
    let stage = stage().await;
    for text in ["fail 1", "fail 2", "fail 3"] {
        stage.save(text, json!({})).await;
    }
    let first = stage.kept("?limit=2").await;
    let next = first["next"].as_str().unwrap();
    let second = stage.kept(&format!("?limit=2&after={next}")).await;
    assert_eq!(first["checkpoints"].as_array().unwrap().len(), 2);
    let oldest = second["checkpoints"][0]["checkpoint_id"].as_str().unwrap().to_owned();

    let base = format!("/v1/invocations/{CALL}");
    let named = stage.admin("POST", &format!("{base}/checkpoints"), Some(json!({ "label": "keep" }))).await;
    assert_eq!(named.status, 201, "{}", String::from_utf8_lossy(&named.body));
    assert_eq!((&named.json()["label"], &named.json()["checkpoint_type"]), (&json!("keep"), &json!("named")));
    let back = stage.admin("POST", &format!("{base}/rollback"), Some(json!({ "checkpoint_id": oldest }))).await;
    assert_eq!(back.status, 200, "{}", String::from_utf8_lossy(&back.body));
    assert_eq!(stage.kept("").await["checkpoints"][0]["checkpoint_id"], json!(oldest));
    let resumed =
        stage.admin("POST", &format!("/v1/tools/resume/{CALL}"), Some(json!({ "parameters": { "text": "x" } }))).await;
    assert_eq!(resumed.json()["result"]["before"], json!("fail 1"));

    let gone = stage.admin("DELETE", &format!("{base}/checkpoints/{oldest}"), None).await;
    assert_eq!((gone.status, gone.json()), (200, json!({ "deleted": true })));
    let again = stage.admin("DELETE", &format!("{base}/checkpoints/{oldest}"), None).await;
    assert_eq!((again.status, again.code()), (404, "E3903".to_owned()));

    let agent = Some(stage.agent.as_str());
    let seen = stage.ask("GET", &format!("{base}/checkpoints"), agent, None).await;
    assert_eq!(seen.json(), json!({ "checkpoints": [] }));
    for (path, body) in [
        ("checkpoints", json!({ "label": "mine" })),
        ("rollback", json!({ "checkpoint_id": named.json()["checkpoint_id"] })),
        ("rollback", json!({ "checkpoint_id": "../x" })),
    ] {
        let reply = stage.ask("POST", &format!("{base}/{path}"), agent, Some(body)).await;
        assert_eq!((reply.status, reply.code()), (404, "E3903".to_owned()), "{path}");
    }
    for query in ["?limit=0", "?limit=257", "?after=x", "?since=1"] {
        let reply = stage.admin("GET", &format!("{base}/checkpoints{query}"), None).await;
        assert_eq!((reply.status, reply.code()), (400, "E3004".to_owned()), "{query}");
    }
}
