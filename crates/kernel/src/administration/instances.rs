//! Who runs beside this server: who may know. What is known is the `crew`'s.

use contract::error::Refusal;
use policy::Action;

use super::Actor;
use crate::invoke::Kernel;

impl Kernel {
    /// May this caller know which instances there are? Whoever runs the installation may, which is who may change its log.
    pub async fn may_see_instances(&self, actor: Actor<'_>) -> Result<(), Refusal> {
        let caller = self.permitted(actor, Action::ManageLog).await?;
        self.of_the_installation(actor, &caller).await
    }
}
