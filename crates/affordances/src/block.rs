//! The block for a model's context: the index if there is room for it, and the definitions that help most (LAZY-001…005).
//!
//! First the index, because it is what a model plans with; then definitions by usefulness per token, each in the greatest
//! detail that pays: whole, top level, reference. What is counted is the text that is sent, brackets and all. Costs of
//! parts add up only nearly, because tokens may reach over a seam; so the whole is counted at the end, and if it is over
//! the budget by a few tokens, it is packed again with that much less room.
//!
//! Not here: what is useful (search says so), the choice itself (`knapsack`), the texts (`detail`).

use std::cmp::Ordering;

use serde::Serialize;

use crate::affordance::Affordance;
use crate::counter::MemoizedCounter;
use crate::detail::{DetailLevel, NavigationHints, ToolEntry, line};
use crate::knapsack::{ItemGroup, KnapsackItem, solve};
use crate::meta_tools::SEARCH_TOOLS;

/// Times that a block is packed again because of its seams.
const ATTEMPTS_MAX: usize = 4;
/// Steps into which usefulness is divided; finer differences are noise.
const UTILITY_STEPS: f64 = 100_000.0;
/// No line of an index has fewer tokens, by any counter.
pub const LINE_TOKENS_MIN: usize = 3;
/// An index with sentences may take this part of the budget; otherwise names alone must do.
const INDEX_SHARE: usize = 2;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexRequest {
    /// Tokens, for everything together.
    pub budget: usize,
    /// No tool is shown in greater detail.
    pub highest: DetailLevel,
    pub wayfinding: NavigationHints,
}

/// What an index is made of.
#[derive(Debug, Clone, Copy)]
pub struct IndexSource<'a> {
    /// All tools; or none, if their number times [`LINE_TOKENS_MIN`] is more than the budget anyway.
    pub tools: &'a [Affordance<'a>],
    pub total: usize,
}

impl<'a> IndexSource<'a> {
    /// Of these tools and no others.
    pub fn of(tools: &'a [Affordance<'a>]) -> Self {
        Self { tools, total: tools.len() }
    }
}

/// How the index came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexForm {
    /// `id — sentence [class]`.
    Sentences,
    /// `id [class]`.
    Names,
    /// It does not fit.
    None,
}

/// What fits into the budget.
#[derive(Debug, Clone, PartialEq)]
pub struct AffordanceBlock {
    /// In the order of ids; empty if it does not fit.
    pub index: Vec<String>,
    pub index_form: IndexForm,
    /// Most useful first.
    pub schemas: Vec<ToolEntry>,
    /// What to do without an index. Also left out if not even that fits.
    pub note: Option<String>,
    /// Tools that were ranked and are not in `schemas`.
    pub omitted: usize,
    pub tokens_used: usize,
    pub tokens_left: usize,
}

/// Results of a search, within a budget.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedResults {
    /// Best first.
    pub tools: Vec<ToolEntry>,
    pub omitted: usize,
    pub tokens_used: usize,
    pub tokens_left: usize,
}

