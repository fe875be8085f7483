//! A checked set of Cedar policies and its decisions.
//!
//! Compiling is all or nothing: a text with one problem is refused as a whole, with every problem named, so that a broken
//! update leaves the former policies in force. Deciding cannot fail: whatever goes wrong is a denial that says so.
//!
//! Cedar skips a policy whose evaluation fails. For a forbid that would open a door, so here any failure denies.
//!
//! Not here: where texts come from, their history, and whose policies apply to whom (the kernel's).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cedar_policy::{EvaluationError, PolicyId};

use super::arguments::fits;
use super::compile::{Compiled, DeadWords, compile};
use super::cost::{Demands, Sizes, has_more_parts_than};
use super::facts::{Facts, Named};
use super::problem::PolicyProblem;
use super::reads::{Reads, View};
use super::slices::{Findings, Slice, Slices};
use super::vocabulary::vocabulary;
use super::{ContextNeeds, Obligation, PolicyQuestion, PolicyVerdict, ToolFacts};

/// Parts of arguments that are looked through at once, where others wait.
const PARTS_MAX: usize = 5_000;

/// Policies that passed every check, ready to decide.
#[derive(Debug)]
pub struct Policies {
    slices: Slices,
    reads: Reads,
    /// In the order of the text.
    names: Vec<String>,
    /// Of the permits that have any.
    obligations: HashMap<PolicyId, Vec<Obligation>>,
    /// Of each policy that reads arguments.
    readers: HashMap<PolicyId, Reads>,
    warnings: Vec<PolicyProblem>,
    /// The policies that name a tool, by its name.
    by_tool: BTreeMap<String, Slice>,
}

impl Policies {
    /// Reads and checks a text of policies.
    ///
    /// ```
    /// # use gantry_policy::Policies;
    /// let text = r#"
    ///     @id("pure-tools")
    ///     permit (principal, action, resource) when { resource.side_effects == "pure" };
    /// "#;
    /// assert_eq!(Policies::compile(text).unwrap().names(), ["pure-tools"]);
    ///
    /// let problems = Policies::compile("permit (principal, action, resource) when { resource.colour == \"red\" };");
    /// assert!(problems.unwrap_err()[0].to_string().contains("colour"));
    /// ```
    pub fn compile(text: &str) -> Result<Self, Vec<PolicyProblem>> {
        compile(text, DeadWords::Refused).map(Self::from)
    }

    /// Reads a text that was accepted before, maybe by a release that knew fewer words. What it compares with words that can
    /// never occur is a warning here: the policy has had no effect so far either, and its neighbours are still wanted.
    pub fn compile_accepted(text: &str) -> Result<Self, Vec<PolicyProblem>> {
        compile(text, DeadWords::Warned).map(Self::from)
    }

    /// No policies: denies everything.
    pub fn none() -> Self {
        Self {
            slices: Slices::default(),
            reads: Reads::nothing(),
            names: Vec::new(),
            obligations: HashMap::new(),
            readers: HashMap::new(),
            warnings: Vec::new(),
            by_tool: BTreeMap::new(),
        }
    }

    /// How many policies there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Are there none? Then everything is denied.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names, in the order of the text.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What is suspicious but not wrong: a policy that can never hold, letters that look like others.
    pub fn warnings(&self) -> &[PolicyProblem] {
        &self.warnings
    }

    /// The tools that policies name, as `Tool::"…"` does, each once.
    ///
    /// ```
    /// # use gantry_policy::Policies;
    /// let text = r#"forbid (principal, action, resource == Tool::"billing.refund");"#;
    /// assert_eq!(Policies::compile(text).unwrap().tools_named().collect::<Vec<_>>(), ["billing.refund"]);
    /// ```
    pub fn tools_named(&self) -> impl Iterator<Item = &str> {
        self.by_tool.keys().map(String::as_str)
    }

