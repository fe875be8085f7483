//! The translation itself: one pass over the places of the old schema that are schemas, then the references.
//!
//! ```text
//! items: [..]            prefixItems         id: "#x" / $id: "#x"      $anchor
//! additionalItems        items               $recursiveRef             $ref
//! dependencies           dependentRequired, dependentSchemas
//! exclusiveMinimum: true exclusiveMinimum: <minimum>
//! beside $ref (to 07), and words of later drafts: x-ignored-<word>, so that references into them still lead there
//! ```

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::Draft;
use crate::schema::document::{join, percent_decoded};
use crate::schema::unchecked::UncheckedPart;

/// What the name of a keyword that is ignored starts with.
pub(super) const IGNORED: &str = "x-ignored-";

/// Keywords that a draft does not have yet: the draft that brought them first.
const LATER: [(&str, Draft); 19] = [
    ("const", Draft::Six),
    ("contains", Draft::Six),
    ("propertyNames", Draft::Six),
    ("$id", Draft::Six),
    ("if", Draft::Seven),
    ("then", Draft::Seven),
    ("else", Draft::Seven),
    ("$anchor", Draft::Year2019),
    ("$recursiveRef", Draft::Year2019),
    ("dependentRequired", Draft::Year2019),
    ("dependentSchemas", Draft::Year2019),
    ("unevaluatedProperties", Draft::Year2019),
    ("unevaluatedItems", Draft::Year2019),
    ("minContains", Draft::Year2019),
    ("maxContains", Draft::Year2019),
    ("contentSchema", Draft::Year2019),
    ("prefixItems", Draft::Year2020),
    ("$dynamicRef", Draft::Year2020),
    ("$dynamicAnchor", Draft::Year2020),
];

/// Keywords that assert nothing and may stand beside `$ref` in any draft, and those that belong to the document.
const BESIDE_REFERENCE: [&str; 12] = [
    "$ref",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "definitions",
    "$defs",
    "$schema",
];

/// Keywords whose value is one schema, a list of schemas, or schemas by name.
const ONE: [&str; 11] = [
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contentSchema",
    "items",
];
const LIST: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "definitions", "$defs", "dependentSchemas"];

pub(super) fn translated(schema: &Value, draft: Draft) -> (Value, Vec<UncheckedPart>) {
    let mut translation = Translation {
        draft,
        root: schema,
        // 2020-12 counts what `contains` has found as evaluated; 2019-09 did not.
        contains_apart: draft == Draft::Year2019 && mentions(schema, "unevaluatedItems"),
        moves: BTreeMap::new(),
        visited: HashSet::new(),
        places: Vec::new(),
        ignored: Vec::new(),
    };
    let mut result = translation.schema(schema, "", "");
    translation.loose(&mut result);
    if let Value::Object(members) = &mut result {
        members.remove("$schema");
    }
    translation.redirect(&mut result);
    (result, translation.ignored)
}

struct Translation<'s> {
    draft: Draft,
    root: &'s Value,
    contains_apart: bool,
    /// Where schemas have gone: old pointer to new one. The longest that fits a pointer counts.
    moves: BTreeMap<String, String>,
    /// Places that were translated, by their old pointers.
    visited: HashSet<String>,
    /// The same by their new pointers.
    places: Vec<String>,
    ignored: Vec<UncheckedPart>,
}

