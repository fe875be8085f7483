//! Words that can never occur: `resource.side_effects == "irreversable"`, `context.weekday == 8` and `Tool::"demo.*"` are well
//! typed and never true, and a forbid with one of them would be silently dead. The schema cannot say so, so it is found here.
//!
//! Not here: combinations that exclude each other (`hour < 6 && hour > 20`), and words that nobody happens to use.

use std::collections::BTreeSet;

use cedar_policy::EntityUid;
use contract::ids::{Subject, TenantId, ToolId};
use contract::version::Version;
use serde_json::Value;

use super::vocabulary::vocabulary;
use crate::scope::PermissionScope;

/// What an attribute can hold.
enum Domain {
    /// One of these words, or a set of them.
    Words(&'static [&'static str]),
    /// A whole number, both ends included.
    Range(i64, i64),
    /// Texts of a form, which is described.
    Form(fn(&str) -> bool, &'static str),
}

struct Attribute {
    path: &'static str,
    domain: Domain,
}

const ATTRIBUTES: [Attribute; 13] = [
    Attribute {
        path: "resource.side_effects",
        domain: Domain::Words(&["pure", "idempotent", "compensatable", "irreversible", "unclassified"]),
    },
    Attribute { path: "resource.output_schema", domain: Domain::Words(&["declared", "unconstrained"]) },
    Attribute { path: "resource.upstream.transport", domain: Domain::Words(&["stdio", "http", "sse"]) },
    Attribute { path: "context.risk", domain: Domain::Words(&["low", "medium", "high"]) },
    Attribute {
        path: "principal.roles",
        domain: Domain::Words(&["admin", "operator", "approver", "auditor", "tool_author", "agent"]),
    },
    Attribute { path: "context.hour", domain: Domain::Range(0, 23) },
    Attribute { path: "context.minute", domain: Domain::Range(0, 59) },
    Attribute { path: "context.weekday", domain: Domain::Range(1, 7) },
    Attribute { path: "resource.major", domain: Domain::Range(0, i64::MAX) },
    Attribute { path: "resource.version", domain: Domain::Form(is_version, "a whole version such as `2.1.0`") },
    Attribute { path: "resource.name", domain: Domain::Form(is_local_name, "the part of a tool's id after the dot") },
    Attribute {
        path: "resource.hosts",
        domain: Domain::Form(is_host, "a host in lower case, without scheme and port"),
    },
    Attribute {
        path: "principal.scopes",
        domain: Domain::Form(is_scope, "a scope such as `network:https://api.example.com`"),
    },
];

/// Operators that relate an attribute to words or numbers.
const RELATIONS: [&str; 5] = ["==", "!=", "contains", "containsAny", "containsAll"];
/// Operators that order numbers, and what each says with its sides exchanged.
const ORDERS: [(&str, &str); 4] = [("<", ">"), ("<=", ">="), (">", "<"), (">=", "<=")];

/// A message for each entity that can never be there.
pub(super) fn unknown_names(literals: &BTreeSet<EntityUid>) -> Vec<String> {
    let words = vocabulary();
    let mut found = Vec::new();
    for uid in literals {
        let (kind, id): (_, &str) = (uid.type_name(), uid.id().as_ref());
        let (can_be, what) = if *kind == words.tool {
            (
                id.parse::<ToolId>().is_ok(),
                "tool: write its whole id, or `resource in Namespace::\"…\"` for all of a namespace",
            )
        } else if *kind == words.namespace {
            (ToolId::new(Some(id), "tool").is_ok(), "namespace: write the part of a tool's id before the dot")
        } else if *kind == words.tenant {
            (id.parse::<TenantId>().is_ok(), "tenant: write its name")
        } else if *kind == words.agent || *kind == words.user {
            (id.parse::<Subject>().is_ok(), "subject: write the DID or name that its token carries")
        } else {
            continue;
        };
        if !can_be {
            found.push(format!("`{uid}` can never be a {what}"));
        }
    }
    found
}

/// A message for each comparison with a word that can never be there.
pub(super) fn unknown_words(policy: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit(policy, &mut found);
    found
}

