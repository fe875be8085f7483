//! Tool folders, looked at on demand: who may ask for it. What is found is published by whoever loads folders, and recorded
//! there as every publication is.

use contract::error::Refusal;
use policy::Action;
use ports::actor::Actor;

use crate::invoke::Kernel;

impl Kernel {
    /// May this caller have the tool folders of the installation looked at?
    pub async fn may_load_folders(&self, actor: Actor<'_>) -> Result<(), Refusal> {
        let caller = self.permitted(actor, Action::PublishTool).await?;
        self.of_the_installation(actor, &caller).await
    }
}
