//! Wording: what a refusal says, so that a model can repair its call from it. (VALID-001, VALID-006)
//!
//! A message says what is expected and, where it helps, what was found. Values are quoted only when they are scalars of
//! at most 80 characters, and never at or below a property marked `x-sensitivity`; results of tools are not quoted at all,
//! because such messages travel to alerts.
//!
//! Invariants
//! - VTEXT-1: at most [`VIOLATIONS_MAX`] violations are spelt out; the rest is a count.
//! - VTEXT-2: no quoted value is longer than 80 characters, none is sensitive.
//!
//! Not here: error codes and envelopes (`contract::error`), what is refused (`jsonschema`).

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind};
use serde_json::Value;

use super::SchemaViolation;
use super::document::{SchemaDocument, join};
use super::sensitivity::{SchemaMarks, Sensitivity};
use crate::nearest::nearest;

/// How many violations are spelt out.
pub const VIOLATIONS_MAX: usize = 50;

/// The longest value or pattern that is quoted, in characters.
const QUOTE_MAX: usize = 80;

/// Turns complaints of the validator into violations.
pub(super) struct Wording<'a> {
    document: SchemaDocument<'a>,
    /// Whether values may be quoted at all.
    quotes: bool,
    /// Which may not.
    marks: Option<&'a SchemaMarks>,
}

impl<'a> Wording<'a> {
    pub(super) fn new(schema: &'a Value, quotes: bool, marks: Option<&'a SchemaMarks>) -> Self {
        Self { document: SchemaDocument::new(schema), quotes, marks }
    }

    /// The violations of `errors`, and how many more there are.
    pub(super) fn violations(&self, errors: &[ValidationError<'_>]) -> (Vec<SchemaViolation>, usize) {
        // A schema that fails also evaluates nothing, so "undeclared" complaints beside others may be mere echoes.
        let echo = |error: &ValidationError<'_>| {
            matches!(error.kind(), ValidationErrorKind::UnevaluatedProperties { .. })
                && errors.iter().any(|other| {
                    !matches!(other.kind(), ValidationErrorKind::UnevaluatedProperties { .. })
                        && other.instance_path().as_str().starts_with(error.instance_path().as_str())
                })
        };
        let mut violations: Vec<SchemaViolation> = Vec::new();
        let mut more = 0_usize;
        for error in errors {
            for violation in self.of(error, echo(error)) {
                if violations.contains(&violation) {
                } else if violations.len() < VIOLATIONS_MAX {
                    violations.push(violation);
                } else {
                    more += 1;
                }
            }
        }
        (violations, more)
    }

