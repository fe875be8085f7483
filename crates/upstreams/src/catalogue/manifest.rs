//! From an accepted definition to a manifest, and to the version number it must have.
//!
//! The manifest says what the registry needs; the definition itself stays in the pin, word by word. Effects are
//! `unclassified` until a person has said what they are: what a server says about itself is a hint and stands in tags.

use contract::compat::{self, CompatVerdict, SchemaDirection};
use contract::ids::ToolId;
use contract::manifest::{LifecycleState, Manifest, McpDisplay, SideEffectPolicy, TaskSupport};
use contract::schema::portable::{DEFINITIONS, portable};
use contract::schema::{SchemaMarks, modern};
use contract::version::{FirstNumber, Version, VersionBump};
use kernel::registry::RegisteredTool;
use ports::clock::UnixMillis;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::descriptor::{clean, hints};
use crate::spec::{CALL_TIMEOUT_SECONDS_MAX, LifeBounds};
use crate::wire::is_ours;

/// Longest and shortest texts that a manifest takes.
const NAME_CHARS_MAX: usize = 255;
const NAME_CHARS_MIN: usize = 3;
const DESCRIPTION_CHARS_MAX: usize = 2000;
const DESCRIPTION_CHARS_MIN: usize = 10;
/// Bytes of what clients are shown besides names, texts and schemas: icons may be whole pictures.
const DISPLAY_BYTES_MAX: usize = 128 * 1024;
/// Longest tag.
const TAG_CHARS_MAX: usize = 100;
/// Where a result has what the server has typed.
const STRUCTURED: &str = "structuredContent";

/// What the manifest is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken<'a> {
    pub(super) server: &'a str,
    pub(super) upstream_tool: &'a str,
    pub(super) tool: &'a ToolId,
    pub(super) definition: &'a Value,
    pub(super) classification: Option<SideEffectPolicy>,
    /// What a call may take and give unless it says otherwise.
    pub(super) upkeep: LifeBounds,
}

/// The manifest as a document, without a version.
pub(super) fn document(taken: Taken<'_>) -> Map<String, Value> {
    let said = |member: &str| taken.definition.get(member).and_then(Value::as_str).unwrap_or_default();
    let effects = taken.classification.unwrap_or(SideEffectPolicy::Unclassified);
    let mut manifest = Map::new();
    let mut put = |name: &str, value: Value| manifest.insert(name.to_owned(), value);
    put("tool_id", json!(taken.tool.local()));
    if let Some(namespace) = taken.tool.namespace() {
        put("namespace", json!(namespace));
    }
    put("name", json!(title(taken, said("title"))));
    put("description", json!(description(taken, said("description"))));
    put("provider", json!(taken.server));
    put("protocol", json!("mcp"));
    put(
        "parameters",
        taken.definition.get("inputSchema").map(|schema| modern(schema).into_owned()).unwrap_or_default(),
    );
    let output = taken.definition.get("outputSchema").filter(|schema| !schema.is_null()).map(modern);
    put("result_schema", result_schema(output.as_deref()));
    put("side_effect_policy", json!(effects));
    if !matches!(effects, SideEffectPolicy::Pure | SideEffectPolicy::Unclassified) {
        // Whoever classified it has said how grave it is, not what exactly it changes.
        let resource: String = taken.server.chars().take(NAME_CHARS_MAX).collect();
        put("side_effects", json!([{ "resource": resource, "op": "UPDATE", "scope": "whatever the server reaches" }]));
        put("idempotency", json!({ "key_fields": [] }));
    }
    put("execution", execution(taken));
    let timeout_max = taken.upkeep.call_timeout_max_seconds;
    let lasts = timeout_max.is_some_and(|seconds| seconds > CALL_TIMEOUT_SECONDS_MAX);
    put("timeout_class", json!(if lasts { "async" } else { "long_running" }));
    if let Some(seconds) = timeout_max {
        put("timeout_max", json!(seconds));
    }
    put("timeout_default", json!(taken.upkeep.call_timeout_seconds));
    if let Some(bytes) = taken.upkeep.result_bytes_max {
        put("result_bytes_max", json!(bytes));
    }
    put("tags", json!(tags(taken)));
    manifest
}

fn execution(taken: Taken<'_>) -> Value {
    let mut execution = json!({ "type": "mcp", "server": taken.server, "tool": taken.upstream_tool });
    let display = display(taken.definition);
    if display != McpDisplay::default()
        && let Some(members) = execution.as_object_mut()
    {
        members.insert("display".to_owned(), json!(display));
    }
    execution
}

