//! Rounds of asking servers for what they offer besides tools: `resources/read`, `prompts/get`, `completion/complete`.
//!
//! Not here: whose something is (`offering_relay`), staying with what runs (`rounds`).

use contract::error::{ErrorCode, Refusal};
use ports::offerings::OfferingRequest;
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference,
    ResourceContents, Role,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::client_state::ClientState;
use super::offering_relay::{OfferingRelay, RequestedOffering};
use super::rounds::{CallRound, RoundEnd};
use super::running_call::{RequestedRun, RunOutcome, RunSubject};
use super::{McpVisit, addresses, resources, seal, to_wire};

/// What one visitor asks servers for.
pub(super) struct OfferingRounds<'a> {
    pub(super) client: &'a ClientState,
    pub(super) visit: &'a McpVisit,
}

impl OfferingRounds<'_> {
    /// Reads a resource of a server.
    pub(super) async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let visit = self.visit;
        let uri = request.uri.clone();
        let refused = |refusal: &Refusal| to_wire::unread(to_wire::error(refusal, visit.who.trace_id), &uri);
        let found = self.relay().resource_at(&request.uri).await.map_err(|refusal| refused(&refusal))?;
        let asked = found.ok_or_else(|| refused(&resources::nothing(&request.uri)))?;
        let task = task(&asked, OfferingRequest::ReadResource, json!({ "uri": asked.own }));
        let binding = seal::binding(visit.caller.caller(), "resources/read", &json!(request.uri));
        let round = CallRound::of(self.client, visit, context, binding);
        let turn = match &request.request_state {
            Some(state) => round.rejoin(state, request.input_responses.unwrap_or_default()).await?,
            None => round.begin(task, RunSubject::Offering(asked), request.input_responses).await?,
        };
        match answer(&round, turn).map_err(|error| to_wire::unread(error, &uri))? {
            RelayAnswer::Asked(question) => Ok(question.into()),
            RelayAnswer::Given(value, asked) => read_result(value, &asked)
                .map(|result| result.with_ttl_ms(0).with_cache_scope(CacheScope::Private).into())
                .ok_or_else(|| refused(&nonsense(&asked))),
        }
    }

    /// Gives a prompt of a server.
    pub(super) async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let visit = self.visit;
        let refused = |refusal: &Refusal| to_wire::error(refusal, visit.who.trace_id);
        let found = self.relay().prompt_named(&request.name).await.map_err(|refusal| refused(&refusal))?;
        let asked = found.ok_or_else(|| no_prompt(&request.name))?;
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let binding =
            seal::binding(visit.caller.caller(), "prompts/get", &json!({ "name": request.name, "given": arguments }));
        let task = task(&asked, OfferingRequest::GetPrompt, json!({ "name": asked.own, "arguments": arguments }));
        let round = CallRound::of(self.client, visit, context, binding);
        let turn = match &request.request_state {
            Some(state) => round.rejoin(state, request.input_responses.unwrap_or_default()).await?,
            None => round.begin(task, RunSubject::Offering(asked), request.input_responses).await?,
        };
        match answer(&round, turn)? {
            RelayAnswer::Asked(question) => Ok(question.into()),
            RelayAnswer::Given(value, asked) => {
                prompt_result(value, &asked).map(Into::into).ok_or_else(|| refused(&nonsense(&asked)))
            }
        }
    }

    /// Completes what is being typed into an argument of a prompt or an address.
    pub(super) async fn complete(&self, request: CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
        let visit = self.visit;
        let refused = |refusal: &Refusal| to_wire::error(refusal, visit.who.trace_id);
        let relay = self.relay();
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
        let kernel = self.client.door.kernel();
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

    fn relay(&self) -> OfferingRelay<'_> {
        OfferingRelay::at(&self.client.door, self.visit)
    }
}

/// What came of asking a server.
enum RelayAnswer {
    Given(Value, RequestedOffering),
    Asked(rmcp::model::InputRequiredResult),
}

/// What a round has come to.
fn answer(round: &CallRound<'_>, turn: RoundEnd) -> Result<RelayAnswer, ErrorData> {
    let refused = |refusal: &Refusal| match to_wire::missing_capability(refusal) {
        Some(error) if round.is_modern() => error,
        _ => to_wire::error(refusal, round.trace_id),
    };
    match turn {
        RoundEnd::Asked(question) => Ok(RelayAnswer::Asked(question)),
        RoundEnd::Refused(refusal) | RoundEnd::Ended(RunOutcome::Offering(Err(refusal)), _) => Err(refused(&refusal)),
        RoundEnd::Ended(RunOutcome::Offering(Ok(value)), RunSubject::Offering(asked)) => {
            Ok(RelayAnswer::Given(value, asked))
        }
        // A seal binds an answer to the method it was asked by.
        RoundEnd::Ended(..) | RoundEnd::Promoted(..) => {
            Err(ErrorData::internal_error("the answer belongs to another request", None))
        }
    }
}

fn task(asked: &RequestedOffering, request: OfferingRequest, parameters: Value) -> RequestedRun {
    RequestedRun::Offering { server: asked.server.name.clone(), request, parameters }
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
