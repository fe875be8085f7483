//! The admission rules: what a well-formed manifest must also satisfy before its tool may be used (REG-002, MAN-001).
//!
//! Every broken rule is reported, never only the first, and nothing is silently degraded. Each rule is one function from
//! the manifest to at most a few findings; adding a rule is adding a line to [`findings`].
//!
//! Not here: rules that need other tools or earlier versions (compensation target, compatibility): the registry has them.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Execution, InputGuard, Isolation, Manifest, ProcessProtocol, Protocol, ResourceLimits, SideEffectPolicy,
    TimeoutClass,
};
use crate::guard::{self, InputGuards};
use crate::ids::ToolId;
use crate::license;

/// Names that stand for something else at the doors (`GET /v1/tools/search`); a namespace makes them free.
const RESERVED_IDS: [&str; 6] = ["compare", "explain", "invoke", "negotiate", "register", "search"];

/// One reason why a manifest is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdmissionFinding {
    /// JSON pointer to the member; empty for the whole.
    pub path: String,
    pub message: String,
}

impl AdmissionFinding {
    /// A finding at a path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for AdmissionFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

/// Why a manifest was refused: every reason at once (E3105).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    findings: Vec<AdmissionFinding>,
}

impl ManifestError {
    /// From at least one finding.
    pub fn new(findings: Vec<AdmissionFinding>) -> Self {
        Self { findings }
    }

    /// From exactly one.
    pub fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { findings: vec![AdmissionFinding::new(path, message)] }
    }

    /// All reasons, in document order.
    pub fn findings(&self) -> &[AdmissionFinding] {
        &self.findings
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.findings.as_slice() {
            [only] => write!(f, "the manifest is not admitted: {only}"),
            many => {
                write!(f, "the manifest is not admitted for {} reasons:", many.len())?;
                many.iter().try_for_each(|finding| write!(f, " [{finding}]"))
            }
        }
    }
}

impl std::error::Error for ManifestError {}

/// Every broken rule of an otherwise well-formed manifest.
pub fn findings(manifest: &Manifest) -> Vec<AdmissionFinding> {
    let mut out = Vec::new();
    names(manifest, &mut out);
    parameters_are_an_object(manifest, &mut out);
    guards(manifest, &mut out);
    effects(manifest, &mut out);
    timeouts(manifest, &mut out);
    resources(manifest, &mut out);
    execution(manifest, &mut out);
    stale_results(manifest, &mut out);
    lifecycle(manifest, &mut out);
    errors(manifest, &mut out);
    license(manifest, &mut out);
    idle_members(manifest, &mut out);
    later_members(manifest, &mut out);
    examples(manifest, &mut out);
    out
}

fn names(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    if let Err(error) = manifest.id() {
        out.push(AdmissionFinding::new("/tool_id", error.to_string()));
    }
    if manifest.namespace.is_none() && RESERVED_IDS.contains(&manifest.tool_id.as_str()) {
        let message = format!("`{}` is reserved: choose another id or add a namespace", manifest.tool_id);
        out.push(AdmissionFinding::new("/tool_id", message));
    }
    for (path, id) in [
        ("/compensation_tool_id", &manifest.compensation_tool_id),
        ("/replacement_tool_id", &manifest.replacement_tool_id),
    ] {
        if let Some(Err(error)) = id.as_ref().map(|id| id.parse::<ToolId>()) {
            out.push(AdmissionFinding::new(path, error.to_string()));
        }
    }
    if let Some(text) = [&manifest.name, &manifest.description].into_iter().find(|t| t.chars().any(is_unprintable)) {
        let path = if std::ptr::eq(text, &manifest.name) { "/name" } else { "/description" };
        out.push(AdmissionFinding::new(
            path,
            "must not contain control characters or characters that turn text around",
        ));
    }
}

