//! Open Policy Agent's data API: the whole question is `input`, the decision is the document at a path.
//!
//! The document is `true` or `false`, or an object with `allow` and, if wanted, `reason` and `obligations`. A rule that is
//! undefined for the input has no `result`, or, if its package is asked, no `allow`; both are how Rego says no, so both
//! are explicit denials and not failures.

use async_trait::async_trait;
use contract::ids::ToolId;
use contract::manifest::SideEffectPolicy;
use policy::{PermissionScope, PolicyQuestion, PolicyVerdict, Risk, Role};
use ports::clock::UnixMillis;
use ports::policy_engine::{EngineError, PolicyEngine};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Endpoint, EngineSettings, EngineSetupError, UpstreamServer, answer, no};
use crate::outbound::AuthorityClient;

/// Asks `POST {url}/v1/data/{path}`.
#[derive(Debug)]
pub struct OpaEngine {
    endpoint: Endpoint,
}

impl OpaEngine {
    /// For a rule or package, for example `gantry/authz/allow` or `gantry/authz`.
    ///
    /// # Errors
    /// The settings or the path cannot be used.
    pub fn new(out: &AuthorityClient, settings: &EngineSettings, path: &str) -> Result<Self, EngineSetupError> {
        let name = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        };
        let trimmed = path.trim_matches('/');
        if !trimmed.split('/').all(name) {
            let given = path.chars().filter(|c| !c.is_control()).take(80).collect();
            return Err(EngineSetupError::Path { given });
        }
        Ok(Self { endpoint: Endpoint::new(out, settings, ["v1", "data"].into_iter().chain(trimmed.split('/')))? })
    }
}

#[derive(Debug, Serialize)]
struct Request<'a> {
    input: Input<'a>,
}

#[derive(Debug, Serialize)]
struct Input<'a> {
    action: &'static str,
    tenant: &'a str,
    agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    roles: &'a [Role],
    scopes: &'a [PermissionScope],
    tool: Tool<'a>,
    arguments: &'a Value,
    timestamp: String,
    environment: &'a str,
    risk: &'static str,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    id: &'a str,
    /// Its other names: a policy may know it by one of them.
    #[serde(skip_serializing_if = "<[ToolId]>::is_empty")]
    aliases: &'a [ToolId],
    version: String,
    tags: &'a [String],
    categories: &'a [String],
    side_effects: SideEffectPolicy,
    required_permissions: &'a [String],
    provider: &'a str,
    permissions: &'a [String],
    hosts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<UpstreamServer<'a>>,
    output_schema: &'static str,
}

impl<'a> Input<'a> {
    fn of(question: &PolicyQuestion<'a>) -> Self {
        let tool = question.tool;
        Self {
            action: "tool.invoke",
            tenant: question.tenant.as_str(),
            agent: question.agent.as_str(),
            user: question.user.map(|user| user.as_str()),
            session: question.session,
            roles: question.roles,
            scopes: question.scopes,
            tool: Tool {
                id: tool.id.as_str(),
                aliases: tool.aliases,
                version: tool.version.to_string(),
                tags: tool.tags,
                categories: tool.categories,
                side_effects: tool.effects,
                required_permissions: tool.required_permissions,
                provider: tool.provider,
                permissions: tool.reach.permissions,
                hosts: tool.reach.hosts,
                upstream: tool.reach.upstream.map(Into::into),
                output_schema: tool.output_schema.as_str(),
            },
            arguments: question.arguments,
            timestamp: UnixMillis(question.now_ms).to_string(),
            environment: question.environment,
            risk: Risk::of(tool.effects).as_str(),
        }
    }
}

#[async_trait]
impl PolicyEngine for OpaEngine {
    async fn decide(&self, question: &PolicyQuestion<'_>) -> Result<PolicyVerdict, EngineError> {
        let members = self.endpoint.ask(&Request { input: Input::of(question) }).await?;
        let undefined = || answer::denied("the policy engine has no decision for this: its rule is undefined".into());
        match members.get("result") {
            None => Ok(undefined()),
            Some(Value::Bool(allowed)) => answer::verdict(*allowed, &Map::new()),
            Some(Value::Object(result)) => match result.get("allow") {
                None => Ok(undefined()),
                Some(Value::Bool(allowed)) => answer::verdict(*allowed, result),
                Some(_) => Err(no("`allow` is neither true nor false")),
            },
            Some(_) => Err(no("`result` is neither true, false nor an object")),
        }
    }
}
