//! `JobStore` without durability: jobs in a map, under one lock, chosen by walking over all of them. Passes the same suite
//! as the real ones.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::canonical::Digest;
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::job_store::{
    AdoptOutcome, AttemptEnd, CancelAsked, DedupeKey, EnqueueOutcome, FencingToken, FoundResult, JobCounts, JobDedupe,
    JobDetail, JobEvent, JobFilter, JobKey, JobPage, JobRecord, JobState, JobStore, NewJob, OwnerId, PAGE_MAX,
    PROGRESS_KEPT_MAX, RenewOutcome, TakeOutcome, TakeRules, TakenJob, WriteOutcome, rank,
};
use ports::ledger::Intent;
use ports::registry_store::StoreError;
use serde_json::{Value, json};

use super::MemoryStore;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: BTreeMap<u64, Job>,
    owners: BTreeMap<OwnerId, UnixMillis>,
    /// The ticket each tenant was served with last.
    served: BTreeMap<TenantId, u64>,
    /// The same for each flow of a tenant.
    flows_served: BTreeMap<(TenantId, String), u64>,
    tickets: u64,
    added: u64,
}

#[derive(Debug)]
struct Job {
    record: JobRecord,
    flow: String,
    payload: Value,
    digest: Digest,
    dedupe: Option<(JobDedupe, UnixMillis)>,
    result: Option<Value>,
    owner: Option<OwnerId>,
    fence: u64,
    numbered: u64,
    events: Vec<JobEvent>,
}

impl Job {
    fn event(&mut self, now: UnixMillis, kind: &str, data: Value) {
        self.numbered += 1;
        self.events.push(JobEvent { seq: self.numbered, at: now, kind: kind.to_owned(), data });
        let oldest = self.numbered.saturating_sub(PROGRESS_KEPT_MAX);
        self.events.retain(|event| event.kind != "progress" || event.seq > oldest);
    }

    fn end(&mut self, now: UnixMillis, state: JobState, error: Option<Value>, dedupe: DedupeKey) {
        let data = error.as_ref().map_or_else(|| json!({}), |error| json!({ "error": error }));
        self.event(now, state.as_str(), data);
        self.record.state = state;
        self.record.ended_at = Some(now);
        self.record.error = error;
        self.owner = None;
        if dedupe == DedupeKey::Freed {
            self.dedupe = None;
        }
        if state == JobState::Done {
            self.record.progress_percent = Some(100.0);
        }
    }

    fn hold(&mut self, now: UnixMillis, owner: OwnerId, kind: &str) -> TakenJob {
        self.owner = Some(owner);
        self.fence += 1;
        self.record.state = JobState::Running;
        self.record.attempts += u32::from(kind == "started");
        self.record.started_at = Some(now);
        self.record.progress_percent = None;
        self.record.phase = None;
        self.event(now, kind, json!({ "attempt": self.record.attempts }));
        TakenJob { record: self.record.clone(), payload: self.payload.clone(), fence: FencingToken(self.fence) }
    }

    fn wait_again(&mut self, state: JobState, due: UnixMillis) -> WriteOutcome {
        self.record.state = state;
        self.record.due_at = due;
        self.owner = None;
        WriteOutcome::Kept(state)
    }
}

impl Jobs {
    fn find(&mut self, key: &JobKey) -> Option<&mut Job> {
        self.jobs.values_mut().find(|job| job.record.key == *key)
    }

    fn held(&mut self, key: &JobKey, fence: FencingToken) -> Option<&mut Job> {
        self.find(key).filter(|job| job.record.state == JobState::Running && job.fence == fence.0)
    }

    fn waiting(&self, tenant: Option<&TenantId>) -> u64 {
        let waits = |job: &&Job| {
            matches!(job.record.state, JobState::Queued | JobState::Delayed)
                && tenant.is_none_or(|tenant| job.record.key.tenant == *tenant)
        };
        u64::saturating_from(self.jobs.values().filter(waits).count())
    }

    fn waiting_in(&self, tenant: &TenantId, flow: &str) -> u64 {
        let waits = |job: &&Job| {
            matches!(job.record.state, JobState::Queued | JobState::Delayed)
                && job.record.key.tenant == *tenant
                && job.flow == flow
        };
        u64::saturating_from(self.jobs.values().filter(waits).count())
    }

    fn running(&self, tenant: &TenantId) -> u32 {
        let runs = |job: &&Job| job.record.state == JobState::Running && job.record.key.tenant == *tenant;
        u32::saturating_from(self.jobs.values().filter(runs).count())
    }