/// The block for an objective: an index of the catalogue, and definitions of what is `ranked` for the objective.
pub fn compile(
    catalogue: IndexSource<'_>,
    ranked: &[Affordance<'_>],
    wish: IndexRequest,
    counting: MemoizedCounter<'_>,
) -> AffordanceBlock {
    let fitted = index(catalogue, wish, counting);
    let Some(Index { lines, form, note, tokens }) = fitted else {
        // Not even empty brackets fit: nothing is sent.
        let omitted = ranking(ranked).len();
        return AffordanceBlock { omitted, tokens_left: wish.budget, ..AffordanceBlock::EMPTY };
    };
    let text = |schemas: &[&ToolEntry]| block_text(&lines, schemas, note.as_deref());
    let filled = fill(ranked, tokens, wish, counting, text);
    AffordanceBlock {
        index_form: form,
        schemas: filled.entries,
        omitted: filled.omitted,
        tokens_used: filled.tokens,
        tokens_left: wish.budget.saturating_sub(filled.tokens),
        index: lines,
        note,
    }
}

/// As many results of a search as fit, in the detail that pays.
pub fn pack(results: &[Affordance<'_>], wish: IndexRequest, counting: MemoizedCounter<'_>) -> PackedResults {
    let all = ranking(results).len();
    let text = |tools: &[&ToolEntry]| packed_text(tools, all.saturating_sub(tools.len()));
    let frame = counting.count(&text(&[]));
    if frame > wish.budget {
        return PackedResults { tools: Vec::new(), omitted: all, tokens_used: 0, tokens_left: wish.budget };
    }
    let filled = fill(results, frame, wish, counting, text);
    let tokens_left = wish.budget.saturating_sub(filled.tokens);
    PackedResults { tools: filled.entries, omitted: filled.omitted, tokens_used: filled.tokens, tokens_left }
}

// -------------------------------------------------------------------------------------------------------- the texts

impl AffordanceBlock {
    const EMPTY: Self = Self {
        index: Vec::new(),
        index_form: IndexForm::None,
        schemas: Vec::new(),
        note: None,
        omitted: 0,
        tokens_used: 0,
        tokens_left: 0,
    };

    /// The text that was counted, to be put into the context as it is; empty if nothing fits.
    pub fn text(&self) -> String {
        if self.tokens_used == 0 {
            return String::new();
        }
        block_text(&self.index, &self.schemas.iter().collect::<Vec<_>>(), self.note.as_deref())
    }
}

impl PackedResults {
    /// The text that was counted, to be sent as it is; empty if nothing fits.
    pub fn text(&self) -> String {
        if self.tokens_used == 0 {
            return String::new();
        }
        packed_text(&self.tools.iter().collect::<Vec<_>>(), self.omitted)
    }
}

fn block_text(index: &[String], schemas: &[&ToolEntry], note: Option<&str>) -> String {
    #[derive(Serialize)]
    struct Text<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<&'a str>,
        index: &'a [String],
        schemas: &'a [&'a ToolEntry],
    }
    json(&Text { note, index, schemas })
}

fn packed_text(tools: &[&ToolEntry], omitted: usize) -> String {
    #[derive(Serialize)]
    struct Text<'a> {
        tools: &'a [&'a ToolEntry],
        omitted: usize,
    }
    json(&Text { tools, omitted })
}

/// Texts and numbers under fixed names always become JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

// -------------------------------------------------------------------------------------------------------- the index

struct Index {
    lines: Vec<String>,
    form: IndexForm,
    note: Option<String>,
    /// Of the block without definitions.
    tokens: usize,
}

/// The best index that fits; `None` if not even an empty one does.
fn index(catalogue: IndexSource<'_>, wish: IndexRequest, counting: MemoizedCounter<'_>) -> Option<Index> {
    let mut tools: Vec<&Affordance<'_>> = catalogue.tools.iter().collect();
    tools.sort_by(|a, b| a.tool_id.cmp(b.tool_id).then_with(|| b.version.cmp(a.version)));
    tools.dedup_by(|a, b| a.tool_id == b.tool_id);
    let forms = [(IndexForm::Sentences, wish.budget / INDEX_SHARE), (IndexForm::Names, wish.budget)];
    for (form, room) in forms {
        // Thousands of lines are not counted to learn what their number says already.
        if catalogue.total > catalogue.tools.len() || tools.len().saturating_mul(LINE_TOKENS_MIN) > room {
            continue;
        }
        let lines: Vec<String> = tools.iter().map(|tool| line(tool, form == IndexForm::Sentences)).collect();
        let Some(tokens) = counted(&lines, None, room, counting) else { continue };
        return Some(Index { lines, form, note: None, tokens });
    }
    let note = wish.wayfinding.without_index(catalogue.total);
    for note in [Some(note), None] {
        if let Some(tokens) = counted(&[], note.as_deref(), wish.budget, counting) {
            return Some(Index { lines: Vec::new(), form: IndexForm::None, note, tokens });
        }
    }
    None
}

/// The tokens of the block so far, if there is room for them.
fn counted(lines: &[String], note: Option<&str>, room: usize, counting: MemoizedCounter<'_>) -> Option<usize> {
    let mut parts = 0_usize;
    for line in lines {
        parts = parts.saturating_add(counting.count_again(&format!("{},", json(line))));
        // Parts may come to a little more than their whole, and not to much more.
        if parts > room.saturating_add(room / 8) {
            return None;
        }
    }
    let tokens = counting.count(&block_text(lines, &[], note));
    (tokens <= room).then_some(tokens)
}

impl NavigationHints {
    fn without_index(self, tools: usize) -> String {
        let how = match self {
            Self::MetaTools => SEARCH_TOOLS.to_owned(),
            Self::Rest => format!("{SEARCH_TOOLS} or GET /v1/tools/search"),
        };
        format!("The index of {tools} tools does not fit; find tools with {how}.")
    }
}

