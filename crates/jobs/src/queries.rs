//! Who may look at which job, and what is seen of it.

use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId, ToolId};
use kernel::Principal;
use kernel::background_calls::{ReaderMask, elsewhere, resolve_command};
use policy::Action;
use ports::actor::Actor;
use ports::job_store::{JobDetail, JobEvent, JobFilter, JobKey, JobRecord, JobState, TOOL_CALL};
use ports::ledger::{EntryState, LedgerEntry};
use serde_json::Value;

use super::Jobs;
use super::handler::WaitingOutside;
use super::view::{InvocationView, JobListing};

impl Jobs {
    /// What is known of a job, if the caller may look at it (API-007).
    pub async fn status(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<InvocationView, Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let mut view = InvocationView::of(self.seen(&caller, tenant, id).await?);
        if let Some(mask) = self.mask_of(&caller, &view.record).await {
            view.result.iter_mut().for_each(|answer| mask_answer(&mask, answer));
            mask_record(&mask, &mut view.record);
        }
        Ok(view)
    }

    /// What has happened to a job after an event, in order, as the caller may see it now.
    pub async fn events(
        &self,
        actor: Actor<'_>,
        key: &JobKey,
        after: u64,
        most: usize,
    ) -> Result<Vec<JobEvent>, Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let mut events = self.queue.store.events(key, after, most).await.map_err(|error| error.refusal())?;
        events.iter_mut().for_each(without_waiting);
        if !events.iter().any(tells_words) {
            return Ok(events);
        }
        let found = self.queue.store.find(key).await.map_err(|error| error.refusal())?;
        let found = found.filter(|found| may_see(&caller, &found.record)).ok_or_else(|| unknown(key.id))?;
        if let Some(mask) = self.mask_of(&caller, &found.record).await {
            events.iter_mut().for_each(|event| mask_event(&mask, event));
        }
        Ok(events)
    }

    /// A job as whoever made its call may see it now, for who is called back.
    pub(super) async fn as_its_owner_sees_it(&self, mut detail: JobDetail, owner: &Principal) -> JobDetail {
        let mask = match self.kernel.welcome(owner).await {
            Ok(()) => self.mask_of(owner, &detail.record).await,
            Err(_) => Some(ReaderMask::withholding(&self.kernel, owner.tenant())),
        };
        if let Some(mask) = mask {
            detail.result.iter_mut().for_each(|answer| mask_answer(&mask, answer));
            mask_record(&mask, &mut detail.record);
        }
        detail
    }

    /// What is masked for the caller of what is told of a job; nothing is of a job that calls no tool.
    async fn mask_of(&self, caller: &Principal, record: &JobRecord) -> Option<ReaderMask<'_>> {
        let tool = (record.kind == TOOL_CALL).then(|| record.label.parse::<ToolId>().ok())??;
        let owns = record.owner == caller.owner();
        Some(ReaderMask::of(&self.kernel, caller, &record.key.tenant, &tool, owns).await)
    }

    /// The key of a job that the caller may look at, and where it stands.
    pub async fn find(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<(JobKey, JobState), Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let found = self.seen(&caller, tenant, id).await?;
        Ok((found.record.key, found.record.state))
    }

    /// Jobs, newest first: one's own, or all of the tenant for those who may look.
    pub async fn list(
        &self,
        actor: Actor<'_>,
        mut filter: JobFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<JobListing, Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let tenant = tenant_named(&caller, filter.tenant.as_ref())?.clone();
        filter.tenant = Some(tenant);
        if !caller.may(Action::SeeJobs) {
            filter.owner = Some(caller.owner());
        }
        let mut page = self.queue.store.list(&filter, before, most).await.map_err(|error| error.refusal())?;
        for record in &mut page.jobs {
            if let Some(detail) = self.resolved(record).await? {
                *record = detail.record;
            }
            if (record.phase.is_some() || record.progress_percent.is_some() || record.error.is_some())
                && let Some(mask) = self.mask_of(&caller, record).await
            {
                mask_record(&mask, record);
            }
        }
        Ok(JobListing::of(page))
    }

    /// A job that the caller may look at; else the words for none, or for a call that is no job.
    pub(super) async fn seen(
        &self,
        caller: &Principal,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<JobDetail, Refusal> {
        let key = key_for(caller, tenant, id)?;
        match self.known(&key).await? {
            Some(found) if may_see(caller, &found.record) => Ok(found),
            Some(_) => Err(unknown(id)),
            None => Err(self.no_job(caller, &key).await),
        }
    }

    /// A job, with the end it has by now.
    pub(super) async fn known(&self, key: &JobKey) -> Result<Option<JobDetail>, Refusal> {
        let Some(found) = self.queue.store.find(key).await.map_err(|error| error.refusal())? else { return Ok(None) };
        Ok(Some(self.resolved(&found.record).await?.unwrap_or(found)))
    }

    /// Why there is no such job: a call that its caller waits for is none, and is told apart for those who may see it.
    async fn no_job(&self, caller: &Principal, key: &JobKey) -> Refusal {
        match self.kernel.books().ledger().find(&key.tenant, key.id).await {
            Ok(Some(entry)) if entry.intent.caller == caller.owner() || caller.may(Action::SeeJobs) => {
                only_a_call(&entry)
            }
            // A ledger that does not answer knows nothing of it.
            _ => unknown(key.id),
        }
    }
}

