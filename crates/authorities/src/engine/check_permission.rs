//! Contract B: may this agent execute this tool, which touches these paths, endpoints and credentials? (AUTH-006, X-57)
//!
//! The context says what the engines of the other contracts hear (tenant, version, user, roles …), and three lists that are
//! this contract's own. They are computed from everything a call may touch: what the tool requires, what its network policy opens, and what
//! the server behind it was given. A permission that names no path or endpoint of its own, such as `filesystem:read`, is asked
//! for as `*`: the engine must never be told less than the tool wants. Other
//! kinds, such as `database:…`, have no place in this contract; they are checked against the token like all others.

use async_trait::async_trait;
use contract::version::Version;
use policy::{PolicyQuestion, PolicyVerdict};
use ports::policy_engine::{EngineError, PolicyEngine};
use serde::Serialize;
use serde_json::Value;

use super::call_context::CallContext;
use super::{Endpoint, EngineSettings, EngineSetupError, answer, no};
use crate::outbound::AuthorityClient;

/// Asks `POST {url}/api/v1/abac/check-permission`.
#[derive(Debug)]
pub struct CheckPermissionEngine {
    endpoint: Endpoint,
}

impl CheckPermissionEngine {
    /// For an engine that speaks contract B.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn new(out: &AuthorityClient, settings: &EngineSettings) -> Result<Self, EngineSetupError> {
        Ok(Self { endpoint: Endpoint::new(out, settings, ["api", "v1", "abac", "check-permission"])? })
    }
}

#[derive(Debug, Serialize)]
struct Request<'a> {
    agent_id: &'a str,
    resource_type: &'static str,
    resource_id: &'a str,
    action: &'static str,
    context: Context<'a>,
}

#[derive(Debug, Serialize)]
struct Context<'a> {
    /// `resource_id` does not have it.
    version: &'a Version,
    #[serde(flatten)]
    touched: TouchedThings<'a>,
    #[serde(flatten)]
    call: CallContext<'a>,
}

/// What the tool wants to touch; each list sorted and without repetition.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct TouchedThings<'a> {
    filesystem_paths: Vec<&'a str>,
    network_endpoints: Vec<&'a str>,
    credentials: Vec<&'a str>,
}

impl<'a> TouchedThings<'a> {
    fn of(permissions: &'a [String]) -> Self {
        let mut context = Self::default();
        for permission in permissions {
            match permission.split_once(':') {
                Some(("filesystem", what)) => context.filesystem_paths.push(path(what)),
                Some(("network", what)) => context.network_endpoints.push(what),
                Some(("credentials", what)) => context.credentials.push(what),
                _ => {}
            }
        }
        for list in [&mut context.filesystem_paths, &mut context.network_endpoints, &mut context.credentials] {
            list.sort_unstable();
            list.dedup();
        }
        context
    }
}

/// The path of `read:/data` or `/data`; `*` if there is none.
fn path(what: &str) -> &str {
    if what.starts_with('/') {
        return what;
    }
    match what.split_once(':') {
        Some((_, path)) if !path.is_empty() => path,
        _ => "*",
    }
}

#[async_trait]
impl PolicyEngine for CheckPermissionEngine {
    async fn decide(&self, question: &PolicyQuestion<'_>) -> Result<PolicyVerdict, EngineError> {
        let request = Request {
            agent_id: question.agent.as_str(),
            resource_type: "tool",
            resource_id: question.tool.id.as_str(),
            action: "execute",
            context: Context {
                version: question.tool.version,
                touched: TouchedThings::of(question.tool.reach.permissions),
                call: CallContext::of(question),
            },
        };
        let members = self.endpoint.ask(&request).await?;
        match members.get("allowed") {
            // The contract knows no obligations. If there are some all the same, they count.
            Some(Value::Bool(allowed)) => answer::verdict(*allowed, &members),
            Some(_) => Err(no("`allowed` is neither true nor false")),
            None => Err(no("`allowed` is missing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_names_what_the_permissions_name() {
        let permissions = [
            "network:https://b.example.com:8443/x",
            "network:https://a.example.com",
            "filesystem:write:/tmp/workspace",
            "filesystem:read:/tmp/workspace",
            "filesystem:read:/data:with:colons",
            "filesystem:/srv:x",
            "credentials:aws_s3",
            "database:postgresql:read",
            "tool:web_search",
        ];
        assert_eq!(
            TouchedThings::of(&permissions.map(str::to_owned)),
            TouchedThings {
                filesystem_paths: vec!["/data:with:colons", "/srv:x", "/tmp/workspace"],
                network_endpoints: vec!["https://a.example.com", "https://b.example.com:8443/x"],
                credentials: vec!["aws_s3"],
            }
        );
    }

    #[test]
    fn a_permission_without_a_path_is_asked_for_as_everything() {
        for what in ["read", "read:", "*", "read:*"] {
            assert_eq!(path(what), "*", "{what}");
        }
    }
}
