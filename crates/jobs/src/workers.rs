//! Workers do the jobs: a bounded number at once, told when something waits, and a heartbeat beside them.
//!
//! ```text
//! work:  take ─▶ attempt … attempt ─▶ (woken · one ended · time to look) ─▶ take
//! keep:  every third of a lease: say that we live, hear what is to be cancelled, take over from the dead, forget the old
//! hold:  take no more, and go on with what is running
//! stop:  take no more ─▶ wait for what runs ─▶ tell the rest to end: handed back if it may be repeated, else unknown
//!        ─▶ resign, so that another follows now and not when the lease would have lapsed
//! ```

use std::sync::Arc;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use kernel::background_calls::{INTERRUPTED, WhyStop, cause, resolve_command};
use ports::audit_sink::{AuditAction, AuditRecord};
use ports::entropy::new_trace_id;
use ports::job_store::{
    AttemptEnd, DedupeKey, FencingToken, JobKey, JobRecord, RenewOutcome, TOOL_CALL, TakeRules, TakenJob, WriteOutcome,
};
use ports::registry_store::StoreError;
use ports::tool_companion::CallListener;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cancel_and_retry::cancelled;
use super::handler::{JobFailure, ProgressReporter, RunningJob, WaitingOutside};
use super::progress_report::{Reporter, heard_by};
use super::queued_call::QueuedCall;
use super::submission::system_subject;
use super::worker_permits::WorkerPermit;
use super::{Jobs, backoff, queued_call};
use crate::webhooks::DELIVERY_JOB;

/// Jobs taken at once, so that several processes share a short queue.
const TAKE_MAX: usize = 16;
/// How often a job may be interrupted by the end of its process.
const INTERRUPTIONS_MAX: u32 = 10;
/// The longest pause of a job that was only not begun because others were running.
const PLACE_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long jobs have after they were told to end.
const LEAVING_MAX: Duration = Duration::from_secs(5);
/// How long giving the lease back may take.
const RESIGNING_MAX: Duration = Duration::from_secs(5);
/// The pause between two tries to write an end, and most tries if the store is there and fails nevertheless.
const END_TRIES_MAX: u32 = 60;
const END_PAUSE: Duration = Duration::from_secs(5);
/// Heartbeats between two rounds of forgetting, and jobs forgotten in one round.
const PRUNE_EVERY: u32 = 6;
const PRUNE_MAX: usize = 1_000;

/// The workers of this process.
#[derive(Debug)]
pub struct Workers {
    jobs: Arc<Jobs>,
    hold: CancellationToken,
}

impl Workers {
    /// Workers for these jobs.
    pub fn new(jobs: Arc<Jobs>) -> Self {
        Self { jobs, hold: CancellationToken::new() }
    }

    /// They take no more once `hold` is cancelled: for the time between the wish to end and the end, while doors still close
    /// and calls may still become jobs of this process.
    #[must_use]
    pub fn holding_at(self, hold: CancellationToken) -> Self {
        Self { hold, ..self }
    }