    fn running_in(&self, tenant: &TenantId, flow: &str) -> u32 {
        let runs =
            |job: &&Job| job.record.state == JobState::Running && job.record.key.tenant == *tenant && job.flow == flow;
        u32::saturating_from(self.jobs.values().filter(runs).count())
    }

    fn existing(&self, now: UnixMillis, new: &NewJob) -> Option<(InvocationId, bool)> {
        let deduped = |job: &Job| {
            let open = |until: &UnixMillis| *until > now || !job.record.state.is_end();
            let wanted = new.dedupe.as_ref().map(|dedupe| &dedupe.key);
            let same_key = job.dedupe.as_ref().is_some_and(|(had, until)| Some(&had.key) == wanted && open(until));
            same_key && job.record.kind == new.kind && job.record.key.tenant == new.key.tenant
        };
        let found = self.jobs.values().find(|job| job.record.key == new.key);
        let found = found.or_else(|| self.jobs.values().find(|job| deduped(job)))?;
        Some((found.record.key.id, found.digest == new.digest))
    }

    /// The job that is to do the act of a call, if it is another one and has not ended (LEDGER-5).
    pub(super) fn to_do(&self, intent: &Intent) -> Option<(InvocationId, bool)> {
        let act = intent.queued_act.as_ref()?;
        let found = self.jobs.values().find(|job| {
            let JobRecord { key, kind, state, .. } = &job.record;
            let same_key = job.dedupe.as_ref().is_some_and(|(had, _)| had.key == act.dedupe_key);
            let is_other = key.id != intent.invocation;
            same_key && is_other && !state.is_end() && *kind == act.kind && key.tenant == intent.tenant
        })?;
        Some((found.record.key.id, found.digest == act.digest))
    }

    fn insert(&mut self, now: UnixMillis, new: NewJob, owner: Option<OwnerId>) -> &mut Job {
        let due = now.plus(new.delay);
        let runs = owner.is_some();
        let state = match (runs, new.delay.is_zero()) {
            (true, _) => JobState::Running,
            (false, true) => JobState::Queued,
            (false, false) => JobState::Delayed,
        };
        let until = |dedupe: JobDedupe| (now.plus(dedupe.window), dedupe);
        // A flow that comes new begins behind those that wait already.
        let is_open = |job: &Job| !job.record.state.is_end() && job.flow == new.flow;
        if !self.jobs.values().any(|job| job.record.key.tenant == new.key.tenant && is_open(job)) {
            self.flows_served.insert((new.key.tenant.clone(), new.flow.clone()), self.tickets * 2 + 1);
        }
        let job = Job {
            flow: new.flow,
            record: JobRecord {
                key: new.key,
                kind: new.kind,
                label: new.label,
                owner: new.owner,
                priority: new.priority,
                state,
                attempts: u32::from(runs),
                interruptions: 0,
                attempts_max: new.attempts_max.max(1),
                progress_percent: None,
                phase: None,
                cancel_asked: None,
                error: None,
                created_at: now,
                due_at: due,
                started_at: runs.then_some(now),
                ended_at: None,
            },
            payload: new.payload,
            digest: new.digest,
            dedupe: new.dedupe.map(until).map(|(until, dedupe)| (dedupe, until)),
            result: None,
            owner,
            fence: u64::from(runs),
            numbered: 0,
            events: Vec::new(),
        };
        self.added += 1;
        self.jobs.entry(self.added).or_insert(job)
    }

    fn is_alive(&self, now: UnixMillis, owner: OwnerId) -> bool {
        self.owners.get(&owner).is_some_and(|until| *until > now)
    }

    /// Whose turn it is (JOB-6), and its first job (JOB-5).
    fn next(&self, rules: TakeRules) -> Option<u64> {
        let queued = || self.jobs.iter().filter(|(_, job)| job.record.state == JobState::Queued);
        let turn = |tenant: &TenantId| (self.running(tenant), self.served.get(tenant).copied().unwrap_or(0));
        let tenant = queued()
            .map(|(_, job)| &job.record.key.tenant)
            .filter(|tenant| self.running(tenant) < rules.running_per_tenant)
            .filter(|tenant| {
                let mut own = queued().filter(|(_, job)| job.record.key.tenant == **tenant);
                own.any(|(_, job)| self.running_in(tenant, &job.flow) < rules.running_per_flow)
            })
            .min_by_key(|tenant| turn(tenant))?;
        let of_tenant = || queued().filter(|(_, job)| job.record.key.tenant == *tenant);
        let line = |flow: &str| {
            let served = self.flows_served.get(&(tenant.clone(), flow.to_owned())).copied().unwrap_or(0);
            (self.running_in(tenant, flow), served, flow.to_owned())
        };
        let flow = of_tenant()
            .map(|(_, job)| &job.flow)
            .filter(|flow| self.running_in(tenant, flow) < rules.running_per_flow)
            .min_by_key(|flow| line(flow))?;
        let of_flow = of_tenant().filter(|(_, job)| job.flow == *flow);
        of_flow.min_by_key(|(seq, job)| (rank(job.record.due_at, job.record.priority), **seq)).map(|(seq, _)| *seq)
    }
}

