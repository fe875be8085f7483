//! Reading `x-guard`, and everything that can be wrong with it: a guard that does not guard must not pass unnoticed.
//!
//! Invariants
//! - NOTE-1: what admission let through is guarded. A name unknown here all the same (a store from another release)
//!   counts as every guard, because somebody wanted one.
//!
//! Not here: where in a value the annotations are (`places`).

use serde_json::Value;

use super::places::describing;
use super::{GuardKind, GuardSet, InputGuards, KEYWORD};
use crate::nearest::nearest;
use crate::schema::document::{SchemaDocument, join};
use crate::schema::{SchemaError, modern};

/// The guards a schema object asks for.
pub(super) fn guards_of(schema: &Value) -> GuardSet {
    let one = |name: &Value| name.as_str().and_then(GuardKind::named).map_or(GuardSet::ALL, GuardSet::of);
    match schema.get(KEYWORD) {
        None => GuardSet::default(),
        Some(Value::Array(names)) => names.iter().map(one).fold(GuardSet::default(), |sum, guard| sum | guard),
        Some(name) => one(name),
    }
}

/// Every annotation of a parameter schema that is wrong, with JSON pointers into the schema.
///
/// ```
/// use gantry_contract::guard::misuses;
/// use serde_json::json;
///
/// let found = misuses(&json!({ "properties": { "q": { "type": "string", "x-guard": "sqll" } } }));
/// assert_eq!(found[0].path, "/properties/q/x-guard");
/// assert!(found[0].message.contains("did you mean `sql`?"));
/// ```
pub fn misuses(parameters: &Value) -> Vec<SchemaError> {
    let parameters = modern(parameters);
    let document = SchemaDocument::new(&parameters);
    let positions = document.positions();
    let annotated: Vec<_> = positions.iter().filter(|(_, schema)| schema.get(KEYWORD).is_some()).collect();
    if annotated.is_empty() {
        return Vec::new();
    }
    let describing = describing(&document);
    let mut found = Vec::new();
    for (pointer, schema) in annotated {
        let at = join(pointer, KEYWORD);
        names(&at, schema.get(KEYWORD).unwrap_or(&Value::Null), &mut found);
        let definition = ["/$defs/", "/definitions/"].iter().any(|part| pointer.contains(part));
        if !describing.contains(pointer) && !definition {
            found.push(error(at, "has no effect here: put it on the property itself".to_owned()));
        } else if never_text(schema) {
            found.push(error(at, "has no effect here: guards look at text, and this is none".to_owned()));
        } else if let Some(default) = schema.get("default") {
            // Such a default would make every call without the parameter fail.
            let own = InputGuards::compile(schema).check(default);
            if let Some(breach) = own.first() {
                found.push(error(
                    join(pointer, "default"),
                    format!("is refused by the guard `{}` beside it: {}", breach.guard, breach.reason),
                ));
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    found
}

fn names(at: &str, value: &Value, found: &mut Vec<SchemaError>) {
    let known = || GuardKind::ALL.map(GuardKind::as_str).map(|name| format!("`{name}`")).join(", ");
    let mut one = |at: String, name: &Value| {
        let message = match name.as_str() {
            Some(name) if GuardKind::named(name).is_some() => return,
            Some(name) => match nearest(name, GuardKind::ALL.map(GuardKind::as_str)) {
                Some(near) => format!("`{}` is no guard; did you mean `{near}`?", shortened(name)),
                None => format!("`{}` is no guard; there are {}", shortened(name), known()),
            },
            None => format!("must be a guard or a list of guards: {}", known()),
        };
        found.push(error(at, message));
    };
    match value {
        Value::Array(list) if list.is_empty() => one(at.to_owned(), &Value::Null),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, name)| one(format!("{at}/{index}"), name)),
        name => one(at.to_owned(), name),
    }
}

/// Does the schema's own type leave no room for text, in the value or below it?
fn never_text(schema: &Value) -> bool {
    let bare = |name: &Value| matches!(name.as_str(), Some("integer" | "number" | "boolean" | "null"));
    match schema.get("type") {
        Some(Value::Array(types)) => !types.is_empty() && types.iter().all(bare),
        Some(name) => bare(name),
        None => false,
    }
}

fn error(path: String, message: String) -> SchemaError {
    SchemaError { path, message }
}

fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}
