//! Lazy exposure: three tools that find, describe and call all the others, so that a model need not read the whole
//! catalogue to use a part of it. (LAZY-001…008)
//!
//! `call_tool` is not a second way to run a tool: it names one, and the call goes the same way as any other.
//!
//! Descriptions of tools come from strangers. What stands in the descriptions of these three is made of ids and numbers
//! alone; the strangers' words are seen only by whoever looks for such a tool or asks for that very one.
//!
//! Not here: the texts, the summary, counting and packing (`affordances`, which REST uses too).

use std::sync::Arc;

use affordances::{
    Affordance, DetailLevel, EstimatingCounter, IndexRequest, MemoizedCounter, MetaTool, NamedTool, NavigationHints,
    PackedResults, SUMMARY_TOKENS_MAX, pack,
};
use contract::error::{ErrorCode, Refusal};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::config::McpMode;
use super::tool_list::{ListedTool, ToolListing};

pub(crate) const SEARCH: &str = affordances::SEARCH_TOOLS;
pub(crate) const DESCRIBE: &str = affordances::DESCRIBE_TOOL;
pub(crate) const CALL: &str = affordances::CALL_TOOL;
/// Hits of one search at most.
pub(crate) const HITS_MAX: usize = 50;
/// Hits if nobody says how many.
const HITS_DEFAULT: usize = 10;
/// Longest query.
const QUERY_CHARS_MAX: usize = 1_000;

/// The three tools, or in discovery the two that call nothing.
pub(crate) fn meta_tools(mode: McpMode, offered: &[Arc<ListedTool>]) -> Vec<Tool> {
    let named =
        offered.iter().map(|one| NamedTool { tool_id: &one.version.id, categories: &one.version.manifest.categories });
    // Made with every list: the tables of the real tokenizer would make the first one wait.
    let summary = affordances::summary(named, SUMMARY_TOKENS_MAX, MemoizedCounter::without_memory(&EstimatingCounter));
    let all = affordances::meta_tools(&summary).into_iter();
    all.filter(|tool| mode == McpMode::Full || tool.name != CALL).map(as_mcp_has_it).collect()
}

fn as_mcp_has_it(meta: MetaTool) -> Tool {
    let schema: JsonObject = meta.input_schema.as_object().cloned().unwrap_or_default();
    let mut tool = Tool::new(meta.name, meta.description, Arc::new(schema));
    tool.title = Some(
        match meta.name {
            SEARCH => "Search tools",
            DESCRIBE => "Describe a tool",
            _ => "Call a tool",
        }
        .to_owned(),
    );
    // What `call_tool` does is what the named tool does: nothing is claimed.
    let hints = || ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false);
    tool.annotations = (meta.name != CALL).then(hints);
    tool
}

// ------------------------------------------------------------------------------------------------------------ arguments

/// What `search_tools` was asked.
pub(crate) fn search_asked(arguments: &JsonObject) -> Result<(&str, usize), Refusal> {
    known(arguments, &["query", "limit"])?;
    let query = text(arguments, "query")?;
    if query.trim().is_empty() || query.chars().count() > QUERY_CHARS_MAX {
        return Err(wrong("query", &format!("expected 1 to {QUERY_CHARS_MAX} characters")));
    }
    let limit = match arguments.get("limit") {
        None | Some(Value::Null) => HITS_DEFAULT,
        Some(given) => given
            .as_u64()
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| (1..=HITS_MAX).contains(limit))
            .ok_or_else(|| wrong("limit", &format!("expected an integer from 1 to {HITS_MAX}")))?,
    };
    Ok((query, limit))
}

/// What `describe_tool` was asked.
pub(crate) fn describe_asked(arguments: &JsonObject) -> Result<&str, Refusal> {
    known(arguments, &["name"])?;
    text(arguments, "name")
}

/// What `call_tool` was asked: which tool, with which arguments.
pub(crate) fn call_asked(mut arguments: JsonObject) -> Result<(String, JsonObject), Refusal> {
    known(&arguments, &["name", "arguments"])?;
    let name = text(&arguments, "name")?.to_owned();
    match arguments.remove("arguments") {
        None | Some(Value::Null) => Ok((name, JsonObject::new())),
        Some(Value::Object(inner)) => Ok((name, inner)),
        Some(_) => Err(wrong("arguments", "expected an object with the arguments of the named tool")),
    }
}