    fn of(&self, error: &ValidationError<'_>, echo: bool) -> Vec<SchemaViolation> {
        let path = error.instance_path().as_str();
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let declared = self.declared(path);
                unexpected
                    .iter()
                    .filter(|name| !(echo && declared.contains(&name.as_str())))
                    .map(|name| SchemaViolation { path: join(path, name), message: undeclared(name, &declared) })
                    .collect()
            }
            ValidationErrorKind::PropertyNames { error: inner }
                if matches!(inner.kind(), ValidationErrorKind::Enum { .. }) =>
            {
                let name = inner.instance().as_str().unwrap_or_default();
                vec![SchemaViolation { path: join(path, name), message: undeclared(name, &self.declared(path)) }]
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let about = self.about(&join(path, name));
                vec![SchemaViolation {
                    path: path.to_owned(),
                    message: format!("`{}` is required{about}", short(name)),
                }]
            }
            _ => vec![SchemaViolation { path: path.to_owned(), message: self.message(error) }],
        }
    }

    /// Type and description of a declared property, as a hint for the one who left it out.
    fn about(&self, path: &str) -> String {
        let members = self.document.at_instance(path);
        let kind = members.iter().find_map(|(_, map)| Some(type_names(map.get("type")?)));
        let text = members.iter().find_map(|(_, map)| map.get("description")?.as_str());
        match (kind, text.filter(|text| text.chars().count() <= 2 * QUOTE_MAX)) {
            (Some(kind), Some(text)) => format!(" ({kind}: {text})"),
            (Some(kind), None) => format!(" ({kind})"),
            (None, Some(text)) => format!(" ({text})"),
            (None, None) => String::new(),
        }
    }

    fn declared(&self, path: &str) -> Vec<&'a str> {
        let members = self.document.at_instance(path);
        let properties = members.iter().filter_map(|(_, map)| map.get("properties")?.as_object());
        let mut names: Vec<&str> = properties.flat_map(|named| named.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Is the place marked, or one that it stands in?
    fn is_sensitive(&self, path: &str) -> bool {
        let Some(marks) = self.marks else { return false };
        let mut part = marks.whole();
        for token in path.split('/').skip(1) {
            if part.says() == Sensitivity::Sensitive {
                return true;
            }
            part = part.step(&token.replace("~1", "/").replace("~0", "~"));
        }
        part.says() == Sensitivity::Sensitive
    }

    /// What was found, for the end of a sentence.
    fn found(&self, error: &ValidationError<'_>) -> String {
        let value = error.instance();
        if self.quotes && !self.is_sensitive(error.instance_path().as_str()) && !value.is_object() && !value.is_array()
        {
            let text = value.to_string();
            if text.chars().count() <= QUOTE_MAX {
                return format!(", found `{text}`");
            }
        }
        format!(", found {}", kind_of(value))
    }

    fn message(&self, error: &ValidationError<'_>) -> String {
        use ValidationErrorKind as Kind;
        let found = || self.found(error);
        match error.kind() {
            Kind::Type { kind } => format!("expected {}{}", expected_types(kind), found()),
            Kind::Enum { options } => format!("expected one of {}{}", listed(options), found()),
            Kind::Constant { expected_value } => format!("expected exactly {}{}", quoted(expected_value), found()),
            Kind::Minimum { limit } => format!("must be at least {limit}{}", found()),
            Kind::Maximum { limit } => format!("must be at most {limit}{}", found()),
            Kind::ExclusiveMinimum { limit } => format!("must be greater than {limit}{}", found()),
            Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}{}", found()),
            Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}{}", found()),
            Kind::MinLength { limit } => format!("must have at least {limit} characters{}", found()),
            Kind::MaxLength { limit } => {
                format!("must have at most {limit} characters, has {}", length(error.instance()))
            }
            Kind::Pattern { pattern } => format!("must match the pattern `{}`{}", short(pattern), found()),
            Kind::Format { format } => format!("must be a valid {}{}", short(format), found()),
            Kind::MinItems { limit } => format!("must have at least {limit} items, has {}", length(error.instance())),
            Kind::MaxItems { limit } => format!("must have at most {limit} items, has {}", length(error.instance())),
            Kind::MinProperties { limit } => {
                format!("must have at least {limit} properties, has {}", length(error.instance()))
            }
            Kind::MaxProperties { limit } => {
                format!("must have at most {limit} properties, has {}", length(error.instance()))
            }
            Kind::UniqueItems => "must not have the same item twice".to_owned(),
            Kind::Contains => "has no item, too few or too many items of the kind it must contain".to_owned(),
            Kind::AdditionalItems { limit } => format!("must have no more than {limit} items"),
            Kind::UnevaluatedItems { .. } => "has items that are not declared".to_owned(),
            Kind::FalseSchema => "no value is allowed here".to_owned(),
            Kind::Not { .. } => "is of a form that is excluded here".to_owned(),
            Kind::PropertyNames { error } => {
                format!("has a property name that is not allowed: {}", self.message(error))
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => self.none_of(error, context),
            Kind::OneOfMultipleValid { .. } => {
                "matches more than one of the forms of which exactly one is allowed".to_owned()
            }
            // Patterns with look-around, which put their own words.
            Kind::Custom { message, .. } => format!("{message}{}", found()),
            Kind::ContentEncoding { .. }
            | Kind::ContentMediaType { .. }
            | Kind::FromUtf8 { .. }
            | Kind::BacktrackLimitExceeded { .. }
            | Kind::RegexEngineFailure { .. }
            | Kind::Referencing(_)
            | Kind::AdditionalProperties { .. }
            | Kind::UnevaluatedProperties { .. }
            | Kind::Required { .. } => self.plain(error),
        }
    }

    /// One line for kinds that are spelt out elsewhere (inside a branch) or that do not occur in this draft.
    fn plain(&self, error: &ValidationError<'_>) -> String {
        let first = match error.kind() {
            ValidationErrorKind::AdditionalProperties { .. }
            | ValidationErrorKind::UnevaluatedProperties { .. }
            | ValidationErrorKind::Required { .. } => self.of(error, false).into_iter().next(),
            _ => None,
        };
        first.map_or_else(|| format!("does not satisfy `{}`", error.kind().keyword()), |one| one.message)
    }

    /// No branch fits: the types if that is all, otherwise the branch that comes nearest.
    fn none_of(&self, error: &ValidationError<'_>, context: &[Vec<ValidationError<'static>>]) -> String {
        let types: Option<Vec<String>> = context
            .iter()
            .map(|errors| match errors.first().map(|one| (one.kind(), one.instance_path() == error.instance_path())) {
                Some((ValidationErrorKind::Type { kind }, true)) => Some(expected_types(kind)),
                _ => None,
            })
            .collect();
        if let Some(types) = types {
            return format!("expected {}{}", types.join(" or "), self.found(error));
        }
        // A branch of the wrong type is further off than one with several wrong parts.
        let distance = |errors: &&Vec<ValidationError<'static>>| {
            let elsewhere = errors.iter().any(|one| {
                one.instance_path() == error.instance_path() && matches!(one.kind(), ValidationErrorKind::Type { .. })
            });
            let marker = errors.iter().filter(|one| matches!(one.kind(), ValidationErrorKind::Constant { .. })).count();
            (elsewhere, marker, errors.len())
        };
        let nearest =
            context.iter().filter(|errors| !errors.is_empty()).min_by_key(distance).and_then(|errors| errors.first());
        let count = context.len();
        match nearest {
            Some(one) => {
                let path = one.instance_path().as_str();
                let part = path.strip_prefix(error.instance_path().as_str()).unwrap_or(path);
                let at = if part.is_empty() { String::new() } else { format!("at `{}`: ", short(part)) };
                format!("matches none of the {count} allowed forms; nearest: {at}{}", self.message(one))
            }
            None => format!("matches none of the {count} allowed forms"),
        }
    }
}

