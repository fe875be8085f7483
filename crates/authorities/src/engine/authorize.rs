//! Contract A: subject, action, resource, context (AUTH-006).
//!
//! The arguments themselves stay here; the engine gets their digest, so that its log can be matched with the audit.

use async_trait::async_trait;
use contract::canonical;
use contract::manifest::SideEffectPolicy;
use kernel::ports::clock::UnixMillis;
use kernel::ports::policy_engine::{EngineError, PolicyEngine};
use policy::{Question, Risk, Role, Scope, Verdict};
use serde::Serialize;
use serde_json::Value;

use super::{Endpoint, EngineSettings, EngineSetupError, UpstreamServer, answer, no};
use crate::outbound::Outbound;

/// Asks `POST {url}/v1/authorize`.
#[derive(Debug)]
pub struct AuthorizeEngine {
    endpoint: Endpoint,
}

impl AuthorizeEngine {
    /// For an engine that speaks contract A.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn new(out: &Outbound, settings: &EngineSettings) -> Result<Self, EngineSetupError> {
        Ok(Self { endpoint: Endpoint::new(out, settings, ["v1", "authorize"])? })
    }
}

#[derive(Debug, Serialize)]
struct Request<'a> {
    subject: &'a str,
    action: &'static str,
    resource: String,
    context: Context<'a>,
}

#[derive(Debug, Serialize)]
struct Context<'a> {
    required_permissions: &'a [String],
    permissions: &'a [String],
    hosts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<UpstreamServer<'a>>,
    output_schema: &'static str,
    timestamp: String,
    tenant: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    roles: &'a [Role],
    scopes: &'a [Scope],
    environment: &'a str,
    risk: &'static str,
    side_effects: SideEffectPolicy,
    arguments_digest: String,
}

impl<'a> Request<'a> {
    fn of(question: &Question<'a>) -> Self {
        let tool = question.tool;
        Self {
            subject: question.agent.as_str(),
            action: "tool.invoke",
            resource: format!("tool:{}:{}", tool.id, tool.version),
            context: Context {
                required_permissions: tool.required_permissions,
                permissions: tool.reach.permissions,
                hosts: tool.reach.hosts,
                upstream: tool.reach.upstream.map(Into::into),
                output_schema: tool.output_schema.as_str(),
                timestamp: UnixMillis(question.now_ms).to_string(),
                tenant: question.tenant.as_str(),
                user: question.user.map(|user| user.as_str()),
                session: question.session,
                roles: question.roles,
                scopes: question.scopes,
                environment: question.environment,
                risk: Risk::of(tool.effects).as_str(),
                side_effects: tool.effects,
                arguments_digest: canonical::digest(question.arguments).to_string(),
            },
        }
    }
}

#[async_trait]
impl PolicyEngine for AuthorizeEngine {
    async fn decide(&self, question: &Question<'_>) -> Result<Verdict, EngineError> {
        let members = self.endpoint.ask(&Request::of(question)).await?;
        match members.get("decision") {
            // `allow`, letter by letter; every other word is a denial.
            Some(Value::String(decision)) => answer::verdict(decision == "allow", &members),
            Some(_) => Err(no("`decision` is not a text")),
            None => Err(no("`decision` is missing")),
        }
    }
}
