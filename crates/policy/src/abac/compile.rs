//! From text to checked policies: cut, parse, name, check against the schema, sort into slices.
//!
//! Stricter than Cedar where silence would be dangerous: an annotation that is not known is a problem, because a misspelt
//! `@obligations` would drop a duty; so is a comparison of a closed vocabulary with a word that is not in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cedar_policy::ffi::DetailedError;
use cedar_policy::{Effect, Policy, PolicyId, PolicySet, Template, ValidationMode, Validator};

use super::Obligation;
use super::cost::Demand;
use super::problem::PolicyProblem;
use super::reads::Reads;
use super::slices::{Slice, Slices};
use super::source::{Statement, statements};
use super::vocabulary::vocabulary;
use super::words::{unknown_names, unknown_words};

/// Longest text of policies.
pub const POLICY_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most policies in one text.
pub const POLICIES_MAX: usize = 20_000;
/// Longest single policy.
pub const POLICY_BYTES_MAX: usize = 64 * 1024;
/// Parsing and checking recurse. The deepest policy that `nesting` lets through needs well under half of this, unoptimised.
const STACK_BYTES: usize = 32 * 1024 * 1024;
/// How many policies are parsed in one go: starting Cedar's parser costs more than a policy does.
const CHUNK: usize = 64;
/// Most problems that are reported at once.
const PROBLEMS_MAX: usize = 100;
/// Longest name of a policy.
const NAME_CHARS_MAX: usize = 128;

/// What becomes of a comparison with something that can never occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadWords {
    Refused,
    /// For texts that were accepted before: see `Policies::compile_accepted`.
    Warned,
}

/// What [`compile`] makes.
pub(super) struct Compiled {
    pub(super) slices: Slices,
    pub(super) reads: Reads,
    pub(super) names: Vec<String>,
    pub(super) obligations: HashMap<PolicyId, Vec<Obligation>>,
    /// Of each policy that reads arguments, to explain its failures.
    pub(super) readers: HashMap<PolicyId, Reads>,
    pub(super) warnings: Vec<PolicyProblem>,
    /// The policies that name a tool, by its name.
    pub(super) by_tool: BTreeMap<String, Slice>,
}

/// Reads and checks `text`, or says everything that is wrong with it.
pub(super) fn compile(text: &str, dead_words: DeadWords) -> Result<Compiled, Vec<PolicyProblem>> {
    // A thread of its own, because the caller's stack may be small. Whatever goes wrong in it is a problem of the text.
    let unable = || vec![PolicyProblem::whole("the policies could not be read")];
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("policies".to_owned()).stack_size(STACK_BYTES);
        let compiled = thread.spawn_scoped(scope, || compile_here(text, dead_words)).map_err(|_| unable())?;
        compiled.join().unwrap_or_else(|_| Err(unable()))
    })
}

fn compile_here(text: &str, dead_words: DeadWords) -> Result<Compiled, Vec<PolicyProblem>> {
    if text.len() > POLICY_TEXT_BYTES_MAX {
        return Err(vec![PolicyProblem::whole(format!("the policies are longer than {POLICY_TEXT_BYTES_MAX} bytes"))]);
    }
    let statements = statements(text);
    if statements.len() > POLICIES_MAX {
        return Err(vec![PolicyProblem::whole(format!("there are more than {POLICIES_MAX} policies"))]);
    }
    let mut work = Work { text, dead_words, problems: Vec::new(), found: BTreeMap::new(), names: Vec::new() };
    for (number, chunk) in statements.chunks(CHUNK).enumerate() {
        if work.problems.len() >= PROBLEMS_MAX {
            break;
        }
        work.take_chunk(number * CHUNK, chunk);
    }
    work.finish()
}

/// A text on its way.
struct Work<'a> {
    text: &'a str,
    dead_words: DeadWords,
    problems: Vec<PolicyProblem>,
    found: BTreeMap<String, Found<'a>>,
    names: Vec<String>,
}

struct Found<'a> {
    statement: Statement<'a>,
    /// Where the text begins that Cedar's places refer to.
    base: usize,
    policy: Policy,
    obligations: Vec<Obligation>,
}