fn undeclared(name: &str, declared: &[&str]) -> String {
    let shown = short(name);
    match nearest(name, declared.iter().copied()) {
        Some(known) => format!("`{shown}` is not declared; did you mean `{known}`?"),
        None if declared.is_empty() => format!("`{shown}` is not declared"),
        None => {
            let list: Vec<String> = declared.iter().take(12).map(|known| format!("`{}`", short(known))).collect();
            let more = if declared.len() > list.len() { ", …" } else { "" };
            format!("`{shown}` is not declared; declared are {}{more}", list.join(", "))
        }
    }
}

fn expected_types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.as_str().to_owned(),
        TypeKind::Multiple(set) => set.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(" or "),
    }
}

fn type_names(kind: &Value) -> String {
    match kind {
        Value::String(one) => one.clone(),
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// The options of an `enum`: those that fit into a sentence.
fn listed(options: &Value) -> String {
    let all = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<String> = all.iter().take(20).map(quoted).collect();
    let more = if all.len() > shown.len() { format!(" and {} more", all.len() - shown.len()) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// A value of the schema (not of the call) in backticks.
fn quoted(value: &Value) -> String {
    format!("`{}`", short(&value.to_string()))
}

pub(super) fn short(text: &str) -> String {
    if text.chars().count() <= QUOTE_MAX {
        text.to_owned()
    } else {
        text.chars().take(QUOTE_MAX - 1).chain(['…']).collect()
    }
}
