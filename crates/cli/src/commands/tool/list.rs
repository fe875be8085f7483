//! `gantry tool list`: which tools there are.

use clap::Args;
use contract::manifest::LifecycleState;
use kernel::registry::{ListFilter, PAGE_SIZE_MAX};
use serde_json::{Value, json};

use crate::catalogue;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Pages that are asked for at most: more tools than anybody reads in a terminal.
const PAGES_MAX: usize = 500;
/// Characters of a description in a table.
const SHORT_CHARS: usize = 90;

/// List tools
#[derive(Debug, Args)]
pub(crate) struct ToolListCommand {
    /// Only tools of this category
    #[arg(long)]
    category: Option<String>,
    /// Only tools with this tag (repeatable: all of them)
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only tools with this text in id, name or description
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only tools in this state [default: active and deprecated]
    #[arg(long, value_name = "STATE", value_parser = state)]
    lifecycle: Option<LifecycleState>,
    /// How far to look: `catalog` what there is, `tenant` what the token's tenant has, `agent` what the token may use
    /// [default: what the token may know]
    #[arg(long, value_name = "TIER", value_parser = ["catalog", "tenant", "agent"])]
    tier: Option<String>,
}

impl ToolListCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let mut filter = ListFilter {
            category: self.category,
            tags: self.tags,
            text: self.text,
            lifecycle: self.lifecycle,
            page: 1,
            page_size: PAGE_SIZE_MAX,
        };
        let mut tools = Vec::new();
        loop {
            let mut answer = catalogue::list(context, &filter, self.tier.as_deref()).await?;
            let Some(Value::Array(page)) = answer.get_mut("tools").map(Value::take) else { break };
            let total = answer.pointer("/pagination/total_count").and_then(Value::as_u64).unwrap_or_default();
            let is_last = page.is_empty() || filter.page >= PAGES_MAX;
            tools.extend(page);
            if is_last || u64::try_from(tools.len()).is_ok_and(|so_far| so_far >= total) {
                break;
            }
            filter.page += 1;
        }
        let document = json!({ "total_count": tools.len(), "tools": tools });
        context.printer.answer(&document, |printer| {
            if tools.is_empty() {
                return "no tools".to_owned();
            }
            printer.table(["TOOL", "VERSION", "STATE", "EFFECTS", "DESCRIPTION"], tools.iter().map(row))
        });
        Ok(())
    }
}

fn row(tool: &Value) -> [String; 5] {
    ["tool_id", "latest_version", "lifecycle_state", "side_effect_policy", "description"]
        .map(|name| in_short(tool.get(name).and_then(Value::as_str).unwrap_or_default()))
}

/// The first sentence, and of a long one the beginning: one tool is one line of a table.
pub(super) fn in_short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split_once(". ").map_or(line, |(first, _)| first);
    if sentence.chars().count() <= SHORT_CHARS {
        return sentence.to_owned();
    }
    sentence.chars().take(SHORT_CHARS - 1).chain(['…']).collect()
}

fn state(text: &str) -> Result<LifecycleState, String> {
    use LifecycleState::{Active, Deprecated, Removed, Sunset};
    [Active, Deprecated, Sunset, Removed]
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| "use active, deprecated, sunset or removed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_cut_to_one_sentence_of_bearable_length() {
        for (text, expected) in [
            ("", ""),
            ("Counts words.", "Counts words."),
            ("Counts words. And more.", "Counts words"),
            ("One\ntwo", "One"),
        ] {
            assert_eq!(in_short(text), expected);
        }
        let long = in_short(&"ü".repeat(500));
        assert!(long.chars().count() == SHORT_CHARS && long.ends_with('…'));
    }
}
