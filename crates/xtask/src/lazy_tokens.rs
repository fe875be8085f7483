//! `cargo xtask lazy-tokens`: what a model's context pays for tools, all of them against the three meta-tools. (LAZY-006)
//!
//! The tools are real ones: `tool_search/*.jsonl` (a name, a description, often parameters) and the operations of
//! `openapi/*.yaml`, below the folder given by `--data` (default `testdata`). Each set is a namespace. A sample is spread
//! evenly over all of them; if more are asked for than there are, definitions are used a second time under another name
//! and the table says how many. Counted is the JSON that `tools/list` answers with, by the tokenizer of the product.

mod definitions;

use std::path::PathBuf;

use affordances::{
    Affordance, CounterName, DetailLevel, IndexRequest, IndexSource, MemoizedCounter, NavigationHints, TokenCounters,
    compile, meta_tools,
};
use affordances::{NamedTool, SUMMARY_TOKENS_MAX, summary};
use anyhow::{Context, Result, bail};
use contract::ids::ToolId;
use contract::manifest::MutationClass;
use contract::version::Version;
use serde_json::{Value, json};

use self::definitions::Definition;
use crate::workspace;

/// How many tools are counted.
const SIZES: [usize; 3] = [100, 1000, 5000];
/// More than any index has.
const NO_BOUND: usize = 10_000_000;

/// Counts, and prints a table.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let data = match args {
        [] => workspace::root().join("testdata"),
        [option, folder] if option == "--data" => PathBuf::from(folder),
        _ => bail!("usage: cargo xtask lazy-tokens [--data DIR]"),
    };
    let real = definitions::read(&data)?;
    if real.is_empty() {
        bail!("there are no tools in `tool_search` or `openapi` of that folder");
    }
    let counters = TokenCounters::default();
    let counting = counters.counting(CounterName::O200kBase);
    println!("| tools | `all` | a tool | index, names | index, sentences | `lazy` | `lazy` is |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for size in SIZES {
        let (sample, again) = sampled(&real, size);
        let counts = Counts::of(&sample, counting)?;
        println!("{}", counts.row(size));
        if again > 0 {
            eprintln!("{size}: {again} of them are definitions used a second time, of {} real ones", real.len());
        }
    }
    Ok(())
}

/// Tokens of one sample.
struct Counts {
    all: usize,
    names: usize,
    sentences: usize,
    lazy: usize,
}

impl Counts {
    fn of(sample: &[Definition], counting: MemoizedCounter<'_>) -> Result<Self> {
        let listed: Vec<Value> = sample.iter().map(Definition::listed).collect();
        let ids: Vec<ToolId> = sample.iter().map(|tool| tool.id()).collect::<Result<_>>()?;
        let version: Version = "1.0.0".parse().context("a version")?;
        let tools: Vec<Affordance<'_>> =
            sample.iter().zip(&ids).map(|(tool, tool_id)| offered(tool, tool_id, &version)).collect();
        let index = |budget| {
            let wish = IndexRequest { budget, highest: DetailLevel::Standard, wayfinding: NavigationHints::MetaTools };
            compile(IndexSource::of(&tools), &[], wish, counting)
        };
        let sentences = index(NO_BOUND).tokens_used;
        // With no room for sentences within its share, the index has names only.
        let names = index(sentences.saturating_mul(2).saturating_sub(1)).tokens_used;
        let summary =
            summary(ids.iter().map(|tool_id| NamedTool { tool_id, categories: &[] }), SUMMARY_TOKENS_MAX, counting);
        let meta: Vec<Value> = meta_tools(&summary)
            .into_iter()
            .map(|tool| json!({ "name": tool.name, "description": tool.description, "inputSchema": tool.input_schema }))
            .collect();
        let tokens = |tools: Vec<Value>| counting.count(&json!({ "tools": tools }).to_string());
        Ok(Self { all: tokens(listed), names, sentences, lazy: tokens(meta) })
    }

    fn row(&self, size: usize) -> String {
        let each = self.all / size;
        // In tenths of a percent.
        let share = (self.lazy.saturating_mul(1000)).div_ceil(self.all.max(1));
        format!(
            "| {} | {} | {each} | {} | {} | {} | {}.{} % |",
            grouped(size),
            grouped(self.all),
            grouped(self.names),
            grouped(self.sentences),
            grouped(self.lazy),
            share / 10,
            share % 10
        )
    }
}

fn offered<'a>(tool: &'a Definition, tool_id: &'a ToolId, version: &'a Version) -> Affordance<'a> {
    Affordance {
        name: None,
        tool_id,
        version,
        description: &tool.description,
        mutation_class: MutationClass::WriteIrreversible,
        parameters: &tool.parameters,
        utility: 1.0,
    }
}

/// `size` definitions spread over all, and how many are there a second time.
fn sampled(real: &[Definition], size: usize) -> (Vec<Definition>, usize) {
    let first = size.min(real.len());
    let at = |n: usize| n.saturating_mul(real.len()).checked_div(first).unwrap_or(0);
    let mut sample: Vec<Definition> = (0..first).filter_map(|n| real.get(at(n)).cloned()).collect();
    let again: Vec<Definition> = real.iter().cycle().take(size.saturating_sub(first)).map(Definition::again).collect();
    let more = again.len();
    sample.extend(again);
    (sample, more)
}

/// With a comma every three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let with = |mut text: String, (place, digit): (usize, char)| {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
        text
    };
    digits.chars().enumerate().fold(String::new(), with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_comma_every_three_digits() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_sample_is_spread_and_says_what_is_there_twice() {
        let real: Vec<Definition> =
            ["aaa", "bbb", "ccc", "ddd"].map(|name| Definition::new("set", name, "Does it.", None)).into();
        let names = |size| {
            let (sample, again) = sampled(&real, size);
            (sample.into_iter().map(|tool| tool.name).collect::<Vec<_>>().join(" "), again)
        };
        assert_eq!(names(2), ("aaa ccc".to_owned(), 0));
        assert_eq!(names(4), ("aaa bbb ccc ddd".to_owned(), 0));
        assert_eq!(names(6), ("aaa bbb ccc ddd aaa_again bbb_again".to_owned(), 2));
    }

    #[test]
    fn a_hundred_tools_cost_less_than_a_twentieth_when_lazy() {
        let words = ["type", "string", "description", "The text that the tool works on, as it was written."];
        let member = json!({ words[0]: words[1], words[2]: words[3] });
        let members: serde_json::Map<String, Value> = (0..8).map(|n| (format!("member_{n}"), member.clone())).collect();
        let tools: Vec<Definition> = (0..100)
            .map(|n| {
                Definition::new(
                    "set",
                    &format!("tool_{n}"),
                    "Does it.",
                    Some(json!({ "type": "object", "properties": members })),
                )
            })
            .collect();
        let counters = TokenCounters::default();
        let counts = Counts::of(&tools, counters.counting(CounterName::O200kBase)).unwrap();
        assert!(counts.all > 10_000 && counts.lazy * 20 < counts.all, "{} {}", counts.all, counts.lazy);
        assert!(
            counts.names < counts.sentences && counts.sentences * 4 < counts.all,
            "{} {}",
            counts.names,
            counts.sentences
        );
    }
}