/// Control characters, and those that turn the direction of text around: both make a name show as another.
fn is_unprintable(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn parameters_are_an_object(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    if manifest.parameters.get("type").and_then(|t| t.as_str()) != Some("object") {
        out.push(AdmissionFinding::new(
            "/parameters/type",
            "parameters are passed by name, so the schema's type must be `object`",
        ));
    }
}

/// A guard that is misspelt or misplaced would guard nothing, and nobody would notice (DESIGN §8.4).
fn guards(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    let misuses = guard::misuses(&manifest.parameters).into_iter();
    out.extend(misuses.map(|misuse| AdmissionFinding::new(format!("/parameters{}", misuse.path), misuse.message)));
    // Whoever asks for a guard in so many words, and says nowhere what it is to guard, believes that something is guarded.
    let word = match manifest.input_guard {
        None | Some(InputGuard::Off) => return,
        Some(InputGuard::Reject) => "reject",
        Some(InputGuard::Strip) => "strip",
    };
    if InputGuards::compile(&manifest.parameters).is_empty() {
        out.push(AdmissionFinding::new(
            "/input_guard",
            format!("`{word}` guards nothing: no property of `parameters` has an `x-guard`; annotate those that need one (`\"x-guard\": \"shell\"`), or leave `input_guard` out"),
        ));
    }
}

/// MutationClassLabeled and IdempotencySpecified of REG-002; MAN-027, MAN-028.
fn effects(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    let policy = manifest.side_effect_policy;
    if policy == SideEffectPolicy::Unclassified {
        if manifest.protocol == Protocol::Native {
            out.push(AdmissionFinding::new(
                "/side_effect_policy",
                "only tools taken over from elsewhere may be `unclassified`: say `pure`, `idempotent`, `compensatable` or `irreversible`",
            ));
        }
    } else if policy.has_effects() {
        if manifest.side_effects.is_empty() {
            out.push(AdmissionFinding::new(
                "/side_effects",
                format!(
                    "a tool whose side_effect_policy is `{}` must list what it changes: [{{ resource, op, scope }}]",
                    policy.as_str()
                ),
            ));
        }
        if manifest.idempotency.is_none() {
            out.push(AdmissionFinding::new(
                "/idempotency",
                format!("a tool whose side_effect_policy is `{}` must say how repeated calls are recognised: {{ key_fields = [], window_seconds = 86400 }}", policy.as_str()),
            ));
        }
    } else if !manifest.side_effects.is_empty() {
        out.push(AdmissionFinding::new(
            "/side_effects",
            "a pure tool has no side effects: remove them or change side_effect_policy",
        ));
    }
    match (policy, &manifest.compensation_tool_id) {
        (SideEffectPolicy::Compensatable, None) => out.push(AdmissionFinding::new(
            "/compensation_tool_id",
            "a compensatable tool must name the tool that undoes it; if nothing does, it is `irreversible`",
        )),
        (SideEffectPolicy::Pure | SideEffectPolicy::Irreversible | SideEffectPolicy::Unclassified, Some(_)) => out
            .push(AdmissionFinding::new(
                "/compensation_tool_id",
                format!("a tool whose side_effect_policy is `{}` cannot have one", policy.as_str()),
            )),
        _ => {}
    }
    let key_fields = manifest.idempotency.iter().flat_map(|spec| spec.key_fields.iter().enumerate());
    let key_fields = key_fields.map(|(index, field)| (format!("/idempotency/key_fields/{index}"), field));
    // A price by a parameter that nobody can send would be that of one unit for ever.
    let unit = manifest.cost_config.as_ref().and_then(|config| config.per_unit.as_ref());
    let input_field = unit.and_then(|unit| unit.input_field.as_ref());
    let input_field = input_field.map(|field| ("/cost_config/per_unit/input_field".to_owned(), field));
    let declared = manifest.parameters.get("properties").and_then(|p| p.as_object());
    for (place, field) in key_fields.chain(input_field) {
        if declared.is_none_or(|d| !d.contains_key(field)) {
            out.push(AdmissionFinding::new(place, format!("`{field}` is not a declared parameter")));
        }
    }
}

/// the class gives the ceiling; the numbers may only lower it.
fn timeouts(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    let class_seconds = manifest.timeout_class.max_ms().div_ceil(1000);
    for (path, seconds) in [("/timeout_default", manifest.timeout_default), ("/timeout_max", manifest.timeout_max)] {
        if let Some(seconds) = seconds
            && u64::from(seconds) > class_seconds
            // MAN-012's own default is allowed to stand in any class; it is cut at run time.
            && !(path == "/timeout_default" && seconds == 30)
        {
            out.push(AdmissionFinding::new(
                path,
                format!(
                    "{seconds} s is more than the {class_seconds} s of timeout_class `{}`",
                    class_name(manifest.timeout_class)
                ),
            ));
        }
    }
    if let (Some(default), Some(max)) = (manifest.timeout_default, manifest.timeout_max)
        && default > max
    {
        out.push(AdmissionFinding::new("/timeout_default", format!("{default} s is more than timeout_max, {max} s")));
    }
}

fn class_name(class: TimeoutClass) -> &'static str {
    match class {
        TimeoutClass::Interactive => "interactive",
        TimeoutClass::Standard => "standard",
        TimeoutClass::LongRunning => "long_running",
        TimeoutClass::Async => "async",
    }
}

