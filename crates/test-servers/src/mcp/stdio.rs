//! The handler over standard input and output, one message a line.
//!
//! Every request has a task of its own; `notifications/cancelled` ends it. The program ends when its input does.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::wire::{FixtureHandler, OUTGOING_MAX, OpenQuestions, ReplyLine, WireMessage};

/// More unfinished requests than this are forgotten; they can then no longer be cancelled.
const RUNNING_MAX: usize = 1024;

/// Serves until the input ends.
pub async fn serve(handler: Arc<dyn FixtureHandler>) -> Result<()> {
    let questions = Arc::new(OpenQuestions::default());
    let (out, mut messages) = mpsc::channel::<Value>(OUTGOING_MAX);
    let writer = tokio::spawn(async move {
        let mut output = tokio::io::stdout();
        while let Some(message) = messages.recv().await {
            let line = format!("{message}\n");
            if output.write_all(line.as_bytes()).await.is_err() || output.flush().await.is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut running: HashMap<String, AbortHandle> = HashMap::new();
    while let Some(text) = lines.next_line().await? {
        match WireMessage::read(text.as_bytes()) {
            None => {}
            Some(WireMessage::Response { id, outcome }) => questions.answer(&id, outcome),
            Some(WireMessage::Notification { method, params }) => {
                let id = params.get("requestId").map(Value::to_string).unwrap_or_default();
                if let ("notifications/cancelled", Some(task)) = (method.as_str(), running.remove(&id)) {
                    task.abort();
                }
            }
            Some(WireMessage::Request(request)) => {
                running.retain(|_, task| !task.is_finished());
                let (id, line) = (request.id.to_string(), ReplyLine::new(out.clone(), Arc::clone(&questions)));
                let handler = Arc::clone(&handler);
                let task = tokio::spawn(async move {
                    let outcome = handler.handle(&request, &line).await;
                    line.send(request.answered(outcome)).await;
                });
                if running.len() < RUNNING_MAX {
                    running.insert(id, task.abort_handle());
                }
            }
        }
    }
    drop(out);
    for task in running.into_values() {
        task.abort();
    }
    // It ends with the last sender; if it was aborted there is nothing left to write.
    let _ = writer.await;
    Ok(())
}
