//! Schemas of tools: compiled once for each version of a tool, asked on every call. (VALID-001…006, X-18, DESIGN §2)
//!
//! An input schema is read more strictly than JSON Schema does: undeclared properties are refused, defaults are filled in,
//! and strings that can only have been meant as numbers or booleans are converted and reported. An output schema is read
//! as it stands. The checking itself is the `jsonschema` crate's, always as draft 2020-12, with regular expression
//! engines that run in linear time and without any way to the network or to a file. Schemas of older drafts are
//! translated first (`dialect`).
//!
//! ```text
//! schema ─▶ admit (dialect) ─▶ strict (input) ─▶ compile ─┐
//!                                                         ├─▶ prepare: fill defaults ─▶ check ─▶ coerce ─▶ check ─▶ Prepared
//! parameters ─────────────────────────────────────────────┘                                          └─▶ InvalidInput (wording)
//! ```
//!
//! Invariants
//! - SCHEMA-1: a value that is valid as it stands comes out with nothing changed but absent defaults added.
//! - SCHEMA-2: `prepare` of what `prepare` gave changes nothing, so what was validated is what is executed (VALID-005).
//! - SCHEMA-3: whatever the schema, compiling and validating are bounded; the caller bounds the depth of values (64).
//!
//! Not here: whether two schemas are compatible (`compat`), error codes (`error`), guards against hostile text (`guard`).

mod admit;
mod coerce;
pub(crate) mod defaults;
mod dialect;
pub(crate) mod document;
mod effort;
mod look_around;
pub mod portable;
mod sensitivity;
pub(crate) mod strict;
mod unchecked;
pub(crate) mod violation_text;

use std::borrow::Cow;
use std::sync::OnceLock;

use jsonschema::error::ValidationError;
use jsonschema::{Draft, PatternOptions, Registry, ValidationOptions, Validator, ValidatorMap};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use self::defaults::SchemaDefaults;
pub use self::dialect::modern;
use self::document::SchemaDocument;
use self::effort::Effort;
pub use self::sensitivity::{PartMarks, SchemaMarks, Sensitivity};
pub use self::unchecked::UncheckedPart;
pub use self::violation_text::VIOLATIONS_MAX;
use self::violation_text::Wording;

/// The formats that are asserted; all others are annotations.
pub const ASSERTED_FORMATS: [&str; 9] =
    ["date-time", "date", "time", "uri", "email", "uuid", "hostname", "ipv4", "ipv6"];

/// Formats the validator knows but that are not promised: a schema that names one gets a remark, not a check.
const SILENT_FORMATS: [&str; 10] = [
    "duration",
    "idn-email",
    "idn-hostname",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "uri-reference",
    "uri-template",
];

/// Evaluations that one check may take at the most; about a second. A value that would take more is refused unread.
pub const CHECK_WORK_MAX: u64 = 100_000_000;

/// Faults that are listed before the first few of them are told; the others are counted as far as that.
const FAULTS_MAX: usize = 10_000;

/// How many times strings are converted and the value checked again; one round reveals the next only in nested branches.
const COERCION_ROUNDS_MAX: usize = 8;

/// How large and how deep a schema may be. A schema over a limit is refused with the limit named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaLimits {
    /// Nesting of the schema document, default 64.
    pub depth_max: usize,
    /// Values of any kind in the schema document, default 10,000.
    pub nodes_max: usize,
    /// Length of the schema as compact JSON, default 512 KiB.
    pub bytes_max: usize,
    /// `$ref` and `$dynamicRef` in the document, default 500.
    pub refs_max: usize,
    /// Evaluations of one instance location that branches and references can multiply to, default 10,000.
    pub expansion_max: u64,
    /// Different patterns in the document, default 200.
    pub patterns_max: usize,
    /// Length of one pattern, default 2,048 bytes.
    pub pattern_bytes_max: usize,
    /// Size of one compiled pattern, default 1 MiB.
    pub pattern_compiled_bytes_max: usize,
}

