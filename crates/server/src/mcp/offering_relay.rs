//! What servers behind Gantry offer besides tools, passed on: resources, templates, prompts, completions.
//!
//! Lists are asked for when they are wanted and not kept; a server that does not answer is left out of them. A server is
//! asked for as much as the caller may have (`Kernel::offering_servers`) and the path shows: a toolset shows a server's
//! resources or prompts if it has `NAMESPACE.resources` or `NAMESPACE.prompts`. In discovery nothing of servers is passed on.
//!
//! What servers say is a stranger's: what does not have the shape it must have is left out.
//!
//! Not here: asking a server for one of them (`offering_rounds`), addresses (`addresses`), names (`names`), news
//! (`subscriptions`), Gantry's own resources (`resources`).

use contract::error::Refusal;
use contract::ids::TenantId;
use kernel::offering_id;
use ports::offerings::{OfferedItem, OfferingKind, OfferingServer};
use rmcp::model::{Prompt, Resource, ResourceTemplate};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::config::McpMode;
use super::pages::KEY_BYTES_MAX;
use super::tool_list::is_in;
use super::{McpVisit, addresses, names, resources};
use crate::door::Door;

/// Something of a server that was asked for.
#[derive(Debug, Clone)]
pub(crate) struct RequestedOffering {
    pub(crate) server: OfferingServer,
    /// As the server has it.
    pub(crate) own: String,
    /// As the client has it.
    pub(crate) shown: String,
}

/// What is passed on to one visitor.
pub(crate) struct OfferingRelay<'a> {
    door: &'a Door,
    visit: &'a McpVisit,
}

impl<'a> OfferingRelay<'a> {
    pub(crate) fn at(door: &'a Door, visit: &'a McpVisit) -> Self {
        Self { door, visit }
    }

    /// The servers that offer something here.
    pub(crate) fn servers(&self) -> Vec<OfferingServer> {
        let config = &self.door.mcp().config;
        if config.mode == McpMode::Discovery {
            return Vec::new();
        }
        let mut servers = self.door.kernel().offering_servers(self.visit.caller.caller());
        if let Some(name) = &self.visit.toolset {
            let patterns = config.toolsets.get(&**name).map_or(&[][..], Vec::as_slice);
            let shows =
                |namespace: &str, what| offering_id(namespace, what).is_some_and(|id| is_in(Some(patterns), &id));
            for server in &mut servers {
                server.resources &= shows(&server.namespace, OfferingKind::Resources);
                server.prompts &= shows(&server.namespace, OfferingKind::Prompts);
            }
            servers.retain(|server| server.resources || server.prompts);
        }
        servers
    }

    /// The server of this name and owner, if its resources can be read here.
    pub(crate) fn readable(&self, name: &str, owner: &TenantId) -> Option<OfferingServer> {
        self.servers().into_iter().find(|server| server.resources && server.name == name && server.owner == *owner)
    }

    /// Whose resource an address means. Several servers without a namespace are asked which of them lists it.
    pub(crate) async fn resource_at(&self, uri: &str) -> Result<Option<RequestedOffering>, Refusal> {
        let mut servers = self.servers();
        servers.retain(|server| server.resources);
        let asked = |server: OfferingServer, own: String| RequestedOffering { server, own, shown: uri.to_owned() };
        if let Some((name, own)) = addresses::inward(uri) {
            return Ok(servers.into_iter().find(|server| server.name == name).map(|server| asked(server, own)));
        }
        if uri.len() > addresses::ADDRESS_BYTES_MAX || resources::is_ours(uri) {
            return Ok(None);
        }
        servers.retain(|server| server.namespace.is_empty());
        if servers.len() > 1 {
            let listed = self.offered(OfferingKind::Resources, &servers).await?;
            let lists = |one: &OfferedItem| one.item.get("uri").and_then(Value::as_str) == Some(uri);
            if let Some(name) = listed.iter().find(|one| lists(one)).map(|one| &one.server) {
                servers.retain(|server| server.name == *name);
            }
        }
        Ok(servers.into_iter().next().map(|server| asked(server, uri.to_owned())))
    }

    /// May an address mean a resource of some server? Says so without asking one.
    pub(crate) fn may_have(&self, uri: &str) -> bool {
        let named = addresses::inward(uri).map(|(name, _)| name);
        if named.is_none() && resources::is_ours(uri) {
            return false;
        }
        self.servers().iter().any(|server| {
            server.resources && named.as_ref().map_or(server.namespace.is_empty(), |name| server.name == *name)
        })
    }