    /// Does jobs until `stop`, then ends or gives back what runs.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = self.work(&stop) => {}
            () = self.keep() => {}
        }
        self.resign().await;
    }

    /// Whatever still runs is somebody else's now. Bounded, because the process ends whether or not the store answers.
    async fn resign(&self) {
        let jobs = &self.jobs;
        let resigned = tokio::select! {
            resigned = jobs.queue.store.resign(jobs.owner) => resigned.map_err(|error| error.to_string()),
            () = jobs.kernel.clock().sleep(RESIGNING_MAX) => Err("no answer in time".to_owned()),
        };
        if let Err(error) = resigned {
            tracing::warn!(%error, "the lease of this process was not given back; it lapses by itself");
        }
    }

    async fn work(&self, stop: &CancellationToken) {
        let (jobs, clock) = (&self.jobs, self.jobs.kernel.clock());
        // As many as there are permits, and twice as many that have given theirs back for a while.
        let mut attempts: JoinSet<()> = JoinSet::new();
        while !stop.is_cancelled() {
            while attempts.try_join_next().is_some() {}
            let held = self.hold.is_cancelled();
            let mut pause = jobs.queue.settings.poll;
            if !held && self.take(&mut attempts, &mut pause).await {
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.hold.cancelled(), if !held => {}
                () = jobs.queue.wake.notified(), if !held => {}
                Some(_) = attempts.join_next(), if !attempts.is_empty() => {}
                () = clock.sleep(pause) => {}
            }
        }
        self.drain(attempts).await;
    }

    /// Takes what there are permits for and begins it. Is there perhaps more?
    async fn take(&self, attempts: &mut JoinSet<()>, pause: &mut Duration) -> bool {
        let jobs = &self.jobs;
        let (widest, mut more) = (jobs.queue.settings.running_per_flow(), false);
        for rules in jobs.queue.settings.steps(jobs.worker_permits.free()) {
            let permits = jobs.worker_permits.for_new(rules.most.min(TAKE_MAX));
            let rules = TakeRules { most: permits.len(), ..rules };
            if rules.most == 0 {
                break;
            }
            match jobs.queue.store.take(jobs.owner, rules).await {
                Ok(taken) => {
                    let is_through = taken.jobs.len() < rules.most;
                    more |= !is_through;
                    *pause = taken.next_due_in.map_or(*pause, |due| (*pause).min(due.max(Duration::from_millis(1))));
                    for (job, permit) in taken.jobs.into_iter().zip(permits) {
                        attempts.spawn(Arc::clone(jobs).attempt(job, permit));
                    }
                    let is_widest = rules.running_per_tenant == jobs.queue.settings.running_per_tenant
                        && rules.running_per_flow == widest;
                    if is_through && is_widest {
                        break;
                    }
                }
                Err(error) => {
                    drop(permits);
                    tracing::warn!(%error, "no jobs could be taken");
                    return false;
                }
            }
        }
        more
    }

    async fn drain(&self, mut attempts: JoinSet<()>) {
        let (jobs, clock) = (&self.jobs, self.jobs.kernel.clock());
        jobs.tasks.close();
        jobs.worker_permits.close();
        let mut all_ended = async || {
            while attempts.join_next().await.is_some() {}
            jobs.tasks.wait().await;
        };
        let ended = tokio::select! {
            () = all_ended() => true,
            () = clock.sleep(jobs.queue.settings.drain) => false,
        };
        if !ended {
            jobs.kernel.running_jobs().leave();
            tokio::select! {
                () = all_ended() => {}
                () = clock.sleep(LEAVING_MAX) => tracing::warn!("jobs were left running; they are taken over at the next start"),
            }
        }
    }

    /// The heartbeat. Never ends.
    async fn keep(&self) {
        let jobs = &self.jobs;
        let mut beats = 0_u32;
        loop {
            jobs.inherit().await;
            if beats.is_multiple_of(PRUNE_EVERY) {
                let settings = &jobs.queue.settings;
                if let Err(error) = jobs.queue.store.prune(settings.retention, settings.dead_retention, PRUNE_MAX).await
                {
                    tracing::warn!(%error, "old jobs could not be forgotten");
                }
            }
            beats = beats.wrapping_add(1);
            jobs.kernel.clock().sleep(jobs.queue.settings.lease / 3).await;
            match jobs.queue.store.renew(jobs.owner, jobs.queue.settings.lease).await {
                Ok(RenewOutcome::Alive { cancel }) => {
                    cancel.iter().for_each(|key| jobs.kernel.running_jobs().cancel(key))
                }
                Ok(RenewOutcome::Lapsed) => {
                    tracing::warn!("this process was silent for longer than its lease");
                    // Alone, nobody can have taken them: they go on under a new lease.
                    if !jobs.queue.settings.alone {
                        jobs.kernel.running_jobs().leave();
                    }
                    if let Err(error) = jobs.queue.store.enlist(jobs.owner, jobs.queue.settings.lease, false).await {
                        tracing::warn!(%error, "no new lease could be had");
                    }
                }
                Err(error) => tracing::warn!(%error, "the lease could not be renewed"),
            }
        }
    }
}

impl Jobs {
    /// One attempt at a job, from its beginning to its kept end.
    async fn attempt(self: Arc<Self>, taken: TakenJob, permit: WorkerPermit) {
        self.attempt_heard(taken, None, CancellationToken::new(), Some(permit)).await;
    }