impl Default for SchemaLimits {
    fn default() -> Self {
        Self {
            depth_max: 64,
            nodes_max: 10_000,
            bytes_max: 512 * 1024,
            refs_max: 500,
            expansion_max: 10_000,
            patterns_max: 200,
            pattern_bytes_max: 2_048,
            pattern_compiled_bytes_max: 1024 * 1024,
        }
    }
}

/// Whether strings may become numbers and booleans (X-18: switchable per manifest).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coercion {
    /// Where the value as it stands is invalid and nothing is lost.
    #[default]
    Lossless,
    /// Never.
    Off,
}

/// Why a schema cannot be compiled: one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SchemaError {
    /// JSON pointer into the schema.
    pub path: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

/// Why a schema cannot be compiled: every reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(transparent)]
#[error("the schema is not admissible: {}", .0.first().map_or("no reason given", |one| one.message.as_str()))]
pub struct SchemaErrors(
    /// At least one.
    pub Vec<SchemaError>,
);

/// One thing that is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SchemaViolation {
    /// JSON pointer into the value.
    pub path: String,
    /// What is expected; never a sensitive or long value.
    pub message: String,
}

/// One string that was converted, or stripped of what a guard does not let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CoercionNote {
    /// JSON pointer into the parameters.
    pub path: String,
    /// Always `string`.
    pub from: &'static str,
    /// `integer`, `number`, `boolean` or `stripped string`.
    pub to: &'static str,
}

/// Parameters as the tool will get them.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedParameters {
    /// What was validated and is to be executed (VALID-005).
    pub value: Value,
    /// What was converted on the way.
    pub coercions: Vec<CoercionNote>,
    /// JSON pointers of the defaults that were filled in.
    pub defaults_filled: Vec<String>,
}

/// Parameters that are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("the parameters do not match the schema of the tool")]
pub struct InvalidInput {
    /// At most [`VIOLATIONS_MAX`].
    pub violations: Vec<SchemaViolation>,
    /// How many violations there are beyond those.
    pub omitted: usize,
    /// All violations are strings that would have to be numbers or booleans and are not: E3302, otherwise E3301.
    pub coercion_failed: bool,
}

/// A schema ready for use.
///
/// ```
/// use gantry_contract::schema::{Coercion, CompiledSchema, SchemaLimits};
/// use serde_json::json;
///
/// let schema = json!({
///     "type": "object",
///     "properties": { "city": { "type": "string" }, "days": { "type": "integer", "default": 3 } },
///     "required": ["city"]
/// });
/// let compiled = CompiledSchema::input(&schema, &SchemaLimits::default(), Coercion::Lossless)?;
///
/// let prepared = compiled.prepare(json!({ "city": "Oslo" })).expect("valid");
/// assert_eq!(prepared.value, json!({ "city": "Oslo", "days": 3 }));
///
/// let refused = compiled.prepare(json!({ "ctiy": "Oslo", "city": "Oslo" })).expect_err("misspelt");
/// assert_eq!(refused.violations[0].message, "`ctiy` is not declared; did you mean `city`?");
/// # Ok::<(), gantry_contract::schema::SchemaErrors>(())
/// ```
#[derive(Debug)]
pub struct CompiledSchema {
    validator: Validator,
    /// The schema that was compiled, for wording; an output or plain schema of our draft is as its author wrote it.
    schema: Value,
    /// What of the author's schema is not checked.
    unchecked: Vec<UncheckedPart>,
    /// The schema as its author wrote it, if it has marks and another one was compiled.
    written: Option<Value>,
    /// What of a value may be quoted; made ready when the first value is refused.
    marks: OnceLock<Option<SchemaMarks>>,
    defaults: SchemaDefaults,
    coercion: Coercion,
    /// What a check may cost, and how deep a value may be for its faults to be listed.
    effort: Effort,
    /// Whether messages may quote values: of callers yes, of tools no (VALID-006).
    quotes: bool,
}

