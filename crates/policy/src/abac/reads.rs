//! Which parts of the context policies read, found by walking their JSON form.
//!
//! Serves two ends: what nobody reads need not be in a cache key ([`ContextNeeds`]), and arguments nobody reads are never
//! copied for the engine. Conservative: whatever is not recognised counts as reading everything.
//!
//! Not here: whether the policy reaches the place at evaluation. What stands in a dead branch is read, too.

use std::collections::BTreeSet;
use std::ops::Bound;

use serde_json::Value;

use super::ContextNeeds;

/// The ways of looking at arguments; each is an entity with tags in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Text,
    Number,
    Decimal,
    Flag,
    List,
}

impl View {
    pub(super) const ALL: [Self; 5] = [Self::Text, Self::Number, Self::Decimal, Self::Flag, Self::List];

    /// The attribute of `context.arguments`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Decimal => "decimal",
            Self::Flag => "flag",
            Self::List => "list",
        }
    }

    /// For messages: "reads `amount` as …".
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "a whole number of 64 bits",
            Self::Decimal => "a decimal with at most four digits after the point",
            Self::Flag => "a boolean",
            Self::List => "a list of texts, numbers and booleans",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.as_str() == name)
    }
}

/// Which arguments are read in one view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Paths {
    Only(BTreeSet<String>),
    /// A path is computed, or cannot be told.
    All,
}

impl Paths {
    /// Is the argument at `path` read?
    pub(super) fn wants(&self, path: &str) -> bool {
        match self {
            Self::Only(paths) => paths.contains(path),
            Self::All => true,
        }
    }

    /// May something below `path` be read?
    pub(super) fn wants_below(&self, path: &str) -> bool {
        match self {
            Self::Only(paths) => paths
                .range::<str, _>((Bound::Excluded(path), Bound::Unbounded))
                .take_while(|wanted| wanted.starts_with(path))
                .any(|wanted| wanted.strip_prefix(path).is_some_and(|rest| path.is_empty() || rest.starts_with('.'))),
            Self::All => true,
        }
    }

    /// The first path named that is as asked.
    pub(super) fn first_where(&self, mut fine: impl FnMut(&str) -> bool) -> Option<&str> {
        match self {
            Self::Only(paths) => paths.iter().map(String::as_str).find(|path| fine(path)),
            Self::All => None,
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Only(paths) if paths.is_empty())
    }

    fn add(&mut self, path: Option<&str>) {
        match (self, path) {
            (Self::Only(paths), Some(path)) => {
                paths.insert(path.to_owned());
            }
            (all, None) => *all = Self::All,
            (Self::All, Some(_)) => {}
        }
    }
}

/// What a set of policies reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Reads {
    pub(super) time: bool,
    pub(super) session: bool,
    /// `context.arguments.names`.
    pub(super) names: bool,
    text: Paths,
    number: Paths,
    decimal: Paths,
    flag: Paths,
    list: Paths,
}

impl Reads {
    pub(super) fn nothing() -> Self {
        Self::same(false, &Paths::Only(BTreeSet::new()))
    }

    pub(super) fn everything() -> Self {
        Self::same(true, &Paths::All)
    }

    fn same(read: bool, paths: &Paths) -> Self {
        Self {
            time: read,
            session: read,
            names: read,
            text: paths.clone(),
            number: paths.clone(),
            decimal: paths.clone(),
            flag: paths.clone(),
            list: paths.clone(),
        }
    }

    /// What is read in `view`.
    pub(super) fn view(&self, view: View) -> &Paths {
        match view {
            View::Text => &self.text,
            View::Number => &self.number,
            View::Decimal => &self.decimal,
            View::Flag => &self.flag,
            View::List => &self.list,
        }
    }

    fn view_mut(&mut self, view: View) -> &mut Paths {
        match view {
            View::Text => &mut self.text,
            View::Number => &mut self.number,
            View::Decimal => &mut self.decimal,
            View::Flag => &mut self.flag,
            View::List => &mut self.list,
        }
    }

    /// Is any argument read?
    pub(super) fn arguments(&self) -> bool {
        self.names || View::ALL.into_iter().any(|view| !self.view(view).is_empty())
    }

    /// For the keys of caches.
    pub(super) fn needs(&self) -> ContextNeeds {
        ContextNeeds { arguments: self.arguments(), time: self.time, session: self.session }
    }

    /// Adds what other policies read.
    pub(super) fn add(&mut self, other: &Self) {
        self.time |= other.time;
        self.session |= other.session;
        self.names |= other.names;
        for view in View::ALL {
            match other.view(view) {
                Paths::All => self.view_mut(view).add(None),
                Paths::Only(paths) => paths.iter().for_each(|path| self.view_mut(view).add(Some(path))),
            }
        }
    }

    /// Adds what the policy with this JSON form reads.
    pub(super) fn add_policy(&mut self, policy: &Value) {
        match policy.get("conditions") {
            Some(conditions) => self.visit(conditions),
            None => *self = Self::everything(),
        }
    }

