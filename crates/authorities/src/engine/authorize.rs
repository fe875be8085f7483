//! Contract A: subject, action, resource, context (AUTH-006).

use async_trait::async_trait;
use policy::{PolicyQuestion, PolicyVerdict};
use ports::policy_engine::{EngineError, PolicyEngine};
use serde::Serialize;
use serde_json::Value;

use super::call_context::CallContext;
use super::{Endpoint, EngineSettings, EngineSetupError, answer, no};
use crate::outbound::AuthorityClient;

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
    pub fn new(out: &AuthorityClient, settings: &EngineSettings) -> Result<Self, EngineSetupError> {
        Ok(Self { endpoint: Endpoint::new(out, settings, ["v1", "authorize"])? })
    }
}

#[derive(Debug, Serialize)]
struct Request<'a> {
    subject: &'a str,
    action: &'static str,
    resource: String,
    context: CallContext<'a>,
}

impl<'a> Request<'a> {
    fn of(question: &PolicyQuestion<'a>) -> Self {
        let tool = question.tool;
        Self {
            subject: question.agent.as_str(),
            action: "tool.invoke",
            resource: format!("tool:{}:{}", tool.id, tool.version),
            context: CallContext::of(question),
        }
    }
}

#[async_trait]
impl PolicyEngine for AuthorizeEngine {
    async fn decide(&self, question: &PolicyQuestion<'_>) -> Result<PolicyVerdict, EngineError> {
        let members = self.endpoint.ask(&Request::of(question)).await?;
        match members.get("decision") {
            // `allow`, letter by letter; every other word is a denial.
            Some(Value::String(decision)) => answer::verdict(decision == "allow", &members),
            Some(_) => Err(no("`decision` is not a text")),
            None => Err(no("`decision` is missing")),
        }
    }
}
