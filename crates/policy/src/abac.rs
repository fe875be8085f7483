//! Attribute-based decisions: may this principal invoke this tool with these arguments, now? (AUTH-006…008, DESIGN §8.6)
//!
//! Cedar is the embedded engine. The types here are also what external engines are asked with, so that the kernel knows
//! one question and one verdict.

use contract::error::ErrorCode;
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use serde_json::Value;

use crate::role::Role;
use crate::scope::PermissionScope;

mod arguments;
mod calendar;
mod compile;
mod cost;
mod depth;
mod expectations;
mod facts;
mod obligation;
mod policies;
mod problem;
mod reads;
mod slices;
mod source;
mod vocabulary;
mod words;

pub use arguments::{ARGUMENT_PATH_BYTES_MAX, ARGUMENTS_MAX};
pub use compile::{POLICIES_MAX, POLICY_BYTES_MAX, POLICY_TEXT_BYTES_MAX};
pub use expectations::{CaseOutcome, ExpectationProblem, ExpectedDecision, PolicyCase, PolicyExpectations};
pub(crate) use obligation::is_member_name;
pub use obligation::{Obligation, ObligationError};
pub use policies::Policies;
pub use problem::PolicyProblem;
pub use source::SourcePosition;
pub use vocabulary::SCHEMA;

/// What a decision is about.
#[derive(Debug, Clone, Copy)]
pub struct PolicyQuestion<'a> {
    pub tenant: &'a TenantId,
    pub agent: &'a Subject,
    /// On whose behalf the agent acts.
    pub user: Option<&'a Subject>,
    pub session: Option<&'a str>,
    pub roles: &'a [Role],
    pub scopes: &'a [PermissionScope],
    pub tool: ToolFacts<'a>,
    /// The validated, canonical parameters: what will be executed.
    pub arguments: &'a Value,
    /// Milliseconds since the epoch.
    pub now_ms: i64,
    /// The name of this installation's environment, for example `production`.
    pub environment: &'a str,
}

/// What policies may know about a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolFacts<'a> {
    pub id: &'a ToolId,
    /// Its other names. What forbids or obliges one of them holds for the tool; what permits one does not.
    pub aliases: &'a [ToolId],
    pub version: &'a Version,
    pub tags: &'a [String],
    pub categories: &'a [String],
    pub effects: SideEffectPolicy,
    pub required_permissions: &'a [String],
    pub provider: &'a str,
    /// What a call may touch (AUTH-006).
    pub reach: ToolReach<'a>,
    /// Whether the manifest says what comes back (MAN-009).
    pub output_schema: OutputSchema,
}

/// What a call of a tool may touch, by itself or through the server behind it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToolReach<'a> {
    /// In the words of manifests: what the tool requires, what its network policy opens, and what the server behind it was
    /// given.
    pub permissions: &'a [String],
    /// The hosts among them, in lower case: names, addresses, `*.example.com`, or `*` for every host.
    pub hosts: &'a [String],
    /// The server behind an imported tool.
    pub upstream: Option<PolicyUpstream<'a>>,
}

/// The server behind an imported tool, as far as policies may know it: no argument, header or query, where secrets stand.
#[derive(Debug, Clone, Copy)]
pub struct PolicyUpstream<'a> {
    /// Its name in this installation.
    pub server: &'a str,
    /// `stdio`, `http` or `sse`.
    pub transport: &'a str,
    /// The program, if it is one.
    pub command: Option<&'a str>,
    /// Where it is reached, if it is elsewhere: every address, fallbacks included.
    pub addresses: &'a [String],
}

/// Whether a tool's results have a declared shape (MAN-009).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputSchema {
    #[default]
    Declared,
    /// Anything may come back: nobody has said what.
    Unconstrained,
}

impl OutputSchema {
    /// As policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Unconstrained => "unconstrained",
        }
    }
}

/// How dangerous a call is by its class alone; policies can ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    Low,
    Medium,
    High,
}

impl Risk {
    /// The class says it all for now.
    pub fn of(effects: SideEffectPolicy) -> Self {
        match effects {
            SideEffectPolicy::Pure => Self::Low,
            SideEffectPolicy::Idempotent | SideEffectPolicy::Compensatable => Self::Medium,
            SideEffectPolicy::Irreversible | SideEffectPolicy::Unclassified => Self::High,
        }
    }

    /// As policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The answer, with its reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyVerdict {
    pub allowed: bool,
    /// The names of the policies that determined it: the permits that hold, or the forbids that do, or those that could
    /// not be evaluated. Empty with a denial: no permit holds, or the question could not be put.
    pub determining: Vec<String>,
    /// What must be done if the call goes on.
    pub obligations: Vec<Obligation>,
    /// For people: one sentence.
    pub reason: String,
}

/// Which parts of the context a set of policies reads; what it does not read need not be part of a cache key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextNeeds {
    pub arguments: bool,
    pub time: bool,
    pub session: bool,
}

impl ContextNeeds {
    /// For engines that cannot be looked into: everything but the time, because their answers are remembered for a
    /// while by design (DESIGN §8.6).
    pub const ALL: Self = Self { arguments: true, time: false, session: true };

    /// What the one or the other reads.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            arguments: self.arguments || other.arguments,
            time: self.time || other.time,
            session: self.session || other.session,
        }
    }
}

/// The code of an explicit denial.
pub const DENIED: ErrorCode = ErrorCode::E3206;
/// The code when nobody could decide.
pub const UNDECIDED: ErrorCode = ErrorCode::E3205;
