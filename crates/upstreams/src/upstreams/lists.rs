//! What can be asked of a server besides calling its tools: its lists, its resources, its prompts. As the server gives it.
//!
//! All of it may be asked twice, so a connection that broke is asked once more.
//!
//! Invariants
//! - ULIST-1: lists are read to their end or refused: at most [`ITEMS_MAX`] items and [`LIST_BYTES_MAX`] bytes.
//! - ULIST-2: resources and prompts are there only where the operator offers them.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use ports::tool_companion::ToolCompanion;
use serde_json::{Value, json};

use super::UpstreamServers;
use crate::connection::{ProtocolEra, within};
use crate::fault::{METHOD_NOT_FOUND, UpstreamFault};
use crate::rounds::RequestRounds;
use crate::supervisor::live::InUse;
use crate::supervisor::{ServerUnit, SupervisorContext};

/// Most items of one list of a server.
pub const ITEMS_MAX: usize = 10_000;
/// Most bytes of one list of a server.
pub const LIST_BYTES_MAX: usize = 64 << 20;
/// Most pages of one list of a server.
const PAGES_MAX: usize = 1_000;

/// Whose places lists take within their tenant, beside those of the tenant's agents: they are everybody's.
const LISTS: &str = "lists";

/// Whose turn it is.
#[derive(Debug, Clone, Copy)]
pub struct ListTurn<'a> {
    pub tenant: &'a TenantId,
    /// Within the tenant.
    pub agent: &'a str,
}

impl<'a> ListTurn<'a> {
    /// Of a list.
    fn of_lists(tenant: &'a TenantId) -> Self {
        Self { tenant, agent: LISTS }
    }
}

/// Something that may be asked twice.
enum RepeatableRequest<'a> {
    Ask {
        method: &'a str,
        params: Value,
    },
    /// With somebody who may be asked back; how long that takes is the caller's to bound.
    Converse {
        method: &'a str,
        rounds: RequestRounds<'a>,
        companion: &'a Arc<dyn ToolCompanion>,
    },
    List {
        method: &'a str,
        member: &'a str,
    },
}

impl RepeatableRequest<'_> {
    async fn once(&self, context: &SupervisorContext, live: &InUse) -> Result<Value, UpstreamFault> {
        let patience = context.bounds.list_patience;
        match self {
            Self::Ask { method, params } => live.connection.request_within(patience, method, params.clone()).await,
            Self::Converse { method, rounds, companion } => {
                let companion = live.discreet(companion);
                rounds.through(&*companion, |params, _| live.connection.ask(method, params, &companion)).await
            }
            Self::List { method, member } => {
                let pages = pages(live, method, member);
                within(&*context.clock, patience, pages).await.unwrap_or(Err(UpstreamFault::Late)).map(Value::Array)
            }
        }
    }
}

impl UpstreamServers {
    /// All tools of a server as it describes them, every page.
    ///
    /// # Errors
    /// The server is not known, cannot be reached, or has too many.
    pub async fn list_tools(&self, tenant: &TenantId, name: &str) -> Result<Vec<Value>, Refusal> {
        self.list(tenant, name, tenant, "tools/list", "tools").await
    }

    /// All resources of a server, for a tenant that calls.
    ///
    /// # Errors
    /// As [`list_tools`](Self::list_tools); also if its resources are not offered.
    pub async fn list_resources(&self, owner: &TenantId, name: &str, caller: &TenantId) -> Result<Vec<Value>, Refusal> {
        self.offers_resources(owner, name)?;
        self.list(owner, name, caller, "resources/list", "resources").await
    }

    /// All templates of resources.
    ///
    /// # Errors
    /// As [`list_resources`](Self::list_resources).
    pub async fn list_resource_templates(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
    ) -> Result<Vec<Value>, Refusal> {
        self.offers_resources(owner, name)?;
        self.list(owner, name, caller, "resources/templates/list", "resourceTemplates").await
    }

    /// One resource, as the server gives it: `{ "contents": [...] }`. `params` are those of `resources/read`.
    ///
    /// # Errors
    /// As [`list_resources`](Self::list_resources).
    pub async fn read_resource(
        &self,
        owner: &TenantId,
        name: &str,
        caller: ListTurn<'_>,
        params: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        self.offers_resources(owner, name)?;
        self.converse(owner, name, caller, "resources/read", params, companion).await
    }

    /// Asks a server of the older kind to tell of changes of a resource, and finds out with any other whether it would.
    pub(crate) async fn begin_watching(
        &self,
        owner: &TenantId,
        name: &str,
        caller: ListTurn<'_>,
        uri: &str,
    ) -> Result<(), Refusal> {
        self.offers_resources(owner, name)?;
        let unit = self.unit_to_watch(&self.definition(owner, name)?, caller.tenant).await?;
        let live = unit.live().await?;
        if !live.connection.met().lets_watch() {
            return Err(not_offered(name, "changes of resources"));
        }
        if live.connection.met().era == ProtocolEra::Legacy {
            drop(live);
            let request = RepeatableRequest::Ask { method: "resources/subscribe", params: json!({ "uri": uri }) };
            self.run_at(&unit, name, caller, request).await?;
        }
        Ok(())
    }