impl<'a> Work<'a> {
    fn report(&mut self, statement: Statement<'_>, policy: &str, message: impl Into<String>) {
        self.problems.push(PolicyProblem::about(self.text, statement, policy, message));
    }

    fn report_cedar(&mut self, base: usize, policy: &str, said: &DetailedError) {
        self.problems.push(PolicyProblem::from_cedar(self.text, base, policy, said));
    }

    /// Parses a run of statements, together if they are fine and one by one if they are not.
    fn take_chunk(&mut self, first: usize, chunk: &[Statement<'a>]) {
        match parse_together(self.text, chunk) {
            Some((base, policies)) => {
                for (index, (statement, policy)) in chunk.iter().zip(policies).enumerate() {
                    self.name(first + index, *statement, base, &policy);
                }
            }
            None => chunk.iter().enumerate().for_each(|(index, statement)| self.take(first + index, *statement)),
        }
    }

    /// Parses one statement.
    fn take(&mut self, index: usize, statement: Statement<'a>) {
        if self.problems.len() >= PROBLEMS_MAX {
            return;
        }
        let unnamed = format!("policy{index}");
        if statement.text.len() > POLICY_BYTES_MAX {
            return self.report(statement, &unnamed, format!("the policy is longer than {POLICY_BYTES_MAX} bytes"));
        }
        if let Err(error) = statement.nesting {
            return self.report(statement, &unnamed, error.to_string());
        }
        match Policy::parse(Some(PolicyId::new(&unnamed)), statement.text) {
            Ok(policy) => self.name(index, statement, statement.offset, &policy),
            Err(_) if Template::parse(None, statement.text).is_ok() => {
                self.report(statement, &unnamed, "templates are not supported: name the principal or resource");
            }
            Err(errors) => {
                for error in errors.iter() {
                    self.report_cedar(statement.offset, &unnamed, &DetailedError::from(error));
                }
            }
        }
    }

    /// Gives a parsed policy its name.
    fn name(&mut self, index: usize, statement: Statement<'a>, base: usize, policy: &Policy) {
        let unnamed = format!("policy{index}");
        let name = policy.annotation("id").unwrap_or(&unnamed).to_owned();
        if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
            let message =
                format!("a policy's id has 1 to {NAME_CHARS_MAX} characters, none of them a control character");
            return self.report(statement, &unnamed, message);
        }
        let obligations = self.annotations(statement, &name, policy);
        if self.found.contains_key(&name) {
            return self.report(statement, &name, "another policy has the same id");
        }
        let policy = policy.new_id(PolicyId::new(&name));
        self.names.push(name.clone());
        self.found.insert(name, Found { statement, base, policy, obligations });
    }

    /// Checks the annotations; returns the obligations among them.
    fn annotations(&mut self, statement: Statement<'_>, name: &str, policy: &Policy) -> Vec<Obligation> {
        let mut obligations = Vec::new();
        for (key, value) in policy.annotations() {
            match key {
                "id" | "description" => {}
                "obligations" if policy.effect() == Effect::Forbid => {
                    self.report(statement, name, "a forbid cannot have obligations: nothing goes on after it");
                }
                "obligations" => {
                    for part in value.split(',') {
                        match part.trim().parse() {
                            Ok(obligation) => obligations.push(obligation),
                            Err(error) => {
                                let error: super::ObligationError = error;
                                self.report(statement, name, error.to_string());
                            }
                        }
                    }
                }
                _ => {
                    let message =
                        format!("annotation `@{key}` is not known: there are `@id`, `@description` and `@obligations`");
                    self.report(statement, name, message);
                }
            }
        }
        obligations
    }

