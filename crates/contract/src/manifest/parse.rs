//! From text to [`Manifest`]: syntax, import aliases, the published schema, then the types.
//!
//! Structure is checked by the JSON Schema that is generated from the types, not by serde alone, because serde stops at
//! the first fault and an author wants all of them, each with its path and the nearest known name.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::admission::{self, AdmissionFinding, ManifestError};
use super::{CoercionMode, Manifest};
use crate::json::{self, JsonLimits};
use crate::schema::{Coercion, CompiledSchema, SchemaLimits};

/// The identity of the published manifest schema.
const SCHEMA_ID: &str = "https://gantry.dev/schemas/tool-manifest.schema.json";

/// Names other systems use for the same member; accepted on the way in, never written (MAN-007).
const ALIASES: &[(&str, &str)] = &[
    ("parameter_schema", "parameters"),
    ("inputSchema", "parameters"),
    ("input_schema", "parameters"),
    ("outputSchema", "result_schema"),
    ("output_schema", "result_schema"),
    ("costConfig", "cost_config"),
    ("cacheTTL", "cache_ttl_seconds"),
    ("requiresPermission", "requires_permission"),
    ("rateLimit", "rate_limit"),
];

/// The same inside `rate_limit` (RES-017).
const RATE_LIMIT_ALIASES: &[(&str, &str)] =
    &[("maxPerMinute", "max_per_minute"), ("maxPerHour", "max_per_hour"), ("maxPerDay", "max_per_day")];

/// The syntaxes a manifest may be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestFormat {
    Toml,
    Yaml,
    Json,
}

impl ManifestFormat {
    /// By file extension.
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// The published JSON Schema of the manifest (MAN-002). Written to `schemas/` and used for reading alike.
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Manifest>();
        let mut schema = root.to_value();
        without_null(&mut schema);
        if let Some(members) = schema.as_object_mut() {
            members.insert("$id".into(), SCHEMA_ID.into());
            members.insert("title".into(), "Tool Manifest".into());
        }
        schema
    });
    &SCHEMA
}

/// Optional members are left out, not null. The generator allows both, which blurs every message about them.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    members.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(branches)) = members.get_mut("anyOf") {
                branches.retain(|branch| branch.get("type").is_none_or(|name| name != "null"));
                if let [Value::Object(only)] = branches.as_slice() {
                    let only = only.clone();
                    members.remove("anyOf");
                    members.extend(only);
                }
            }
            if members.get("default").is_some_and(Value::is_null) {
                members.remove("default");
            }
            members.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn compiled() -> Result<&'static CompiledSchema, ManifestError> {
    static COMPILED: LazyLock<Option<CompiledSchema>> = LazyLock::new(|| {
        let mut schema = schema().clone();
        if let Some(members) = schema.as_object_mut() {
            members.remove("$id");
        }
        CompiledSchema::input(&schema, &SchemaLimits::default(), Coercion::Off).ok()
    });
    // A test keeps the generated schema compilable, so this is never met in a released build.
    COMPILED.as_ref().ok_or_else(|| ManifestError::one("", "the manifest schema of this build does not compile"))
}

impl Manifest {
    /// Reads a manifest from text.
    pub fn read(text: &str, format: ManifestFormat) -> Result<Self, ManifestError> {
        Self::from_value(Self::document(text, format)?)
    }

    /// What is written in a file, before anything about it is judged.
    pub fn document(text: &str, format: ManifestFormat) -> Result<Value, ManifestError> {
        Ok(match format {
            ManifestFormat::Json => json::read(text.as_bytes(), &JsonLimits::default())
                .map_err(|e| ManifestError::one("", format!("not valid JSON: {e}")))?,
            ManifestFormat::Toml => toml::from_str::<Value>(text)
                .map_err(|e| ManifestError::one("", format!("not valid TOML: {}", e.message())))?,
            ManifestFormat::Yaml => serde_yaml_ng::from_str::<Value>(text)
                .map_err(|e| ManifestError::one("", format!("not valid YAML: {e}")))?,
        })
    }

    /// The manifest in a document, whether or not it is admissible: to find out whether it is one that was published under the
    /// rules of an earlier release. Never publish it; that is what [`from_value`](Self::from_value) is for.
    pub fn as_written(document: &Value) -> Option<Self> {
        let members = without_aliases(document.as_object()?.clone()).ok()?;
        serde_json::from_value(Value::Object(members)).ok()
    }