impl Translation<'_> {
    // Depth is bounded by whoever asks.
    fn schema(&mut self, schema: &Value, old: &str, new: &str) -> Value {
        self.visited.insert(old.to_owned());
        self.places.push(new.to_owned());
        let Value::Object(members) = schema else { return schema.clone() };
        let is_reference = self.draft <= Draft::Seven && members.get("$ref").is_some_and(Value::is_string);
        let is_tuple = members.get("items").is_some_and(Value::is_array);
        let mut out = Map::new();
        for (keyword, value) in members {
            let from = join(old, keyword);
            let later = LATER.iter().find(|(word, since)| word == keyword && self.draft < *since);
            let beside = is_reference && !BESIDE_REFERENCE.contains(&keyword.as_str()) && !keyword.starts_with("x-");
            if later.is_some() || beside {
                let renamed = format!("{IGNORED}{keyword}");
                self.moves.insert(from.clone(), join(new, &renamed));
                if asserts(keyword) {
                    let why = match later {
                        Some((_, since)) => format!("came with {}", since.name()),
                        None => "stands beside `$ref`".to_owned(),
                    };
                    let message =
                        format!("`{keyword}` {why} and is ignored in {}: it is not checked", self.draft.name());
                    self.ignored.push(UncheckedPart { path: from, message });
                }
                out.insert(renamed, value.clone());
                continue;
            }
            match keyword.as_str() {
                "items" if is_tuple => self.put("prefixItems", value, (&from, new), &mut out),
                // Without a tuple it never meant anything.
                "additionalItems" if !is_tuple => {}
                "additionalItems" => self.put("items", value, (&from, new), &mut out),
                "dependencies" => self.dependencies(value, (&from, new), &mut out),
                "id" if self.draft == Draft::Four => self.identity(value, old.is_empty(), schema, &mut out),
                "$id" => self.identity(value, old.is_empty(), schema, &mut out),
                // A part that says the same draft once more says nothing.
                "$schema" if !old.is_empty() && value.as_str().and_then(Draft::named) == Some(self.draft) => {}
                // A document is one resource, so the outermost anchor is the root, whatever `$recursiveAnchor` says.
                "$recursiveRef" => insert(&mut out, "$ref", value.clone(), members.contains_key("$ref")),
                "$recursiveAnchor" => {}
                "exclusiveMinimum" | "exclusiveMaximum" | "minimum" | "maximum" if self.draft == Draft::Four => {}
                "contains" | "minContains" | "maxContains" if self.contains_apart => {}
                word => self.put(word, value, (&from, new), &mut out),
            }
        }
        if self.draft == Draft::Four && !is_reference {
            bounds(members, &mut out);
        }
        if self.contains_apart && members.contains_key("contains") {
            self.contains(members, (old, new), &mut out);
        }
        Value::Object(out)
    }

    /// Puts the value of a keyword under the name that it has now.
    fn put(&mut self, word: &str, value: &Value, (from, new): (&str, &str), out: &mut Map<String, Value>) {
        let to = join(new, word);
        if from.rsplit('/').next() != to.rsplit('/').next() {
            self.moves.insert(from.to_owned(), to.clone());
        }
        let translated = match value {
            Value::Array(list) if LIST.contains(&word) || word == "prefixItems" => {
                let each = |(index, schema)| self.schema(schema, &format!("{from}/{index}"), &format!("{to}/{index}"));
                Value::Array(list.iter().enumerate().map(each).collect())
            }
            Value::Object(named) if BY_NAME.contains(&word) => {
                let each = |(name, schema): (&String, &Value)| {
                    (name.clone(), self.schema(schema, &join(from, name), &join(&to, name)))
                };
                Value::Object(named.iter().map(each).collect())
            }
            schema @ (Value::Object(_) | Value::Bool(_)) if ONE.contains(&word) => self.schema(schema, from, &to),
            other => other.clone(),
        };
        out.insert(word.to_owned(), translated);
    }

    /// One word became two.
    fn dependencies(&mut self, value: &Value, (from, new): (&str, &str), out: &mut Map<String, Value>) {
        let Value::Object(members) = value else { return };
        let (names, schemas): (Vec<_>, Vec<_>) = members.iter().partition(|(_, dependency)| dependency.is_array());
        let required: Map<String, Value> = names.into_iter().map(|(name, list)| (name.clone(), list.clone())).collect();
        // 2019-09 knows the new words as well; what stands under both has to hold under both.
        let beside = |word: &str| self.draft == Draft::Year2019 && self.has(from, word);
        let (names_apart, schemas_apart) = (beside("dependentRequired"), beside("dependentSchemas"));
        if !required.is_empty() {
            insert(out, "dependentRequired", Value::Object(required), names_apart);
        }
        if schemas.is_empty() {
            return;
        }
        let to = if schemas_apart { join(new, "x-ignored-dependencies") } else { join(new, "dependentSchemas") };
        let mut translated = Map::new();
        for (name, schema) in schemas {
            let (old, new) = (join(from, name), join(&to, name));
            self.moves.insert(old.clone(), new.clone());
            translated.insert(name.clone(), self.schema(schema, &old, &new));
        }
        if schemas_apart {
            let led = translated.keys().map(|name| (name.clone(), json!({ "$ref": reference_to(&join(&to, name)) })));
            insert(out, "dependentSchemas", led.collect(), true);
            out.insert("x-ignored-dependencies".to_owned(), Value::Object(translated));
        } else {
            insert(out, "dependentSchemas", Value::Object(translated), false);
        }
    }

    /// Whether the object that the keyword at `from` stands in has another one.
    fn has(&self, from: &str, word: &str) -> bool {
        let parent = from.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.root.pointer(parent).is_some_and(|object| object.get(word).is_some())
    }

    /// What names a place. A fragment is an anchor; an address in the middle is left out if nothing depends on it.
    fn identity(&self, value: &Value, is_root: bool, schema: &Value, out: &mut Map<String, Value>) {
        let Some(text) = value.as_str() else { return };
        let (address, fragment) = text.split_once('#').unwrap_or((text, ""));
        let is_anchor = fragment.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && fragment.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
        if is_anchor {
            out.insert("$anchor".to_owned(), json!(fragment));
        }
        let needed = is_root || self.depends_on_base(schema) || leads_elsewhere(self.root);
        if !address.is_empty() && needed {
            out.insert("$id".to_owned(), json!(address));
        }
    }

    /// Whether anything in a part means something else with another address around it.
    fn depends_on_base(&self, part: &Value) -> bool {
        let own = if self.draft == Draft::Four { "id" } else { "$id" };
        let below = |members: &Map<String, Value>| {
            members.values().any(|value| any_member(value, &|name, value| name == own && value.is_string()))
        };
        any_member(part, &|name, value| matches!(name, "$ref" | "$recursiveRef" | "$anchor") && value.is_string())
            || part.as_object().is_some_and(below)
    }

    /// `contains` where what it found must not count as evaluated: asked twice the other way round, it tells nobody.
    fn contains(&mut self, members: &Map<String, Value>, (old, new): (&str, &str), out: &mut Map<String, Value>) {
        let apart = out.contains_key("not");
        let to = if apart { join(new, "x-ignored-contains") } else { format!("{new}/not/not/contains") };
        let mut asked = Map::new();
        for word in ["contains", "minContains", "maxContains"] {
            let Some(value) = members.get(word) else { continue };
            let from = join(old, word);
            let value = if word == "contains" {
                self.moves.insert(from.clone(), to.clone());
                self.schema(value, &from, &to)
            } else {
                value.clone()
            };
            asked.insert(word.to_owned(), value);
        }
        if apart && let Some(inner) = asked.insert("contains".to_owned(), json!({ "$ref": reference_to(&to) })) {
            out.insert("x-ignored-contains".to_owned(), inner);
        }
        insert(out, "not", json!({ "not": asked }), apart);
    }

    /// Schemas that stand where no keyword of the draft says that one does, and are referred to.
    fn loose(&mut self, result: &mut Value) {
        let mut looked_at = 0;
        while let Some(place) = self.places.get(looked_at).cloned() {
            looked_at += 1;
            let Some(old) = result.pointer(&place).and_then(local_reference) else { continue };
            let Some(schema) = self.root.pointer(&old).filter(|_| !self.visited.contains(&old)) else { continue };
            let new = self.moved(&old);
            let translated = self.schema(schema, &old, &new);
            if let Some(place) = result.pointer_mut(&new) {
                *place = translated;
            }
        }
    }

    /// Points every local reference at where its target is now (DIALECT-2).
    fn redirect(&self, result: &mut Value) {
        for place in &self.places {
            let Some(old) = result.pointer(place).and_then(local_reference) else { continue };
            let new = self.moved(&old);
            if new != old
                && let Some(Value::Object(members)) = result.pointer_mut(place)
            {
                members.insert("$ref".to_owned(), reference_to(&new));
            }
        }
    }

    fn moved(&self, old: &str) -> String {
        let mut end = old.len();
        loop {
            let Some(prefix) = old.get(..end) else { return old.to_owned() };
            if let Some(new) = self.moves.get(prefix) {
                return format!("{new}{}", old.get(end..).unwrap_or_default());
            }
            match prefix.rfind('/') {
                Some(slash) => end = slash,
                None => return old.to_owned(),
            }
        }
    }
}

