//! Defaults of two versions: a parameter left out must keep meaning what it meant. (REG-016, VALID-004)
//!
//! A default is part of the behaviour: callers rely on it by saying nothing. So a changed or removed one is a major change
//! even though the accepted set is the same, and a new one is minor as long as filling it in can disturb nothing.
//!
//! Not here: filling in (`schema::defaults`), required properties that a default satisfies (`objects`).

use std::collections::{BTreeMap, HashSet};

use jsonschema::ValidatorMap;
use serde_json::Value;

use super::effort::{COMPARISON_STEPS_MAX, of_each_with_each, weight};
use super::objects::is_fragile;
use super::{CompatReason, CompatVerdict};
use crate::schema::defaults::{effective, unconditional};
use crate::schema::document::{BYTES_PER_STEP, SchemaDocument, SubschemaKey, SubschemaPlace, join, subschemas};

/// Places looked at before giving up.
const PLACES_MAX: usize = 5_000;

/// The defaults of one schema by their place in the value.
#[derive(Debug, Default)]
pub(super) struct DefaultMap<'a> {
    entries: BTreeMap<String, Entry<'a>>,
    /// Addresses of the property schemas whose default is filled in.
    pub(super) filled: HashSet<usize>,
    /// Some required property is only there because its default is.
    relied_on: bool,
    complete: bool,
    /// How many places of the schema a default is held against at the most.
    positions: usize,
}

#[derive(Debug)]
struct Entry<'a> {
    default: &'a Value,
    filled: bool,
    fragile: bool,
}

/// The schemas that describe one part of the value.
type Places<'a> = Vec<(String, &'a Value)>;

struct Spot<'a> {
    path: String,
    places: Places<'a>,
    /// Pointers on the way here; one that comes again is recursion.
    way: Vec<String>,
    filled: bool,
    fragile: bool,
}

impl<'a> DefaultMap<'a> {
    pub(super) fn of(document: &'a SchemaDocument<'a>, validators: Option<&ValidatorMap>) -> Self {
        let mut map = Self { complete: true, positions: document.positions().len(), ..Self::default() };
        let root = vec![(String::new(), document.root())];
        let mut work = vec![Spot { path: String::new(), places: root, way: Vec::new(), filled: true, fragile: false }];
        let mut places = 0;
        while let Some(spot) = work.pop() {
            places += 1;
            if places > PLACES_MAX || document.steps() > COMPARISON_STEPS_MAX {
                map.complete = false;
                break;
            }
            map.visit(document, validators, &spot, &mut work);
        }
        map
    }

