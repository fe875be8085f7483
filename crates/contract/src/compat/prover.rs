//! The prover: does everything a narrow schema accepts satisfy a wide one?
//!
//! The wide schema is taken keyword by keyword; each must follow from what is known of the narrow one. Where it does not,
//! that is a [`Gap`]. If there are gaps and the narrow schema has branches, it is taken apart case by case and tried again.
//! No answer is ever "probably": what cannot be shown is a gap (REG-017 must not wave a breaking change through).
//!
//! Invariants
//! - PROVE-1: no gaps means: every value of the narrow schema is a value of the wide one.
//! - PROVE-2: recursion ends: a pair that is being proved further up is taken as given (both schemas are admitted, so a
//!   part of the value was entered in between), and there is a budget for everything else.
//! - PROVE-3: what is looked at is counted, and beyond the bound (`effort`) no proof is to be believed; `is_spent` says so.
//!
//! Not here: objects (`objects`), arrays (`arrays`), branches (`branches`), defaults (`defaults`).

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::conjunction::{Conjunction, Mentions, Types, same};
use super::effort::{of_each_with_each, spent, weight};
use super::gap::{Gap, What};
use super::likeness::Likeness;
use super::objects::is_fragile;
use crate::schema::document::{ReferenceTarget, SchemaDocument, join, references};
use crate::schema::{ASSERTED_FORMATS, SchemaLimits, place_validator};

/// Proof steps before giving up.
const STEPS_MAX: usize = 50_000;
/// Paths are copied often, and grow with every step of a recursion.
pub(super) const PATH_BYTES_PER_STEP: usize = 16;
/// Proof steps inside one another before giving up.
const DEEP_MAX: usize = 150;
/// How many times cases may be taken apart inside one another.
pub(super) const CASES_DEEP_MAX: usize = 3;

/// What compiling one part of a schema costs.
const COMPILED_STEPS: usize = 8;

/// What holds in the question at hand besides plain acceptance.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    /// Strings are converted, so types decide what a string means.
    pub(super) coercion: bool,
    /// A consumer relies on every property that the wide side names.
    pub(super) names_matter: bool,
    /// Addresses of property schemas of the wide side whose default is filled in.
    pub(super) defaults: HashSet<usize>,
}

/// Where a proof step stands.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) path: String,
    /// Defaults are filled in here.
    pub(super) filled: bool,
    /// Here or further up something counts or inspects what is filled in.
    pub(super) fragile: bool,
    pub(super) cases: usize,
}

impl Spot {
    pub(super) fn root() -> Self {
        Self { path: String::new(), filled: true, fragile: false, cases: 0 }
    }

    /// A part of the value; `filled` if defaults reach it.
    pub(super) fn part(&self, token: &str, filled: bool) -> Self {
        let path = join(&self.path, token);
        Self { path, filled: self.filled && filled, fragile: self.fragile, cases: 0 }
    }

    /// The same place under a condition.
    pub(super) fn branch(&self) -> Self {
        Self { filled: false, ..self.clone() }
    }
}

/// A pair that is being proved: the narrow side's demands, its types, the wide schema, and the place in the value.
#[derive(Debug, PartialEq)]
struct Open {
    narrow: Vec<usize>,
    types: Types,
    wide: usize,
    path: String,
}

pub(super) struct Prover<'n, 'w> {
    pub(super) narrow: &'n SchemaDocument<'n>,
    pub(super) wide: &'w SchemaDocument<'w>,
    pub(super) rules: Rules,
    pub(super) likeness: Likeness<'n, 'w>,
    steps: usize,
    open: Vec<Open>,
    patterns: HashMap<String, Option<Validator>>,
    /// What is mentioned below schemas of the narrow side, by their addresses.
    mentioned: HashMap<usize, Rc<Mentions<'n>>>,
}