    /// All prompts of a server.
    ///
    /// # Errors
    /// As [`list_tools`](Self::list_tools); also if its prompts are not offered.
    pub async fn list_prompts(&self, owner: &TenantId, name: &str, caller: &TenantId) -> Result<Vec<Value>, Refusal> {
        self.offers_prompts(owner, name)?;
        self.list(owner, name, caller, "prompts/list", "prompts").await
    }

    /// One prompt. `params` are those of `prompts/get`.
    ///
    /// # Errors
    /// As [`list_prompts`](Self::list_prompts).
    pub async fn get_prompt(
        &self,
        owner: &TenantId,
        name: &str,
        caller: ListTurn<'_>,
        params: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        self.offers_prompts(owner, name)?;
        self.converse(owner, name, caller, "prompts/get", params, companion).await
    }

    /// Completes an argument. `params` are those of `completion/complete`.
    ///
    /// # Errors
    /// The server is not known or cannot be reached, or neither its prompts nor its resources are offered.
    pub async fn complete(
        &self,
        owner: &TenantId,
        name: &str,
        caller: ListTurn<'_>,
        params: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        self.offers_prompts(owner, name).or_else(|_| self.offers_resources(owner, name))?;
        let unit = self.unit_for(&self.definition(owner, name)?, caller.tenant, 0, &**companion).await?;
        self.run_at(&unit, name, caller, RepeatableRequest::Ask { method: "completion/complete", params }).await
    }

    async fn converse(
        &self,
        owner: &TenantId,
        name: &str,
        caller: ListTurn<'_>,
        method: &str,
        params: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        let definition = self.definition(owner, name)?;
        let unit = self.unit_for(&definition, caller.tenant, 0, &**companion).await?;
        let rounds = RequestRounds { params, relay: definition.spec.relay, server: name };
        self.run_at(&unit, name, caller, RepeatableRequest::Converse { method, rounds, companion }).await
    }

    async fn list(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
        method: &str,
        member: &str,
    ) -> Result<Vec<Value>, Refusal> {
        let unit = self.unit(&self.definition(owner, name)?, caller)?;
        match self.run_at(&unit, name, ListTurn::of_lists(caller), RepeatableRequest::List { method, member }).await? {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    async fn run_at(
        &self,
        unit: &ServerUnit,
        name: &str,
        caller: ListTurn<'_>,
        request: RepeatableRequest<'_>,
    ) -> Result<Value, Refusal> {
        let _turn = unit.admitted(caller.tenant, caller.agent).await?;
        let mut again = true;
        loop {
            let live = unit.live().await?;
            match request.once(&self.context, &live).await {
                Ok(value) => return Ok(live.scrubber.value(value)),
                Err(fault) if fault.ends_connection() && std::mem::take(&mut again) => {
                    if fault.is_unreachable() {
                        live.connection.give_up("the server cannot be reached");
                    }
                }
                Err(fault) => return Err(live.scrubber.refusal(fault.refusal(name, true))),
            }
        }
    }

    fn offers_resources(&self, owner: &TenantId, name: &str) -> Result<(), Refusal> {
        if self.definition(owner, name)?.spec.resources { Ok(()) } else { Err(not_offered(name, "resources")) }
    }

    fn offers_prompts(&self, owner: &TenantId, name: &str) -> Result<(), Refusal> {
        if self.definition(owner, name)?.spec.prompts { Ok(()) } else { Err(not_offered(name, "prompts")) }
    }
}

/// ULIST-1.
async fn pages(live: &InUse, method: &str, member: &str) -> Result<Vec<Value>, UpstreamFault> {
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut cursor: Option<Value> = None;
    for _ in 0..PAGES_MAX {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let mut page = match live.connection.request(method, params).await {
            Ok(page) => page,
            // It has none of these.
            Err(UpstreamFault::Refused { error, .. }) if error.code == METHOD_NOT_FOUND && cursor.is_none() => {
                return Ok(items);
            }
            Err(fault) => return Err(fault),
        };
        let Some(Value::Array(found)) = page.get_mut(member).map(Value::take) else {
            return Err(UpstreamFault::Nonsense("list"));
        };
        bytes += found.iter().map(|item| item.to_string().len()).sum::<usize>();
        items.extend(found);
        if items.len() > ITEMS_MAX || bytes > LIST_BYTES_MAX {
            return Err(too_many(method));
        }
        let next = page.get("nextCursor").filter(|next| !next.is_null()).cloned();
        match next {
            None => return Ok(items),
            // It would go round for ever.
            Some(next) if Some(&next) == cursor.as_ref() => return Err(UpstreamFault::Nonsense("list that ends")),
            Some(next) => cursor = Some(next),
        }
    }
    Err(too_many(method))
}

fn too_many(method: &str) -> UpstreamFault {
    Refusal::new(ErrorCode::E3414, format!("the server's answer to `{method}` has more than can be taken"))
        .retryable(false)
        .into()
}

fn not_offered(name: &str, what: &str) -> Refusal {
    Refusal::new(ErrorCode::E3010, format!("the {what} of the server `{name}` are not offered"))
        .hint(format!("let the operator set `{what}` for this server"))
        .retryable(false)
}