fn known(arguments: &JsonObject, names: &[&str]) -> Result<(), Refusal> {
    match arguments.keys().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(other) => {
            let shown: String = other.chars().filter(|c| !c.is_control()).take(80).collect();
            let near = contract::nearest::nearest(other, names.iter().copied());
            let hint =
                near.map_or_else(|| format!("it takes {}", names.join(", ")), |near| format!("did you mean `{near}`?"));
            Err(wrong(&shown, &format!("is not declared; {hint}")))
        }
    }
}

fn text<'a>(arguments: &'a JsonObject, name: &str) -> Result<&'a str, Refusal> {
    match arguments.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(wrong(name, "expected a string")),
        None => Err(wrong(name, "is required")),
    }
}

fn wrong(name: &str, what: &str) -> Refusal {
    Refusal::new(ErrorCode::E3301, "the arguments do not fit")
        .details(json!({ "errors": [{ "path": format!("/{name}"), "message": what }] }))
}

// -------------------------------------------------------------------------------------------------------------- answers

/// What was found, and how well it fits.
pub(crate) type RankedTool = (Arc<ListedTool>, f64);

/// The hits that fit into the budget, best first, each in the detail that pays. May take long the first time, when the
/// tables of the tokenizer are made.
pub(crate) fn packed(hits: &[RankedTool], tokens_max: usize, counting: MemoizedCounter<'_>) -> PackedResults {
    let found: Vec<Affordance<'_>> = hits
        .iter()
        .map(|(hit, score)| Affordance {
            name: Some(&hit.wire.name),
            ..Affordance::of(&hit.version.id, &hit.version.manifest, *score)
        })
        .collect();
    pack(
        &found,
        IndexRequest { budget: tokens_max, highest: DetailLevel::Standard, wayfinding: NavigationHints::MetaTools },
        counting,
    )
}

/// The answer of `search_tools`.
pub(crate) fn found(packed: &PackedResults) -> CallToolResult {
    let text = packed.text();
    // Not even empty brackets fit into the least budget that can be set only if nothing was counted.
    let answer = serde_json::from_str(&text).unwrap_or_else(|_| json!({ "tools": [], "omitted": packed.omitted }));
    let mut result = CallToolResult::success(vec![ContentBlock::text(answer.to_string())]);
    if !text.is_empty() {
        result.content = vec![ContentBlock::text(text)];
    }
    result.structured_content = Some(answer);
    result
}

/// Everything about one tool.
pub(crate) fn described(one: &ListedTool) -> CallToolResult {
    let answer = serde_json::to_value(&one.wire).unwrap_or_default();
    let mut result = CallToolResult::success(vec![ContentBlock::text(answer.to_string())]);
    result.structured_content = Some(answer);
    result
}

/// The refusal of a name that none of the offered tools has.
pub(crate) fn not_there(listing: &ToolListing, name: &str) -> Refusal {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let refusal = Refusal::new(ErrorCode::E3101, format!("there is no tool `{shown}`"));
    match listing.nearest(name).filter(|near| *near != name) {
        Some(near) => refusal.hint(format!("did you mean `{near}`?")).details(json!({ "nearest": near })),
        None if listing.meta.is_some() => refusal.hint("look for it with search_tools"),
        None => refusal.hint("tools/list says what there is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn arguments_that_do_not_fit_say_which_and_why() {
        for (given, word) in [
            (json!({}), "/query is required"),
            (json!({ "query": 3 }), "/query expected a string"),
            (json!({ "query": " " }), "/query expected 1 to"),
            (json!({ "query": "x", "limit": 51 }), "/limit expected an integer from 1 to 50"),
            (json!({ "query": "x", "limits": 5 }), "/limits is not declared; did you mean `limit`?"),
        ] {
            let refusal = search_asked(&object(&given)).unwrap_err();
            let fault = &refusal.details.unwrap()["errors"][0];
            let said = format!("{} {}", fault["path"].as_str().unwrap(), fault["message"].as_str().unwrap());
            assert!(said.starts_with(word), "{given}: {said}");
        }
        assert_eq!(search_asked(&object(&json!({ "query": "x" }))).unwrap(), ("x", 10));
        let (name, inner) = call_asked(object(&json!({ "name": "a", "arguments": { "b": 1 } }))).unwrap();
        assert_eq!((name.as_str(), inner), ("a", object(&json!({ "b": 1 }))));
        assert!(call_asked(object(&json!({ "name": "a", "arguments": [] }))).is_err());
    }
}