    /// Which parts of the context any policy reads.
    pub fn needs(&self) -> ContextNeeds {
        self.reads.needs()
    }

    /// The members that any permit hides, whoever it is for.
    ///
    /// ```
    /// # use gantry_policy::{Obligation, Policies};
    /// let text = r#"@obligations("redact=email,require_approval") permit (principal, action, resource);"#;
    /// assert_eq!(Policies::compile(text).unwrap().redactions(), [Obligation::Redact("email".into())]);
    /// ```
    pub fn redactions(&self) -> Vec<Obligation> {
        let all: BTreeSet<_> = self.obligations.values().flatten().collect();
        all.into_iter().filter(|duty| matches!(duty, Obligation::Redact(_))).cloned().collect()
    }

    /// Can a denial have come of arguments that were not there to be read? Not if a forbid that reads none holds.
    pub fn may_lack_arguments(&self, denial: &PolicyVerdict) -> bool {
        let reads = |policy: &String| self.readers.keys().any(|id| name(id) == policy);
        self.needs().arguments && denial.determining.iter().all(reads)
    }

    /// What deciding this takes at the most, in steps of about a nanosecond; a quick look, which may say too much.
    pub fn cost_at_most(&self, question: &PolicyQuestion<'_>) -> u64 {
        if self.needs().arguments && has_more_parts_than(question.arguments, PARTS_MAX) {
            return u64::MAX;
        }
        self.cost_by(question, Demands::cost_at_most)
    }

    /// The same, policy by policy with the arguments that each of them reads. It takes as long as making the question ready.
    pub fn cost(&self, question: &PolicyQuestion<'_>) -> u64 {
        self.cost_by(question, Demands::cost)
    }

    fn cost_by(&self, question: &PolicyQuestion<'_>, cost: fn(&Demands, &Sizes) -> u64) -> u64 {
        let sizes = Sizes::of(question.arguments, &self.reads);
        let named = Named::of(question, vocabulary()).all();
        let own = self.slices.relevant(&named).map(|slice| cost(&slice.demands, &sizes));
        let aliases = question.tool.aliases.iter().filter_map(|alias| self.by_tool.get(alias.as_str()));
        let aliases = aliases.map(|slice| sizes.facts.saturating_add(cost(&slice.demands, &sizes)));
        own.chain(aliases).fold(sizes.facts, u64::saturating_add)
    }

    /// Decides one question.
    pub fn decide(&self, question: &PolicyQuestion<'_>) -> PolicyVerdict {
        let permits = match self.permits(question, |facts| self.slices.ask(facts)) {
            Ok(permits) => permits,
            Err(denial) => return denial,
        };
        if permits.is_empty() {
            return denied(Vec::new(), "no policy permits this".to_owned());
        }
        let mut obligations = self.obligations_of(&permits);
        // A restriction is meant for the tool, whichever of its names it was written for. A right is for the name it names.
        for (alias, slice) in
            question.tool.aliases.iter().filter_map(|alias| Some((alias, self.by_tool.get(alias.as_str())?)))
        {
            let renamed = PolicyQuestion { tool: ToolFacts { id: alias, ..question.tool }, ..*question };
            let ask = |facts: &Facts| {
                let mut findings = Findings::default();
                findings.add(slice, facts);
                findings
            };
            match self.permits(&renamed, ask) {
                Ok(permits) => obligations.extend(self.obligations_of(&permits)),
                Err(denial) => {
                    let reason = format!("{} (which names `{alias}`, an alias of this tool)", denial.reason);
                    return PolicyVerdict { reason, ..denial };
                }
            }
        }
        let determining = sorted_names(&permits);
        PolicyVerdict {
            allowed: true,
            reason: permitted_by(&determining),
            determining,
            obligations: obligations.into_iter().cloned().collect(),
        }
    }

