//! `[[redaction.rules]]`: what is redacted besides what every installation knows. (VALID-009 to VALID-012)
//!
//! Rules only add: nothing that the engine finds by itself can be exempted here. Patterns are of a kind that is matched in
//! time linear in the text, and are compiled when the configuration is read, so that one that cannot be used is told then.

use std::collections::BTreeSet;

use contract::ids::TenantId;
use redaction::{RedactionAdditions, RedactionEngine};
use serde::Deserialize;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

/// Rules at most.
const RULES_MAX: usize = 64;
/// Names of one rule.
const NAMES_MAX: usize = 64;
/// Patterns of one rule: each is one more pass over the text.
const PATTERNS_MAX: usize = 16;
/// Longest name or pattern.
const CHARS_MAX: usize = 512;

/// The rules.
const RULES: ConfigKey = ConfigKey {
    section: "redaction",
    name: "rules",
    kind: KeyKind::Tables,
    default: Some(""),
    unset: "",
    doc: "What is redacted besides what is always: `[[redaction.rules]]` with `names` of members whose value goes (`*` at the \
          start or end stands for any words) and `patterns`, regular expressions whose matches go. With a `tenant`, for that \
          tenant's calls only; logs and traces go by the rules of all. More in [redaction.md](redaction.md).",
    since: "0.2",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&RULES];

/// The section's values.
#[derive(Debug, Default)]
pub(crate) struct RedactionSection {
    rules: Vec<Rule>,
}

/// One table that makes sense.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    tenant: Option<TenantId>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    patterns: Vec<String>,
}

impl RedactionSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        Self::of(settings.list(&RULES), problems)
    }

    /// Reads the tables, each in JSON. Everything wrong is a problem, and a table with one is left out.
    pub(crate) fn of(tables: &[String], problems: &mut Vec<ConfigProblem>) -> Self {
        if tables.len() > RULES_MAX {
            problems.push(ConfigProblem::new("[[redaction.rules]]", format!("there are more than {RULES_MAX}")));
        }
        let mut rules = Vec::new();
        for (index, text) in tables.iter().take(RULES_MAX).enumerate() {
            match one(text) {
                Ok(rule) => rules.push(rule),
                Err(wrong) => {
                    problems.push(ConfigProblem::new(format!("[[redaction.rules]] number {}", index + 1), wrong))
                }
            }
        }
        Self { rules }
    }

    /// The tenants that have rules of their own.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        let tenants: BTreeSet<&TenantId> = self.rules.iter().filter_map(|rule| rule.tenant.as_ref()).collect();
        tenants.into_iter()
    }

    /// What the rules add that belong to those for whom `wanted` says so; without a tenant, a rule is everybody's.
    pub(crate) fn additions(&self, wanted: impl Fn(Option<&TenantId>) -> bool) -> RedactionAdditions {
        let mut added = RedactionAdditions::default();
        for rule in self.rules.iter().filter(|rule| wanted(rule.tenant.as_ref())) {
            added.names.extend(rule.names.iter().cloned());
            added.patterns.extend(rule.patterns.iter().cloned());
        }
        // Tenants often have the same ones.
        added.names.sort_unstable();
        added.names.dedup();
        added.patterns.sort_unstable();
        added.patterns.dedup();
        added
    }
}

fn one(text: &str) -> Result<Rule, String> {
    let rule: Rule = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if rule.names.is_empty() && rule.patterns.is_empty() {
        return Err("it has neither `names` nor `patterns`".to_owned());
    }
    if rule.names.len() > NAMES_MAX || rule.patterns.len() > PATTERNS_MAX {
        return Err(format!("it has more than {NAMES_MAX} `names` or {PATTERNS_MAX} `patterns`"));
    }
    for text in rule.names.iter().chain(&rule.patterns) {
        if text.chars().count() > CHARS_MAX {
            return Err(format!("a name or pattern is longer than {CHARS_MAX} characters"));
        }
    }
    // A name without words fits nothing, which nobody can have meant.
    if let Some(name) = rule.names.iter().find(|name| redaction::words(name).concat().is_empty()) {
        return Err(format!("`{name}` is no name"));
    }
    let has_inner_star = |name: &&String| name.trim_matches('*').contains('*');
    if let Some(name) = rule.names.iter().find(has_inner_star) {
        return Err(format!("`{name}`: `*` stands at the start or the end of a name only; use a pattern for the rest"));
    }
    let added = RedactionAdditions { patterns: rule.patterns.clone(), ..RedactionAdditions::default() };
    match RedactionEngine::new(&added) {
        Ok(engine) if engine.has_only_solid_patterns() => Ok(rule),
        Ok(_) => Err("a pattern matches a text without anything in it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(table: &str) -> String {
        let mut problems = Vec::new();
        RedactionSection::of(&[table.to_owned()], &mut problems);
        problems.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn a_rule_is_usable_or_says_what_is_wrong_with_it() {
        assert_eq!(wrong(r#"{ "tenant": "acme", "names": ["badge", "*_no"], "patterns": ["EMP-[0-9]{6}"] }"#), "");
        for (table, said) in [
            ("{}", "neither"),
            (r#"{ "names": ["emp*id"] }"#, "at the start or the end"),
            (r#"{ "name": ["x"] }"#, "unknown field"),
            (r#"{ "tenant": "", "names": ["x"] }"#, "tenant"),
            (r#"{ "names": ["**"] }"#, "`**` is no name"),
            (r#"{ "patterns": ["("] }"#, "`(` cannot be used"),
            (r#"{ "patterns": ["(a)\\1"] }"#, "cannot be used"),
            (r#"{ "patterns": ["((a{1000}){1000}){1000}"] }"#, "cannot be used"),
            (r#"{ "patterns": ["x*"] }"#, "without anything in it"),
        ] {
            assert!(wrong(table).contains(said), "{table}: {}", wrong(table));
        }
        let long = format!(r#"{{ "patterns": ["{}"] }}"#, "a".repeat(CHARS_MAX + 1));
        assert!(wrong(&long).contains("longer"));
        let many = format!(r#"{{ "names": {:?} }}"#, vec!["x"; NAMES_MAX + 1]);
        assert!(wrong(&many).contains("more than"));
        let mut problems = Vec::new();
        let tables: Vec<String> = (0..=RULES_MAX).map(|_| r#"{ "names": ["x"] }"#.to_owned()).collect();
        RedactionSection::of(&tables, &mut problems);
        assert_eq!(problems.len(), 1);
    }
}
