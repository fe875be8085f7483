//! Jobs of which nobody knew how they ended: they end as the ledger says, once a person has found out. (JOBS-5)
//!
//! Whoever resolves has the job settled in the same act. Should the process end between the two, the next look at the job
//! does it: a job that says "nobody knows" asks the ledger each time it is looked at, so it can never say so for longer than
//! the ledger does.
//!
//! The same holds for a job whose end could not be recorded (E3801): what it came to is in the ledger, and it is answered as
//! soon as the log can be written again, because the record that was missing is written before anything else is.
//!
//! Not here: what a person may say, and who may (`ledger::resolution`).

use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId, ToolId};
use kernel::background_calls::{KeptOutcome, ReaderMask, did_not_happen};
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditRecord};
use ports::job_store::{JobDetail, JobKey, JobRecord, JobState, TOOL_CALL};
use ports::ledger::{EntryState, LedgerEntry};
use ports::registry_store::StoreError;
use serde_json::{Value, json};

use super::Jobs;
use super::queries::key_for;
use super::queued_call::QueuedCall;

/// What stands in place of a result of which nothing may be shown.
const WITHHELD: &str = "[REDACTED]";

impl Jobs {
    /// Says what became of a call whose outcome is unknown, with or without a job: see [`kernel::Kernel::resolve_invocation`].
    pub async fn resolve(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
        happened: Option<Value>,
    ) -> Result<(), Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let key = key_for(&caller, tenant, id)?;
        let job = self.queue.store.find(&key).await.map_err(|error| error.refusal())?.map(|found| found.record);
        if let Some(job) = job.as_ref().filter(|job| job.kind != TOOL_CALL && is_unknown(job)) {
            return self.resolve_in_no_ledger(actor, job, happened).await;
        }
        // One that was restored from a backup never came so far as to have a line.
        if let Some(job) = job.as_ref().filter(|job| is_unknown(job))
            && self.line_in_ledger(job).await.map_err(|error| error.refusal())?.is_none()
        {
            return self.resolve_in_no_ledger(actor, job, happened).await;
        }
        let line = job.as_ref().map_or(id, JobRecord::error_invocation);
        self.kernel.resolve_invocation(actor, tenant, line, happened).await?;
        for id in [line, id] {
            let key = JobKey { id, ..key.clone() };
            let Some(job) = self.queue.store.find(&key).await.map_err(|error| error.refusal())? else { continue };
            self.follow(&job.record).await?;
        }
        Ok(())
    }

    /// Work that is in no ledger: the job itself is all there is to settle.
    async fn resolve_in_no_ledger(
        &self,
        actor: Actor<'_>,
        job: &JobRecord,
        happened: Option<Value>,
    ) -> Result<(), Refusal> {
        let caller = self.kernel.permitted(actor, Action::ManageJobs).await?;
        let slot = self.kernel.record_slot().await?;
        if let Some(handler) = self.handlers.iter().find(|handler| handler.kind() == job.kind) {
            handler.resolved(job, happened.as_ref()).await?;
        }
        let (word, found) = match happened {
            Some(result) if job.kind == TOOL_CALL => {
                let mut answer = answer_of(job, &result);
                self.mask_for_owner(job, &mut answer).await?;
                ("it happened", Ok(answer))
            }
            Some(result) => ("it happened", Ok(result)),
            None => ("it did not happen", Err(self.envelope(&did_not_happen(), job))),
        };
        self.settle_job(job, found).await?;
        let record = self.kernel.act(actor, &caller, AuditAction::InvocationResolved, None, Some(word.into()));
        slot.record_durably(AuditRecord { invocation_id: Some(job.key.id), ..record }).await
    }

    /// The job as it is once the ledger was asked, if that has changed it.
    pub(super) async fn resolved(&self, job: &JobRecord) -> Result<Option<JobDetail>, Refusal> {
        if job.kind != TOOL_CALL || !(is_unknown(job) || self.was_unrecorded(job).await) || !self.follow(job).await? {
            return Ok(None);
        }
        self.queue.store.find(&job.key).await.map_err(|error| error.refusal())
    }

    /// Could its end not be recorded, and is it by now? Records are written in the order in which they came, and there is no
    /// room for new ones before.
    async fn was_unrecorded(&self, job: &JobRecord) -> bool {
        failed_with(job, ErrorCode::E3801) && self.kernel.record_slot().await.is_ok()
    }

    /// Ends a failed call as the ledger says it ended. True if that may have changed the job.
    async fn follow(&self, job: &JobRecord) -> Result<bool, Refusal> {
        if job.kind != TOOL_CALL || job.state != JobState::Failed {
            return Ok(false);
        }
        let entry = self.line_in_ledger(job).await;
        let Some(mut found) = entry.map_err(|error| error.refusal())?.and_then(|entry| end_of(entry, job)) else {
            return Ok(false);
        };
        if let Ok(answer) = &mut found {
            self.mask_for_owner(job, answer).await?;
        }
        self.settle_job(job, found).await?;
        Ok(true)
    }

    /// The answer of a call is kept as its caller may see it; what a person has given in its place is too. Webhooks tell what is
    /// kept.
    async fn mask_for_owner(&self, job: &JobRecord, answer: &mut Value) -> Result<(), Refusal> {
        let Some(result) = answer.get_mut("result") else { return Ok(()) };
        let Some(detail) = self.queue.store.find(&job.key).await.map_err(|error| error.refusal())? else {
            return Ok(());
        };
        match (job.label.parse::<ToolId>(), QueuedCall::read(&detail.payload)) {
            (Ok(tool), Ok(queued_call)) => {
                let owner = queued_call.principal(&self.kernel);
                ReaderMask::of(&self.kernel, &owner, &job.key.tenant, &tool, true).await.mask(result);
            }
            // Whose it was cannot be read any more, so nobody can say what that caller may see.
            _ => *result = WITHHELD.into(),
        }
        Ok(())
    }

    /// The line of the ledger that a job's end is in, if its call came so far as to have one.
    pub(super) async fn line_in_ledger(&self, job: &JobRecord) -> Result<Option<LedgerEntry>, StoreError> {
        self.kernel.books().ledger().find(&job.key.tenant, job.error_invocation()).await
    }

    async fn settle_job(&self, job: &JobRecord, found: Result<Value, Value>) -> Result<(), Refusal> {
        if self.queue.settle(job, found).await? {
            self.tell_end(&job.key).await;
        }
        Ok(())
    }
}