fn visit(node: &Value, found: &mut Vec<String>) {
    match node {
        Value::Object(members) => {
            for (operator, operands) in members {
                if let (Some(left), Some(right)) = (operands.get("left"), operands.get("right")) {
                    relation(operator, left, right, found);
                } else if operator == "like"
                    && let (Some(left), Some(pattern)) = (operands.get("left"), operands.get("pattern"))
                {
                    found.extend(never_like(left, pattern));
                }
                visit(operands, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| visit(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn relation(operator: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    if RELATIONS.contains(&operator) {
        found.extend(never_equal(left, right));
        found.extend(never_equal(right, left));
    } else if let Some((_, exchanged)) = ORDERS.into_iter().find(|(order, _)| *order == operator) {
        found.extend(never_ordered(left, operator, right));
        found.extend(never_ordered(right, exchanged, left));
    }
}

fn never_equal(attribute: &Value, literal: &Value) -> Vec<String> {
    let Some(Attribute { path, domain }) = attribute_of(attribute) else { return Vec::new() };
    let literals = literals(literal);
    let unknown = literals.into_iter().filter_map(|literal| match (domain, literal) {
        (Domain::Words(words), Literal::Text(text)) => {
            (!words.contains(&text)).then(|| format!("`{path}` is never `{text}`: there are {}", words.join(", ")))
        }
        (Domain::Form(is_fine, form), Literal::Text(text)) => {
            (!is_fine(text)).then(|| format!("`{path}` never holds `{text}`: it is {form}"))
        }
        (Domain::Range(least, most), Literal::Number(number)) => {
            (!(*least..=*most).contains(&number)).then(|| never_number(path, number, *least, *most))
        }
        (Domain::Words(_) | Domain::Form(..), Literal::Number(_)) | (Domain::Range(..), Literal::Text(_)) => None,
    });
    unknown.collect()
}

/// `hour < 24` is every hour, and somebody may say so. A bound further out is a mistake, and so is what no hour can be.
fn never_ordered(attribute: &Value, order: &str, bound: &Value) -> Option<String> {
    let Attribute { path, domain: Domain::Range(least, most) } = attribute_of(attribute)? else { return None };
    let bound = number(bound)?;
    let is_reasonable = (*least..=most.saturating_add(1)).contains(&bound);
    let is_ever_true = match order {
        "<" => *least < bound,
        "<=" => *least <= bound,
        ">" => *most > bound,
        _ => *most >= bound,
    };
    (!(is_reasonable && is_ever_true)).then(|| never_number(path, bound, *least, *most))
}

fn never_number(path: &str, number: i64, least: i64, most: i64) -> String {
    if most == i64::MAX {
        return format!("`{path}` cannot be compared with {number}: it is {least} or more");
    }
    format!("`{path}` cannot be compared with {number} like this: it is {least} to {most}")
}

fn never_like(attribute: &Value, pattern: &Value) -> Option<String> {
    let Attribute { path, domain: Domain::Words(words) } = attribute_of(attribute)? else { return None };
    let parts = pattern.as_array()?;
    let pieces: Vec<Option<&str>> = parts.iter().map(|part| part.get("Literal").and_then(Value::as_str)).collect();
    let is_like = |word: &&str| matches(word, &pieces);
    (!words.iter().any(is_like))
        .then(|| format!("no word of `{path}` is like this pattern: there are {}", words.join(", ")))
}

/// `None` is a wildcard.
fn matches(text: &str, pieces: &[Option<&str>]) -> bool {
    match pieces.split_first() {
        None => text.is_empty(),
        Some((Some(literal), rest)) => text.strip_prefix(literal).is_some_and(|left| matches(left, rest)),
        Some((None, rest)) => (0..=text.len()).filter_map(|at| text.get(at..)).any(|left| matches(left, rest)),
    }
}

fn attribute_of(node: &Value) -> Option<&'static Attribute> {
    let path = path_of(node)?;
    ATTRIBUTES.iter().find(|attribute| attribute.path == path)
}

/// `resource.upstream.transport`, if that is what is read.
fn path_of(node: &Value) -> Option<String> {
    if let Some(variable) = node.get("Var").and_then(Value::as_str) {
        return Some(variable.to_owned());
    }
    let access = node.get(".")?;
    let attribute = access.get("attr").and_then(Value::as_str)?;
    Some(format!("{}.{attribute}", path_of(access.get("left")?)?))
}

enum Literal<'a> {
    Text(&'a str),
    Number(i64),
}

/// `"word"`, `7`, or what is in `["one", "other"]`.
fn literals(node: &Value) -> Vec<Literal<'_>> {
    let literal = |node| text(node).map(Literal::Text).or_else(|| number(node).map(Literal::Number));
    match node.get("Set").and_then(Value::as_array) {
        Some(items) => items.iter().filter_map(literal).collect(),
        None => literal(node).into_iter().collect(),
    }
}

fn text(node: &Value) -> Option<&str> {
    node.get("Value").and_then(Value::as_str)
}

fn number(node: &Value) -> Option<i64> {
    match node.get("neg") {
        Some(negated) => number(negated.get("arg")?)?.checked_neg(),
        None => node.get("Value").and_then(Value::as_i64),
    }
}

fn is_version(text: &str) -> bool {
    text.parse::<Version>().is_ok()
}

fn is_local_name(text: &str) -> bool {
    ToolId::new(None, text).is_ok()
}

fn is_host(text: &str) -> bool {
    let is_foreign = |c: char| c.is_ascii_uppercase() || c.is_whitespace() || c == '/';
    let has_port = text.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') && !host.is_empty());
    !text.is_empty() && !text.contains(is_foreign) && !has_port
}

fn is_scope(text: &str) -> bool {
    text.parse::<PermissionScope>().is_ok_and(|scope| scope.as_str() == text)
}

#[cfg(test)]
mod tests {
    use crate::Policies;

    #[test]
    fn what_can_never_occur_is_refused_and_what_can_is_not() {
        for (condition, said) in [
            ("context.weekday == 8", Some("`context.weekday` cannot be compared with 8")),
            ("context.weekday == 0", Some("it is 1 to 7")),
            ("[6, 7, 8].contains(context.weekday)", Some("compared with 8")),
            ("context.hour >= 24", Some("compared with 24")),
            ("24 <= context.hour", Some("compared with 24")),
            ("context.hour < 0", Some("compared with 0")),
            ("context.hour > -1", Some("compared with -1")),
            ("context.hour < 30", Some("compared with 30")),
            ("context.minute > 59", Some("compared with 59")),
            ("resource.major == -2", Some("it is 0 or more")),
            ("context.hour < 24 && context.hour >= 0 && 22 <= context.hour", None),
            ("[6, 7].contains(context.weekday) || context.minute <= 59", None),
            ("resource.side_effects like \"irrever*\"", None),
            ("resource.side_effects like \"ireversi*\"", Some("no word of `resource.side_effects`")),
            ("resource.side_effects == \"destructive\"", Some("is never `destructive`")),
            ("resource has upstream && resource.upstream.transport == \"tcp\"", Some("is never `tcp`")),
            ("resource.version == \"2.x\"", Some("a whole version")),
            ("resource.version == \"2.1.0\"", None),
            ("resource.name == \"demo.*\"", Some("never holds `demo.*`")),
            ("resource.hosts.contains(\"API.example.com\")", Some("a host in lower case")),
            ("resource.hosts.contains(\"https://api.example.com\")", Some("without scheme")),
            ("resource.hosts.contains(\"api.example.com:443\")", Some("and port")),
            ("resource.hosts.containsAny([\"*.example.com\", \"*\", \"::1\", \"10.0.0.1\"])", None),
            ("principal.scopes.contains(\"tool:*\")", None),
            ("resource == Tool::\"demo.*\"", Some("`Tool::\"demo.*\"` can never be a tool")),
            ("resource in Namespace::\"demo.sub\"", Some("can never be a namespace")),
            ("resource in Namespace::\"demo\" || resource == Tool::\"demo.echo\"", None),
        ] {
            let text = format!("forbid (principal, action, resource) when {{ {condition} }};");
            let problems: Vec<_> =
                Policies::compile(&text).err().unwrap_or_default().iter().map(ToString::to_string).collect();
            match said {
                Some(said) => assert!(problems.iter().any(|one| one.contains(said)), "{condition}: {problems:?}"),
                None => assert!(problems.is_empty(), "{condition}: {problems:?}"),
            }
            // A text that is in force already stays in force.
            let accepted = Policies::compile_accepted(&text).unwrap();
            assert_eq!(accepted.warnings().is_empty(), said.is_none(), "{condition}: {:?}", accepted.warnings());
        }
        let scope = Policies::compile("forbid (principal, action, resource == Tool::\"demo.*\");").unwrap_err();
        assert!(scope.iter().any(|one| one.to_string().contains("write its whole id")), "{scope:?}");
    }
}
