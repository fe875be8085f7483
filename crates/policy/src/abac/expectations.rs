//! Expectations: a table of questions with the decisions their author expects, for `gantry policy test`.
//!
//! Each case is a whole question with sensible defaults, so that a case names only what it is about. A key that is not
//! known is an error: a misspelt `rolles` would make a case pass for the wrong reason.
//!
//! Not here: where the policies of a table come from. `policies` at the top of the file is read by the command.

use std::collections::BTreeSet;

use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use serde::Deserialize;
use serde_json::Value;

use super::{Obligation, OutputSchema, Policies, PolicyQuestion, PolicyUpstream, PolicyVerdict, ToolFacts, ToolReach};
use crate::role::Role;
use crate::scope::PermissionScope;

mod table;

pub use table::ExpectationProblem;

/// A table of cases.
#[derive(Debug, Clone)]
pub struct PolicyExpectations {
    /// As the file's `policies` has them: paths for the caller to resolve.
    pub policies: Vec<String>,
    pub cases: Vec<PolicyCase>,
}

/// One question and what is expected of its answer.
#[derive(Debug, Clone)]
pub struct PolicyCase {
    pub name: String,
    pub expected: ExpectedDecision,
    tenant: TenantId,
    agent: Subject,
    user: Option<Subject>,
    session: Option<String>,
    roles: Vec<Role>,
    scopes: Vec<PermissionScope>,
    tool: ToolId,
    version: Version,
    tags: Vec<String>,
    categories: Vec<String>,
    effects: SideEffectPolicy,
    required_permissions: Vec<String>,
    provider: String,
    permissions: Vec<String>,
    hosts: Vec<String>,
    upstream: Option<CaseUpstream>,
    output_schema: OutputSchema,
    arguments: Value,
    now_ms: i64,
    environment: String,
}

/// The server behind the tool of a case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseUpstream {
    server: String,
    transport: Option<String>,
    command: Option<String>,
    #[serde(default)]
    addresses: Vec<String>,
}

impl CaseUpstream {
    fn facts(&self) -> PolicyUpstream<'_> {
        let usual = if self.command.is_some() { "stdio" } else { "http" };
        PolicyUpstream {
            server: &self.server,
            transport: self.transport.as_deref().unwrap_or(usual),
            command: self.command.as_deref(),
            addresses: &self.addresses,
        }
    }
}

/// What an author expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedDecision {
    pub allowed: bool,
    /// If given: exactly these policies determine the answer.
    pub policies: Option<BTreeSet<String>>,
    /// If given: exactly these obligations come with it.
    pub obligations: Option<BTreeSet<Obligation>>,
}

/// What came of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseOutcome {
    pub name: String,
    pub passed: bool,
    pub expected: ExpectedDecision,
    pub verdict: PolicyVerdict,
    /// Where the verdict differs, one sentence each. Empty if passed.
    pub differences: Vec<String>,
}

impl PolicyExpectations {
    /// Reads a table, or says everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Vec<ExpectationProblem>> {
        table::parse(text)
    }

    /// Asks the policies every question, in order.
    pub fn run(&self, policies: &Policies) -> Vec<CaseOutcome> {
        self.cases.iter().map(|case| case.run(policies)).collect()
    }
}

impl PolicyCase {
    /// The question of this case.
    pub fn question(&self) -> PolicyQuestion<'_> {
        PolicyQuestion {
            tenant: &self.tenant,
            agent: &self.agent,
            user: self.user.as_ref(),
            session: self.session.as_deref(),
            roles: &self.roles,
            scopes: &self.scopes,
            tool: ToolFacts {
                id: &self.tool,
                aliases: &[],
                version: &self.version,
                tags: &self.tags,
                categories: &self.categories,
                effects: self.effects,
                required_permissions: &self.required_permissions,
                provider: &self.provider,
                reach: ToolReach {
                    permissions: &self.permissions,
                    hosts: &self.hosts,
                    upstream: self.upstream.as_ref().map(CaseUpstream::facts),
                },
                output_schema: self.output_schema,
            },
            arguments: &self.arguments,
            now_ms: self.now_ms,
            environment: &self.environment,
        }
    }

    fn run(&self, policies: &Policies) -> CaseOutcome {
        let verdict = policies.decide(&self.question());
        let differences = self.expected.differences(&verdict);
        CaseOutcome {
            name: self.name.clone(),
            passed: differences.is_empty(),
            expected: self.expected.clone(),
            verdict,
            differences,
        }
    }
}

impl ExpectedDecision {
    fn differences(&self, verdict: &PolicyVerdict) -> Vec<String> {
        let word = |allowed| if allowed { "allow" } else { "deny" };
        let mut found = Vec::new();
        if self.allowed != verdict.allowed {
            let (wanted, got) = (word(self.allowed), word(verdict.allowed));
            found.push(format!("expected {wanted}, got {got}: {}", verdict.reason));
        }
        let determining: BTreeSet<_> = verdict.determining.iter().cloned().collect();
        if let Some(wanted) = self.policies.as_ref().filter(|wanted| **wanted != determining) {
            found.push(format!("expected to be determined by {}, was by {}", listed(wanted), listed(&determining)));
        }
        let obligations: BTreeSet<_> = verdict.obligations.iter().cloned().collect();
        if let Some(wanted) = self.obligations.as_ref().filter(|wanted| **wanted != obligations) {
            found.push(format!("expected the obligations {}, got {}", listed(wanted), listed(&obligations)));
        }
        found
    }
}

fn listed<T: ToString>(items: &BTreeSet<T>) -> String {
    match items.len() {
        0 => "none".to_owned(),
        _ => items.iter().map(|item| format!("`{}`", item.to_string())).collect::<Vec<_>>().join(", "),
    }
}
