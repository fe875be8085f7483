//! What people and callers do with checkpoints besides saving and resuming: look, name, roll back, delete; and the cleaning
//! of those whose time is over. Every act of somebody is recorded.
//!
//! Not here: starting the call that goes on from one (`invoke`, like every call).

use std::sync::Arc;

use contract::envelope::CheckpointKind;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditRecord};
use ports::checkpoint_store::{
    CheckpointHead, CheckpointId, LIST_MAX, ListPage, ListedCheckpoint, PromoteOutcome, SaveOutcome,
};

use super::codec::{self, CodecError};
use super::record::{CheckpointRecord, LABEL_CHARS_MAX};
use super::resume::{is_of, opened};
use super::{Checkpoints, ResumedState, none_kept, not_there};
use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::phases::ReaderMask;

/// Checkpoints freed in one transaction, and transactions of one cleaning.
const PRUNE_BATCH: usize = 500;
const PRUNE_ROUNDS_MAX: usize = 2_000;

/// A part of the list of an invocation's checkpoints, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointPage {
    pub checkpoints: Vec<ListedCheckpoint>,
    /// Ask for those after this one to go on.
    pub next: Option<CheckpointId>,
}

impl Kernel {
    /// The checkpoints of an invocation, the newest first. Those of a foreign or unknown invocation are an empty list.
    pub async fn checkpoints(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        invocation: InvocationId,
        page: ListPage,
    ) -> Result<CheckpointPage, Refusal> {
        let caller = self.recognise(actor).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        let checkpoints = self.checkpoints.as_ref().ok_or_else(none_kept)?;
        let limit = page.limit.clamp(1, LIST_MAX);
        let mut listed = checkpoints.list(&tenant, invocation, ListPage { limit, ..page }).await?;
        let is_full = listed.len() == limit;
        listed.retain(|one| is_of(&caller, &one.head) || caller.may(Action::SeeJobs));
        let next = listed.last().filter(|_| is_full).map(|last| last.head.id);
        // What a tool calls its states are words of the tool.
        if let Some(head) = listed.iter().map(|one| &one.head).find(|head| head.label.is_some()) {
            let owns = head.owner == caller.owner();
            let mask = ReaderMask::of(self, &caller, &tenant, &head.tool, owns).await;
            listed.iter_mut().filter_map(|one| one.head.label.as_mut()).for_each(|label| mask.mask_text(label));
        }
        Ok(CheckpointPage { checkpoints: listed, next })
    }

    /// The newest intact checkpoint of an invocation, for a caller who wants to go on from there.
    pub async fn resumable(&self, actor: Actor<'_>, invocation: InvocationId) -> Result<CheckpointHead, Refusal> {
        let caller = self.recognise(actor).await?;
        let tenant = caller.tenant().clone();
        Ok(self.newest_of(&caller, &tenant, invocation).await?.record.head)
    }

    /// Keeps the newest state of an invocation under a name, until it is deleted.
    pub async fn name_checkpoint(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        invocation: InvocationId,
        label: &str,
    ) -> Result<CheckpointHead, Refusal> {
        let label = checked_label(label)?;
        let (caller, tenant) = self.keeper_of_checkpoints(actor, tenant).await?;
        let checkpoints = self.checkpoints.as_ref().ok_or_else(none_kept)?;
        let ResumedState { record, .. } = self.newest_of(&caller, &tenant, invocation).await?;
        let page = ListPage { after: None, limit: LIST_MAX };
        if checkpoints.list(&tenant, invocation, page).await?.len() == LIST_MAX {
            return Err(Refusal::new(ErrorCode::E3906, format!("a call has at most {LIST_MAX} checkpoints"))
                .hint("delete some of them first")
                .retryable(false));
        }
        let slot = self.parts.recorder.reserve().await?;
        let now = self.clock().now();
        let parent = Some(record.head.id);
        let head = CheckpointHead {
            id: CheckpointId::new(self.entropy(), now),
            kind: CheckpointKind::Named,
            label: Some(label),
            parent,
            saved_at: now,
            ..record.head
        };
        let record = Arc::new(CheckpointRecord { head, state: record.state });
        let sealing = Arc::clone(&record);
        let sealed = tokio::task::spawn_blocking(move || codec::seal(&sealing, None, 0)).await;
        let sealed = sealed.unwrap_or(Err(CodecError::Corrupt));
        let (sealed, _) = sealed.map_err(|error| error.refusal())?;
        match checkpoints.store.save(&sealed, None, None).await.map_err(|error| error.refusal())? {
            SaveOutcome::Kept => {}
            SaveOutcome::BaseGone | SaveOutcome::Foreign | SaveOutcome::Fenced => {
                return Err(Refusal::new(ErrorCode::E3908, "the call has gone on meanwhile").hint("look again"));
            }
        }
        slot.record_durably(self.noted(actor, &caller, &record.head, "named")).await?;
        Ok(record.head.clone())
    }