/// What clients are shown of the tool. A server does not speak for us, and an icon is a picture and nothing that runs.
fn display(definition: &Value) -> McpDisplay {
    let members = |name: &str| definition.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut meta = members("_meta");
    meta.retain(|name, _| !is_ours(name));
    let is_picture = |icon: &&Value| {
        let source = icon.get("src").and_then(Value::as_str).unwrap_or_default();
        ["https://", "data:image/"].iter().any(|start| source.starts_with(start))
    };
    let icons = definition.get("icons").and_then(Value::as_array).into_iter().flatten();
    let task_support =
        definition.pointer("/execution/taskSupport").and_then(|word| TaskSupport::deserialize(word).ok());
    let display = McpDisplay {
        annotations: members("annotations"),
        icons: icons.filter(is_picture).cloned().collect(),
        meta,
        task_support,
    };
    let bytes = json!(display).to_string().len();
    if bytes > DISPLAY_BYTES_MAX {
        let tool = definition.get("name").and_then(Value::as_str).map(|name| clean(name, NAME_CHARS_MAX));
        tracing::warn!(tool, bytes, "icons and metadata of a tool are too large to be shown");
        return McpDisplay { annotations: display.annotations, task_support, ..McpDisplay::default() };
    }
    display
}

fn title(taken: Taken<'_>, said: &str) -> String {
    let annotated = taken.definition.pointer("/annotations/title").and_then(Value::as_str).unwrap_or_default();
    let first = [said, annotated, taken.upstream_tool].into_iter().map(|text| clean(text, NAME_CHARS_MAX));
    let name = first.map(|text| text.trim().to_owned()).find(|text| !text.is_empty()).unwrap_or_default();
    if name.chars().count() < NAME_CHARS_MIN { taken.tool.as_str().to_owned() } else { name }
}

fn description(taken: Taken<'_>, said: &str) -> String {
    // Lines stay lines: a model reads them as its author laid them out.
    let lines: Vec<String> = said.lines().map(|line| clean(line, DESCRIPTION_CHARS_MAX)).collect();
    let text = lines.join("\n").trim().to_owned();
    let text = if text.chars().count() < DESCRIPTION_CHARS_MIN {
        let about = format!("`{}` of the MCP server `{}`", clean(taken.upstream_tool, NAME_CHARS_MAX), taken.server);
        if text.is_empty() { about } else { format!("{about}: {text}") }
    } else {
        text
    };
    if text.chars().count() <= DESCRIPTION_CHARS_MAX {
        return text;
    }
    text.chars().take(DESCRIPTION_CHARS_MAX - 1).chain(['…']).collect()
}

fn tags(taken: Taken<'_>) -> Vec<String> {
    let own = ["mcp".to_owned(), format!("server:{}", taken.server)];
    let hints = hints(taken.definition).into_iter().map(|hint| format!("hint:{hint}"));
    own.into_iter().chain(hints).map(|tag| tag.chars().take(TAG_CHARS_MAX).collect()).collect()
}

/// The shape of what comes back: the content as it is, and beside it what the server has typed.
///
/// The inner schema stays as its author wrote it as far as it can, because it is shown to callers by itself. Its references lead
/// from its own root; so that they lead somewhere in the whole too, they lead into its definitions, which stand there once more.
pub(super) fn result_schema(output: Option<&Value>) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": { "content": { "type": "array" }, STRUCTURED: {} },
        "required": ["content"],
    });
    let (Some(output), Some(members)) = (output, schema.as_object_mut()) else { return schema };
    let Some(output) = portable(output) else {
        // Not checked then. What it would have marked is hidden with everything around it.
        if SchemaMarks::of(output).is_some()
            && let Some(place) = members.get_mut("properties").and_then(|all| all.get_mut(STRUCTURED))
        {
            *place = json!({ "x-sensitivity": "secret" });
        }
        return schema;
    };
    for definitions in DEFINITIONS {
        if let Some(kept) = output.get(definitions) {
            members.insert(definitions.to_owned(), kept.clone());
        }
    }
    members.insert("required".into(), json!(["content", STRUCTURED]));
    if let Some(place) = members.get_mut("properties").and_then(Value::as_object_mut) {
        place.insert(STRUCTURED.into(), output);
    }
    schema
}