fn resources(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    let Some(limits) = &manifest.resource_limits else { return };
    if let Some(execution) = manifest.execution.as_ref().filter(|execution| !execution.keeps_limits()) {
        out.push(AdmissionFinding::new("/resource_limits", limits_not_kept(execution)));
    }
    // Limits are written out with all their members, so the usual amount is what a manifest has that does not name one.
    if let Some(Execution::Wasm { .. }) = &manifest.execution
        && limits.ephemeral_storage != ResourceLimits::default().ephemeral_storage
    {
        out.push(AdmissionFinding::new(
            "/resource_limits/ephemeral_storage",
            "a tool of type `wasm` has no scratch space, so there is nothing to limit: leave this out",
        ));
    }
    let values = [
        ("cpu", limits.cpu_millicores()),
        ("memory", limits.memory_mb()),
        ("ephemeral_storage", limits.ephemeral_storage_mb()),
    ];
    for (member, value) in values {
        if value.is_none_or(|v| v == 0) {
            out.push(AdmissionFinding::new(
                format!("/resource_limits/{member}"),
                "must be more than nothing and fit a machine",
            ));
        }
    }
}

/// Why limits of CPU, memory and scratch space mean nothing for this way of running.
fn limits_not_kept(execution: &Execution) -> String {
    format!(
        "a tool of type `{}` has no process of its own for a call, so its CPU and memory cannot be limited: leave this out",
        execution.kind()
    )
}

fn execution(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    match &manifest.execution {
        Some(Execution::Process { command, env, isolation, protocol, warm }) => {
            if command.first().is_none_or(String::is_empty) {
                out.push(AdmissionFinding::new(
                    "/execution/command",
                    "must name a program: [\"python3\", \"main.py\"]",
                ));
            }
            words_fit_a_process(command, env, out);
            if *warm && *protocol != ProcessProtocol::Session {
                out.push(AdmissionFinding::new(
                    "/execution/warm",
                    "only a tool with protocol `gantry/1` can stay for the next call: the simple protocol ends with the process",
                ));
            }
            debug_assert!(*isolation >= Isolation::Process);
        }
        Some(Execution::Wasm { component, env }) => {
            inside_the_folder("/execution/component", component, out);
            words_fit_a_process(&[], env, out);
        }
        Some(Execution::Oci { image, command, env, isolation, protocol: _ }) => {
            inside_the_folder("/execution/image", image, out);
            words_fit_a_process(command, env, out);
            debug_assert!(*isolation >= Isolation::Process);
        }
        Some(Execution::Composite { .. }) if manifest.timeout_class == TimeoutClass::Interactive => {
            out.push(AdmissionFinding::new("/timeout_class", "a composite is at least `standard`"));
        }
        _ => {}
    }
}

