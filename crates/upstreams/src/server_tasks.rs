//! Tools that a server of 2025-11-25 runs as tasks and in no other way (`taskSupport` is `required`): the call begins a task, and
//! the wait for its result is the call. Dropping the wait cancels the task.
//!
//! Not here: tasks that Gantry makes of calls for its own clients (the door and the jobs of the kernel).

use std::sync::Arc;
use std::time::Duration;

use contract::manifest::{Execution, Manifest, TaskSupport};
use ports::tool_companion::ToolCompanion;
use serde_json::{Value, json};

use crate::connection::{MetServer, ProtocolEra};
use crate::fault::UpstreamFault;
use crate::supervisor::live::LiveConnection;

/// How long a server is asked to keep a task: as long as the longest call may take.
const KEPT_MS: u64 = 86_400_000;
/// Longest name of a task.
const NAME_BYTES_MAX: usize = 1_024;
/// What a server may take to hear that a task is cancelled.
const COURTESY: Duration = Duration::from_secs(5);

/// Must this tool be called as a task?
pub(crate) fn is_needed(met: &MetServer, manifest: &Manifest) -> bool {
    let Some(Execution::Mcp { display: Some(display), .. }) = &manifest.execution else { return false };
    display.task_support == Some(TaskSupport::Required)
        && met.era == ProtocolEra::Legacy
        && met.capabilities.pointer("/tasks/requests/tools/call").is_some_and(Value::is_object)
}

/// What makes a call one that begins a task.
pub(crate) fn wish() -> Value {
    json!({ "ttl": KEPT_MS })
}

/// The result of a call that has begun a task. One that came at once is handed on.
pub(crate) async fn concluded(
    live: &Arc<LiveConnection>,
    begun: Value,
    companion: &Arc<dyn ToolCompanion>,
) -> Result<Value, UpstreamFault> {
    let Some(task) = begun.get("task") else { return Ok(begun) };
    let name = task.get("taskId").and_then(Value::as_str).filter(|name| name.len() <= NAME_BYTES_MAX);
    let params = json!({ "taskId": name.ok_or(UpstreamFault::Nonsense("name of a task"))? });
    let mut waiting = Waiting { live: Arc::clone(live), params: Some(params.clone()) };
    let outcome = live.connection.ask("tasks/result", params, companion).await;
    waiting.params = None;
    outcome.map_err(|fault| match fault {
        // The task has begun, whatever became of this.
        UpstreamFault::NotSent(why) => UpstreamFault::Lost(why),
        other => other,
    })
}

/// A task that is cancelled unless its result has come.
struct Waiting {
    live: Arc<LiveConnection>,
    params: Option<Value>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(params) = self.params.take() else { return };
        let live = Arc::clone(&self.live);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // A courtesy: nobody waits for the task any more, nor for whether this was heard.
                let _ = live.connection.request_within(COURTESY, "tasks/cancel", params).await;
            });
        }
    }
}
