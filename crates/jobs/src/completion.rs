//! Telling those who want to know that a call in the background has ended. (ASYNC-007)
//!
//! The end is kept first and told after: what is told has happened. A process that dies in between has told nobody, so the
//! ends of the last hour are told once more at start-up; telling twice sends once (WHK-1).
//!
//! Not here: who wants to know, and how they are reached (`webhooks`).

use std::time::Duration;

use contract::envelope::{Callback, InvokeRequest};
use contract::error::{ErrorCode, Refusal, RefusalReason};
use kernel::Principal;
use ports::job_store::{JobDetail, JobFilter, JobKey, PAGE_MAX, TOOL_CALL};
use serde_json::Value;

use super::queued_call::QueuedCall;
use super::{Jobs, view};
use crate::webhooks::{CompletedCall, Webhooks};

/// How far back ends are told once more at start-up, and how many at most.
const TOLD_AGAIN: Duration = Duration::from_secs(3600);
const TOLD_AGAIN_PAGES_MAX: usize = 10;
/// Tries to tell one end, and the pause between them.
const TELL_TRIES_MAX: u32 = 3;
const TELL_PAUSE: Duration = Duration::from_secs(2);

impl Jobs {
    /// Can this call be answered by a callback, if it wants one?
    pub(super) async fn check_callback(&self, caller: &Principal, request: &InvokeRequest) -> Result<(), Refusal> {
        let Some(callback) = &request.execution_options.callback else { return Ok(()) };
        // What it signs with is a credential, as tools have them. Asked before anybody looks whether there is one.
        if let Some(secret) = &callback.secret {
            let needed = format!("credentials:{secret}");
            if caller.missing_scope([needed.as_str()]).is_some() {
                return Err(Refusal::new(ErrorCode::E3206, format!("scope `{needed}` is not granted"))
                    .hint("a callback signs with a credential: ask for a token whose `scopes` cover it, or name a `webhook_id`")
                    .because(RefusalReason::MissingScope(needed)));
            }
        }
        match &self.webhooks {
            Some(webhooks) => webhooks.check_callback(caller.tenant(), callback).await,
            None => Err(Refusal::new(ErrorCode::E3010, "this server calls nobody back")
                .hint("leave `execution_options.callback` out and ask for the status")),
        }
    }

    /// Tells of a job that has ended; of one that has not, nothing.
    pub(super) async fn tell_end(&self, key: &JobKey) {
        let Some(webhooks) = &self.webhooks else { return };
        for _ in 0..TELL_TRIES_MAX {
            let refusal = match self.queue.store.find(key).await {
                Ok(Some(detail)) => match self.announce(webhooks, detail).await {
                    Ok(()) => return,
                    Err(refusal) => refusal,
                },
                Ok(None) => return,
                Err(error) => error.refusal(),
            };
            tracing::warn!(job = %key.id, code = %refusal.code, error = &refusal as &dyn std::error::Error, "the end of a job could not be told yet");
            self.kernel.clock().sleep(TELL_PAUSE).await;
        }
    }

    /// Tells the ends of the last hour once more. To be called once, after the start.
    pub async fn tell_recent_ends(&self) {
        let Some(webhooks) = &self.webhooks else { return };
        let filter = JobFilter { kind: Some(TOOL_CALL.to_owned()), ..JobFilter::default() };
        let mut before = None;
        for _ in 0..TOLD_AGAIN_PAGES_MAX {
            let Ok(page) = self.queue.store.list(&filter, before, PAGE_MAX).await else { return };
            let now = self.kernel.clock().now();
            for record in page.jobs.iter().filter(|record| record.ended_at.is_some_and(|at| now.since(at) < TOLD_AGAIN))
            {
                if let Ok(Some(detail)) = self.queue.store.find(&record.key).await {
                    // What cannot be told now is told at the next start, or was told before.
                    let _ = self.announce(webhooks, detail).await;
                }
            }
            before = page.next;
            if before.is_none() {
                return;
            }
        }
    }

    /// Tells of an end what its reader may know by now: whoever is called back is told what a look at the job would show it,
    /// and a tenant that is switched off nothing.
    async fn announce(&self, webhooks: &Webhooks, detail: JobDetail) -> Result<(), Refusal> {
        let record = &detail.record;
        let is_told = record.kind == TOOL_CALL && record.state.is_end();
        if !is_told || !self.kernel.access().snapshot().is_open(&record.key.tenant) {
            return Ok(());
        }
        match QueuedCall::read(&detail.payload) {
            Ok(queued_call) => {
                let owner = queued_call.principal(&self.kernel);
                let detail = self.as_its_owner_sees_it(detail, &owner).await;
                announced(webhooks, &detail, queued_call.request.execution_options.callback.as_ref()).await
            }
            // Nobody is called back.
            Err(_) => announced(webhooks, &detail, None).await,
        }
    }
}

async fn announced(webhooks: &Webhooks, detail: &JobDetail, callback: Option<&Callback>) -> Result<(), Refusal> {
    let record = &detail.record;
    let response = detail.result.as_ref();
    let mut error = record.error.clone();
    error.as_mut().map(view::FailedRun::take_out_of);
    let completion = CompletedCall {
        tenant: &record.key.tenant,
        invocation: record.key.id,
        tool: &record.label,
        tool_version: response.and_then(|response| response.get("tool_version")).and_then(Value::as_str),
        status: view::status(record),
        result: response.and_then(|response| response.get("result")),
        error: error.as_ref(),
        callback,
        agent: record.owner.root(),
    };
    webhooks.announce(completion).await.map(drop)
}