    /// The same, heard by whoever began it; one that was begun without a worker has no permit.
    pub(super) async fn attempt_heard(
        self: Arc<Self>,
        taken: TakenJob,
        listener: Option<Arc<dyn CallListener>>,
        cancellation: CancellationToken,
        permit: Option<WorkerPermit>,
    ) {
        let TakenJob { record, payload, fence } = taken;
        let key = record.key.clone();
        self.kernel.running_jobs().begin(&key, cancellation.clone());
        self.queue.changed(&key);
        let reporter = Arc::new(Reporter::default());
        let progress = ProgressReporter(Arc::clone(&reporter));
        let repeatable = self.may_repeat(&record, &payload);
        let kept = queued_call::kept_when_done(&payload);
        let job = RunningJob { record: record.clone(), payload, cancellation, progress, fence };
        // In a task of its own, so that a panic is an end of the job and not of the worker.
        let (jobs, hearing) = (Arc::clone(&self), heard_by(&reporter, listener));
        // The permit is free when the end is kept, not when the work is done.
        let permit = permit.map(Arc::new);
        let in_use = permit.clone();
        let mut work = tokio::spawn(async move { jobs.perform(&job, hearing, in_use.as_deref()).await });
        let outcome = tokio::select! {
            biased;
            outcome = &mut work => outcome,
            () = reporter.write(&self, &key, fence) => return,
        };
        let outcome = outcome.unwrap_or_else(|_| {
            let refusal = Refusal::new(ErrorCode::E3404, "the job ended abnormally");
            Err(JobFailure::of(&refusal, &record, new_trace_id(self.kernel.entropy()), repeatable))
        });
        let why = self.kernel.running_jobs().end(&key);
        let end = match self.judge(&record, fence, outcome, why, repeatable) {
            AttemptEnd::Done(result) => AttemptEnd::DoneKeeping { result, payload: kept },
            other => other,
        };
        self.keep_end(&key, fence, end).await;
        drop(permit);
    }

    async fn perform(
        &self,
        job: &RunningJob,
        audience: Arc<dyn CallListener>,
        permit: Option<&WorkerPermit>,
    ) -> Result<Value, JobFailure> {
        if job.record.kind == TOOL_CALL {
            return self.run_call(job, audience, permit).await;
        }
        let trace_id = new_trace_id(self.kernel.entropy());
        let failed = |refusal: &Refusal, safe| JobFailure::of(refusal, &job.record, trace_id, safe);
        let Some(handler) = self.handlers.iter().find(|handler| handler.kind() == job.record.kind) else {
            let refusal = Refusal::new(ErrorCode::E3010, "this server has no handler for jobs of this kind");
            return Err(failed(&refusal, false));
        };
        // A tenant that is switched off gets nothing, also not what was on its way. It may be switched on again meanwhile.
        if job.record.kind == DELIVERY_JOB && !self.kernel.access().snapshot().is_open(&job.record.key.tenant) {
            let refusal = Refusal::new(ErrorCode::E3206, "the tenant is switched off").retryable(true);
            return Err(failed(&refusal, true));
        }
        let by = system_subject().map_err(|refusal| failed(&refusal, false))?;
        // What cannot be recorded is not done.
        let slot = self.kernel.record_slot().await.map_err(|refusal| failed(&refusal, true))?;
        let handled = self.handling.begin(handler.kind());
        let outcome = handler.run(job).await;
        drop(handled);
        let note = format!("{} job, attempt {}", handler.kind(), job.record.attempts);
        let record = AuditRecord {
            trace_id,
            invocation_id: Some(job.record.key.id),
            // One that goes on outside has not failed.
            code: outcome.as_ref().err().filter(|failure| !failure.not_now).map(|failure| failure.code),
            ..self.kernel.unattended(&job.record.key.tenant, by, AuditAction::JobFinished, note)
        };
        if let Err(refusal) = slot.record(record).await {
            // It was done and is not done again for this: the record is kept until it can be written.
            tracing::warn!(code = %refusal.code, error = &refusal as &dyn std::error::Error, "the record of a job waits to be written");
        }
        outcome
    }

    /// May the job be begun again although nobody knows how far an earlier attempt came?
    fn may_repeat(&self, record: &JobRecord, payload: &Value) -> bool {
        if record.kind == TOOL_CALL {
            return QueuedCall::read(payload).is_ok_and(|queued_call| queued_call.repeatable);
        }
        let handler = self.handlers.iter().find(|handler| handler.kind() == record.kind);
        handler.is_some_and(|handler| handler.may_repeat(payload))
    }