/// The whole manifest under the version that is honest about it: the first, the one it has already, or the next.
pub(super) fn versioned(
    mut document: Map<String, Value>,
    published: Option<&RegisteredTool>,
    now: UnixMillis,
) -> (Value, Version) {
    let mut with = |version: &Version| {
        document.insert("version".into(), json!(version));
        Value::Object(document.clone())
    };
    let first = Version::new(1, 0, 0);
    let Some(newest) = published.and_then(|tool| tool.versions().last()) else { return (with(&first), first) };
    let is_there = |state: LifecycleState| state != LifecycleState::Removed;
    // Published before, by a look at the server that did not come to its end.
    let as_it_was = with(&newest.version);
    if is_there(newest.lifecycle.state(now))
        && serde_json::from_value::<Manifest>(as_it_was.clone()).is_ok_and(|same| same.digest() == newest.digest)
    {
        return (as_it_was, newest.version.clone());
    }
    let predecessor = published
        .into_iter()
        .flat_map(|tool| tool.versions().iter().rev())
        .find(|version| is_there(version.lifecycle.state(now)) && !version.version.is_prerelease());
    let member = |name: &str| document_member(&as_it_was, name);
    let verdict = predecessor.map_or(CompatVerdict::Major, |before| {
        let input = compat::compare(&before.manifest.parameters, member("parameters"), SchemaDirection::Input);
        let output = compat::compare(&before.manifest.result_schema, member("result_schema"), SchemaDirection::Output);
        input.verdict.max(output.verdict)
    });
    let step = match verdict {
        CompatVerdict::Patch => VersionBump::Patch,
        CompatVerdict::Minor => VersionBump::Minor,
        CompatVerdict::Major => VersionBump::Major,
    };
    // Numbers end at 2^53; nothing gets there by changing definitions.
    let next = newest.version.bump(step, None, FirstNumber::Zero).unwrap_or(first);
    (with(&next), next)
}