    /// Goes from the outside in, so that the first chain of attributes that ends in `context` is the longest.
    fn visit(&mut self, node: &Value) {
        if let Some((view, path)) = tag_of_view(node) {
            self.view_mut(view).add(path.get("Value").and_then(Value::as_str));
            self.visit(path);
        } else if let Some(chain) = chain_from_context(node) {
            self.add_chain(&chain);
        } else {
            match node {
                Value::Object(members) => members.values().for_each(|child| self.visit(child)),
                Value::Array(items) => items.iter().for_each(|child| self.visit(child)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
    }

    fn add_chain(&mut self, chain: &[&str]) {
        match chain {
            ["environment" | "risk", ..] => {}
            ["time" | "hour" | "minute" | "weekday", ..] => self.time = true,
            ["session", ..] => self.session = true,
            ["arguments", "names", ..] => self.names = true,
            ["arguments", view, ..] if View::parse(view).is_some() => {
                if let Some(view) = View::parse(view) {
                    self.view_mut(view).add(None);
                }
            }
            _ => *self = Self::everything(),
        }
    }
}

/// `context.arguments.VIEW.hasTag(path)` or `….getTag(path)`: the view, and the expression of the path.
fn tag_of_view(node: &Value) -> Option<(View, &Value)> {
    let members = node.as_object().filter(|members| members.len() == 1)?;
    let tag = members.get("hasTag").or_else(|| members.get("getTag"))?;
    match chain_from_context(tag.get("left")?)?.as_slice() {
        ["arguments", view] => Some((View::parse(view)?, tag.get("right")?)),
        _ => None,
    }
}

/// `context`, `context.a`, `context.a has b` …: the attributes in the order they are written.
fn chain_from_context(node: &Value) -> Option<Vec<&str>> {
    let members = node.as_object().filter(|members| members.len() == 1)?;
    if let Some(variable) = members.get("Var") {
        return (variable.as_str() == Some("context")).then(Vec::new);
    }
    let access = members.get(".").or_else(|| members.get("has"))?;
    let mut chain = chain_from_context(access.get("left")?)?;
    chain.push(access.get("attr")?.as_str()?);
    Some(chain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cedar_policy::Policy;

    fn reads(condition: &str) -> Reads {
        let text = format!("permit(principal, action, resource) when {{ {condition} }};");
        let mut reads = Reads::nothing();
        reads.add_policy(&Policy::parse(None, text).unwrap().to_json().unwrap());
        reads
    }

    #[test]
    fn what_is_read_is_found_and_what_cannot_be_told_is_everything() {
        let needs = |arguments, time, session| ContextNeeds { arguments, time, session };
        for (condition, expected) in [
            ("true", needs(false, false, false)),
            (r#"principal.roles.contains("context")"#, needs(false, false, false)),
            (r#"context.environment == "x" && context.risk != "low""#, needs(false, false, false)),
            ("context.hour > 3", needs(false, true, false)),
            (
                r#"if context.weekday == 1 then true else {a: context.time}.a == datetime("2026-01-01")"#,
                needs(false, true, false),
            ),
            (r#"context has session && context.session == "s""#, needs(false, false, true)),
            (r#"context.arguments.names.contains("a")"#, needs(true, false, false)),
            (r#"["x"].contains(context.arguments.text.getTag("a"))"#, needs(true, false, false)),
            (r#"resource.tags.contains(context.arguments.text.getTag(context.session))"#, needs(true, false, true)),
            (r#"context.arguments.list == context.arguments.list"#, needs(true, false, false)),
            ("context has arguments", needs(true, true, true)),
            ("context.arguments == context.arguments", needs(true, true, true)),
            ("context == context", needs(true, true, true)),
            (r#"{"hasTag": context.hour, "Var": 1} == {"hasTag": 1, "Var": 2}"#, needs(false, true, false)),
            (r#"{"Var": context.hour} == {"Var": 1}"#, needs(false, true, false)),
        ] {
            assert_eq!(reads(condition).needs(), expected, "{condition}");
        }
    }

    #[test]
    fn literal_paths_are_known_and_computed_ones_mean_all() {
        let literal = reads(r#"context.arguments.number.hasTag("a.b") && context.arguments.number.getTag("a.b") > 1"#);
        assert!(literal.view(View::Number).wants("a.b") && !literal.view(View::Number).wants("a"));
        assert!(literal.view(View::Number).wants_below("a") && literal.view(View::Number).wants_below(""));
        assert!(!literal.view(View::Number).wants_below("a.b") && !literal.view(View::Number).wants_below("aa"));
        assert!(literal.view(View::Text).is_empty());
        let computed = reads("context.arguments.text.hasTag(resource.name)");
        assert_eq!(*computed.view(View::Text), Paths::All);
    }
}