impl CompiledSchema {
    /// Compiles the schema of a tool's parameters: strict, with defaults, formats and coercion.
    ///
    /// # Errors
    /// Every reason why the schema is not admissible.
    pub fn input(schema: &Value, limits: &SchemaLimits, coercion: Coercion) -> Result<Self, SchemaErrors> {
        let ReadableSchema { schema, mut unchecked, written } = readable(schema, limits, &[], true)?;
        let schema = strict::closed(&schema);
        let validator = place_validator(&schema, limits)?;
        let defaults = SchemaDefaults::plan(&schema, place_validators(&schema, limits).as_ref());
        unchecked.extend(defaults.unfit().map(|path| UncheckedPart {
            path: path.to_owned(),
            message: "the default does not satisfy the schema beside it: it is not filled in".to_owned(),
        }));
        let effort = Effort::of(&schema);
        let marks = OnceLock::new();
        Ok(Self { validator, schema, unchecked, written, marks, defaults, coercion, effort, quotes: true })
    }

    /// Compiles the schema of a tool's result: formats are checked, further fields are fine, nothing is changed.
    ///
    /// # Errors
    /// Every reason why the schema is not admissible.
    pub fn output(schema: &Value, limits: &SchemaLimits) -> Result<Self, SchemaErrors> {
        let readable = readable(schema, limits, &[], true)?;
        let validator = place_validator(&readable.schema, limits)?;
        Ok(Self::unchanging(validator, readable))
    }

    /// Compiles a schema as JSON Schema has it, `format` being an annotation. `documents` are the only other
    /// documents that it may refer to, by their addresses.
    ///
    /// # Errors
    /// Every reason why the schema is not admissible.
    pub fn plain(schema: &Value, limits: &SchemaLimits, documents: &[(String, Value)]) -> Result<Self, SchemaErrors> {
        let addresses: Vec<&str> = documents.iter().map(|(address, _)| address.as_str()).collect();
        let readable = readable(schema, limits, &addresses, false)?;
        let resources = documents
            .iter()
            .map(|(address, document)| (address.as_str(), Draft::Draft202012.create_resource(document.clone())));
        let registry =
            Registry::new().draft(Draft::Draft202012).extend(resources).and_then(|builder| builder.prepare());
        let registry =
            registry.map_err(|error| single("", format!("a document that was handed in is not usable: {error}")))?;
        let named = readable.schema.get("$schema").and_then(Value::as_str);
        let own_dialect = named.is_some_and(|named| addresses.contains(&named.trim_end_matches('#')));
        let mut options = base_options(limits).with_registry(&registry);
        if !own_dialect {
            options = options.with_draft(Draft::Draft202012);
        }
        let compilable = compilable(&readable.schema);
        let validator = options.build(&compilable).map_err(|error| not_compiled(&error))?;
        Ok(Self::unchanging(validator, readable))
    }

    fn unchanging(validator: Validator, readable: ReadableSchema<'_>) -> Self {
        let schema = readable.schema.into_owned();
        let effort = Effort::of(&schema);
        Self {
            validator,
            schema,
            unchecked: readable.unchecked,
            written: readable.written,
            marks: OnceLock::new(),
            defaults: SchemaDefaults::default(),
            coercion: Coercion::Off,
            effort,
            quotes: false,
        }
    }

    /// Evaluations that checking this value takes at the most. Whoever has threads that must not be held up asks first.
    pub fn work(&self, value: &Value) -> u64 {
        self.effort.of_value(value)
    }

    /// Pointers to the defaults of parameters that their own schemas refuse, so that nobody is given them.
    pub fn unfit_defaults(&self) -> impl Iterator<Item = &str> {
        self.defaults.unfit()
    }

    /// The parts of the schema that are kept and not checked or not used, with their reasons.
    pub fn unchecked(&self) -> &[UncheckedPart] {
        &self.unchecked
    }

    /// Makes parameters ready for the tool, or says everything that is wrong with them.
    ///
    /// # Errors
    /// The violations that remain after defaults and coercion.
    pub fn prepare(&self, params: Value) -> Result<PreparedParameters, InvalidInput> {
        if self.work(&params) > CHECK_WORK_MAX {
            return Err(InvalidInput { violations: vec![too_much()], omitted: 0, coercion_failed: false });
        }
        let mut value = params;
        let filled = self.defaults.fill(&mut value);
        if self.validator.is_valid(&value) {
            return Ok(PreparedParameters { value, coercions: Vec::new(), defaults_filled: filled });
        }
        self.repair(value, filled)
    }

