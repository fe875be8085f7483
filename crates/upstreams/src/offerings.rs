//! Resources, prompts and completions of servers, for those of their callers whom the kernel lets through.
//!
//! A tenant has its own servers and those of the home tenant; of two with one name its own counts. Only servers whose entry
//! says `resources` or `prompts` are asked at all.
//!
//! Not here: following what changes (`watched`).

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::TenantId;
use ports::offerings::{
    OfferingCaller, OfferingKind, OfferingNotice, OfferingRequest, OfferingServer, Offerings, ResourceWatch,
    unknown_server,
};
use ports::tool_companion::ToolCompanion;
use ports::tool_origin::ToolOrigin;
use serde_json::Value;
use tokio::sync::broadcast;

use crate::catalogue::namespace;
use crate::fault::INVALID_PARAMS;
use crate::upstreams::{ListTurn, UpstreamServers};

impl UpstreamServers {
    fn owner(&self, tenant: &TenantId, server: &str) -> Result<TenantId, Refusal> {
        let home = TenantId::home();
        let owner = [tenant, &home].into_iter().find(|owner| self.definition(owner, server).is_ok());
        owner.cloned().ok_or_else(|| unknown_server(server))
    }
}

#[async_trait]
impl Offerings for UpstreamServers {
    fn servers(&self, tenant: &TenantId) -> Vec<OfferingServer> {
        let mut servers: Vec<OfferingServer> = self
            .definitions()
            .iter()
            .filter(|definition| definition.tenant == *tenant || definition.tenant.is_home())
            .map(|definition| OfferingServer {
                name: definition.name.clone(),
                owner: definition.tenant.clone(),
                namespace: namespace(&definition.name, Some(&definition.spec)),
                resources: definition.spec.resources,
                prompts: definition.spec.prompts,
            })
            .collect();
        // A tenant's own hides its namesake, also when it offers nothing itself.
        servers.sort_by_key(|server| (server.name.clone(), server.owner != *tenant));
        servers.dedup_by(|later, first| later.name == first.name);
        servers.retain(|server| server.resources || server.prompts);
        servers
    }

    fn origin(&self, tenant: &TenantId, server: &str) -> Result<Option<Arc<ToolOrigin>>, Refusal> {
        let owner = self.owner(tenant, server)?;
        Ok(Some(Arc::clone(&self.definition(&owner, server)?.origin)))
    }

    async fn list(&self, tenant: &TenantId, server: &str, what: OfferingKind) -> Result<Vec<Value>, Refusal> {
        let owner = self.owner(tenant, server)?;
        let spec = &self.definition(&owner, server)?.spec;
        // A server may offer one and not the other; that is no fault to be logged.
        match what {
            OfferingKind::Resources if spec.resources => self.list_resources(&owner, server, tenant).await,
            OfferingKind::ResourceTemplates if spec.resources => {
                self.list_resource_templates(&owner, server, tenant).await
            }
            OfferingKind::Prompts if spec.prompts => self.list_prompts(&owner, server, tenant).await,
            OfferingKind::Resources | OfferingKind::ResourceTemplates | OfferingKind::Prompts => Ok(Vec::new()),
        }
    }

    async fn ask(
        &self,
        caller: &OfferingCaller,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        let owner = self.owner(&caller.tenant, server)?;
        let turn = turn_of(caller);
        match request {
            OfferingRequest::ReadResource => {
                let read = self.read_resource(&owner, server, turn, parameters, companion).await;
                read.map_err(|refusal| absent(refusal, server))
            }
            OfferingRequest::GetPrompt => self.get_prompt(&owner, server, turn, parameters, companion).await,
            OfferingRequest::CompletePrompt | OfferingRequest::CompleteResource => {
                self.complete(&owner, server, turn, parameters, companion).await
            }
        }
    }

    async fn watch(&self, caller: &OfferingCaller, server: &str, uri: &str) -> Result<ResourceWatch, Refusal> {
        let tenant = &caller.tenant;
        let owner = self.owner(tenant, server)?;
        self.begin_watching(&owner, server, turn_of(caller), uri).await.map_err(|refusal| absent(refusal, server))?;
        let shared = self.definition(&owner, server)?.spec.shareable;
        let serves = if shared { owner.clone() } else { tenant.clone() };
        self.watch_resource((owner, server.to_owned(), serves), uri)
    }

    fn notices(&self) -> broadcast::Receiver<OfferingNotice> {
        self.context.notices.follow()
    }
}

fn turn_of(caller: &OfferingCaller) -> ListTurn<'_> {
    ListTurn { tenant: &caller.tenant, agent: caller.agent.as_str() }
}

/// Servers of 2026-07-28 have no code of its own for a resource that is not there: its address is a wrong parameter to them.
fn absent(refusal: Refusal, server: &str) -> Refusal {
    if !matches!(refusal.reason.as_deref(), Some(RefusalReason::UpstreamError { code: INVALID_PARAMS })) {
        return refusal;
    }
    let absent = Refusal::new(ErrorCode::E3008, format!("the server `{server}` has no such resource")).retryable(false);
    Refusal { details: refusal.details, reason: refusal.reason, source: refusal.source, ..absent }
}
