//! What a call has to do with checkpoints, from its wish to its answer. Carried along in the facts of the call, because it
//! concerns validation (the wish), execution (going on, saving) and the answer alike.

use std::sync::Arc;

use contract::envelope::CheckpointOptions;
use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use policy::Caller;
use ports::checkpoint_store::{CheckpointId, attempt_fence};
use ports::executor::{Executor, ResumePoint};
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};

use super::Attempt;
use super::keeper::{CheckpointKeeper, CheckpointOwner, CheckpointSummary};
use super::plan::{CheckpointPlan, wish_shape};
use crate::invoke::Kernel;

/// The member of a refusal's details that names what a failed call can be resumed from.
pub const CHECKPOINT_REF: &str = "checkpoint_ref";

/// The checkpoints of one call.
#[derive(Debug, Default)]
pub(crate) struct CallCheckpoints {
    wish: CheckpointOptions,
    resume_from: Option<CheckpointId>,
    keeper: Option<Arc<CheckpointKeeper>>,
    /// Of the attempt at the job that the call is ([`attempt_fence`]); none if it is no job.
    fence: Option<u64>,
    /// There once the call has ended.
    pub(crate) summary: CheckpointSummary,
}

impl CallCheckpoints {
    /// Of the attempt at a job that has this fencing token.
    pub(crate) fn of_attempt(token: u64) -> Self {
        Self { fence: Some(attempt_fence(token)), ..Self::default() }
    }

    /// What the caller wants, if it can be wanted.
    pub(crate) fn wish(&mut self, wish: Option<&CheckpointOptions>) -> Result<(), Refusal> {
        if let Some(wish) = wish {
            self.resume_from = wish_shape(wish)?;
            self.wish = wish.clone();
        }
        Ok(())
    }

    /// Can the tool do what the caller wants kept? A tool that has no way to save would be called as if it had.
    pub(crate) fn possible(&self, executor: &dyn Executor, tool: &ToolVersion) -> Result<(), Refusal> {
        let saves = executor.saves(&tool.manifest);
        let has_interval = self.wish.checkpoint_interval_seconds.is_some();
        if has_interval && (!saves || CheckpointPlan::of(&self.wish, &tool.manifest).is_none()) {
            let said = "`checkpoint_config.checkpoint_interval_seconds` does nothing: the call saves no checkpoints";
            return Err(Refusal::new(ErrorCode::E3010, said)
                .hint("leave it out, or set `enable_checkpointing` for a tool that can save; the call was not run"));
        }
        if self.wish.enable_checkpointing != Some(true) || saves {
            return Ok(());
        }
        let said = format!("`{}` {} has no way to save checkpoints", tool.id, tool.version);
        Err(Refusal::new(ErrorCode::E3010, said).hint(
            "leave `checkpoint_config.enable_checkpointing` out; tools that speak `gantry/1` and WASM components save. The call was not run",
        ))
    }

    /// Before the tool starts, and before anything is counted: finds what it goes on from, and begins to keep.
    pub(crate) async fn begin(
        &mut self,
        kernel: &Kernel,
        caller: &Caller,
        tool: &ToolVersion,
        invocation: InvocationId,
    ) -> Result<Option<Arc<ResumePoint>>, Refusal> {
        let Some(checkpoints) = &kernel.checkpoints else {
            if self.wish.enable_checkpointing == Some(true) || self.resume_from.is_some() {
                return Err(Refusal::new(ErrorCode::E3010, "`checkpoint_config` is not available on this server")
                    .hint("leave `checkpoint_config` out; the call was not run"));
            }
            return Ok(None);
        };
        let plan = CheckpointPlan::of(&self.wish, &tool.manifest);
        // Before the state is read, so that an attempt which lost the invocation cannot add to it afterwards.
        let attempt = match &plan {
            None => None,
            Some(_) => Some(checkpoints.begin(caller.tenant(), invocation, self.fence).await?),
        };
        let resumed = kernel.resumed(caller, tool, invocation, self.resume_from).await?;
        if let Some((plan, Attempt { fence, underway })) = plan.zip(attempt) {
            let whose = CheckpointOwner {
                tenant: caller.tenant().clone(),
                invocation,
                owner: caller.owner(),
                tool: tool.id.clone(),
                version: tool.version.clone(),
                fence,
            };
            let ports = (Arc::clone(&kernel.parts.clock), Arc::clone(&kernel.parts.entropy));
            let begun = (resumed.as_ref(), underway);
            self.keeper = Some(Arc::new(CheckpointKeeper::new(Arc::clone(checkpoints), plan, whose, begun, ports)));
        }
        Ok(resumed.map(|resumed| resumed.point()))
    }

    pub(crate) fn keeper(&self) -> Option<Arc<CheckpointKeeper>> {
        self.keeper.clone()
    }

    /// The call has ended. A failed one says in its details what it can be resumed from.
    pub(crate) async fn conclude<T>(&mut self, carried: &mut Result<T, Refusal>) {
        let Some(keeper) = self.keeper.take() else { return };
        self.summary = keeper.conclude(carried.is_ok()).await;
        let (Some(newest), Err(refusal)) = (self.summary.newest, carried) else { return };
        match refusal.details.as_deref_mut() {
            None => refusal.details = Some(Box::new(json!({ CHECKPOINT_REF: newest.to_string() }))),
            Some(Value::Object(members)) => {
                members.insert(CHECKPOINT_REF.to_owned(), Value::String(newest.to_string()));
            }
            Some(_) => {}
        }
    }
}