    /// Whether a value satisfies the schema, without changing it.
    ///
    /// # Errors
    /// At most [`VIOLATIONS_MAX`] violations; if there are more, a last one counts them.
    pub fn check(&self, value: &Value) -> Result<(), Vec<SchemaViolation>> {
        if self.work(value) > CHECK_WORK_MAX {
            return Err(vec![too_much()]);
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        if self.is_too_deep(value) {
            return Err(vec![too_deep()]);
        }
        let errors: Vec<ValidationError<'_>> = self.validator.iter_errors(value).take(FAULTS_MAX).collect();
        let (mut violations, omitted) = self.wording().violations(&errors);
        if omitted > 0 {
            violations.push(SchemaViolation { path: String::new(), message: format!("and {omitted} more") });
        }
        Err(violations)
    }

    /// The slow way: the value is not valid with all its defaults.
    #[cold]
    fn repair(&self, mut value: Value, filled: Vec<String>) -> Result<PreparedParameters, InvalidInput> {
        if !filled.is_empty() {
            // A default must never make an acceptable call unacceptable (`oneOf` over `required`, `maxProperties`).
            defaults::undo(&mut value, &filled);
            if self.validator.is_valid(&value) {
                return Ok(PreparedParameters { value, coercions: Vec::new(), defaults_filled: Vec::new() });
            }
            self.defaults.fill(&mut value);
        }
        if self.is_too_deep(&value) {
            return Err(InvalidInput { violations: vec![too_deep()], omitted: 0, coercion_failed: false });
        }
        let coercions = match self.coercion {
            Coercion::Lossless => self.coerce(&mut value),
            Coercion::Off => Vec::new(),
        };
        if !coercions.is_empty() {
            if self.validator.is_valid(&value) {
                return Ok(PreparedParameters { value, coercions, defaults_filled: filled });
            }
            if !filled.is_empty() {
                defaults::undo(&mut value, &filled);
                if self.validator.is_valid(&value) {
                    return Ok(PreparedParameters { value, coercions, defaults_filled: Vec::new() });
                }
                self.defaults.fill(&mut value);
            }
        }
        let errors: Vec<ValidationError<'_>> = self.validator.iter_errors(&value).take(FAULTS_MAX).collect();
        let (violations, omitted) = self.wording().violations(&errors);
        let coercion_failed = self.coercion == Coercion::Lossless && errors.iter().all(coerce::is_hopeless);
        Err(InvalidInput { violations, omitted, coercion_failed })
    }

    fn wording(&self) -> Wording<'_> {
        let marks =
            || self.marks.get_or_init(|| SchemaMarks::of(self.written.as_ref().unwrap_or(&self.schema))).as_ref();
        Wording::new(&self.schema, self.quotes, self.quotes.then(marks).flatten())
    }

    /// Whether listing the faults of a refused value, and so converting its strings, would take too long (SCHEMA-3).
    fn is_too_deep(&self, value: &Value) -> bool {
        let deepest = self.effort.listing_depth_max;
        deepest != usize::MAX && effort::depth(value) > deepest
    }

    /// Converts what the validator refuses for its type, until it refuses nothing more of that kind.
    fn coerce(&self, value: &mut Value) -> Vec<CoercionNote> {
        let mut notes = Vec::new();
        for _ in 0..COERCION_ROUNDS_MAX {
            let errors: Vec<ValidationError<'_>> = self.validator.iter_errors(value).take(FAULTS_MAX).collect();
            let fixes = coerce::fixes(&errors);
            drop(errors);
            if fixes.is_empty() {
                break;
            }
            for fix in fixes {
                if let Some(place) = value.pointer_mut(&fix.path) {
                    *place = fix.value;
                    notes.push(CoercionNote { path: fix.path, from: "string", to: fix.to });
                }
            }
        }
        notes
    }
}

// -------------------------------------------------------------------------------------------------- compilation

