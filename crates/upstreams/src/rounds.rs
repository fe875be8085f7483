//! Rounds of questions and answers within one request to a server of 2026-07-28: it answers "input required", the caller is
//! asked, and the request is sent again with the answers. (UEXE-3)
//!
//! A server that has asked has begun with the call (FAULT-4), whatever becomes of the rounds that follow.
//!
//! Older servers ask by requests of their own (`connection::router`).

use contract::error::{ErrorCode, Refusal};
use ports::executor::ExecutorError;
use ports::tool_companion::{QuestionKind, ToolCompanion, ToolQuestion};
use serde_json::{Map, Value, json};

use crate::connection::router::{not_relayed, relayed};
use crate::fault::UpstreamFault;
use crate::spec::RelayedQuestions;

/// Rounds of questions and answers in one request.
const ROUNDS_MAX: usize = 10;
/// Questions in one round.
const QUESTIONS_MAX: usize = 16;

/// Whether the server has answered the request before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestRound {
    First,
    /// It has, and asked: nothing brings the call back to where it had not been sent.
    Later,
}

/// One request, however often it is sent.
pub(crate) struct RequestRounds<'a> {
    /// Of the first round; those that follow add to them.
    pub(crate) params: Value,
    pub(crate) relay: RelayedQuestions,
    pub(crate) server: &'a str,
}

impl RequestRounds<'_> {
    /// Sends it until the server does not ask back any more. `send` is told which round it is.
    pub(crate) async fn through<F>(
        &self,
        companion: &dyn ToolCompanion,
        send: impl Fn(Value, RequestRound) -> F + Send + Sync,
    ) -> Result<Value, UpstreamFault>
    where
        F: Future<Output = Result<Value, UpstreamFault>> + Send,
    {
        let mut result = send(self.params.clone(), RequestRound::First).await?;
        for _ in 0..ROUNDS_MAX {
            if !asks(&result) {
                return Ok(result);
            }
            let params = self.answered(&result, companion).await.map_err(UpstreamFault::after_answer)?;
            result = send(params, RequestRound::Later).await.map_err(UpstreamFault::after_answer)?;
        }
        if !asks(&result) {
            return Ok(result);
        }
        let message = format!("the server `{}` asked its caller more than {ROUNDS_MAX} times in one call", self.server);
        let refused = ExecutorError::refused(Refusal::new(ErrorCode::E3407, message).retryable(false));
        Err(UpstreamFault::from(refused).after_answer())
    }

    /// The parameters of the next round.
    async fn answered(&self, result: &Value, companion: &dyn ToolCompanion) -> Result<Value, UpstreamFault> {
        let requests = match result.get("inputRequests") {
            Some(Value::Object(requests)) => requests.clone(),
            _ => Map::new(),
        };
        let state = result.get("requestState").filter(|state| state.is_string());
        if (requests.is_empty() && state.is_none()) || requests.len() > QUESTIONS_MAX {
            return Err(self.unanswerable());
        }
        let mut questions = Vec::with_capacity(requests.len());
        for (key, request) in requests {
            let method = request.get("method").and_then(Value::as_str);
            let kind = method.and_then(QuestionKind::of_method).ok_or_else(|| self.unanswerable())?;
            if !relayed(self.relay, kind) {
                return Err(ExecutorError::refused(not_relayed(self.server, kind)).into());
            }
            let parameters = request.get("params").cloned().unwrap_or_else(|| json!({}));
            questions.push(ToolQuestion { key, kind, parameters });
        }
        let mut params = self.params.clone();
        let Some(members) = params.as_object_mut() else { return Err(self.unanswerable()) };
        if !questions.is_empty() {
            let answers = companion.ask(questions).await.map_err(ExecutorError::refused)?;
            let answers: Map<String, Value> = answers.into_iter().map(|answer| (answer.key, answer.value)).collect();
            members.insert("inputResponses".to_owned(), Value::Object(answers));
        }
        if let Some(state) = state {
            members.insert("requestState".to_owned(), state.clone());
        }
        Ok(params)
    }

    fn unanswerable(&self) -> UpstreamFault {
        let message = format!("the server `{}` asks its caller something that nobody can answer", self.server);
        ExecutorError::refused(Refusal::new(ErrorCode::E3502, message).retryable(false)).into()
    }
}

/// Does it want to know something before it goes on?
fn asks(result: &Value) -> bool {
    result.get("resultType").and_then(Value::as_str) == Some("input_required")
}
