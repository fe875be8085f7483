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
    /// See every tool, not only those one may call.
    SeeWholeCatalogue,
}

impl Role {
    /// The table of rights. Exhaustive on purpose: a new role or action must be decided here.
    pub fn may(self, action: Action) -> bool {
        match (self, action) {
            (Self::Admin, _)
            | (Self::ToolAuthor, Action::PublishTool | Action::SeeWholeCatalogue)
            | (Self::Operator, Action::ChangeLifecycle | Action::SeeWholeCatalogue)
            | (Self::Approver | Self::Auditor, Action::SeeWholeCatalogue) => true,
            (Self::ToolAuthor, Action::ChangeLifecycle | Action::MintToken)
            | (Self::Operator, Action::PublishTool | Action::MintToken)
            | (Self::Approver | Self::Auditor, Action::PublishTool | Action::ChangeLifecycle | Action::MintToken)
            | (Self::Agent, _) => false,
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
            Self::SeeWholeCatalogue => "see the whole catalogue",
        }
    }
}