    /// Whose prompt a name means. A name that was cut is looked up.
    pub(crate) async fn prompt_named(&self, name: &str) -> Result<Option<RequestedOffering>, Refusal> {
        let mut servers = self.servers();
        servers.retain(|server| server.prompts);
        let asked = |server: &OfferingServer, own: &str| RequestedOffering {
            server: server.clone(),
            own: own.to_owned(),
            shown: name.to_owned(),
        };
        let plain = names::plain_prompt(name).map(|(namespace, own)| {
            (servers.iter().filter(|server| server.namespace == namespace).collect::<Vec<_>>(), own)
        });
        if let Some(([server], own)) = plain.as_ref().map(|(servers, own)| (servers.as_slice(), own)) {
            return Ok(Some(asked(server, own)));
        }
        let bare: Vec<&OfferingServer> = servers.iter().filter(|server| server.namespace.is_empty()).collect();
        if let ([server], false) = (bare.as_slice(), names::is_cut(name)) {
            return Ok(Some(asked(server, name)));
        }
        for one in self.offered(OfferingKind::Prompts, &servers).await? {
            let own = one.item.get("name").and_then(Value::as_str).unwrap_or_default();
            if names::prompt(&one.namespace, own) == name
                && let Some(server) = servers.iter().find(|server| server.name == one.server)
            {
                return Ok(Some(asked(server, own)));
            }
        }
        Ok(None)
    }

    async fn offered(&self, what: OfferingKind, servers: &[OfferingServer]) -> Result<Vec<OfferedItem>, Refusal> {
        let wanted =
            |server: &OfferingServer| servers.iter().any(|known| known.name == server.name && known.offers(what));
        self.door.kernel().offered(self.visit.who.actor(), what, wanted).await
    }

    /// A list of one kind as clients see it, by key: server and what names it there.
    async fn list<T: DeserializeOwned>(
        &self,
        what: OfferingKind,
        show: impl Fn(&OfferingServer, &mut T) -> String,
    ) -> Result<Vec<(String, T)>, Refusal> {
        let servers = self.servers();
        let mut items = Vec::new();
        for one in self.offered(what, &servers).await? {
            let Some(server) = servers.iter().find(|server| server.name == one.server) else { continue };
            let Ok(mut item) = serde_json::from_value::<T>(one.item) else {
                tracing::debug!(server = %one.server, "a server offers something that is not described as it must be");
                continue;
            };
            let key = format!("{}\n{}", server.name, show(server, &mut item));
            if key.len() <= KEY_BYTES_MAX {
                items.push((key, item));
            }
        }
        items.sort_by(|left, right| left.0.cmp(&right.0));
        items.dedup_by(|later, first| later.0 == first.0);
        Ok(items)
    }

    pub(crate) async fn resources(&self) -> Result<Vec<(String, Resource)>, Refusal> {
        let show = |server: &OfferingServer, resource: &mut Resource| {
            let own = resource.uri.clone();
            resource.uri = addresses::outward(server, &own);
            own
        };
        self.list(OfferingKind::Resources, show).await
    }

    pub(crate) async fn templates(&self) -> Result<Vec<(String, ResourceTemplate)>, Refusal> {
        let show = |server: &OfferingServer, template: &mut ResourceTemplate| {
            let own = template.uri_template.clone();
            template.uri_template = addresses::outward_template(server, &own);
            own
        };
        self.list(OfferingKind::ResourceTemplates, show).await
    }

    pub(crate) async fn prompts(&self) -> Result<Vec<(String, Prompt)>, Refusal> {
        let show = |server: &OfferingServer, prompt: &mut Prompt| {
            let own = prompt.name.clone();
            prompt.name = names::prompt(&server.namespace, &own);
            own
        };
        self.list(OfferingKind::Prompts, show).await
    }
}

impl RequestedOffering {
    /// Server and address as the server has it.
    pub(crate) fn place(&self) -> (&str, &str) {
        (&self.server.name, &self.own)
    }

    /// The address as the client knows it, of something that the server has named.
    pub(crate) fn outward(&self, uri: &str) -> String {
        if uri == self.own { self.shown.clone() } else { addresses::outward(&self.server, uri) }
    }
}
