//! The engine as everybody uses it: tables of what goes and what stays (`texts`), documents of JSON (`documents`), and what
//! holds for every text (`properties`).

#![expect(clippy::unwrap_used, reason = "a test may be blunt")]

mod documents;
mod properties;
mod texts;

use contract::schema::{PartMarks, SchemaMarks, Sensitivity};
use redaction::{RedactionAdditions, RedactionEngine, RedactionKind, ValueDescription, ValuePart};
use serde_json::Value;
use std::sync::LazyLock;

static ENGINE: LazyLock<RedactionEngine> =
    LazyLock::new(|| RedactionEngine::new(&RedactionAdditions::default()).unwrap());

/// The marks of a schema, as the engine asks for them.
struct Described<'m>(PartMarks<'m>);

impl ValueDescription for Described<'_> {
    fn is_sensitive(&self) -> Option<bool> {
        match self.0.says() {
            Sensitivity::Unsaid => None,
            Sensitivity::Open => Some(false),
            Sensitivity::Sensitive => Some(true),
        }
    }

    fn part(&self, part: ValuePart<'_>) -> Option<Box<dyn ValueDescription + '_>> {
        let part = match part {
            ValuePart::Member(name) => self.0.member(name),
            ValuePart::Item(index) => self.0.item(index),
            ValuePart::Content => self.0.content(),
            ValuePart::Names => self.0.names(),
        };
        (!part.is_silent()).then(|| Box::new(Self(part)) as _)
    }
}

/// What is shown of a value that a schema describes: of its fields, and of everything.
fn described(value: &Value, schema: &Value) -> (Option<Value>, Value) {
    let marks = SchemaMarks::of(schema);
    let described = marks.as_ref().map(|marks| Described(marks.whole()));
    let described = described.as_ref().map(|described| described as &dyn ValueDescription);
    (ENGINE.fields(value, described).unwrap(), ENGINE.value(value, described).unwrap())
}

/// What is found of a kind, as text.
fn found(kind: RedactionKind, text: &str) -> Vec<&str> {
    ENGINE
        .findings(text)
        .into_iter()
        .filter(|it| it.kind == kind)
        .map(|it| text.get(it.start..it.end).unwrap())
        .collect()
}

/// Each text holds exactly what is named, or nothing.
fn table(kind: RedactionKind, rows: &[(&str, &str)]) {
    for (text, expected) in rows {
        let expected: Vec<&str> = if expected.is_empty() { Vec::new() } else { vec![expected] };
        assert_eq!(found(kind, text), expected, "{text}");
    }
}
