//! Tools that people take out of use and put back, whatever kind they are. (REG-024)
//!
//! The store has the truth, so that it survives and every instance knows; what calls and listings ask is
//! `ToolAvailability`, which is told of every change. A tool that is quarantined because its server changed it is none of
//! these: that is lifted by looking at the change (`upstreams`).
//!
//! What the installation took out of use, a tenant's people neither put back nor hold for another reason: the store decides
//! that, because another instance may have taken the tool out a moment ago.

use std::collections::HashMap;
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use ports::registry_store::{QuarantineChange, StoreError, ToolQuarantine};

use super::service::shared;
use super::{RegisteredTool, Registry};
use crate::availability::QuarantinedTools;

impl Registry {
    /// Reads what other instances have taken out of use.
    pub(super) async fn reload_quarantines(&self) -> Result<(), StoreError> {
        self.show(by_tool(self.store.quarantines().await?));
        Ok(())
    }

    /// Takes a tool of the tenant out of use.
    pub(crate) async fn quarantine(
        &self,
        tenant: &TenantId,
        name: &str,
        (reason, by, by_tenant): (String, &Subject, &TenantId),
        may_know: impl Fn(&RegisteredTool) -> bool,
    ) -> Result<ToolQuarantine, Refusal> {
        let tool = self.own_tool(tenant, name, &may_know)?;
        let _turn = self.turns.of(&tool).await;
        let (by, by_tenant) = (by.clone(), by_tenant.clone());
        let new = ToolQuarantine { tenant: tenant.clone(), tool, reason, by, by_tenant, at: self.clock.now() };
        if self.store.put_quarantine(&new).await.map_err(|error| error.refusal())? != QuarantineChange::Done {
            return Err(withheld(&new.tool));
        }
        self.change(|held| {
            held.insert((new.tenant.clone(), new.tool.clone()), Arc::new(new.clone()));
        });
        Ok(new)
    }

    /// Puts a tool of the tenant back into use, for people of the tenant `by`. Answers its id.
    pub(crate) async fn release(
        &self,
        tenant: &TenantId,
        name: &str,
        by: &TenantId,
        may_know: impl Fn(&RegisteredTool) -> bool,
    ) -> Result<ToolId, Refusal> {
        let tool = self.own_tool(tenant, name, &may_know)?;
        let _turn = self.turns.of(&tool).await;
        let change = self.store.remove_quarantine(tenant, &tool, by).await.map_err(|error| error.refusal())?;
        if change == QuarantineChange::Withheld {
            return Err(withheld(&tool));
        }
        self.change(|held| {
            held.remove(&(tenant.clone(), tool.clone()));
        });
        if change == QuarantineChange::Done {
            return Ok(tool);
        }
        Err(Refusal::new(ErrorCode::E3408, format!("nobody has put `{tool}` into quarantine"))
            .hint("a tool whose server changed it is released by accepting the change: `gantry server review`"))
    }

    /// The id of a tool that the tenant itself may change.
    fn own_tool(
        &self,
        tenant: &TenantId,
        name: &str,
        may_know: impl Fn(&RegisteredTool) -> bool,
    ) -> Result<ToolId, Refusal> {
        let snapshot = self.snapshot();
        let found = snapshot.find(tenant, name).filter(|tool| may_know(tool));
        let tool = found.ok_or_else(|| snapshot.not_found(tenant, name, &may_know))?;
        if tool.tenant == *tenant { Ok(tool.id.clone()) } else { Err(shared(&tool.id)) }
    }

    fn change(&self, change: impl Fn(&mut QuarantinedTools)) {
        self.quarantined.rcu(|held| {
            let mut held = QuarantinedTools::clone(held);
            change(&mut held);
            held
        });
        self.tell_availability();
    }

    fn show(&self, held: QuarantinedTools) {
        self.quarantined.store(Arc::new(held));
        self.tell_availability();
    }

    fn tell_availability(&self) {
        self.availability.set_quarantined(&self.quarantined.load());
    }
}

/// As they are looked for.
pub(super) fn by_tool(all: Vec<ToolQuarantine>) -> QuarantinedTools {
    let keyed = all.into_iter().map(|held| ((held.tenant.clone(), held.tool.clone()), Arc::new(held)));
    keyed.collect::<HashMap<_, _>>()
}

/// The one means that the installation has against a tool of a tenant must not last only until the tenant looks.
fn withheld(tool: &ToolId) -> Refusal {
    Refusal::new(ErrorCode::E3206, format!("`{tool}` was taken out of use by the administrators of the installation"))
        .hint("only they put it back into use: ask them")
}