    /// Checks what was parsed against the schema, also when something else was not: problems are told at once.
    fn finish(mut self) -> Result<Compiled, Vec<PolicyProblem>> {
        let set = match PolicySet::from_policies(self.found.values().map(|found| found.policy.clone())) {
            Ok(set) => set,
            Err(error) => return Err(vec![PolicyProblem::whole(error.to_string())]),
        };
        let result = Validator::new(vocabulary().schema.clone()).validate(&set, ValidationMode::Strict);
        for error in result.validation_errors().take(PROBLEMS_MAX) {
            let name: &str = error.policy_id().as_ref();
            if let Some(base) = self.found.get(name).map(|found| found.base) {
                self.report_cedar(base, name, &DetailedError::from(error));
            }
        }
        let mut warnings = Vec::new();
        for warning in result.validation_warnings().take(PROBLEMS_MAX) {
            let name: &str = warning.policy_id().as_ref();
            if let Some(found) = self.found.get(name) {
                let said = DetailedError::from(warning);
                warnings.push(PolicyProblem::from_cedar(self.text, found.base, name, &said));
            }
        }
        let (mut slices, mut reads) = (Slices::default(), Reads::nothing());
        let (mut obligations, mut readers) = (HashMap::new(), HashMap::new());
        let mut by_tool: BTreeMap<String, Slice> = BTreeMap::new();
        for (name, Found { statement, base: _, policy, obligations: duties }) in std::mem::take(&mut self.found) {
            let literals: BTreeSet<_> = policy.entity_literals().into_iter().collect();
            let mut dead = unknown_names(&literals);
            // The JSON form is costly, and a policy without conditions has nothing in it that is looked for.
            let (mut own, mut demand) = (Reads::nothing(), Demand::of_policy(None));
            match policy.has_non_scope_constraint().then(|| policy.to_json().map_err(Box::new)) {
                None => {}
                Some(Ok(json)) => {
                    own.add_policy(&json);
                    demand = Demand::of_policy(Some(&json));
                    reads.add(&own);
                    if own.arguments() {
                        readers.insert(policy.id().clone(), own.clone());
                    }
                    dead.extend(unknown_words(&json));
                }
                Some(Err(error)) => self.report(statement, &name, error.to_string()),
            }
            for message in dead {
                match self.dead_words {
                    DeadWords::Refused => self.report(statement, &name, message),
                    DeadWords::Warned => warnings.push(PolicyProblem::about(self.text, statement, &name, message)),
                }
            }
            if !duties.is_empty() {
                obligations.insert(policy.id().clone(), duties);
            }
            for tool in literals.iter().filter(|uid| *uid.type_name() == vocabulary().tool) {
                let naming = by_tool.entry(AsRef::<str>::as_ref(tool.id()).to_owned()).or_default();
                if let Err(error) = naming.add(policy.clone(), &own, demand) {
                    self.report(statement, &name, error.to_string());
                }
            }
            if let Err(error) = slices.add(policy, &own, demand) {
                self.report(statement, &name, error.to_string());
            }
        }
        if self.problems.is_empty() {
            Ok(Compiled { slices, reads, names: self.names, obligations, readers, warnings, by_tool })
        } else {
            self.problems.sort_by_key(|problem| problem.position);
            self.problems.truncate(PROBLEMS_MAX);
            Err(self.problems)
        }
    }
}

/// The policies of these statements in their order, and where the text begins that they were parsed from. Nothing if any
/// of them is not fine, or if Cedar cuts the text in another way.
fn parse_together(text: &str, chunk: &[Statement<'_>]) -> Option<(usize, Vec<Policy>)> {
    let (first, last) = (chunk.first()?, chunk.last()?);
    let parseable = |statement: &Statement<'_>| statement.nesting.is_ok() && statement.text.len() <= POLICY_BYTES_MAX;
    if !chunk.iter().all(parseable) {
        return None;
    }
    let set: PolicySet = text.get(first.offset..last.offset + last.text.len())?.parse().ok()?;
    if set.num_of_policies() != chunk.len() || set.num_of_templates() != 0 {
        return None;
    }
    let policies = chunk.iter().enumerate().map(|(index, statement)| {
        let policy = set.policy(&PolicyId::new(format!("policy{index}")))?;
        (policy.to_cedar()?.trim() == statement.text).then(|| policy.clone())
    });
    Some((first.offset, policies.collect::<Option<_>>()?))
}
