//! What servers behind Gantry offer besides tools, passed on: resources, templates, prompts, completions.
//!
//! Lists are asked for when they are wanted and not kept; a server that does not answer is left out of them. A server is
//! asked for as much as the caller may have (`Kernel::offering_servers`) and the path shows: a toolset shows a server's
//! resources or prompts if it has `NAMESPACE.resources` or `NAMESPACE.prompts`. In discovery nothing of servers is passed on.
//!
//! What servers say is a stranger's: what does not have the shape it must have is left out.
//!
//! Not here: addresses (`addresses`), names (`names`), news (`watching`), Gantry's own resources (`resources`).

use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use kernel::offering_id;
use ports::offerings::{OfferedItem, OfferingKind, OfferingRequest, OfferingServer};
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    Reference, Resource, ResourceContents, ResourceTemplate, Role,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::config::McpMode;
use super::handler::McpHandler;
use super::pages::KEY_BYTES_MAX;
use super::rounds::{CallRound, RoundEnd, RoundSubject, trace_of};
use super::running_call::{CallTask, RunOutcome};
use super::tool_list::is_in;
use super::{McpVisit, addresses, names, resources, seal, to_wire};
use crate::door::Door;

/// Something of a server that was asked for.
#[derive(Debug, Clone)]
pub(crate) struct RequestedOffering {
    server: OfferingServer,
    /// As the server has it.
    own: String,
    /// As the client has it.
    shown: String,
}

/// What is passed on to one visitor.
pub(crate) struct OfferingRelay<'a> {
    door: &'a Door,
    visit: &'a McpVisit,
}

impl<'a> OfferingRelay<'a> {
    pub(crate) fn of(handler: &'a McpHandler, visit: &'a McpVisit) -> Self {
        Self::at(&handler.door, visit)
    }

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
    async fn prompt_named(&self, name: &str) -> Result<Option<RequestedOffering>, Refusal> {
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
    fn outward(&self, uri: &str) -> String {
        if uri == self.own { self.shown.clone() } else { addresses::outward(&self.server, uri) }
    }

    fn errand(&self, request: OfferingRequest, parameters: Value) -> CallTask {
        CallTask::Offering { server: self.server.name.clone(), request, parameters }
    }
}

// -------------------------------------------------------------------------------------------------------------- asking

impl McpHandler {
    /// Reads a resource of a server.
    pub(super) async fn read_relayed(
        &self,
        visit: &McpVisit,
        request: ReadResourceRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
        let refused = |refusal: &Refusal| to_wire::unread(to_wire::error(refusal, visit.who.trace_id), &uri);
        let found =
            OfferingRelay::of(self, visit).resource_at(&request.uri).await.map_err(|refusal| refused(&refusal))?;
        let asked = found.ok_or_else(|| refused(&resources::nothing(&request.uri)))?;
        let errand = asked.errand(OfferingRequest::ReadResource, json!({ "uri": asked.own }));
        let binding = seal::binding(visit.caller.caller(), "resources/read", &json!(request.uri));
        let round = CallRound { handler: self, visit, context, trace_id: trace_of(visit, context), binding };
        let turn = match &request.request_state {
            Some(state) => round.rejoin(state, request.input_responses.unwrap_or_default()).await?,
            None => round.begin(errand, RoundSubject::Offering(asked), request.input_responses).await?,
        };
        match round.offering(turn).map_err(|error| to_wire::unread(error, &uri))? {
            RelayAnswer::Asked(question) => Ok(question.into()),
            RelayAnswer::Given(value, asked) => read_result(value, &asked)
                .map(|result| result.with_ttl_ms(0).with_cache_scope(CacheScope::Private).into())
                .ok_or_else(|| refused(&nonsense(&asked))),
        }
    }

    /// Gives a prompt of a server.
    pub(super) async fn get_relayed_prompt(
        &self,
        visit: &McpVisit,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let refused = |refusal: &Refusal| to_wire::error(refusal, visit.who.trace_id);
        let found =
            OfferingRelay::of(self, visit).prompt_named(&request.name).await.map_err(|refusal| refused(&refusal))?;
        let asked = found.ok_or_else(|| no_prompt(&request.name))?;
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let binding =
            seal::binding(visit.caller.caller(), "prompts/get", &json!({ "name": request.name, "given": arguments }));
        let errand = asked.errand(OfferingRequest::GetPrompt, json!({ "name": asked.own, "arguments": arguments }));
        let round = CallRound { handler: self, visit, context, trace_id: trace_of(visit, context), binding };
        let turn = match &request.request_state {
            Some(state) => round.rejoin(state, request.input_responses.unwrap_or_default()).await?,
            None => round.begin(errand, RoundSubject::Offering(asked), request.input_responses).await?,
        };
        match round.offering(turn)? {
            RelayAnswer::Asked(question) => Ok(question.into()),
            RelayAnswer::Given(value, asked) => {
                prompt_result(value, &asked).map(Into::into).ok_or_else(|| refused(&nonsense(&asked)))
            }
        }
    }