    /// What is kept of an attempt.
    pub(super) fn judge(
        &self,
        record: &JobRecord,
        fence: FencingToken,
        outcome: Result<Value, JobFailure>,
        why: Option<WhyStop>,
        repeatable: bool,
    ) -> AttemptEnd {
        let failure = match outcome {
            Ok(result) => return AttemptEnd::Done(result),
            Err(failure) => failure,
        };
        let failure = match WaitingOutside::of(record) {
            // Only looking whether it has ended came to nothing: it goes on.
            Some(waits) if failure.again => JobFailure { error: waits.to_value(), not_now: true, ..failure },
            _ => failure,
        };
        let key = key_after(record, &failure, repeatable);
        match (failure.code, why) {
            (_, Some(WhyStop::Asked)) if failure.not_now => {
                AttemptEnd::Cancelled { error: self.envelope(&cancelled(), record), key }
            }
            _ if failure.not_now => self.put_back(record, fence, failure),
            (ErrorCode::E3703, Some(WhyStop::Leaving)) if repeatable || failure.untouched => AttemptEnd::HandBack,
            // An earlier attempt may have done what this one did not.
            (ErrorCode::E3703, Some(_)) if !(repeatable || failure.untouched && record.attempts <= 1) => {
                let is_left = why == Some(WhyStop::Leaving);
                self.unknown_end(record, cause(ErrorCode::E3703, is_left))
            }
            (ErrorCode::E3703, _) => AttemptEnd::Cancelled { error: failure.error, key },
            // The attempt that was interrupted is in flight until the lease of its process is over, which may be longer than a
            // call has time. Nothing was run, so it costs no try; by and by the ledger says what became of it.
            (ErrorCode::E3409, _) if record.attempts > 1 && may_be_interrupted(record) => {
                self.put_back(record, fence, failure)
            }
            (ErrorCode::E3409, _) if record.attempts > 1 && !repeatable => self.unknown_end(record, INTERRUPTED),
            _ if !failure.again => AttemptEnd::Failed { error: failure.error, key },
            _ if record.tries() >= record.attempts_max => AttemptEnd::Dead { error: failure.error, key },
            _ => self.later(record, failure),
        }
    }

    fn later(&self, record: &JobRecord, failure: JobFailure) -> AttemptEnd {
        let (first, max) = (self.queue.settings.backoff_first, self.queue.settings.backoff_max);
        let after = backoff::pause(first, max, record.tries(), failure.after, self.kernel.entropy());
        AttemptEnd::Retry { error: failure.error, after }
    }

    /// JOBS-6. Each time it was taken in vain makes the next pause longer, so that a queue of jobs whose time has not come is
    /// not leafed through all the time.
    fn put_back(&self, record: &JobRecord, fence: FencingToken, failure: JobFailure) -> AttemptEnd {
        let in_vain = fence.0.saturating_sub(u64::from(record.attempts)).saturating_add(1);
        let in_vain = u32::try_from(in_vain).unwrap_or(u32::MAX);
        let (first, max) = (self.queue.settings.backoff_first, self.queue.settings.backoff_max);
        // A place may become free at any time, and nobody says when.
        let max = if failure.after.is_some() { max } else { max.min(PLACE_PAUSE_MAX) };
        let after = backoff::pause(first, max, in_vain, failure.after, self.kernel.entropy());
        AttemptEnd::PutBack { error: failure.error, after }
    }

    /// Writes an end, if need be more than once: it must not be lost because the store was away. It has a permit for so long,
    /// or room among the promoted, so there are no more of them than those.
    pub(super) async fn keep_end(&self, key: &JobKey, fence: FencingToken, end: AttemptEnd) {
        let mut tries = 0;
        while tries < END_TRIES_MAX {
            match self.queue.store.finish(key, fence, end.clone()).await {
                Ok(written) => {
                    self.queue.changed(key);
                    // A retry without a pause, or a place that has become free for its tenant.
                    self.queue.wake.notify_one();
                    if let WriteOutcome::Kept(state) = written
                        && state.is_end()
                    {
                        self.tell_end(key).await;
                    }
                    return;
                }
                Err(error) => {
                    if !matches!(error, StoreError::Unavailable(_)) {
                        tries += 1;
                    }
                    tracing::warn!(%error, job = %key.id, "the end of a job could not be kept yet");
                }
            }
            self.kernel.clock().sleep(END_PAUSE).await;
        }
        tracing::error!(job = %key.id, "the end of a job was not kept; the job is taken over at the next start");
    }