    /// Makes an older checkpoint the newest of its invocation, from which the next attempt goes on. Nothing is taken away:
    /// what was the newest is kept as long as what is rolled back to.
    pub async fn roll_back(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        invocation: InvocationId,
        id: &str,
    ) -> Result<CheckpointHead, Refusal> {
        let (caller, tenant) = self.keeper_of_checkpoints(actor, tenant).await?;
        let checkpoints = self.checkpoints.as_ref().ok_or_else(none_kept)?;
        let (id, chain) = checkpoints.chain_of(&caller, &tenant, invocation, id).await?;
        let still_running = || {
            Refusal::new(ErrorCode::E3908, "the call is still running, and would save over it")
                .hint("wait for its end, or cancel it first")
        };
        // Until it is done: what begins here meanwhile hears that the invocation is taken.
        let underway = checkpoints.running.begin(&tenant, invocation);
        if !underway.is_first() {
            return Err(still_running());
        }
        // One that cannot be gone on from must not become the newest.
        let ResumedState { record, .. } = opened(chain).await.map_err(|error| error.refusal())?;
        let slot = self.parts.recorder.reserve().await?;
        let keep = checkpoints.retention.rolled_back;
        // On a store that others have, what runs elsewhere is asked about in the same act.
        let promoted = checkpoints.store.promote(&tenant, invocation, id, keep, checkpoints.is_shared).await;
        match promoted.map_err(|error| error.refusal())? {
            PromoteOutcome::Newest => {}
            PromoteOutcome::Running => return Err(still_running()),
            PromoteOutcome::NotThere => return Err(not_there(&id.to_string())),
        }
        slot.record_durably(self.noted(actor, &caller, &record.head, "rolled back to")).await?;
        Ok(record.head)
    }

    /// Deletes a checkpoint.
    pub async fn delete_checkpoint(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        invocation: InvocationId,
        id: &str,
    ) -> Result<(), Refusal> {
        let (caller, tenant) = self.keeper_of_checkpoints(actor, tenant).await?;
        let checkpoints = self.checkpoints.as_ref().ok_or_else(none_kept)?;
        let (id, chain) = checkpoints.chain_of(&caller, &tenant, invocation, id).await?;
        let slot = self.parts.recorder.reserve().await?;
        let deleted = checkpoints.store.delete(&tenant, invocation, id).await.map_err(|error| error.refusal())?;
        match chain.first().filter(|_| deleted) {
            None => Err(not_there(&id.to_string())),
            Some(first) => {
                slot.record_durably(self.noted(actor, &caller, &first.head, "deleted")).await?;
                Ok(())
            }
        }
    }

    /// Frees the room of checkpoints whose time is over; answers of how many. For a timer: once a day is enough, because
    /// what is over is not shown meanwhile.
    pub async fn prune_checkpoints(&self) -> Result<usize, Refusal> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(0) };
        let mut freed: usize = 0;
        for _ in 0..PRUNE_ROUNDS_MAX {
            let round = checkpoints.store.prune(PRUNE_BATCH).await.map_err(|error| error.refusal())?;
            freed = freed.saturating_add(round);
            if round == 0 {
                break;
            }
        }
        if freed > 0 {
            tracing::info!(freed, "checkpoints whose time was over are gone");
        }
        Ok(freed)
    }

    async fn newest_of(
        &self,
        caller: &Principal,
        tenant: &TenantId,
        invocation: InvocationId,
    ) -> Result<ResumedState, Refusal> {
        let checkpoints = self.checkpoints.as_ref().ok_or_else(none_kept)?;
        let nothing = || {
            Refusal::new(ErrorCode::E3903, format!("there is no checkpoint of invocation `{invocation}` here"))
                .hint("it may have succeeded, have saved nothing, or be too long ago")
                .retryable(false)
        };
        let newest = checkpoints.newest_intact(tenant, invocation, None).await.map_err(|error| error.refusal())?;
        newest.filter(|newest| is_of(caller, &newest.record.head)).ok_or_else(nothing)
    }

    /// Recognises somebody who wants to change something; what exactly is theirs is asked of each checkpoint.
    async fn keeper_of_checkpoints(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
    ) -> Result<(Arc<Principal>, TenantId), Refusal> {
        let caller = self.recognise(actor).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        Ok((caller, tenant))
    }

    fn noted(&self, actor: Actor<'_>, caller: &Principal, head: &CheckpointHead, what: &str) -> AuditRecord {
        let note = format!("{what} {}", head.id);
        AuditRecord {
            invocation_id: Some(head.invocation),
            tool: Some(head.tool.clone()),
            version: Some(head.version.clone()),
            ..self.act(actor, caller, AuditAction::CheckpointsChanged, None, Some(note))
        }
    }
}

impl Checkpoints {
    async fn list(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        page: ListPage,
    ) -> Result<Vec<ListedCheckpoint>, Refusal> {
        self.store.list(tenant, invocation, page).await.map_err(|error| error.refusal())
    }

    /// A checkpoint that this caller may do something with.
    async fn chain_of(
        &self,
        caller: &Principal,
        tenant: &TenantId,
        invocation: InvocationId,
        id: &str,
    ) -> Result<(CheckpointId, Vec<ports::checkpoint_store::SealedCheckpoint>), Refusal> {
        let parsed: CheckpointId = id.parse().map_err(|_| not_there(id))?;
        let chain = self.store.chain(tenant, parsed).await.map_err(|error| error.refusal())?;
        let mine = chain.first().is_some_and(|first| first.head.invocation == invocation && is_of(caller, &first.head));
        if mine { Ok((parsed, chain)) } else { Err(not_there(id)) }
    }
}

fn checked_label(label: &str) -> Result<String, Refusal> {
    let fine =
        !label.trim().is_empty() && label.chars().count() <= LABEL_CHARS_MAX && !label.chars().any(char::is_control);
    if fine {
        return Ok(label.to_owned());
    }
    Err(Refusal::new(ErrorCode::E3004, "the label of a checkpoint has a wrong shape")
        .hint(format!("use 1 to {LABEL_CHARS_MAX} printable characters")))
}