/// One validator for each place of a tool's schema; none when the schema cannot be compiled.
pub(crate) fn place_validators(schema: &Value, limits: &SchemaLimits) -> Option<ValidatorMap> {
    tool_options(limits).build_map(&compilable(schema)).ok()
}

/// A validator for a schema that stands alone.
pub(crate) fn place_validator(schema: &Value, limits: &SchemaLimits) -> Result<Validator, SchemaErrors> {
    tool_options(limits).build(&compilable(schema)).map_err(|error| not_compiled(&error))
}

/// A schema as everything here reads it: admissible, in the words of 2020-12, without what cannot be checked.
#[derive(Debug)]
pub(crate) struct ReadableSchema<'s> {
    pub(crate) schema: Cow<'s, Value>,
    unchecked: Vec<UncheckedPart>,
    /// As its author wrote it, if that is something else and has marks: what is not checked is still not to be seen.
    written: Option<Value>,
}

/// The schema as it is read, or every reason why it cannot be a tool's schema.
pub(crate) fn readable<'s>(
    written: &'s Value,
    limits: &SchemaLimits,
    documents: &[&str],
    tool: bool,
) -> Result<ReadableSchema<'s>, SchemaErrors> {
    let (schema, ignored) = admit::dialect(written, limits, documents).map_err(SchemaErrors)?;
    let reasons = admit::reasons(&schema, limits, documents, tool);
    if !reasons.is_empty() {
        return Err(SchemaErrors(reasons));
    }
    let (schema, parts) = unchecked::without(schema);
    let is_other = matches!(schema, Cow::Owned(_));
    let written = (is_other && sensitivity::mentions(written)).then(|| written.clone());
    Ok(ReadableSchema { schema, written, unchecked: ignored.into_iter().chain(parts).collect() })
}

/// The schema as the validator is to have it: patterns with look-around under the keyword that can match them.
fn compilable(schema: &Value) -> Cow<'_, Value> {
    let needs = |place: &Value| place.get("pattern").and_then(Value::as_str).is_some_and(look_around::is_needed);
    let positions = SchemaDocument::new(schema).positions();
    let places: Vec<String> =
        positions.into_iter().filter(|(_, place)| needs(place)).map(|(pointer, _)| pointer).collect();
    if places.is_empty() {
        return Cow::Borrowed(schema);
    }
    let mut schema = schema.clone();
    for pointer in places {
        if let Some(Value::Object(place)) = schema.pointer_mut(&pointer)
            && let Some(pattern) = place.remove("pattern")
        {
            place.insert(look_around::KEYWORD.to_owned(), pattern);
        }
    }
    Cow::Owned(schema)
}

fn base_options<'i>(limits: &SchemaLimits) -> ValidationOptions<'i> {
    let patterns = PatternOptions::regex().size_limit(limits.pattern_compiled_bytes_max);
    jsonschema::options()
        .offline()
        .with_pattern_options(patterns)
        .with_keyword(look_around::KEYWORD, |_, pattern, _| look_around::keyword(pattern))
}

fn tool_options<'i>(limits: &SchemaLimits) -> ValidationOptions<'i> {
    let options = base_options(limits).with_draft(Draft::Draft202012).should_validate_formats(true);
    SILENT_FORMATS.iter().fold(options, |options, name| options.with_format(*name, |_: &str| true))
}

fn too_deep() -> SchemaViolation {
    let message = "does not match the schema, and is nested too deeply for this schema to say where".to_owned();
    SchemaViolation { path: String::new(), message }
}

fn too_much() -> SchemaViolation {
    let message = format!(
        "is too large to be held against this schema: more than {CHECK_WORK_MAX} evaluations; send less, or less at once"
    );
    SchemaViolation { path: String::new(), message }
}

fn single(path: &str, message: String) -> SchemaErrors {
    SchemaErrors(vec![SchemaError { path: path.to_owned(), message }])
}

/// What admission did not see coming; kept as a reason, because a schema must never take the service down.
fn not_compiled(error: &ValidationError<'_>) -> SchemaErrors {
    let text = error.masked_with("this value").to_string();
    single(error.schema_path().as_str(), format!("the schema cannot be compiled: {text}"))
}

#[cfg(test)]
mod tests;
