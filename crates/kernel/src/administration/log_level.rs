//! How much the server says in its log: who may know and change it. The log itself is not the kernel's.

use contract::error::Refusal;
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::AuditAction;

use crate::invoke::Kernel;

/// Characters of a level that its record repeats.
const NOTED_MAX: usize = 200;

impl Kernel {
    /// May this caller know the level of the log?
    pub async fn may_see_log_level(&self, actor: Actor<'_>) -> Result<(), Refusal> {
        let caller = self.permitted(actor, Action::ManageLog).await?;
        self.of_the_installation(actor, &caller).await
    }

    /// Changes the level of the log, by whoever keeps it, and records that.
    pub async fn change_log_level(
        &self,
        actor: Actor<'_>,
        level: &str,
        change: impl FnOnce(&str) -> Result<(), Refusal> + Send,
    ) -> Result<(), Refusal> {
        let caller = self.permitted(actor, Action::ManageLog).await?;
        self.of_the_installation(actor, &caller).await?;
        let slot = self.parts.recorder.reserve().await?;
        change(level)?;
        let noted: String = level.chars().filter(|c| !c.is_control()).take(NOTED_MAX).collect();
        let noted = self.parts.redactor.text(&noted).into_owned();
        slot.record_durably(self.act(actor, &caller, AuditAction::LogLevelChanged, None, Some(noted))).await?;
        Ok(())
    }
}