/// What no process could be given.
fn words_fit_a_process(command: &[String], env: &BTreeMap<String, String>, out: &mut Vec<AdmissionFinding>) {
    if command.iter().any(|part| part.contains('\0')) {
        out.push(AdmissionFinding::new("/execution/command", "must not contain NUL characters"));
    }
    if env.iter().any(|(key, value)| key.is_empty() || key.contains(['=', '\0']) || value.contains('\0')) {
        out.push(AdmissionFinding::new(
            "/execution/env",
            "names must not be empty or contain `=`, and nothing may contain NUL",
        ));
    }
}

/// A tool brings what it runs; nothing else of the machine can be named.
fn inside_the_folder(path: &str, place: &str, out: &mut Vec<AdmissionFinding>) {
    let inside = !place.is_empty()
        && !place.starts_with('/')
        && !place.contains(['\0', '\\'])
        && place.split('/').all(|segment| segment != "..");
    if !inside {
        out.push(AdmissionFinding::new(path, "must be a relative path inside the tool's folder, without `..`"));
    }
}

fn stale_results(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    if manifest.stale_results.is_none() {
        return;
    }
    if manifest.side_effect_policy != SideEffectPolicy::Pure {
        out.push(AdmissionFinding::new("/stale_results", "only pure tools may answer with a former result"));
    }
    let has_breaker = manifest.external_service.is_some()
        || manifest.circuit_breaker_config.is_some()
        || manifest.execution.as_ref().is_some_and(Execution::calls_out);
    if !has_breaker {
        out.push(AdmissionFinding::new(
            "/stale_results",
            "is for the time in which a breaker is open, and this tool has none: name an `external_service`",
        ));
    }
}

/// What the manifest says about its end. Whether a date is past is for the registry, which knows the time.
fn lifecycle(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    use super::LifecycleState::{Active, Deprecated, Removed, Sunset};
    match manifest.lifecycle_state.unwrap_or_default() {
        Active | Deprecated => {}
        state @ (Sunset | Removed) => {
            out.push(AdmissionFinding::new(
                "/lifecycle_state",
                format!("a version cannot be published as `{}`", state.as_str()),
            ));
        }
    }
    // ISO dates are ordered like their texts.
    if let (Some(deprecation), Some(sunset)) = (&manifest.deprecation_date, &manifest.sunset_date)
        && sunset <= deprecation
    {
        out.push(AdmissionFinding::new("/sunset_date", format!("must come after deprecation_date, {deprecation}")));
    }
    let ends = manifest.lifecycle_state == Some(Deprecated)
        || manifest.deprecation_date.is_some()
        || manifest.sunset_date.is_some();
    for (path, given) in [
        ("/replacement_tool_id", manifest.replacement_tool_id.is_some()),
        ("/migration_guide_url", manifest.migration_guide_url.is_some()),
    ] {
        if given && !ends {
            out.push(AdmissionFinding::new(
                path,
                "is advice for users of a version that ends: give a `deprecation_date`, a `sunset_date` or `lifecycle_state = \"deprecated\"`",
            ));
        }
    }
}

/// A declared error gives the tool's own word for a failure, so it must be one that a tool can end with (MAN-010).
fn errors(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    for (index, declared) in manifest.errors.iter().enumerate() {
        let path = format!("/errors/{index}/code");
        if !declared.code.is_of_tools() {
            out.push(AdmissionFinding::new(path, format!("{} is never answered by a tool itself", declared.code)));
        } else if manifest.errors.iter().take(index).any(|earlier| earlier.code == declared.code) {
            out.push(AdmissionFinding::new(path, format!("{} is declared twice", declared.code)));
        }
    }
}

/// MAN-023. `Proprietary` is no SPDX identifier and is accepted beside them.
fn license(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    let Some(text) = &manifest.license else { return };
    if let Err(error) = license::check(text) {
        out.push(AdmissionFinding::new("/license", error.to_string()));
    }
}