/// Where an event has words of the tool.
const ERROR: &str = "error";
const PHASE: &str = "current_phase";
const PERCENT: &str = "progress_percent";

/// That a job goes on outside is no error.
fn without_waiting(event: &mut JobEvent) {
    let waits = event.data.get(ERROR).is_some_and(|error| WaitingOutside::read(error).is_some());
    if let Some(data) = event.data.as_object_mut().filter(|_| waits) {
        data.remove(ERROR);
    }
}

fn tells_words(event: &JobEvent) -> bool {
    [ERROR, PHASE, PERCENT].iter().any(|name| event.data.get(name).is_some_and(|words| !words.is_null()))
}

fn mask_event(mask: &ReaderMask<'_>, event: &mut JobEvent) {
    mask.mask_told(event.data.get_mut(ERROR), None);
    event.data.get_mut(PHASE).filter(|phase| phase.is_string()).into_iter().for_each(|phase| mask.mask(phase));
    event.data.get_mut(PERCENT).filter(|_| mask.withholds()).into_iter().for_each(|percent| *percent = Value::Null);
}

/// Of the answer only what the tool has said, and where something of that is missing.
fn mask_answer(mask: &ReaderMask<'_>, answer: &mut Value) {
    answer.get_mut("result").into_iter().for_each(|said| mask.mask(said));
    if mask.withholds() {
        answer.pointer_mut("/execution_metadata/truncation").into_iter().for_each(|cut| *cut = Value::Null);
    }
}

fn mask_record(mask: &ReaderMask<'_>, record: &mut JobRecord) {
    if mask.withholds() {
        record.progress_percent = None;
    }
    mask.mask_told(record.error.as_mut(), record.phase.as_mut());
}

/// Whoever works for the home tenant with a right to look may name other tenants.
fn administers_all(caller: &Principal) -> bool {
    caller.tenant().is_home() && caller.may(Action::SeeJobs)
}

/// What an id means to this caller.
pub(super) fn key_for(caller: &Principal, tenant: Option<&TenantId>, id: InvocationId) -> Result<JobKey, Refusal> {
    Ok(JobKey { tenant: tenant_named(caller, tenant)?.clone(), id })
}

/// The tenant whose jobs are meant. To name another one is refused, whether it exists or not, and never taken for one's own.
fn tenant_named<'a>(caller: &'a Principal, asked: Option<&'a TenantId>) -> Result<&'a TenantId, Refusal> {
    match asked {
        Some(other) if other != caller.tenant() && !administers_all(caller) => Err(elsewhere()),
        Some(named) => Ok(named),
        None => Ok(caller.tenant()),
    }
}

/// One's own jobs, and those of the tenant with a right to look (JOBS-3).
fn may_see(caller: &Principal, record: &JobRecord) -> bool {
    record.owner == caller.owner() || caller.may(Action::SeeJobs)
}

pub(super) fn unknown(id: InvocationId) -> Refusal {
    Refusal::new(ErrorCode::E3702, format!("there is no job `{id}`"))
        .hint("check the id; only calls that were submitted with `async_mode`, or went on in the background, are kept")
}

/// A call of the ledger that never was a job.
fn only_a_call(entry: &LedgerEntry) -> Refusal {
    let id = entry.intent.invocation;
    let (stands, hint) = match entry.state {
        EntryState::InFlight => {
            ("runs", "only whoever made it can end it; the same call with the same key waits for its answer".to_owned())
        }
        EntryState::Unknown => {
            ("has an outcome that nobody knows", format!("find out, then say so: {}", resolve_command(id)))
        }
        EntryState::Done => {
            ("is done", format!("`gantry jobs show {id}` says how; with its key it answers the same again"))
        }
        EntryState::FailedClean => {
            ("came to nothing", "make the call again, with the same key if it had one".to_owned())
        }
    };
    Refusal::new(ErrorCode::E3702, format!("`{id}` is no job but a call that its caller waited for; it {stands}"))
        .hint(hint)
}
