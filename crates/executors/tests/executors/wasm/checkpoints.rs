//! Checkpoints of WASM tools: a component saves its state through the host, and goes on from one that it is given.

use std::sync::Mutex;

use ports::executor::ResumePoint;
use ports::saved_state::SavedState;
use ports::tool_companion::{LogLevel, ToolCompanion, ToolProgress, ToolSnapshot, no_checkpoints};

use super::text::component;
use super::*;

/// Keeps what it is given, if it may.
#[derive(Debug, Default)]
struct Shelf {
    saved: Mutex<Vec<ToolSnapshot>>,
    is_closed: bool,
}

#[async_trait]
impl ToolCompanion for Shelf {
    fn progress(&self, _: ToolProgress) {}
    fn log(&self, _: LogLevel, _: &str) {}
    async fn checkpoint(&self, snapshot: ToolSnapshot) -> Result<String, Refusal> {
        if self.is_closed {
            return Err(no_checkpoints());
        }
        self.saved.lock().unwrap().push(snapshot);
        Ok("cp-1".to_owned())
    }
    async fn document(&self, _: &str) -> Result<Value, Refusal> {
        Ok(Value::Null)
    }
}

/// Answers with the state it goes on from; without one it saves its parameters under the name `text` and answers with them.
const BODY: &str = "(call $resume (i32.const 64))
    (if (result i32) (i32.load8_u (i32.const 64))
      (then (call $ok (i32.load (i32.const 68)) (i32.load (i32.const 72))))
      (else
        (call $save (i32.const 1) (i32.const 1025) (i32.const 4) (local.get $ptr) (local.get $len) (i32.const 80))
        (if (result i32) (i32.load8_u (i32.const 80))
          (then (call $err (i32.const 1) (i32.load (i32.const 84)) (i32.load (i32.const 88))))
          (else (call $ok (local.get $ptr) (local.get $len))))))";

async fn called(shelf: &Arc<Shelf>, resume: Option<Value>) -> Result<ToolOutput, Refusal> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tool.wasm"), component("checkpoints", BODY)).unwrap();
    let tool = HARNESS.tool(folder.path(), "tool.wasm", &[]);
    let mut call = call(&tool, json!({ "text": "ä b" }));
    call.companion = Arc::clone(shelf) as _;
    call.resume = resume.map(|custom_state| {
        let saved = SavedState { custom_state, ..SavedState::default() };
        Arc::new(ResumePoint { checkpoint_id: "cp-0".into(), invocation_id: call.invocation_id, saved })
    });
    HARNESS.executor.execute(call).await.map_err(|error| error.refusal)
}

#[tokio::test]
async fn a_component_saves_its_state_and_goes_on_from_another() {
    let shelf = Arc::new(Shelf::default());
    assert_eq!(called(&shelf, None).await.unwrap().value, json!({ "text": "ä b" }));
    assert_eq!(*shelf.saved.lock().unwrap(), [ToolSnapshot::of(Some("text"), json!({ "text": "ä b" }))]);
    let state = json!({ "next": [1, 2.5, "ü"] });
    assert_eq!(called(&shelf, Some(state.clone())).await.unwrap().value, state);
}

#[tokio::test]
async fn a_component_is_told_why_nothing_is_kept() {
    let closed = Arc::new(Shelf { is_closed: true, ..Shelf::default() });
    let refusal = called(&closed, None).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3401);
    assert!(refusal.message.contains("no checkpoints are kept"), "{}", refusal.message);
}