impl MemoryStore {
    pub(super) fn jobs(&self) -> MutexGuard<'_, Jobs> {
        let lock: &Mutex<Jobs> = &self.jobs;
        lock.lock_unpoisoned()
    }
}

#[async_trait]
impl JobStore for MemoryStore {
    async fn enlist(&self, owner: OwnerId, lease: Duration, alone: bool) -> Result<(), StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        if alone {
            kept.owners.values_mut().for_each(|until| *until = now.min(*until));
        }
        kept.owners.insert(owner, now.plus(lease));
        Ok(())
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<RenewOutcome, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        if !kept.is_alive(now, owner) {
            return Ok(RenewOutcome::Lapsed);
        }
        kept.owners.insert(owner, now.plus(lease));
        let asked = |job: &&Job| job.owner == Some(owner) && job.record.cancel_asked.is_some();
        Ok(RenewOutcome::Alive { cancel: kept.jobs.values().filter(asked).map(|job| job.record.key.clone()).collect() })
    }

    async fn resign(&self, owner: OwnerId) -> Result<(), StoreError> {
        let now = self.now();
        if let Some(until) = self.jobs().owners.get_mut(&owner) {
            *until = now.min(*until);
        }
        Ok(())
    }

    async fn enqueue(&self, job: NewJob) -> Result<EnqueueOutcome, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        if let Some((id, same)) = kept.existing(now, &job) {
            return Ok(EnqueueOutcome::Existing { id, same });
        }
        if let Some((id, same)) = self.lines().claimed(&job, now) {
            return Ok(EnqueueOutcome::Claimed { id, same });
        }
        if kept.waiting_in(&job.key.tenant, &job.flow) >= job.bounds.per_flow
            || kept.waiting(Some(&job.key.tenant)) >= job.bounds.per_tenant
            || kept.waiting(None) >= job.bounds.total
        {
            return Ok(EnqueueOutcome::Full);
        }
        kept.insert(now, job, None).event(now, "queued", json!({}));
        Ok(EnqueueOutcome::New)
    }

    async fn adopt(&self, job: NewJob, owner: OwnerId) -> Result<AdoptOutcome, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        if let Some((id, same)) = kept.existing(now, &job) {
            return Ok(AdoptOutcome::Existing { id, same });
        }
        if let Some((id, same)) = self.lines().claimed(&job, now) {
            return Ok(AdoptOutcome::Claimed { id, same });
        }
        kept.insert(now, job, Some(owner)).event(now, "started", json!({ "attempt": 1 }));
        Ok(AdoptOutcome::Running(FencingToken(1)))
    }

    async fn take(&self, owner: OwnerId, rules: TakeRules) -> Result<TakeOutcome, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        let mut taken = TakeOutcome::default();
        if !kept.is_alive(now, owner) {
            return Ok(taken);
        }
        for job in kept.jobs.values_mut() {
            if job.record.state == JobState::Delayed && job.record.due_at <= now {
                job.record.state = JobState::Queued;
            }
        }
        while taken.jobs.len() < rules.most
            && let Some(seq) = kept.next(rules)
        {
            kept.tickets += 1;
            let ticket = kept.tickets;
            let Some(job) = kept.jobs.get_mut(&seq) else { break };
            taken.jobs.push(job.hold(now, owner, "started"));
            let (tenant, flow) = (job.record.key.tenant.clone(), job.flow.clone());
            kept.served.insert(tenant.clone(), ticket);
            kept.flows_served.insert((tenant, flow), ticket * 2);
        }
        let delayed = kept.jobs.values().filter(|job| job.record.state == JobState::Delayed);
        taken.next_due_in = delayed.map(|job| job.record.due_at).min().map(|due| due.since(now));
        Ok(taken)
    }

    async fn take_over(&self, owner: OwnerId, most: usize) -> Result<Vec<TakenJob>, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        if !kept.is_alive(now, owner) {
            return Ok(Vec::new());
        }
        let alive: Vec<OwnerId> = kept.owners.iter().filter(|(_, until)| **until > now).map(|(id, _)| *id).collect();
        let lapsed = kept.jobs.values_mut().filter(|job| job.owner.is_some_and(|owner| !alive.contains(&owner)));
        Ok(lapsed.take(most).map(|job| job.hold(now, owner, "taken_over")).collect())
    }

    async fn report(
        &self,
        key: &JobKey,
        fence: FencingToken,
        percent: Option<f64>,
        phase: Option<String>,
    ) -> Result<WriteOutcome, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        let Some(job) = kept.held(key, fence) else { return Ok(WriteOutcome::Fenced) };
        let record = &mut job.record;
        record.progress_percent = percent.or(record.progress_percent);
        record.phase = phase.or_else(|| record.phase.take());
        let data = json!({ "progress_percent": record.progress_percent, "current_phase": record.phase });
        job.event(now, "progress", data);
        Ok(WriteOutcome::Kept(JobState::Running))
    }

    async fn finish(&self, key: &JobKey, fence: FencingToken, end: AttemptEnd) -> Result<WriteOutcome, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        let Some(job) = kept.held(key, fence) else { return Ok(WriteOutcome::Fenced) };
        let cancel_asked = job.record.cancel_asked.is_some();
        // JOB-8.
        let if_first = if job.record.attempts <= 1 { DedupeKey::Freed } else { DedupeKey::Kept };
        let (state, error, dedupe) = match end {
            AttemptEnd::Done(result) => {
                job.result = Some(result);
                (JobState::Done, None, DedupeKey::Kept)
            }
            AttemptEnd::DoneKeeping { result, payload } => {
                job.result = Some(result);
                job.payload = payload;
                (JobState::Done, None, DedupeKey::Kept)
            }
            AttemptEnd::Failed { error, key } => (JobState::Failed, Some(error), key),
            AttemptEnd::Dead { error, key } => (JobState::Dead, Some(error), key),
            AttemptEnd::Cancelled { error, key } => (JobState::Cancelled, Some(error), key),
            AttemptEnd::Retry { error, .. } | AttemptEnd::Interrupted { error } if cancel_asked => {
                (JobState::Cancelled, Some(error), DedupeKey::Kept)
            }
            AttemptEnd::PutBack { error, .. } if cancel_asked => (JobState::Cancelled, Some(error), if_first),
            AttemptEnd::HandBack if cancel_asked => (JobState::Cancelled, None, if_first),
            AttemptEnd::Retry { error, after } => {
                let state = if after.is_zero() { JobState::Queued } else { JobState::Delayed };
                let after_ms = u64::saturating_from(after.as_millis());
                job.event(now, "retry", json!({ "error": error, "after_ms": after_ms }));
                job.record.error = Some(error);
                return Ok(job.wait_again(state, now.plus(after)));
            }
            AttemptEnd::Interrupted { error } => {
                job.record.interruptions += 1;
                job.event(now, "interrupted", json!({ "error": error, "after_ms": 0 }));
                job.record.error = Some(error);
                return Ok(job.wait_again(JobState::Queued, now));
            }
            AttemptEnd::PutBack { error, after } => {
                let state = if after.is_zero() { JobState::Queued } else { JobState::Delayed };
                let after_ms = u64::saturating_from(after.as_millis());
                job.record.attempts = job.record.attempts.saturating_sub(1);
                job.event(now, "put_back", json!({ "error": error, "after_ms": after_ms }));
                job.record.error = Some(error);
                return Ok(job.wait_again(state, now.plus(after)));
            }
            AttemptEnd::HandBack => {
                job.record.attempts = job.record.attempts.saturating_sub(1);
                job.event(now, "handed_back", json!({}));
                return Ok(job.wait_again(JobState::Queued, now));
            }
        };
        job.end(now, state, error, dedupe);
        Ok(WriteOutcome::Kept(state))
    }

    async fn resolve(
        &self,
        key: &JobKey,
        was: &Value,
        found: Result<FoundResult, Value>,
    ) -> Result<WriteOutcome, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        let failed = |job: &&mut Job| job.record.state == JobState::Failed && job.record.error.as_ref() == Some(was);
        let Some(job) = kept.find(key).filter(failed) else { return Ok(WriteOutcome::Fenced) };
        let (state, data) = match found {
            Ok(FoundResult { result, payload }) => {
                job.result = Some(result);
                job.payload = payload;
                job.record.error = None;
                job.record.progress_percent = Some(100.0);
                (JobState::Done, json!({ "state": JobState::Done.as_str() }))
            }
            Err(error) => {
                job.dedupe = None;
                let data = json!({ "state": JobState::Failed.as_str(), "error": error });
                job.record.error = Some(error);
                (JobState::Failed, data)
            }
        };
        job.record.state = state;
        job.event(now, "resolved", data);
        Ok(WriteOutcome::Kept(state))
    }

    async fn ask_cancel(&self, key: &JobKey, reason: &str, error: Value) -> Result<CancelAsked, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        let Some(job) = kept.find(key) else { return Ok(CancelAsked::Unknown) };
        let state = job.record.state;
        if !state.is_end() && job.record.cancel_asked.is_none() {
            job.record.cancel_asked = Some(reason.to_owned());
            job.event(now, "cancel_asked", json!({ "reason": reason }));
            if state != JobState::Running {
                // JOB-8.
                let dedupe = if job.record.attempts == 0 { DedupeKey::Freed } else { DedupeKey::Kept };
                job.end(now, JobState::Cancelled, Some(error), dedupe);
            }
        }
        Ok(CancelAsked::Now(job.record.state))
    }

    async fn release_key(&self, key: &JobKey) -> Result<(), StoreError> {
        if let Some(job) = self.jobs().find(key).filter(|job| job.record.state.is_end()) {
            job.dedupe = None;
        }
        Ok(())
    }

    async fn hasten(&self, key: &JobKey) -> Result<(), StoreError> {
        let now = self.now();
        if let Some(job) = self.jobs().find(key).filter(|job| job.record.state == JobState::Delayed) {
            job.record.due_at = now.min(job.record.due_at);
        }
        Ok(())
    }

    async fn find(&self, key: &JobKey) -> Result<Option<JobDetail>, StoreError> {
        Ok(self.jobs().find(key).map(|job| JobDetail {
            record: job.record.clone(),
            flow: job.flow.clone(),
            payload: job.payload.clone(),
            digest: job.digest,
            result: job.result.clone(),
        }))
    }

    async fn list(&self, filter: &JobFilter, before: Option<u64>, most: usize) -> Result<JobPage, StoreError> {
        let most = most.min(PAGE_MAX);
        let wanted = |record: &JobRecord| {
            filter.tenant.as_ref().is_none_or(|tenant| *tenant == record.key.tenant)
                && filter.owner.as_ref().is_none_or(|owner| *owner == record.owner)
                && filter.state.is_none_or(|state| state == record.state)
                && filter.kind.as_ref().is_none_or(|kind| *kind == record.kind)
        };
        let kept = self.jobs();
        let before = before.unwrap_or(u64::MAX);
        let mut found: Vec<(u64, &JobRecord)> = kept
            .jobs
            .range(..before)
            .rev()
            .map(|(seq, job)| (*seq, &job.record))
            .filter(|(_, record)| wanted(record))
            .take(most.saturating_add(1))
            .collect();
        let more = found.len() > most;
        found.truncate(most);
        let next = found.last().map(|(seq, _)| *seq).filter(|_| more);
        Ok(JobPage { jobs: found.into_iter().map(|(_, record)| record.clone()).collect(), next })
    }

    async fn events(&self, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, StoreError> {
        let mut kept = self.jobs();
        let events = kept.find(key).map(|job| job.events.clone()).unwrap_or_default();
        Ok(events.into_iter().filter(|event| event.seq > after).take(most.min(PAGE_MAX)).collect())
    }

    async fn counts(&self) -> Result<JobCounts, StoreError> {
        let kept = self.jobs();
        let running = kept.jobs.values().filter(|job| job.record.state == JobState::Running).count();
        Ok(JobCounts { waiting: kept.waiting(None), running: u64::saturating_from(running) })
    }

    async fn rewrite_payload(&self, key: &JobKey, payload: &Value) -> Result<bool, StoreError> {
        let mut kept = self.jobs();
        let Some(job) = kept.find(key).filter(|job| !job.payload.is_null()) else { return Ok(false) };
        job.payload = payload.clone();
        Ok(true)
    }

    async fn prune(&self, retention: Duration, dead_retention: Duration, most: usize) -> Result<u64, StoreError> {
        let now = self.now();
        let mut kept = self.jobs();
        let is_over = |job: &Job| {
            let keep_for = if job.record.state == JobState::Dead { dead_retention } else { retention };
            let deduped = job.dedupe.as_ref().is_some_and(|(_, until)| *until > now);
            !deduped && job.record.ended_at.is_some_and(|ended| now.since(ended) > keep_for)
        };
        let over: Vec<u64> = kept.jobs.iter().filter(|(_, job)| is_over(job)).map(|(seq, _)| *seq).take(most).collect();
        over.iter().for_each(|seq| drop(kept.jobs.remove(seq)));
        Ok(u64::saturating_from(over.len()))
    }
}
