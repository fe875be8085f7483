//! Who may know which instances run beside this server, and who may read its metrics. What is known of instances is the
//! `membership`'s.

use contract::error::Refusal;
use policy::{Action, Caller};
use ports::actor::Actor;

use crate::invoke::Kernel;

impl Kernel {
    /// May this caller know which instances there are? Whoever runs the installation may, which is who may change its log.
    pub async fn may_see_instances(&self, actor: Actor<'_>) -> Result<(), Refusal> {
        let caller = self.permitted(actor, Action::ManageLog).await?;
        self.of_the_installation(actor, &caller).await
    }

    /// May this caller read the metrics of the server? They count every tenant's calls, so only those may who look after the
    /// whole installation: who may see the use of others, in the home tenant.
    pub async fn may_see_metrics(&self, actor: Actor<'_>) -> Result<(), Refusal> {
        let caller = self.permitted(actor, Action::SeeUsage).await?;
        self.of_the_installation(actor, &caller).await
    }
}

/// The same question where nobody is refused, and nothing recorded: a caller who may not is told less.
pub fn sees_metrics(caller: &Caller) -> bool {
    caller.may(Action::SeeUsage) && caller.tenant().is_home()
}