impl<'n, 'w> Prover<'n, 'w> {
    pub(super) fn new(narrow: &'n SchemaDocument<'n>, wide: &'w SchemaDocument<'w>, rules: Rules) -> Self {
        let likeness = Likeness::new(narrow, wide);
        let (patterns, mentioned) = (HashMap::new(), HashMap::new());
        Self { narrow, wide, rules, likeness, steps: 0, open: Vec::new(), patterns, mentioned }
    }

    /// Counts what is looked at.
    pub(super) fn count(&self, steps: usize) {
        self.narrow.count(steps);
    }

    /// Whether no more is looked at (PROVE-3).
    pub(super) fn is_spent(&self) -> bool {
        spent(self.narrow, self.wide)
    }

    /// What is mentioned below a schema of the narrow side, which is asked for name after name.
    pub(super) fn mentioned_below(&mut self, node: &'n Value) -> Rc<Mentions<'n>> {
        let known = self.mentioned.entry(std::ptr::from_ref(node).addr());
        Rc::clone(known.or_insert_with(|| Rc::new(Mentions::below(self.narrow, node))))
    }

    /// Everything that stands against the whole narrow document being accepted by the whole wide one.
    pub(super) fn gaps(&mut self) -> Vec<Gap> {
        let narrow = Conjunction::of(self.narrow, [self.narrow.root()]);
        self.prove(&narrow, self.wide.root(), &Spot::root())
    }

    pub(super) fn prove(&mut self, narrow: &Conjunction<'n>, wide: &'w Value, spot: &Spot) -> Vec<Gap> {
        self.steps += 1;
        self.count(1 + narrow.nodes.len() + self.open.len() / 16 + spot.path.len() / PATH_BYTES_PER_STEP);
        if self.is_spent() {
            return vec![Gap::new("", What::Unproven("schema"))];
        }
        if self.steps > STEPS_MAX || self.open.len() > DEEP_MAX {
            return vec![Gap::new(&spot.path, What::Unproven("schema"))];
        }
        if narrow.impossible || *wide == Value::Bool(true) || self.is_given(narrow, wide) {
            return Vec::new();
        }
        if *wide == Value::Bool(false) {
            return vec![Gap::new(&spot.path, What::Unproven("false"))];
        }
        let mut addresses: Vec<usize> = narrow.parts.iter().map(|map| std::ptr::from_ref(*map).addr()).collect();
        addresses.sort_unstable();
        let pair = Open {
            narrow: addresses,
            types: narrow.types,
            wide: std::ptr::from_ref(wide).addr(),
            path: spot.path.clone(),
        };
        // PROVE-2: at the same place nothing has been shown yet, so there the pair is not given.
        let given = |open: &Open| {
            (&open.narrow, open.types, open.wide) == (&pair.narrow, pair.types, pair.wide) && open.path != pair.path
        };
        if self.open.iter().any(given) {
            return Vec::new();
        }
        self.open.push(pair);
        let mut gaps = self.prove_whole(narrow, wide, spot);
        if !gaps.is_empty() && spot.cases < CASES_DEEP_MAX && self.prove_by_cases(narrow, wide, spot) {
            gaps.clear();
        }
        self.open.pop();
        gaps
    }

    /// Whether nothing needs to be shown, because the narrow side demands it in the same words. Where strings are
    /// converted, that is only so if it demands nothing else: another demand may have been the one that converted them.
    fn is_given(&self, narrow: &Conjunction<'n>, wide: &Value) -> bool {
        let alone = match narrow.roots.as_slice() {
            [only] => self.likeness.alike(only, wide),
            _ => false,
        };
        alone || (self.is_among(narrow, wide) && !(self.rules.coercion && narrow.converts().is_some()))
    }

    /// Whether the wide schema is one of the narrow side's demands, word for word.
    pub(super) fn is_among(&self, narrow: &Conjunction<'n>, wide: &Value) -> bool {
        narrow.nodes.iter().any(|node| self.likeness.alike(node, wide))
    }

    fn prove_whole(&mut self, narrow: &Conjunction<'n>, wide: &'w Value, spot: &Spot) -> Vec<Gap> {
        let goal = Conjunction::of(self.wide, [wide]);
        let inspected = spot.fragile;
        let fragile = spot.fragile || is_fragile(&goal.parts);
        let spot = &Spot { fragile, ..spot.clone() };
        let mut gaps = Vec::new();
        if goal.impossible {
            gaps.push(Gap::new(&spot.path, What::Unproven("false")));
        }
        // A string that stays one may be judged otherwise by what looks at it from above (`if`, `contains`, …).
        let judged_from_above = inspected && narrow.converts().is_some() && !excludes_strings(&goal);
        let lost = judged_from_above || (fragile && self.forgets_conversions(narrow, &goal));
        if self.rules.coercion && (lost || reads_strings_differently(narrow, &goal)) {
            gaps.push(Gap::new(&spot.path, What::Coercion).saying(narrow.all("type").next(), goal.all("type").next()));
        } else if self.all_values_fit(narrow, &goal, wide) {
            return gaps;
        }
        let verbatim = !(self.rules.coercion && narrow.converts().is_some() && !excludes_strings(&goal));
        for (part, node) in goal.nodes.iter().filter_map(|node| Some((node.as_object()?, *node))) {
            self.count(narrow.parts.len() + part.len() + spot.path.len() / PATH_BYTES_PER_STEP);
            self.count(values_steps(narrow, part));
            if self.is_spent() {
                break;
            }
            scalars(narrow, part, spot, &mut gaps);
            self.objects(narrow, &goal, (part, node), spot, &mut gaps);
            self.arrays(narrow, (part, node), spot, &mut gaps);
            self.branches(narrow, part, verbatim, spot, &mut gaps);
            if let Some(keyword) = outside_reference(self.wide, part) {
                gaps.push(Gap::new(&spot.path, What::Unproven(keyword)));
            }
        }
        gaps
    }

    /// Whether the narrow side converts strings in parts of which the wide side says nothing, so that they stay strings.
    fn forgets_conversions(&mut self, narrow: &Conjunction<'n>, goal: &Conjunction<'w>) -> bool {
        // What only a branch speaks of is asked again when that branch is.
        let mentions = goal.mentions();
        let items = !mentions.items
            && narrow.types.meets(Types::ARRAY)
            && (0..=narrow.prefix_len()).any(|index| narrow.item(index).converts_anywhere());
        let names = narrow.mentions().names;
        items
            || names
                .into_iter()
                .any(|name| !mentions.names.contains(name) && self.property(narrow, name).converts_anywhere())
    }

    /// Whether the narrow side is an enumeration and each value was tried.
    fn all_values_fit(&self, narrow: &Conjunction<'n>, goal: &Conjunction<'w>, wide: &Value) -> bool {
        let Some(values) = narrow.values() else { return false };
        let converts = self.rules.coercion && narrow.converts().is_some() && !excludes_strings(goal);
        let (tried, asked) = (values.iter().map(|value| weight(value)).sum(), weight(wide));
        self.count(asked.saturating_mul(COMPILED_STEPS).saturating_add(of_each_with_each(tried, asked)));
        !converts
            && !self.is_spent()
            && !mentions_reference(wide)
            && place_validator(wide, &SchemaLimits::default())
                .is_ok_and(|validator| values.iter().all(|value| validator.is_valid(value)))
    }

    /// Whether `name` matches `pattern`, by the engine that will run it.
    pub(super) fn matches(&mut self, pattern: &str, name: &str) -> bool {
        self.count(1 + pattern.len().saturating_mul(name.len()) / 1024);
        if self.is_spent() {
            return false;
        }
        let validator = self
            .patterns
            .entry(pattern.to_owned())
            .or_insert_with(|| place_validator(&json!({ "pattern": pattern }), &SchemaLimits::default()).ok());
        validator.as_ref().is_some_and(|validator| validator.is_valid(&Value::String(name.to_owned())))
    }
}

// ---------------------------------------------------------------------------------------------------- scalars

fn scalars(narrow: &Conjunction<'_>, part: &Map<String, Value>, spot: &Spot, gaps: &mut Vec<Gap>) {
    if let Some(wanted) = part.get("type")
        && !narrow.types.within(Types::named(wanted))
    {
        gaps.push(Gap::new(&spot.path, What::Type).saying(narrow.all("type").next(), Some(wanted)));
    }
    enumerated(narrow, part, spot, gaps);
    for (keyword, types, ascending) in BOUNDS {
        if let Some(limit) = part.get(keyword)
            && narrow.types.meets(types)
            && !bounded(narrow, keyword, limit, ascending)
        {
            gaps.push(Gap::new(&spot.path, What::Bound(keyword)).saying(narrow.all(keyword).next(), Some(limit)));
        }
    }
    if let Some(step) = part.get("multipleOf")
        && narrow.types.meets(Types::NUMBER)
        && !is_multiple(narrow, step)
    {
        gaps.push(Gap::new(&spot.path, What::Bound("multipleOf")).saying(narrow.all("multipleOf").next(), Some(step)));
    }
    for keyword in ["pattern", "format"] {
        let Some(wanted) = part.get(keyword) else { continue };
        let annotation = keyword == "format" && !wanted.as_str().is_some_and(|name| ASSERTED_FORMATS.contains(&name));
        if !annotation && narrow.types.meets(Types::STRING) && !narrow.all(keyword).any(|known| known == wanted) {
            gaps.push(Gap::new(&spot.path, What::Keyword(keyword)).saying(narrow.all(keyword).next(), Some(wanted)));
        }
    }
}

/// Bounds: the keyword, what it bounds, and whether a larger limit is the stricter one.
const BOUNDS: [(&str, Types, bool); 10] = [
    ("minimum", Types::NUMBER, true),
    ("exclusiveMinimum", Types::NUMBER, true),
    ("maximum", Types::NUMBER, false),
    ("exclusiveMaximum", Types::NUMBER, false),
    ("minLength", Types::STRING, true),
    ("maxLength", Types::STRING, false),
    ("minItems", Types::ARRAY, true),
    ("maxItems", Types::ARRAY, false),
    ("minProperties", Types::OBJECT, true),
    ("maxProperties", Types::OBJECT, false),
];

fn bounded(narrow: &Conjunction<'_>, keyword: &str, limit: &Value, ascending: bool) -> bool {
    let at_least_as_strict = |known: &Value, strictly: bool| match compared(known, limit) {
        Some(Ordering::Equal) => !strictly,
        Some(order) => (order == Ordering::Greater) == ascending,
        None => false,
    };
    // The same keyword, or its neighbour that includes or excludes the limit itself.
    let (inclusive, exclusive) = match keyword {
        "minimum" | "exclusiveMinimum" => ("minimum", Some("exclusiveMinimum")),
        "maximum" | "exclusiveMaximum" => ("maximum", Some("exclusiveMaximum")),
        other => (other, None),
    };
    let strictly = exclusive == Some(keyword);
    let sizes_start_at_zero = exclusive.is_none() && ascending && limit.as_f64() == Some(0.0);
    let required = if keyword == "minProperties" { required_names(narrow) } else { 0 };
    sizes_start_at_zero
        || narrow.all(inclusive).any(|known| at_least_as_strict(known, strictly))
        || exclusive.is_some_and(|keyword| narrow.all(keyword).any(|known| at_least_as_strict(known, false)))
        || limit.as_u64().is_some_and(|limit| limit > 0 && limit <= required)
}

fn required_names(narrow: &Conjunction<'_>) -> u64 {
    let names: HashSet<&str> =
        narrow.all("required").filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect();
    u64::try_from(names.len()).unwrap_or(0)
}

/// Order of two JSON numbers, if it can be told without rounding.
fn compared(left: &Value, right: &Value) -> Option<Ordering> {
    let whole = |value: &Value| value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        return Some(left.cmp(&right));
    }
    let exact = |value: &Value| {
        let fits = whole(value).is_none_or(|number| number.abs() <= 1 << 53);
        value.as_f64().filter(|_| fits)
    };
    exact(left)?.partial_cmp(&exact(right)?)
}