fn document_member<'a>(document: &'a Value, name: &str) -> &'a Value {
    static NOTHING: Value = Value::Null;
    document.get(name).unwrap_or(&NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(definition: &Value, classification: Option<SideEffectPolicy>) -> Manifest {
        let tool: ToolId = "files.read_file".parse().unwrap();
        let (server, upstream_tool, upkeep) = ("files", "readFile", LifeBounds::default());
        let taken = Taken { server, upstream_tool, tool: &tool, definition, classification, upkeep };
        let (document, version) = versioned(document(taken), None, UnixMillis(0));
        assert_eq!(version.to_string(), "1.0.0");
        Manifest::from_value(document).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn whatever_a_server_says_about_itself_becomes_a_manifest_that_is_admitted() {
        for description in ["", "x", "Reads a file.\nLine two.", "a\u{202e}b\u{0}c def ghi", &"ä".repeat(9_000)] {
            for title in ["", "R", "Read a file", &"t".repeat(600)] {
                let definition = json!({ "name": "readFile", "title": title, "description": description,
                    "inputSchema": { "type": "object", "properties": { "path": { "type": "string" } } } });
                let manifest = manifest(&definition, None);
                assert_eq!(manifest.side_effect_policy, SideEffectPolicy::Unclassified);
                assert_eq!(manifest.id().unwrap().as_str(), "files.read_file");
            }
        }
    }

    #[test]
    fn every_class_but_one_can_be_given_and_hints_stay_hints() {
        let definition = json!({ "name": "x", "inputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true, "title": "Reading" } });
        for class in [SideEffectPolicy::Pure, SideEffectPolicy::Idempotent, SideEffectPolicy::Irreversible] {
            assert_eq!(manifest(&definition, Some(class)).side_effect_policy, class);
        }
        let manifest = manifest(&definition, None);
        assert_eq!(manifest.side_effect_policy, SideEffectPolicy::Unclassified);
        assert_eq!(manifest.tags, ["mcp", "server:files", "hint:read_only"]);
        assert_eq!(manifest.name, "Reading");
    }

    #[test]
    fn what_a_server_shows_of_its_tool_is_kept_apart_from_what_anything_relies_on() {
        let definition = json!({ "name": "x", "inputSchema": { "type": "object" },
            "annotations": { "title": "Reading", "readOnlyHint": true },
            "icons": [{ "src": "https://example.com/a.png", "sizes": ["48x48"] }, { "src": "javascript:alert(1)" }],
            "execution": { "taskSupport": "forbidden" },
            "_meta": { "example.com/area": "files", "dev.gantry/trusted": true } });
        let taken = manifest(&definition, None);
        let Some(contract::manifest::Execution::Mcp { display: Some(display), .. }) = taken.execution else { panic!() };
        let shown = json!({ "annotations": { "title": "Reading", "readOnlyHint": true },
            "icons": [{ "src": "https://example.com/a.png", "sizes": ["48x48"] }], "_meta": { "example.com/area": "files" },
            "task_support": "forbidden" });
        assert_eq!(json!(display), shown);
        let huge = json!({ "name": "x", "inputSchema": { "type": "object" },
            "icons": [{ "src": format!("data:image/png;base64,{}", "A".repeat(200_000)) }] });
        let Some(contract::manifest::Execution::Mcp { display, .. }) = manifest(&huge, None).execution else {
            panic!()
        };
        assert_eq!(display, None);
    }

    #[test]
    fn the_result_is_the_content_and_what_the_server_has_typed() {
        let output = json!({ "type": "object", "properties": { "n": { "$ref": "#/$defs/count" } }, "required": ["n"],
            "$defs": { "count": { "type": "integer" } } });
        let definition = json!({ "name": "x", "inputSchema": { "type": "object" }, "outputSchema": output });
        let manifest = manifest(&definition, None);
        assert_eq!(manifest.result_schema.pointer("/properties/structuredContent"), Some(&output));
        let schema = manifest.compile_result().unwrap();
        assert!(schema.check(&json!({ "content": [], "structuredContent": { "n": 1 } })).is_ok());
        for wrong in [json!({ "content": [] }), json!({ "content": [], "structuredContent": { "n": "x" } })] {
            assert!(schema.check(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(result_schema(None).get("required"), Some(&json!(["content"])));
    }

    #[test]
    fn a_typed_result_of_an_older_draft_is_translated_before_its_references_are_led_elsewhere() {
        let output = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": { "pair": { "items": [{ "type": "string", "x-sensitivity": "pii" }, {}], "additionalItems": false },
                "first": { "$ref": "#/properties/pair/items/0" }, "who": { "$ref": "#who" } },
            "definitions": { "who": { "$id": "#who", "type": "integer" } } });
        let definition = json!({ "name": "x", "inputSchema": { "type": "object" }, "outputSchema": output });
        let manifest = manifest(&definition, None);
        let schema = manifest.compile_result().unwrap();
        let said = |structured: Value| json!({ "content": [], "structuredContent": structured });
        assert!(schema.check(&said(json!({ "pair": ["a", 1], "first": "b", "who": 1 }))).is_ok());
        for wrong in
            [json!({ "pair": ["a", 1, 2] }), json!({ "pair": [1] }), json!({ "first": 1 }), json!({ "who": "x" })]
        {
            assert!(schema.check(&said(wrong.clone())).is_err(), "{wrong}");
        }
        let marks = SchemaMarks::of(&manifest.result_schema).unwrap();
        let inner = marks.whole().member("structuredContent");
        let marked =
            [inner.member("pair").item(0), inner.member("pair").item(1), inner.member("first"), inner.member("who")];
        let marked = marked.map(|part| part.says() == contract::schema::Sensitivity::Sensitive);
        assert_eq!(marked, [true, false, true, false]);
    }

    #[test]
    fn a_typed_result_is_checked_and_marked_wherever_its_references_lead() {
        let output = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": { "a": { "$ref": "#/properties/b" }, "b": { "type": "string", "x-sensitivity": "pii" },
                "next": { "$ref": "#" }, "c": { "$ref": "#who" } },
            "$defs": { "who": { "$anchor": "who", "x-sensitivity": "pii" } } });
        let definition = json!({ "name": "x", "inputSchema": { "type": "object" }, "outputSchema": output });
        let manifest = manifest(&definition, None);
        let schema = manifest.compile_result().unwrap();
        let said = |structured: Value| json!({ "content": [], "structuredContent": structured });
        assert!(schema.check(&said(json!({ "next": { "a": "x" } }))).is_ok());
        assert!(schema.check(&said(json!({ "next": { "a": 1 } }))).is_err());
        let marks = SchemaMarks::of(&manifest.result_schema).unwrap();
        let inner = marks.whole().member("structuredContent");
        for part in [inner.member("a"), inner.member("c"), inner.member("next").member("next").member("a")] {
            assert_eq!(part.says(), contract::schema::Sensitivity::Sensitive);
        }
        // What cannot be brought over is hidden as a whole if anything of it was to be.
        let large = json!({ "type": "object", "properties": { "a": { "$ref": "#" }, "pin": { "x-sensitivity": "secret" },
            "b": { "enum": vec![1; 10_000] } } });
        let hidden = result_schema(Some(&large));
        assert_eq!(hidden.pointer("/properties/structuredContent"), Some(&json!({ "x-sensitivity": "secret" })));
    }
}