/// Members that act only together with another, which is not there: whoever wrote them believes that they do something.
fn idle_members(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    if let Some(policy) = &manifest.network_policy
        && let Some(ports) = &policy.allowed_ports
    {
        if policy.allowed_domains.is_empty() {
            out.push(AdmissionFinding::new(
                "/network_policy/allowed_ports",
                "opens nothing without `allowed_domains`, whose ports it names: list the hosts there, or leave it out; the ports of a host in `required_permissions` stand beside it (`network:db.example:5432`)",
            ));
        } else if ports.is_empty() {
            out.push(AdmissionFinding::new(
                "/network_policy/allowed_ports",
                "opens no port of `allowed_domains`: name the ports, or leave it out for 80 and 443",
            ));
        }
    }
    let idle = [
        (
            "/circuit_breaker_config/canary_step_percent",
            manifest
                .circuit_breaker_config
                .as_ref()
                .is_some_and(|breaker| breaker.canary_step_percent.is_some() && breaker.canary_percent.is_none()),
            "raises a share that nothing begins: name it in `canary_percent`, or leave it out",
        ),
        (
            "/cost_config/currency",
            manifest.cost_config.as_ref().is_some_and(|cost| {
                cost.currency.is_some()
                    && cost.fixed_cost.is_none()
                    && cost.per_unit.is_none()
                    && cost.cost_field.is_none()
            }),
            "is the currency of no price: name one in `fixed_cost`, `per_unit` or `cost_field`, or leave it out",
        ),
        (
            "/rate_limit",
            manifest.rate_limit.as_ref().is_some_and(|limit| {
                limit.max_per_minute.is_none() && limit.max_per_hour.is_none() && limit.max_per_day.is_none()
            }),
            "limits nothing: give `max_per_minute`, `max_per_hour` or `max_per_day`, or leave it out",
        ),
    ];
    out.extend(
        idle.into_iter().filter(|(_, is_idle, _)| *is_idle).map(|(path, _, why)| AdmissionFinding::new(path, why)),
    );
}

/// Members of what this version does not do yet: taking them would promise it.
fn later_members(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    let later = [
        ("/cache_ttl_seconds", manifest.cache_ttl_seconds.is_some(), "results are not cached"),
        ("/document_dependencies", !manifest.document_dependencies.is_empty(), "tools are not handed documents"),
        ("/confirmation_prompt", manifest.confirmation_prompt.is_some(), "users cannot be asked to confirm a call"),
        ("/behaviour", manifest.behaviour.is_some(), "no tests are generated from it"),
    ];
    for (path, given, why) in later {
        if given {
            out.push(AdmissionFinding::new(
                path,
                format!("is not supported by this version of Gantry: {why}; leave it out"),
            ));
        }
    }
}

/// Declared examples are promises to testers and models: they must be valid parameters that no guard refuses.
fn examples(manifest: &Manifest, out: &mut Vec<AdmissionFinding>) {
    if manifest.examples.is_empty() {
        return;
    }
    let Ok(schema) = manifest.compile_parameters() else { return };
    let guards = match manifest.input_guard.unwrap_or_default() {
        InputGuard::Reject => InputGuards::compile(&manifest.parameters),
        InputGuard::Off | InputGuard::Strip => InputGuards::default(),
    };
    for (index, example) in manifest.examples.iter().enumerate() {
        let reason = match schema.prepare(example.clone()) {
            Ok(prepared) => guards.check(&prepared.value).into_iter().next().map(|breach| {
                format!("is refused by the guard `{}` ({}: {})", breach.guard, breach.path, breach.reason)
            }),
            Err(invalid) => {
                let first = invalid.violations.first();
                let reason = first.map_or_else(String::new, |v| format!("{}: {}", v.path, v.message));
                Some(format!("is not valid for `parameters` ({reason})"))
            }
        };
        out.extend(reason.map(|reason| AdmissionFinding::new(format!("/examples/{index}"), reason)));
    }
}
