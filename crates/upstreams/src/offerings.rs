//! Resources, prompts and completions of servers, for those of their callers whom the kernel lets through.
//!
//! A tenant has its own servers and those of the home tenant; of two with one name its own counts. Only servers whose entry
//! says `resources` or `prompts` are asked at all.

use async_trait::async_trait;
use contract::error::Refusal;
use contract::ids::TenantId;
use kernel::ports::companion::Companion;
use kernel::ports::offerings::{Offering, OfferingRequest, Offerings, unknown_server};
use serde_json::Value;

use crate::catalogue::namespace;
use crate::upstreams::Upstreams;

impl Upstreams {
    fn owner(&self, tenant: &TenantId, server: &str) -> Result<TenantId, Refusal> {
        let home = TenantId::home();
        let owner = [tenant, &home].into_iter().find(|owner| self.definition(owner, server).is_ok());
        owner.cloned().ok_or_else(|| unknown_server(server))
    }
}

#[async_trait]
impl Offerings for Upstreams {
    fn servers(&self, tenant: &TenantId) -> Vec<(String, String)> {
        let mut servers: Vec<(String, String)> = self
            .definitions()
            .iter()
            .filter(|definition| definition.tenant == *tenant || definition.tenant.is_home())
            .filter(|definition| definition.spec.resources || definition.spec.prompts)
            .map(|definition| (definition.name.clone(), namespace(&definition.name, Some(&definition.spec))))
            .collect();
        servers.sort();
        servers.dedup_by(|a, b| a.0 == b.0);
        servers
    }

    async fn list(&self, tenant: &TenantId, server: &str, what: Offering) -> Result<Vec<Value>, Refusal> {
        let owner = self.owner(tenant, server)?;
        let spec = &self.definition(&owner, server)?.spec;
        // A server may offer one and not the other; that is no fault to be logged.
        match what {
            Offering::Resources if spec.resources => self.list_resources(&owner, server, tenant).await,
            Offering::ResourceTemplates if spec.resources => self.list_resource_templates(&owner, server, tenant).await,
            Offering::Prompts if spec.prompts => self.list_prompts(&owner, server, tenant).await,
            Offering::Resources | Offering::ResourceTemplates | Offering::Prompts => Ok(Vec::new()),
        }
    }

    async fn ask(
        &self,
        tenant: &TenantId,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        _: &dyn Companion,
    ) -> Result<Value, Refusal> {
        let owner = self.owner(tenant, server)?;
        match request {
            OfferingRequest::ReadResource => {
                let uri = parameters.get("uri").and_then(Value::as_str).unwrap_or_default();
                self.read_resource(&owner, server, tenant, uri).await
            }
            OfferingRequest::GetPrompt => self.get_prompt(&owner, server, tenant, parameters).await,
            OfferingRequest::Complete => self.complete(&owner, server, tenant, parameters).await,
        }
    }
}
