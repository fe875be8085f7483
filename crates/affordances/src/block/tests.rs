//! Never over the budget, the same for every order, smaller ones after one that does not fit, less detail before nothing.

use contract::ids::ToolId;
use contract::manifest::MutationClass;
use contract::version::Version;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::counter::{CounterName, EstimatingCounter, TokenCounter, TokenCounters};

/// A tool that owns what an [`Affordance`] borrows.
#[derive(Debug, Clone)]
struct Tool {
    id: ToolId,
    version: Version,
    description: String,
    parameters: Value,
    utility: f64,
}

impl Tool {
    fn new(id: &str, utility: f64, parameters: Value) -> Self {
        let description = format!("Does what {id} says. And then some more of it, at length.");
        Self { id: id.parse().unwrap(), version: "1.0.0".parse().unwrap(), description, parameters, utility }
    }

    /// With this many plain parameters.
    fn wide(id: &str, utility: f64, members: usize) -> Self {
        let members =
            (0..members).map(|n| (format!("member_{n}"), json!({ "type": "string", "description": "A text." })));
        Self::new(id, utility, json!({ "type": "object", "properties": Value::Object(members.collect()) }))
    }

    /// With one parameter that has this many members inside.
    fn deep(id: &str, utility: f64, members: usize) -> Self {
        let inside = Self::wide(id, 0.0, members).parameters;
        Self::new(id, utility, json!({ "type": "object", "properties": { "body": inside } }))
    }

    fn offered(&self) -> Affordance<'_> {
        Affordance {
            name: None,
            tool_id: &self.id,
            version: &self.version,
            description: &self.description,
            mutation_class: MutationClass::ReadOnly,
            parameters: &self.parameters,
            utility: self.utility,
        }
    }
}

fn offered(tools: &[Tool]) -> Vec<Affordance<'_>> {
    tools.iter().map(Tool::offered).collect()
}

fn wish(budget: usize) -> IndexRequest {
    IndexRequest { budget, highest: DetailLevel::Standard, wayfinding: NavigationHints::MetaTools }
}

const ESTIMATE: MemoizedCounter<'static> = MemoizedCounter::without_memory(&EstimatingCounter);

fn shown(entries: &[ToolEntry]) -> Vec<(&str, DetailLevel)> {
    entries.iter().map(|entry| (entry.tool_id.as_str(), entry.detail)).collect()
}

#[test]
fn with_room_for_all_everything_is_there_in_full() {
    let tools = [Tool::wide("demo.first", 1.0, 2), Tool::deep("demo.second", 3.0, 3)];
    let tools = offered(&tools);
    let block = compile(IndexSource::of(&tools), &tools, wish(5000), ESTIMATE);
    assert_eq!(block.index_form, IndexForm::Sentences);
    assert_eq!(block.index[0], "demo.first — Does what demo.first says [read-only]");
    assert_eq!(shown(&block.schemas), [("demo.second", DetailLevel::Standard), ("demo.first", DetailLevel::Standard)]);
    assert_eq!((block.omitted, &block.note), (0, &None));
    assert_eq!(block.tokens_used, EstimatingCounter.count(&block.text()));
    assert_eq!(block.tokens_used + block.tokens_left, 5000);
}

#[test]
fn one_that_does_not_fit_does_not_keep_smaller_ones_out() {
    let tools = [Tool::wide("demo.great", 2.0, 400), Tool::wide("demo.small", 1.9, 1), Tool::wide("demo.tiny", 1.8, 0)];
    let packed = pack(&offered(&tools), wish(300), ESTIMATE);
    assert_eq!(
        shown(&packed.tools),
        [
            ("demo.great", DetailLevel::Minimal),
            ("demo.small", DetailLevel::Standard),
            ("demo.tiny", DetailLevel::Standard)
        ]
    );
    // Also when of the great one not even a reference is wanted.
    let KnapsackItem { tokens, .. } =
        choice(&tools[0].offered(), &entries(&tools[0].offered(), wish(0))[0], 2.0, ESTIMATE);
    assert!(tokens > 300);
}

#[test]
fn detail_falls_from_whole_to_top_level_to_a_reference_to_nothing() {
    let tools = [Tool::deep("demo.deep", 1.0, 40)];
    let tools = offered(&tools);
    for (budget, expected) in [
        (2000, Some(DetailLevel::Standard)),
        (150, Some(DetailLevel::TopLevel)),
        (60, Some(DetailLevel::Minimal)),
        (20, None),
    ] {
        let packed = pack(&tools, wish(budget), ESTIMATE);
        assert_eq!(packed.tools.first().map(|entry| entry.detail), expected, "{budget}");
        assert_eq!(packed.omitted, usize::from(expected.is_none()));
    }
    let minimal = IndexRequest { highest: DetailLevel::Minimal, ..wish(2000) };
    assert_eq!(shown(&pack(&tools, minimal, ESTIMATE).tools), [("demo.deep", DetailLevel::Minimal)]);
}