/// Did it end without anybody knowing how?
pub(super) fn is_unknown(job: &JobRecord) -> bool {
    failed_with(job, ErrorCode::E3413)
}

fn failed_with(job: &JobRecord, wanted: ErrorCode) -> bool {
    job.state == JobState::Failed && job.error_code() == Some(wanted)
}

/// What is kept of a call that has no line, once a person has said what it came to.
fn answer_of(job: &JobRecord, result: &Value) -> Value {
    json!({
        "invocation_id": job.key.id,
        "status": contract::envelope::InvocationStatus::Success,
        "result": result,
        "tool_id": job.label,
    })
}

/// How the ledger says that the call ended: its answer, or its error. `None` while nobody knows.
fn end_of(entry: LedgerEntry, job: &JobRecord) -> Option<Result<Value, Value>> {
    let LedgerEntry { intent, state, outcome, .. } = entry;
    match state {
        EntryState::InFlight | EntryState::Unknown => return None,
        EntryState::Done | EntryState::FailedClean => {}
    }
    let result = match KeptOutcome::read(outcome).ok()? {
        KeptOutcome::Success(kept) => kept.result,
        KeptOutcome::Resolved { result, .. } => result,
        KeptOutcome::Failure(failure) => {
            let refusal = failure.refusal();
            // The end of a line that was set free says no more than the job does.
            let says_more = refusal.code != ErrorCode::E3413;
            let envelope = refusal.envelope(intent.trace, Some(job.key.id));
            return says_more.then(|| Err(serde_json::to_value(envelope).unwrap_or_default()));
        }
    };
    Some(Ok(json!({
        "invocation_id": intent.invocation,
        "status": contract::envelope::InvocationStatus::Success,
        "result": result,
        "tool_id": intent.tool,
        "tool_version": intent.version,
        "trace_id": intent.trace,
    })))
}