    /// The permits that hold, unless a forbid does or something fails.
    fn permits(
        &self,
        question: &PolicyQuestion<'_>,
        ask: impl FnOnce(&Facts) -> Findings,
    ) -> Result<Vec<PolicyId>, PolicyVerdict> {
        let facts =
            Facts::of(question, &self.reads, vocabulary()).map_err(|error| denied(Vec::new(), error.to_string()))?;
        let Findings { permits, forbids, errors } = ask(&facts);
        if !forbids.is_empty() {
            let names = sorted_names(&forbids);
            let reason = format!("forbidden by {}", listed(&names));
            return Err(denied(names, reason));
        }
        if let Some((id, error)) = errors.iter().min_by(|one, other| one.0.cmp(&other.0)) {
            let names = sorted_names(errors.iter().map(|(id, _)| id));
            return Err(denied(names, self.failure(question, id, error)));
        }
        Ok(permits)
    }

    fn obligations_of(&self, permits: &[PolicyId]) -> BTreeSet<&Obligation> {
        permits.iter().filter_map(|id| self.obligations.get(id)).flatten().collect()
    }

    /// Why the policy could not be evaluated. Never with a value from the call: reasons are logged.
    fn failure(&self, question: &PolicyQuestion<'_>, id: &PolicyId, error: &EvaluationError) -> String {
        let why = match error {
            EvaluationError::TypeError(_) => self.misfit_read(question, id),
            EvaluationError::IntegerOverflow(_) => Some("a number grows beyond 64 bits".to_owned()),
            EvaluationError::RecursionLimit(_) => Some("its conditions are nested too deeply".to_owned()),
            _ => None,
        };
        let why = why.unwrap_or_else(|| "a condition failed".to_owned());
        format!("policy `{}` could not be evaluated: {why}", name(id))
    }

    /// The argument that the policy reads as what it is not.
    fn misfit_read(&self, question: &PolicyQuestion<'_>, id: &PolicyId) -> Option<String> {
        let reads = self.readers.get(id)?;
        let (path, view) = View::ALL.into_iter().find_map(|view| {
            let path = reads
                .view(view)
                .first_where(|path| at(question.arguments, path).is_some_and(|value| !fits(view, value)))?;
            Some((path, view))
        })?;
        Some(format!("it reads the argument `{path}` as {}, and it is none", view.meaning()))
    }
}

impl From<Compiled> for Policies {
    fn from(compiled: Compiled) -> Self {
        let Compiled { slices, reads, names, obligations, readers, warnings, by_tool } = compiled;
        Self { slices, reads, names, obligations, readers, warnings, by_tool }
    }
}

fn denied(determining: Vec<String>, reason: String) -> PolicyVerdict {
    PolicyVerdict { allowed: false, determining, obligations: Vec::new(), reason }
}

fn permitted_by(names: &[String]) -> String {
    format!("permitted by {}", listed(names))
}

/// The policies' ids are their names; see `compile`.
fn name(id: &PolicyId) -> &str {
    id.as_ref()
}

fn sorted_names<'a>(ids: impl IntoIterator<Item = &'a PolicyId>) -> Vec<String> {
    let mut names: Vec<_> = ids.into_iter().map(|id| name(id).to_owned()).collect();
    names.sort();
    names
}

/// `a`, `b` and 3 more.
fn listed(names: &[String]) -> String {
    const SHOWN_MAX: usize = 3;
    let mut parts: Vec<_> = names.iter().take(SHOWN_MAX).map(|name| format!("`{name}`")).collect();
    if names.len() > SHOWN_MAX {
        parts.push(format!("{} more", names.len() - SHOWN_MAX));
    }
    match parts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
    }
}

/// The argument at a dotted path, for messages. Names with dots in them are not found; the message is then plainer.
fn at<'v>(value: &'v serde_json::Value, path: &str) -> Option<&'v serde_json::Value> {
    path.split('.').try_fold(value, |value, step| match value {
        serde_json::Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    })
}