fn is_multiple(narrow: &Conjunction<'_>, step: &Value) -> bool {
    let whole = step.as_u64().filter(|step| *step > 0);
    let divides = |known: &Value| {
        same(known, step) || whole.is_some_and(|step| known.as_u64().is_some_and(|known| known % step == 0))
    };
    narrow.all("multipleOf").any(divides) || (whole == Some(1) && !narrow.types.meets(Types::NUMBER.without_whole()))
}

/// What comparing the values that both sides list costs.
fn values_steps(narrow: &Conjunction<'_>, part: &Map<String, Value>) -> usize {
    let weigh = |values: &mut dyn Iterator<Item = &Value>| values.map(weight).sum::<usize>();
    let asked = weigh(&mut ["const", "enum"].into_iter().filter_map(|keyword| part.get(keyword)));
    if asked == 0 {
        return 0;
    }
    let known = weigh(&mut narrow.all("const").chain(narrow.all("enum")));
    asked.saturating_add(known).saturating_add(of_each_with_each(asked, known))
}

fn enumerated(narrow: &Conjunction<'_>, part: &Map<String, Value>, spot: &Spot, gaps: &mut Vec<Gap>) {
    let single = part.get("const").map(std::slice::from_ref);
    let several = part.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    for allowed in [single, several].into_iter().flatten() {
        let values = narrow.values();
        let within =
            values.as_ref().is_some_and(|values| values.iter().all(|value| allowed.iter().any(|one| same(one, value))));
        if !within {
            let known = narrow.all("enum").next().or_else(|| narrow.all("const").next());
            let wanted = part.get("enum").or_else(|| part.get("const"));
            gaps.push(Gap::new(&spot.path, What::Values).saying(known, wanted));
        }
    }
}