    /// Reads a manifest from parsed JSON, naming every fault at once.
    pub fn from_value(value: Value) -> Result<Self, ManifestError> {
        let Value::Object(members) = value else {
            return Err(ManifestError::one("", "a manifest is an object with members such as `tool_id` and `version`"));
        };
        let value = Value::Object(without_aliases(members)?);

        let mut findings: Vec<AdmissionFinding> = match compiled()?.prepare(value.clone()) {
            Ok(_) => Vec::new(),
            Err(invalid) => invalid.violations.into_iter().map(|v| AdmissionFinding::new(v.path, v.message)).collect(),
        };
        findings.extend(schema_findings(&value));
        if !findings.is_empty() {
            return Err(ManifestError::new(findings));
        }
        let manifest: Self = serde_json::from_value(value).map_err(|e| ManifestError::one("", e.to_string()))?;
        let broken = admission::findings(&manifest);
        if broken.is_empty() { Ok(manifest) } else { Err(ManifestError::new(broken)) }
    }

    /// Compiles the parameter schema the way calls will be checked against it.
    pub fn compile_parameters(&self) -> Result<CompiledSchema, ManifestError> {
        let coercion = match self.coercion.unwrap_or_default() {
            CoercionMode::Lossless => Coercion::Lossless,
            CoercionMode::Off => Coercion::Off,
        };
        CompiledSchema::input(&self.parameters, &SchemaLimits::default(), coercion)
            .map_err(|errors| ManifestError::new(prefixed("/parameters", errors)))
    }

    /// Compiles the result schema.
    pub fn compile_result(&self) -> Result<CompiledSchema, ManifestError> {
        CompiledSchema::output(&self.result_schema, &SchemaLimits::default())
            .map_err(|errors| ManifestError::new(prefixed("/result_schema", errors)))
    }
}

/// Renames imported members; one that is given under two names is refused rather than guessed. A member that is null
/// counts as left out, because generators of JSON write them so.
fn without_aliases(mut members: Map<String, Value>) -> Result<Map<String, Value>, ManifestError> {
    members.retain(|_, value| !value.is_null());
    let mut findings = Vec::new();
    rename(&mut members, ALIASES, "", &mut findings);
    if let Some(Value::Object(limit)) = members.get_mut("rate_limit") {
        rename(limit, RATE_LIMIT_ALIASES, "/rate_limit", &mut findings);
    }
    if findings.is_empty() { Ok(members) } else { Err(ManifestError::new(findings)) }
}

fn rename(
    members: &mut Map<String, Value>,
    aliases: &[(&str, &str)],
    within: &str,
    findings: &mut Vec<AdmissionFinding>,
) {
    for (alias, name) in aliases {
        if let Some(value) = members.remove(*alias)
            && members.insert((*name).to_owned(), value).is_some()
        {
            let said = format!("is another name for `{name}`, which is given too");
            findings.push(AdmissionFinding::new(format!("{within}/{alias}"), said));
        }
    }
}

/// Why a default is not admitted.
const UNFIT_DEFAULT: &str =
    "does not satisfy the schema beside it, so it would never be filled in: write one that does, or leave it out";

/// The faults inside the two schemas, found even when other members are wrong.
fn schema_findings(value: &Value) -> Vec<AdmissionFinding> {
    let mut findings = Vec::new();
    let limits = SchemaLimits::default();
    // What is odd in the words of an MCP server is remarked upon, and its tool kept.
    let is_authors = value.pointer("/execution/type").and_then(Value::as_str) != Some("mcp");
    if let Some(parameters) = value.get("parameters").filter(|p| p.is_object()) {
        match CompiledSchema::input(parameters, &limits, Coercion::Off) {
            Ok(compiled) if is_authors => findings.extend(
                compiled
                    .unfit_defaults()
                    .map(|path| AdmissionFinding::new(format!("/parameters{path}"), UNFIT_DEFAULT)),
            ),
            Ok(_) => {}
            Err(errors) => findings.extend(prefixed("/parameters", errors)),
        }
    }
    if let Some(result) = value.get("result_schema").filter(|r| r.is_object())
        && let Err(errors) = CompiledSchema::output(result, &limits)
    {
        findings.extend(prefixed("/result_schema", errors));
    }
    findings
}

fn prefixed(prefix: &str, errors: crate::schema::SchemaErrors) -> Vec<AdmissionFinding> {
    errors.0.into_iter().map(|e| AdmissionFinding::new(format!("{prefix}{}", e.path), e.message)).collect()
}