    fn visit(
        &mut self,
        document: &'a SchemaDocument<'a>,
        validators: Option<&ValidatorMap>,
        spot: &Spot<'a>,
        work: &mut Vec<Spot<'a>>,
    ) {
        let members: Vec<_> = spot.places.iter().flat_map(|(at, schema)| unconditional(document, at, schema)).collect();
        let maps: Vec<_> = members.iter().map(|(_, map)| *map).collect();
        let fragile = spot.fragile || is_fragile(&maps);
        let mut parts: BTreeMap<String, (Places<'a>, bool)> = BTreeMap::new();
        for (at, map) in &members {
            for sub in subschemas(map) {
                let (token, filled) = match (sub.place, sub.keyword, sub.key) {
                    (SubschemaPlace::Child, "properties", SubschemaKey::Name(name)) => (join("", name), true),
                    (SubschemaPlace::Child, "items", _) => ("/*".to_owned(), true),
                    (SubschemaPlace::Child, "prefixItems", SubschemaKey::Index(index)) => (format!("/{index}"), true),
                    (SubschemaPlace::Child, ..) => (sub.pointer("/"), false),
                    (SubschemaPlace::Here, "anyOf" | "oneOf" | "then" | "else" | "dependentSchemas", _) => {
                        (sub.pointer("/"), false)
                    }
                    (
                        SubschemaPlace::Here
                        | SubschemaPlace::Question
                        | SubschemaPlace::ChildQuestion
                        | SubschemaPlace::Name
                        | SubschemaPlace::Definition,
                        ..,
                    ) => {
                        continue;
                    }
                };
                let (places, _) = parts.entry(token).or_insert((Vec::new(), filled));
                places.push((sub.pointer(at), sub.schema));
            }
        }
        let required: Vec<&str> = members
            .iter()
            .filter_map(|(_, map)| map.get("required")?.as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (token, (places, filled)) in parts {
            let filled = filled && spot.filled;
            let path = format!("{}{token}", spot.path);
            self.note(document, validators, (&path, &places), filled, fragile);
            let name = token.trim_start_matches('/').replace("~1", "/").replace("~0", "~");
            self.relied_on |= filled
                && required.contains(&name.as_str())
                && self.entries.get(&path).is_some_and(|entry| entry.filled);
            document.count(1 + spot.way.len() + path.len() / BYTES_PER_STEP);
            let way: Vec<String> =
                spot.way.iter().cloned().chain(spot.places.iter().map(|(at, _)| at.clone())).collect();
            let again = places.iter().any(|(at, schema)| {
                way.contains(at) || unconditional(document, at, schema).iter().any(|(target, _)| way.contains(target))
            });
            if !again {
                work.push(Spot { path, places, way, filled, fragile });
            }
        }
    }

    fn note(
        &mut self,
        document: &'a SchemaDocument<'a>,
        validators: Option<&ValidatorMap>,
        (path, places): (&str, &[(String, &'a Value)]),
        filled: bool,
        fragile: bool,
    ) {
        let members: Vec<_> = places.iter().flat_map(|(at, schema)| unconditional(document, at, schema)).collect();
        let Some(default) = members.iter().find_map(|(_, map)| map.get("default")) else { return };
        document.count(of_each_with_each(weight(default), self.positions));
        let filled = filled && document.steps() <= COMPARISON_STEPS_MAX && effective(&members, validators).is_some();
        if let ([(_, schema)], true) = (places, filled) {
            self.filled.insert(std::ptr::from_ref(*schema).addr());
        }
        self.entries.insert(path.to_owned(), Entry { default, filled, fragile });
    }
}

/// What changed from `old` to `new`, for parameters.
pub(super) fn changes(old: &DefaultMap<'_>, new: &DefaultMap<'_>) -> Vec<CompatReason> {
    let mut reasons = Vec::new();
    let mut reason = |path: &str, change: &str, verdict: CompatVerdict, message: &str| {
        reasons.push(CompatReason {
            path: path.to_owned(),
            change: change.to_owned(),
            verdict,
            message: message.to_owned(),
        });
    };
    if !old.complete || !new.complete {
        reason(
            "",
            "cannot_prove_compatible",
            CompatVerdict::Major,
            "there are too many places to compare all defaults",
        );
    }
    for (path, before) in &old.entries {
        match new.entries.get(path) {
            Some(after) if after.default != before.default => {
                reason(
                    path,
                    "default_changed",
                    CompatVerdict::Major,
                    "the default is another one, so leaving it out means something else",
                );
            }
            Some(_) => {}
            None => reason(
                path,
                "default_removed",
                CompatVerdict::Major,
                "the default is gone, so leaving it out means something else",
            ),
        }
    }
    for (path, after) in &new.entries {
        let before = old.entries.get(path);
        if before.is_none() {
            reason(path, "default_added", CompatVerdict::Minor, "there is a default now");
        }
        let newly_filled = after.filled && before.is_none_or(|before| !before.filled);
        // Without reliance a value is taken as it came when its defaults do not fit; with it that way is barred.
        if newly_filled && after.fragile && (old.relied_on || new.relied_on) {
            reason(
                path,
                "cannot_prove_compatible",
                CompatVerdict::Major,
                "the default is filled in where other rules may refuse it",
            );
        }
    }
    reasons
}