// --------------------------------------------------------------------------------------------------- coercion

/// Whether a string is refused for its type, so that converting it is tried.
fn excludes_strings(goal: &Conjunction<'_>) -> bool {
    goal.named_types().is_some_and(|types| !types.meets(Types::STRING))
}

/// Whether a string that the narrow side converts might be refused by the wide one, which sees it first.
fn reads_strings_differently(narrow: &Conjunction<'_>, goal: &Conjunction<'_>) -> bool {
    let Some(before) = narrow.converts() else { return false };
    let has = |keywords: &[&str]| keywords.iter().any(|keyword| goal.all(keyword).next().is_some());
    // "1" was `true` and may become the number 1, which then has to pass as such.
    let numbers = goal.converts().is_some_and(|types| types.meets(Types::NUMBER));
    let digits_move = numbers && before.meets(Types::BOOLEAN) && !before.meets(Types::NUMBER);
    if digits_move && has(&JUDGING_NUMBERS) {
        return true;
    }
    // The branches of `anyOf` are asked one by one further down; of `oneOf` a string might satisfy too many.
    let mut branches = goal.all("oneOf").filter_map(Value::as_array).flatten();
    !excludes_strings(goal)
        && (has(&["enum", "const", "minLength", "maxLength", "pattern", "format", "not", "if"])
            || branches.any(|branch| !excludes_strings(&Conjunction::of(goal.document, [branch]))))
}

/// Keywords by which a number may be refused.
const JUDGING_NUMBERS: [&str; 11] = [
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "not",
    "anyOf",
    "oneOf",
    "if",
];

fn outside_reference(document: &SchemaDocument<'_>, part: &Map<String, Value>) -> Option<&'static str> {
    references(part)
        .find(|(_, reference)| !matches!(document.resolve(reference), ReferenceTarget::Local(..)))
        .map(|(keyword, _)| keyword)
}

fn mentions_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.contains_key("$ref") || map.contains_key("$dynamicRef") || map.values().any(mentions_reference)
        }
        Value::Array(items) => items.iter().any(mentions_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