#[test]
fn an_index_that_does_not_fit_loses_its_sentences_then_itself_and_says_where_to_look() {
    let tools: Vec<Tool> = (0..40).map(|n| Tool::wide(&format!("demo.tool_{n:02}"), 1.0, 1)).collect();
    let tools = offered(&tools);
    let form = |budget| compile(IndexSource::of(&tools), &[], wish(budget), ESTIMATE).index_form;
    assert_eq!((form(2000), form(500), form(200)), (IndexForm::Sentences, IndexForm::Names, IndexForm::None));
    let block = compile(IndexSource::of(&tools), &tools, wish(200), ESTIMATE);
    assert_eq!(block.note.as_deref(), Some("The index of 40 tools does not fit; find tools with search_tools."));
    assert!(block.index.is_empty() && !block.schemas.is_empty());
    let nothing = compile(IndexSource::of(&tools), &tools, wish(2), ESTIMATE);
    assert_eq!((nothing.text(), nothing.tokens_used, nothing.tokens_left, nothing.omitted), (String::new(), 0, 2, 40));
}

#[test]
fn a_declared_cost_makes_a_tool_dearer_and_never_cheaper() {
    let with_cost = |cost: u64| {
        let mut tool = Tool::wide("demo.tool", 1.0, 4);
        tool.parameters["x-token-cost"] = cost.into();
        tool
    };
    let detail = |cost| pack(&[with_cost(cost).offered()], wish(150), ESTIMATE).tools[0].detail;
    assert_eq!((detail(1), detail(149)), (DetailLevel::Standard, DetailLevel::Minimal));
    let cheat = [with_cost(1)];
    let packed = pack(&offered(&cheat), wish(60), ESTIMATE);
    assert!(packed.tokens_used <= 60, "{packed:?}");
}

#[test]
fn a_hundred_tools_cost_a_fraction_as_an_index() {
    // LAZY-006, with the tokenizer that counts.
    let tools: Vec<Tool> = (0..100).map(|n| Tool::wide(&format!("crm.find_record_{n}"), 1.0, 10)).collect();
    let tools = offered(&tools);
    let fresh = TokenCounters::default();
    let counting = fresh.counting(CounterName::O200kBase);
    let eager: usize = tools.iter().map(|tool| counting.count(&json(&entries(tool, wish(0))[0]))).sum();
    let index = compile(IndexSource::of(&tools), &[], wish(100_000), counting);
    assert!(eager > 15_000, "{eager}");
    assert!(index.tokens_used * 8 < eager, "{} of {eager}", index.tokens_used);
    let names = compile(IndexSource::of(&tools), &[], wish(1900), counting);
    assert!(names.index_form == IndexForm::Names && names.tokens_used < 1300, "{}", names.tokens_used);
}

/// Tools with texts that are unkind to whoever counts seams.
fn tools() -> impl Strategy<Value = Vec<Tool>> {
    let text = prop_oneof!["[a-z ]{0,60}", "[}\\]{\\[\",:\\\\]{0,30}", "\\PC{0,30}", "[ \n\t]{0,20}"];
    let tool =
        ("([a-c]\\.)?[a-d]{3}", text, 0_usize..6, any::<bool>(), prop_oneof![0.0..5.0, Just(f64::NAN), Just(-1.0)]);
    let tool = tool.prop_map(|(id, description, members, deep, utility)| {
        let tool = if deep { Tool::deep(&id, utility, members) } else { Tool::wide(&id, utility, members) };
        Tool { description, ..tool }
    });
    proptest::collection::vec(tool, 0..12).prop_map(|mut tools| {
        // As the registry has it: one tool an id.
        tools.sort_by(|a, b| a.id.cmp(&b.id));
        tools.dedup_by(|a, b| a.id == b.id);
        tools
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_block_is_never_over_its_budget_and_counts_what_is_sent(tools in tools(), budget in 0_usize..900) {
        let tools = offered(&tools);
        let block = compile(IndexSource::of(&tools), &tools, wish(budget), ESTIMATE);
        prop_assert_eq!(block.tokens_used, EstimatingCounter.count(&block.text()));
        prop_assert!(block.tokens_used <= budget);
        prop_assert_eq!(block.tokens_used + block.tokens_left, budget);
        prop_assert_eq!(block.schemas.len() + block.omitted, tools.len());
    }

    #[test]
    fn the_order_of_the_tools_changes_nothing(
        (tools, shuffled) in tools().prop_flat_map(|tools| (Just(tools.clone()), Just(tools).prop_shuffle())),
        budget in 0_usize..900,
    ) {
        let (tools, shuffled) = (offered(&tools), offered(&shuffled));
        let (one, other) = (compile(IndexSource::of(&tools), &tools, wish(budget), ESTIMATE), compile(IndexSource::of(&shuffled), &shuffled, wish(budget), ESTIMATE));
        prop_assert_eq!(one, other);
        prop_assert_eq!(pack(&tools, wish(budget), ESTIMATE), pack(&shuffled, wish(budget), ESTIMATE));
    }
}

#[test]
fn with_the_real_tokenizer_no_block_is_over_its_budget_either() {
    let counters = TokenCounters::default();
    let counting = counters.counting(CounterName::O200kBase);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(60));
    runner
        .run(&(tools(), 0_usize..700), |(tools, budget)| {
            let tools = offered(&tools);
            let (block, packed) = (
                compile(IndexSource::of(&tools), &tools, wish(budget), counting),
                pack(&tools, wish(budget), counting),
            );
            prop_assert_eq!(block.tokens_used, counting.count(&block.text()));
            prop_assert_eq!(packed.tokens_used, counting.count(&packed.text()));
            prop_assert!(block.tokens_used <= budget && packed.tokens_used <= budget);
            Ok(())
        })
        .unwrap();
}
