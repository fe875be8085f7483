//! Roles and what they may do in administration. Calling tools is not a matter of roles but of grants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What somebody is to this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Admin,
    Operator,
    Approver,
    Auditor,
    ToolAuthor,
    Agent,
}

/// What somebody wants to do besides calling tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Publish a version.
    PublishTool,
    /// Deprecate, sunset, restore or remove a version.
    ChangeLifecycle,
    /// Mint a capability token.
    MintToken,
    /// Make tokens void.
    RevokeToken,
    /// Replace the signing key.
    RotateKeys,
    /// Add and change tenants.
    ManageTenants,
    /// Introduce agents and forget them.
    ManageAgents,
    /// Enable and disable tools for agents.
    ManageActivations,
    /// Look at tenants, agents and activations.
    SeeAccess,
    /// Put policies in force.
    ManagePolicies,
    /// Look at policies.
    SeePolicies,
    /// See every tool, not only those one may call.
    SeeWholeCatalogue,
    /// Put MCP servers behind Gantry, take them away, and decide about what they offer.
    ManageServers,
    /// Look at them, at their logs and at what they offer.
    SeeServers,
    /// Say who is called back, send again what was given up, try an address.
    ManageWebhooks,
    /// Look at who is called back and what came of it.
    SeeWebhooks,
    /// Look at the jobs of others.
    SeeJobs,
    /// Read the audit log.
    SeeAudit,
    /// Cancel and repeat the jobs of others.
    ManageJobs,
    /// Look at the use and cost of others, at alerts and recommendations.
    SeeUsage,
    /// Know and change how much the server says in its log.
    ManageLog,
    /// Look at breakers.
    SeeBreakers,
    /// Open and close breakers by hand.
    ManageBreakers,
    /// Read what a tool of one's own tenant wrote before its call failed.
    SeeToolOutput,
    /// Read what the programs of tools wrote in the last calls of one's own tenant, whoever called.
    SeeToolLogs,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] =
        [Self::Admin, Self::Operator, Self::Approver, Self::Auditor, Self::ToolAuthor, Self::Agent];

    /// The table of rights, a line per action. Exhaustive on purpose: a new action must be decided here.
    pub fn may(self, action: Action) -> bool {
        let who: &[Self] = match action {
            Action::PublishTool => &[Self::Admin, Self::ToolAuthor],
            Action::SeeToolOutput => &[Self::Admin, Self::Operator, Self::ToolAuthor],
            Action::ChangeLifecycle
            | Action::RevokeToken
            | Action::ManageActivations
            | Action::ManageJobs
            | Action::SeeToolLogs => &[Self::Admin, Self::Operator],
            Action::MintToken
            | Action::RotateKeys
            | Action::ManageTenants
            | Action::ManageAgents
            | Action::ManagePolicies
            | Action::ManageServers => &[Self::Admin],
            Action::ManageWebhooks | Action::ManageLog | Action::ManageBreakers => &[Self::Admin, Self::Operator],
            Action::SeeAccess
            | Action::SeePolicies
            | Action::SeeServers
            | Action::SeeJobs
            | Action::SeeAudit
            | Action::SeeWebhooks
            | Action::SeeUsage
            | Action::SeeBreakers => &[Self::Admin, Self::Operator, Self::Auditor],
            Action::SeeWholeCatalogue => {
                &[Self::Admin, Self::Operator, Self::Approver, Self::Auditor, Self::ToolAuthor]
            }
        };
        who.contains(&self)
    }

    /// As tokens write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
            Self::ToolAuthor => "tool_author",
            Self::Agent => "agent",
        }
    }
}

impl Action {
    /// For messages: "may not …".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PublishTool => "publish tools",
            Self::ChangeLifecycle => "change the lifecycle of tools",
            Self::MintToken => "mint tokens",
            Self::RevokeToken => "revoke tokens",
            Self::RotateKeys => "rotate keys",
            Self::ManageTenants => "manage tenants",
            Self::ManageAgents => "manage agents",
            Self::ManageActivations => "manage activations",
            Self::SeeAccess => "look at tenants, agents and activations",
            Self::ManagePolicies => "manage policies",
            Self::SeePolicies => "look at policies",
            Self::SeeWholeCatalogue => "see the whole catalogue",
            Self::ManageServers => "manage servers",
            Self::SeeServers => "look at servers",
            Self::ManageWebhooks => "manage webhooks",
            Self::SeeWebhooks => "look at webhooks",
            Self::SeeJobs => "look at the jobs of others",
            Self::SeeAudit => "read the audit log",
            Self::ManageJobs => "manage the jobs of others",
            Self::SeeUsage => "look at the use and cost of others",
            Self::ManageLog => "change the level of the log",
            Self::SeeBreakers => "look at breakers",
            Self::ManageBreakers => "open and close breakers",
            Self::SeeToolOutput => "read what failed tools wrote",
            Self::SeeToolLogs => "read the logs of tools",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_administer_nothing_and_roles_are_written_as_tokens_have_them() {
        let actions = [Action::PublishTool, Action::MintToken, Action::SeeAccess, Action::SeeToolOutput];
        assert!(actions.iter().all(|action| !Role::Agent.may(*action) && Role::Admin.may(*action)));
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).unwrap(), role.as_str());
        }
    }
}