    /// Decides about the jobs of processes that are gone (ASYNC-015).
    async fn inherit(&self) {
        loop {
            let taken = match self.queue.store.take_over(self.owner, TAKE_MAX).await {
                Ok(taken) => taken,
                Err(error) => return tracing::warn!(%error, "jobs could not be taken over"),
            };
            if taken.is_empty() {
                return;
            }
            for job in taken {
                let end = match self.after_interruption(&job).await {
                    Ok(end) => end,
                    // Nobody knows for now. Each look at the job asks the ledger again (`resolution.rs`).
                    Err(error) => {
                        tracing::warn!(%error, job = %job.record.key.id, "the ledger could not be asked about a job");
                        self.unknown_end(&job.record, INTERRUPTED)
                    }
                };
                tracing::info!(job = %job.record.key.id, repeated = matches!(end, AttemptEnd::Interrupted { .. }), "a job was interrupted");
                self.keep_end(&job.record.key, job.fence, end).await;
            }
        }
    }

    /// A call finds out from the ledger what became of it when it begins again; other kinds of work are in no ledger. One that
    /// is not begun again, because it was asked to end or was interrupted too often, must not be called cancelled or dead
    /// while the ledger has a line of it: whoever reads that would do it a second time (JOBS-8).
    async fn after_interruption(&self, job: &TakenJob) -> Result<AttemptEnd, StoreError> {
        let record = &job.record;
        if WaitingOutside::of(record).is_some() {
            // Nobody was doing it: somebody had only looked whether it has ended.
            let error = record.error.clone().unwrap_or_default();
            return Ok(AttemptEnd::PutBack { error, after: self.queue.settings.backoff_first });
        }
        let repeatable = self.may_repeat(record, &job.payload);
        if record.kind != TOOL_CALL {
            let handler = self.handlers.iter().find(|handler| handler.kind() == record.kind);
            let again = match handler {
                Some(handler) => handler.may_begin_again(record, &job.payload).await?,
                None => false,
            };
            if !again {
                return Ok(self.unknown_end(record, INTERRUPTED));
            }
        }
        let is_last = record.cancel_asked.is_some() || !may_be_interrupted(record);
        if is_last && !repeatable && self.line_in_ledger(record).await?.is_some() {
            return Ok(self.unknown_end(record, INTERRUPTED));
        }
        let refusal = Refusal::new(ErrorCode::E3404, "the process that ran the job ended before it did");
        let error = self.envelope(&refusal, record);
        if !may_be_interrupted(record) {
            let is_safe_call = record.kind == TOOL_CALL && repeatable;
            let key = if is_safe_call { DedupeKey::Freed } else { DedupeKey::Kept };
            return Ok(AttemptEnd::Dead { error, key });
        }
        Ok(AttemptEnd::Interrupted { error })
    }

    fn unknown_end(&self, record: &JobRecord, cause: &'static str) -> AttemptEnd {
        let refusal =
            Refusal::new(ErrorCode::E3413, format!("the job was {cause}, and nobody knows whether it had its effect"))
                .hint(format!("find out whether the effect happened, then say so: {}", resolve_command(record.key.id)))
                .details(json!({ "cause": cause }));
        AttemptEnd::Failed { error: self.envelope(&refusal, record), key: DedupeKey::Kept }
    }

    pub(super) fn envelope(&self, refusal: &Refusal, record: &JobRecord) -> Value {
        self.queue.envelope(refusal, record)
    }
}

/// JOBS-7. The dedupe key of a job stands for what the key of its call stands for in the ledger (`ledger::settlement`): it is
/// free where the ledger says "failed clean". Other kinds of work are in no ledger, and theirs is free only if no attempt
/// has done anything.
fn key_after(record: &JobRecord, failure: &JobFailure, repeatable: bool) -> DedupeKey {
    let is_safe_call = record.kind == TOOL_CALL && repeatable;
    let nothing_done = record.attempts <= 1 && failure.untouched;
    if is_safe_call || nothing_done { DedupeKey::Freed } else { DedupeKey::Kept }
}

/// Has the job not been interrupted too often?
fn may_be_interrupted(record: &JobRecord) -> bool {
    record.interruptions < INTERRUPTIONS_MAX
}