// --------------------------------------------------------------------------------------------------- the definitions

struct Filled {
    entries: Vec<ToolEntry>,
    omitted: usize,
    tokens: usize,
}

/// Ranked, most useful first, each once.
fn ranking<'t, 'a>(tools: &'t [Affordance<'a>]) -> Vec<&'t Affordance<'a>> {
    let mut order: Vec<&Affordance<'a>> = tools.iter().collect();
    order.sort_by(|a, b| {
        let by_utility = utility(b).total_cmp(&utility(a));
        by_utility.then_with(|| a.tool_id.cmp(b.tool_id)).then_with(|| b.version.cmp(a.version))
    });
    let mut seen = std::collections::BTreeSet::new();
    order.retain(|tool| seen.insert((tool.tool_id, tool.version)));
    order
}

fn utility(tool: &Affordance<'_>) -> f64 {
    if tool.utility.is_finite() { tool.utility.max(0.0) } else { 0.0 }
}

/// Adds what pays most to a text that has `frame` tokens without it.
fn fill(
    tools: &[Affordance<'_>],
    frame: usize,
    wish: IndexRequest,
    counting: MemoizedCounter<'_>,
    text: impl Fn(&[&ToolEntry]) -> String,
) -> Filled {
    let ranked = ranking(tools);
    let most = ranked.iter().map(|tool| utility(tool)).fold(0.0, f64::max);
    let offers: Vec<Vec<ToolEntry>> = ranked.iter().map(|tool| entries(tool, wish)).collect();
    let groups: Vec<ItemGroup> = ranked
        .iter()
        .zip(&offers)
        .map(|(tool, entries)| ItemGroup {
            choices: entries.iter().map(|entry| choice(tool, entry, most, counting)).collect(),
        })
        .collect();
    let mut room = wish.budget.saturating_sub(frame);
    let mut shown: Vec<&ToolEntry> = Vec::new();
    let mut tokens = frame;
    for _ in 0..ATTEMPTS_MAX {
        let picks = solve(&groups, room).picks;
        shown = offers.iter().zip(picks).filter_map(|(entries, pick)| entries.get(pick?)).collect();
        tokens = counting.count(&text(&shown));
        match tokens.cmp(&wish.budget) {
            Ordering::Less | Ordering::Equal => break,
            Ordering::Greater => room = room.saturating_sub(tokens.saturating_sub(wish.budget)),
        }
    }
    // AFF-1, whatever a tokenizer makes of the seams.
    while tokens > wish.budget && shown.pop().is_some() {
        tokens = counting.count(&text(&shown));
    }
    let omitted = ranked.len().saturating_sub(shown.len());
    Filled { entries: shown.into_iter().cloned().collect(), omitted, tokens }
}

/// A tool in every detail that may be shown.
fn entries(tool: &Affordance<'_>, wish: IndexRequest) -> Vec<ToolEntry> {
    let details = [DetailLevel::Standard, DetailLevel::TopLevel, DetailLevel::Minimal];
    let wanted = details.into_iter().filter(|detail| *detail <= wish.highest);
    wanted.filter_map(|detail| ToolEntry::of(tool, detail, wish.wayfinding)).collect()
}

fn choice(tool: &Affordance<'_>, entry: &ToolEntry, most: f64, counting: MemoizedCounter<'_>) -> KnapsackItem {
    // With the comma that will follow it.
    let counted = counting.count_again(&format!("{},", json(entry)));
    // What the author declares is about the whole schema.
    let declared = if entry.detail == DetailLevel::Standard { tool.declared_tokens() } else { None };
    let share = match entry.detail {
        DetailLevel::Standard => 10,
        DetailLevel::TopLevel => 7,
        DetailLevel::Minimal => 3,
    };
    KnapsackItem {
        tokens: declared.map_or(counted, |declared| declared.max(counted)),
        value: steps(utility(tool), most).saturating_mul(share),
    }
}

/// Usefulness in whole steps; at least one, because a tool that fits is better shown than not.
fn steps(utility: f64, most: f64) -> u64 {
    let share = if most > 0.0 { utility / most } else { 0.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and UTILITY_STEPS")]
    let steps = (share.clamp(0.0, 1.0) * UTILITY_STEPS).round() as u64;
    steps.max(1)
}

#[cfg(test)]
mod tests;