/// Adds a keyword; into `allOf` if the object has it already.
fn insert(out: &mut Map<String, Value>, keyword: &str, value: Value, apart: bool) {
    if !apart {
        out.insert(keyword.to_owned(), value);
    } else if let Value::Array(all) = out.entry("allOf").or_insert_with(|| json!([])) {
        all.push(json!({ keyword: value }));
    }
}

/// In draft-04 a bound and whether it excludes itself are two words.
fn bounds(members: &Map<String, Value>, out: &mut Map<String, Value>) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let Some(limit) = members.get(bound) else { continue };
        let excludes = members.get(exclusive) == Some(&Value::Bool(true));
        out.insert(if excludes { exclusive } else { bound }.to_owned(), limit.clone());
    }
}

/// Whether leaving the keyword out changes what is accepted.
fn asserts(keyword: &str) -> bool {
    !matches!(
        keyword,
        "$id" | "id" | "$anchor" | "$dynamicAnchor" | "contentSchema" | "format" | "minContains" | "maxContains"
    ) && (LATER.iter().any(|(word, _)| *word == keyword)
        || ONE.contains(&keyword)
        || LIST.contains(&keyword)
        || matches!(
            keyword,
            "properties"
                | "patternProperties"
                | "additionalItems"
                | "dependencies"
                | "type"
                | "enum"
                | "required"
                | "pattern"
                | "minimum"
                | "maximum"
                | "exclusiveMinimum"
                | "exclusiveMaximum"
                | "multipleOf"
                | "minLength"
                | "maxLength"
                | "minItems"
                | "maxItems"
                | "uniqueItems"
                | "minProperties"
                | "maxProperties"
        ))
}

/// The pointer that a schema refers to, if it refers to a place of this document by one.
fn local_reference(schema: &Value) -> Option<String> {
    let fragment = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    fragment.starts_with('/').then(|| percent_decoded(fragment))
}

fn reference_to(pointer: &str) -> Value {
    Value::String(format!("#{}", pointer.replace('%', "%25")))
}

/// Whether a member of this name is anywhere in the tree.
fn mentions(value: &Value, name: &str) -> bool {
    any_member(value, &|member, _| member == name)
}

/// Whether any reference has an address before its fragment.
fn leads_elsewhere(value: &Value) -> bool {
    any_member(value, &|member, value| member == "$ref" && value.as_str().is_some_and(|text| !text.starts_with('#')))
}

/// Whether any member of any object in the tree is what is asked for.
fn any_member(value: &Value, asked: &impl Fn(&str, &Value) -> bool) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| asked(name, value) || any_member(value, asked)),
        Value::Array(items) => items.iter().any(|item| any_member(item, asked)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
