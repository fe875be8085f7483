//! A tool that runs here says that the service behind it failed, or that it should be called again: breakers and retries
//! hear it.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Gantry, Start, open_to_all};

/// Notes its run, and ends as its parameters say; the second run of `later` goes well.
const SAYS: &str = r#"
wish=$(cat)
member() { printf %s "$wish" | sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }
note=$(member note)
echo run >> "$note"
case $(member how) in
    failed) printf '{"message": "mail is down", "retry_after_ms": 1}'; exit 69 ;;
    later) [ "$(wc -l < "$note")" -gt 1 ] || { printf '{"retry_after_ms": 1}'; exit 75; } ;;
esac
printf '{"done": true}'
"#;

struct Stage {
    home: TempDir,
}

impl Stage {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        open_to_all(home.path());
        for (id, effects) in [("mail", "pure"), ("post", "unclassified")] {
            let tool = home.path().join("tools").join(id);
            std::fs::create_dir_all(&tool).unwrap();
            std::fs::write(tool.join("main.sh"), SAYS).unwrap();
            let text = |about: &str| json!({ "type": "string", "description": about });
            let manifest = json!({
                "tool_id": id, "namespace": "demo", "version": "1.0.0", "name": id,
                "description": "Says how the service behind it is, for tests.", "provider": "Demo",
                "protocol": if effects == "pure" { "native" } else { "custom" },
                "side_effect_policy": effects, "timeout_class": "standard", "external_service": id,
                "retry_policy": { "max_attempts": if effects == "pure" { 2 } else { 1 } },
                "parameters": { "type": "object", "properties": { "note": text("where runs are noted"), "how": text("how it ends") },
                    "required": ["note", "how"] },
                "result_schema": { "type": "object" },
                "execution": { "type": "process", "command": ["sh", "main.sh"], "protocol": "simple" },
            });
            std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
        }
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    async fn open(&self) -> Gantry {
        let start = Start::new().data(&self.path("data")).arg("--tools").arg(self.path("tools").to_str().unwrap());
        let start = start.arg("--unsandboxed-processes").env("GANTRY_RESILIENCE__FAILURE_THRESHOLD", "2");
        start.env("GANTRY_RESILIENCE__OPEN_MS", "600000").env("GANTRY_RESILIENCE__RETRY_FIRST_MS", "1").run().await
    }

    fn runs(&self, note: &str) -> usize {
        std::fs::read_to_string(self.path(note)).unwrap_or_default().lines().count()
    }

    fn wish(&self, note: &str, how: &str) -> Value {
        json!({ "note": self.path(note), "how": how })
    }
}

async fn call(gantry: &Gantry, tool: &str, wish: Value) -> Answer {
    gantry.invoke(tool, wish).await
}

#[tokio::test]
async fn a_tool_that_says_its_service_failed_opens_the_breaker_of_the_service() {
    let stage = Stage::new();
    let gantry = stage.open().await;
    let mut failed = 0;
    let refused = loop {
        let answer = call(&gantry, "demo.mail", stage.wish("notes", "failed")).await;
        if answer.code() == "E3501" {
            break answer;
        }
        assert_eq!(answer.refusal(), (503, "E3502"), "{}", answer.text);
        assert_eq!(answer.body["error"]["details"]["exit_code"], 69, "{}", answer.text);
        assert!(answer.body["error"]["message"].as_str().unwrap().contains("mail is down"), "{}", answer.text);
        failed += 1;
        assert!(failed <= 2, "the breaker never opened");
    };
    assert_eq!(refused.refusal(), (503, "E3501"));
    let runs = stage.runs("notes");
    assert_eq!(call(&gantry, "demo.mail", stage.wish("notes", "well")).await.code(), "E3501");
    assert_eq!(stage.runs("notes"), runs, "while the breaker is open the tool is not run");
}

#[tokio::test]
async fn a_tool_that_asks_to_be_called_again_is_called_again() {
    let stage = Stage::new();
    let gantry = stage.open().await;
    let answer = call(&gantry, "demo.mail", stage.wish("notes", "later")).await;
    assert_eq!((answer.status, &answer.body["result"]), (200, &json!({ "done": true })), "{}", answer.text);
    assert_eq!(stage.runs("notes"), 2);
}

#[tokio::test]
async fn a_failed_service_behind_a_tool_with_effects_leaves_it_open_what_came_of_the_call() {
    let stage = Stage::new();
    let gantry = stage.open().await;
    let body = json!({ "tool_id": "demo.post", "parameters": stage.wish("notes", "failed"),
        "execution_options": { "idempotency_key": "once" } });
    let answer = gantry.post("/v1/tools/invoke", body.clone()).await;
    assert!(["E3502", "E3413"].contains(&answer.code()), "{}", answer.text);
    let again = gantry.post("/v1/tools/invoke", body).await;
    assert_eq!(again.code(), "E3413", "{}", again.text);
    assert_eq!(stage.runs("notes"), 1, "what may have happened is not repeated");
}
