//! `[[redaction.rules]]`: what is redacted besides what every installation knows. (VALID-009 to VALID-012)
//!
//! Rules only add: nothing that the engine finds by itself can be exempted here. Patterns are of a kind that is matched in
//! time linear in the text, and are compiled when the configuration is read, so that one that cannot be used is told then.

use std::collections::BTreeSet;

use contract::ids::TenantId;
use redaction::{RedactionAdditions, RedactionEngine};
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;
use super::tables::ConfigTables;

/// Rules at most.
const RULES_MAX: usize = 64;
/// Names of one rule.
const NAMES_MAX: usize = 64;
/// Patterns of one rule: each is one more pass over the text.
const PATTERNS_MAX: usize = 16;
/// Longest name or pattern.
const CHARS_MAX: usize = 512;

/// What is redacted besides what every installation knows.
#[derive(Debug, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct RedactionKeys {
    /// What is redacted besides what is always: `[[redaction.rules]]` with `names` of members whose value goes (`*` at the
    /// start or end stands for any words) and `patterns`, regular expressions whose matches go. With a `tenant`, for that
    /// tenant's calls only; logs and traces go by the rules of all. More in [redaction.md](redaction.md).
    pub(super) rules: ConfigTables<RedactionRule>,
}

/// The section's values.
#[derive(Debug, Default)]
pub(crate) struct RedactionSection {
    rules: Vec<RedactionRule>,
}

/// One table of rules.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RedactionRule {
    /// The tenant whose calls it is for; unset, it is for those of all.
    tenant: Option<TenantId>,
    /// Names of members whose value goes; `*` at the start or end stands for any words.
    names: Vec<String>,
    /// Regular expressions whose matches go.
    patterns: Vec<String>,
}

impl ConfigSection for RedactionKeys {
    const NAME: &'static str = "redaction";
    type Checked = RedactionSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> RedactionSection {
        let rules = self.rules.each("[[redaction.rules]]", RULES_MAX, problems, one);
        RedactionSection { rules: rules.into_iter().map(|(_, rule)| rule).collect() }
    }
}

impl RedactionSection {
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

fn one(rule: RedactionRule) -> Result<RedactionRule, String> {
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
    use super::super::section_tests::of_variables;
    use super::*;

    fn wrong(tables: &[String]) -> String {
        of_variables::<RedactionKeys>(&[("RULES", &format!("[{}]", tables.join(",")))]).1.concat()
    }

    #[test]
    fn a_rule_is_usable_or_says_what_is_wrong_with_it() {
        let wrong_with = |table: &str| wrong(&[table.to_owned()]);
        assert_eq!(wrong_with(r#"{ "tenant": "acme", "names": ["badge", "*_no"], "patterns": ["EMP-[0-9]{6}"] }"#), "");
        for (table, said) in [
            ("{}", "[[redaction.rules]] number 1: it has neither"),
            (r#"{ "names": ["emp*id"] }"#, "at the start or the end"),
            (r#"{ "names": "x" }"#, "`names` must be a list of texts"),
            (r#"{ "name": ["x"] }"#, "unknown field"),
            (r#"{ "tenant": "", "names": ["x"] }"#, "tenant"),
            (r#"{ "names": ["**"] }"#, "`**` is no name"),
            (r#"{ "patterns": ["("] }"#, "`(` cannot be used"),
            (r#"{ "patterns": ["(a)\\1"] }"#, "cannot be used"),
            (r#"{ "patterns": ["((a{1000}){1000}){1000}"] }"#, "cannot be used"),
            (r#"{ "patterns": ["x*"] }"#, "without anything in it"),
        ] {
            assert!(wrong_with(table).contains(said), "{table}: {}", wrong_with(table));
        }
        let long = format!(r#"{{ "patterns": ["{}"] }}"#, "a".repeat(CHARS_MAX + 1));
        assert!(wrong(&[long]).contains("longer"));
        let many = format!(r#"{{ "names": {:?} }}"#, vec!["x"; NAMES_MAX + 1]);
        assert!(wrong(&[many]).contains("more than"));
        let tables = vec![r#"{ "names": ["x"] }"#.to_owned(); RULES_MAX + 1];
        assert_eq!(wrong(&tables), "[[redaction.rules]]: there are more than 64");
    }
}
