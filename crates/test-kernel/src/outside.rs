//! What is outside in tests: a receiver of HTTP calls, and the way into a queue.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use ports::call_out::{CallAnswer, CallOut, CallOutError, CallsOut};
use ports::job_entrance::{EnteringJob, EntranceOutcome, JobEntrance};
use serde_json::Value;

/// What was sent to the receiver: where to, its headers, its body.
pub type SentRequest = (String, Vec<(String, String)>, String);

/// A receiver that answers as it is told, the last answer for ever.
#[derive(Debug, Default)]
pub struct ScriptedReceiver {
    pub answers: Mutex<VecDeque<Result<(u16, Value), CallOutError>>>,
    pub sent: Mutex<Vec<SentRequest>>,
}

#[async_trait]
impl CallsOut for ScriptedReceiver {
    fn check(&self, url: &str) -> Result<(), CallOutError> {
        if url.starts_with("https://") { Ok(()) } else { Err(CallOutError::Plaintext) }
    }

    async fn post(&self, call: CallOut<'_>) -> Result<CallAnswer, CallOutError> {
        let body = String::from_utf8(call.body.to_vec()).unwrap();
        let headers = call.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        self.sent.lock().unwrap().push((call.url.to_owned(), headers, body));
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0].clone() };
        answer.map(|(status, body)| CallAnswer {
            status,
            body: body.to_string().into_bytes(),
            took: Duration::from_millis(7),
            retry_after: None,
        })
    }
}

impl ScriptedReceiver {
    pub fn answers(answers: impl IntoIterator<Item = Result<(u16, Value), CallOutError>>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), sent: Mutex::default() })
    }

    pub fn count(&self) -> usize {
        self.sent.lock().unwrap().len()
    }
}

/// Keeps jobs in order and each key once, and none of a tenant whose queue is full.
#[derive(Debug, Default)]
pub struct MemoryEntrance(pub Mutex<Vec<EnteringJob>>, pub Mutex<Option<TenantId>>);

#[async_trait]
impl JobEntrance for MemoryEntrance {
    async fn enter(&self, job: EnteringJob) -> Result<EntranceOutcome, Refusal> {
        if self.1.lock().unwrap().as_ref() == Some(&job.tenant) {
            return Err(Refusal::new(ErrorCode::E3701, "the queue of this tenant is full"));
        }
        let mut jobs = self.0.lock().unwrap();
        let same_key =
            |known: &&EnteringJob| known.key == job.key && known.kind == job.kind && known.tenant == job.tenant;
        if let Some(known) = jobs.iter().find(same_key) {
            return Ok(EntranceOutcome::Known { same: known.payload == job.payload });
        }
        jobs.push(job);
        Ok(EntranceOutcome::New)
    }

    async fn told_end(&self, _: &TenantId, _: InvocationId, _: Result<Value, Refusal>) -> Result<(), Refusal> {
        Ok(())
    }
}
