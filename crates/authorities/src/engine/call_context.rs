//! What the engines of contracts A and B are told of a call besides who asks for which tool. One type for both, so that neither
//! is told less: an engine that does not hear the tenant takes agents of two tenants with one name for one.
//!
//! The arguments themselves stay here; the engine gets their digest, so that its log can be matched with the audit.

use contract::canonical;
use contract::ids::ToolId;
use contract::manifest::SideEffectPolicy;
use policy::{PermissionScope, PolicyQuestion, Risk, Role};
use ports::clock::UnixMillis;
use serde::Serialize;

use super::UpstreamServer;

#[derive(Debug, Serialize)]
pub(super) struct CallContext<'a> {
    /// Other names of the tool: an engine may know it by one of them.
    #[serde(skip_serializing_if = "<[ToolId]>::is_empty")]
    aliases: &'a [ToolId],
    required_permissions: &'a [String],
    permissions: &'a [String],
    hosts: &'a [String],
    /// The server behind an imported tool.
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
    scopes: &'a [PermissionScope],
    environment: &'a str,
    risk: &'static str,
    side_effects: SideEffectPolicy,
    arguments_digest: String,
}

impl<'a> CallContext<'a> {
    pub(super) fn of(question: &PolicyQuestion<'a>) -> Self {
        let tool = question.tool;
        Self {
            aliases: tool.aliases,
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
        }
    }
}