    /// Completes what is being typed into an argument of a prompt or an address.
    pub(super) async fn complete_relayed(
        &self,
        visit: &McpVisit,
        request: CompleteRequestParams,
    ) -> Result<CompleteResult, ErrorData> {
        let refused = |refusal: &Refusal| to_wire::error(refusal, visit.who.trace_id);
        let relay = OfferingRelay::of(self, visit);
        let (kind, asked, reference) = match &request.r#ref {
            Reference::Prompt(prompt) => {
                let found = relay.prompt_named(&prompt.name).await.map_err(|refusal| refused(&refusal))?;
                let asked = found.ok_or_else(|| no_prompt(&prompt.name))?;
                let reference = json!({ "type": "ref/prompt", "name": asked.own });
                (OfferingRequest::CompletePrompt, asked, reference)
            }
            Reference::Resource(resource) => {
                let found = relay.resource_at(&resource.uri).await.map_err(|refusal| refused(&refusal))?;
                // Our own addresses have nothing to complete.
                let Some(asked) = found else { return Ok(CompleteResult::default()) };
                let reference = json!({ "type": "ref/resource", "uri": asked.own });
                (OfferingRequest::CompleteResource, asked, reference)
            }
            _ => return Ok(CompleteResult::default()),
        };
        let mut parameters = json!({ "ref": reference, "argument": request.argument });
        if let (Some(members), Some(context)) = (parameters.as_object_mut(), &request.context) {
            members.insert("context".to_owned(), json!(context));
        }
        let kernel = self.door.kernel();
        let answer = kernel.ask_offering(visit.who.actor(), &asked.server.name, kind, parameters, None).await;
        let mut answer = answer.map_err(|refusal| refused(&refusal))?;
        let info = answer.get_mut("completion").map(Value::take);
        let info: Option<CompletionInfo> = info.and_then(|info| serde_json::from_value(info).ok());
        let mut info = info.ok_or_else(|| refused(&nonsense(&asked)))?;
        if info.values.len() > CompletionInfo::MAX_VALUES {
            info.values.truncate(CompletionInfo::MAX_VALUES);
            info.has_more = Some(true);
        }
        Ok(CompleteResult::new(info))
    }
}

/// What came of asking a server.
enum RelayAnswer {
    Given(Value, RequestedOffering),
    Asked(rmcp::model::InputRequiredResult),
}

impl CallRound<'_> {
    fn offering(&self, turn: RoundEnd) -> Result<RelayAnswer, ErrorData> {
        let refused = |refusal: &Refusal| match to_wire::missing_capability(refusal) {
            Some(error) if self.is_modern() => error,
            _ => to_wire::error(refusal, self.trace_id),
        };
        match turn {
            RoundEnd::Asked(question) => Ok(RelayAnswer::Asked(question)),
            RoundEnd::Refused(refusal) | RoundEnd::Ended(RunOutcome::Offering(Err(refusal)), _) => {
                Err(refused(&refusal))
            }
            RoundEnd::Ended(RunOutcome::Offering(Ok(value)), RoundSubject::Offering(asked)) => {
                Ok(RelayAnswer::Given(value, asked))
            }
            // A seal binds an answer to the method it was asked by.
            RoundEnd::Ended(..) | RoundEnd::Promoted(..) => {
                Err(ErrorData::internal_error("the answer belongs to another request", None))
            }
        }
    }
}

fn read_result(mut value: Value, asked: &RequestedOffering) -> Option<ReadResourceResult> {
    let contents = value.get_mut("contents").map(Value::take)?;
    let mut contents: Vec<ResourceContents> = serde_json::from_value(contents).ok()?;
    for one in &mut contents {
        addresses::readdress_contents(one, |uri| asked.outward(uri));
    }
    Some(ReadResourceResult::new(contents))
}

fn prompt_result(mut value: Value, asked: &RequestedOffering) -> Option<GetPromptResult> {
    let Some(Value::Array(messages)) = value.get_mut("messages").map(Value::take) else { return None };
    let message = |mut message: Value| {
        let role: Role = serde_json::from_value(message.get_mut("role")?.take()).ok()?;
        let mut content = to_wire::content_block(message.get_mut("content")?.take());
        addresses::readdress(&mut content, &asked.server);
        Some(PromptMessage::new(role, content))
    };
    let mut result = GetPromptResult::new(messages.into_iter().map(message).collect::<Option<Vec<_>>>()?);
    result.description = value.get("description").and_then(Value::as_str).map(str::to_owned);
    Some(result)
}

fn no_prompt(name: &str) -> ErrorData {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    ErrorData::invalid_params(format!("there is no prompt `{shown}`: prompts/list says what there is"), None)
}

fn nonsense(asked: &RequestedOffering) -> Refusal {
    Refusal::new(ErrorCode::E3502, format!("the server `{}` answered with something else", asked.server.name))
        .retryable(false)
}
