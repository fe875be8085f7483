//! Finding the state from which a call goes on: the one that was named, or the newest, and past damaged ones to the next.
//! (CKPT-011, CKPT-013, CKPT-014)
//!
//! Invariants
//! - RESUME-1: a call goes on from a state of the same tenant, owner and tool, and of the same major version.
//! - RESUME-2: a damaged checkpoint is passed over for the newest intact one that is older. One of an unknown schema version
//!   is not: whoever wrote it knew more, and going back behind it could undo what was done since.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use contract::version::Version;
use policy::{Action, Caller};
use ports::checkpoint_store::{CheckpointHead, CheckpointId, CheckpointStore, LIST_MAX, ListPage, SealedCheckpoint};
use ports::executor::ResumePoint;
use ports::tool_version::ToolVersion;

use super::codec::{self, CodecError, DeltaBase};
use super::record::CheckpointRecord;
use super::{Checkpoints, none_kept, not_there};
use crate::invoke::Kernel;

/// A state to go on from.
#[derive(Debug, Clone)]
pub(crate) struct ResumedState {
    pub(crate) record: CheckpointRecord,
    pub(super) base: DeltaBase,
}

impl ResumedState {
    /// As the tool is told.
    pub(crate) fn point(&self) -> Arc<ResumePoint> {
        let CheckpointRecord { head, state } = &self.record;
        Arc::new(ResumePoint {
            checkpoint_id: head.id.to_string(),
            invocation_id: head.invocation,
            saved: state.clone(),
        })
    }
}

impl Kernel {
    /// The newest intact checkpoint of an invocation, from which another attempt of it can go on: hand its id over as
    /// `checkpoint_config.resume_from_checkpoint_id`, under the same invocation id.
    ///
    /// # Errors
    /// E3905 if the newest was written by a later release, E3001 if the store does not answer.
    pub async fn newest_checkpoint(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
    ) -> Result<Option<CheckpointId>, Refusal> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(None) };
        let found = checkpoints.newest_intact(tenant, invocation, None).await;
        Ok(found.map_err(|error| error.refusal())?.map(|resumed| resumed.record.head.id))
    }

    /// What a call goes on from, if it wants to.
    pub(crate) async fn resumed(
        &self,
        caller: &Caller,
        tool: &ToolVersion,
        own: InvocationId,
        wanted: Option<CheckpointId>,
    ) -> Result<Option<ResumedState>, Refusal> {
        let Some(id) = wanted else { return Ok(None) };
        let checkpoints = self.checkpoints.as_ref().ok_or_else(none_kept)?;
        let resumed = checkpoints.restore(caller, id).await?;
        let head = &resumed.record.head;
        if head.tool != tool.id {
            return Err(not_there(&id.to_string()));
        }
        if !goes_on(&head.version, &tool.version) {
            return Err(Refusal::new(
                ErrorCode::E3905,
                format!("`{}` {} cannot go on from a state of its version {}", tool.id, tool.version, head.version),
            )
            .hint(format!("call it with `tool_version` {}, or from the beginning", head.version))
            .retryable(false));
        }
        if head.invocation != own && checkpoints.is_running(&head.tenant, head.invocation).await? {
            return Err(Refusal::new(ErrorCode::E3908, "the call that saved this checkpoint is still running")
                .hint("wait for its end, or cancel it first"));
        }
        Ok(Some(resumed))
    }
}

impl Checkpoints {
    /// The checkpoint with this id, or the newest intact one before it.
    async fn restore(&self, caller: &Caller, id: CheckpointId) -> Result<ResumedState, Refusal> {
        let chain = self.store.chain(caller.tenant(), id).await.map_err(|error| error.refusal())?;
        let head = chain.first().map(|first| first.head.clone());
        let head = head.filter(|head| is_of(caller, head)).ok_or_else(|| not_there(&id.to_string()))?;
        match opened(chain).await {
            Ok(resumed) => Ok(resumed),
            Err(CodecError::Corrupt) => {
                tracing::warn!(checkpoint = %id, invocation = %head.invocation, "a checkpoint is damaged; an earlier one is looked for");
                let earlier = self.newest_intact(caller.tenant(), head.invocation, Some(id)).await;
                let earlier = earlier.map_err(|error| error.refusal())?;
                // CKPT-B, asked again: this is read from a store that has shown to be damaged.
                earlier
                    .filter(|resumed| is_of(caller, &resumed.record.head) && resumed.record.head.tool == head.tool)
                    .ok_or_else(|| CodecError::Corrupt.refusal())
            }
            Err(error) => Err(error.refusal()),
        }
    }

    /// The newest that can be opened, of those after `after` in the list of an invocation.
    pub(super) async fn newest_intact(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        after: Option<CheckpointId>,
    ) -> Result<Option<ResumedState>, FindError> {
        let store: &dyn CheckpointStore = &*self.store;
        let listed = store.list(tenant, invocation, ListPage { after, limit: LIST_MAX }).await?;
        for one in listed {
            let id = one.head.id;
            match opened(store.chain(tenant, id).await?).await {
                Ok(resumed) => return Ok(Some(resumed)),
                Err(error @ CodecError::UnknownVersion { .. }) => return Err(FindError::Codec(error)),
                Err(error) => {
                    tracing::warn!(checkpoint = %id, %invocation, %error, "a checkpoint is passed over");
                }
            }
        }
        Ok(None)
    }
}

/// Why no checkpoint could be found.
#[derive(Debug, thiserror::Error)]
pub(super) enum FindError {
    #[error(transparent)]
    Codec(CodecError),
    #[error(transparent)]
    Store(#[from] ports::registry_store::StoreError),
}

impl FindError {
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Self::Codec(error) => error.refusal(),
            Self::Store(error) => error.refusal(),
        }
    }
}

/// Unpacking takes milliseconds, during which this thread has others to serve.
pub(super) async fn opened(chain: Vec<SealedCheckpoint>) -> Result<ResumedState, CodecError> {
    let opened = tokio::task::spawn_blocking(move || codec::open(&chain)).await;
    let (record, base) = opened.map_err(|_| CodecError::Corrupt)??;
    Ok(ResumedState { record, base })
}

/// May this caller go on from it, or see it?
pub(super) fn is_of(caller: &Caller, head: &CheckpointHead) -> bool {
    head.owner == caller.owner() || caller.may(Action::ManageJobs)
}

/// Can a version go on from what another has saved? Within one major version it must (0.x: within one minor).
fn goes_on(saved: &Version, running: &Version) -> bool {
    saved.major() == running.major() && (saved.major() > 0 || saved.minor() == running.minor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_outlives_minor_versions_only() {
        let cases = [
            ("1.2.3", "1.2.3", true),
            ("1.2.3", "1.9.0", true),
            ("1.9.0", "1.2.3", true),
            ("1.2.3", "2.0.0", false),
            ("0.1.0", "0.1.9", true),
            ("0.1.0", "0.2.0", false),
        ];
        for (saved, running, expected) in cases {
            let version = |text| Version::parse(text).unwrap();
            assert_eq!(goes_on(&version(saved), &version(running)), expected, "{saved} {running}");
        }
    }
}
