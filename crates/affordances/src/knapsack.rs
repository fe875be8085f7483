//! Choosing under a budget: of each group at most one choice, the greatest value together (LAZY-004, LAZY-005).
//!
//! With one choice a group this is the 0-1 knapsack of the book; several choices are one tool in several details. Small
//! problems are solved exactly, by a table over budgets of at most [`CELLS_MAX`] cells. Larger ones are solved by gain
//! per token: steps along the upper hull of each group, then whatever still fits, then exchanges; never worse than the
//! best single choice, and in practice within a percent or two of the best.
//!
//! All arithmetic is in whole numbers, so that two machines choose alike. On equal value the earlier group wins, and what
//! needs fewer tokens. The caller puts the groups into an order that means something.

/// Cells of the table of the exact way: 4 MB for as long as it takes.
const CELLS_MAX: usize = 4_000_000;
/// Pairs that are looked at for an exchange.
const EXCHANGES_MAX: usize = 200_000;

/// One way to take a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnapsackItem {
    pub tokens: usize,
    pub value: u64,
}

/// Choices of which at most one is taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ItemGroup {
    pub choices: Vec<KnapsackItem>,
}

/// How a problem was solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SolutionMethod {
    /// There is nothing better.
    Exact,
    /// By gain per token.
    Greedy,
}

/// A solution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnapsackSolution {
    /// For each group the number of the choice taken, if one was.
    pub picks: Vec<Option<usize>>,
    pub tokens: usize,
    pub value: u64,
    pub method: SolutionMethod,
}

/// Chooses; `tokens` of the result is never more than `budget`.
///
/// ```
/// use gantry_affordances::{KnapsackItem, ItemGroup, solve};
/// let one = |tokens, value| ItemGroup { choices: vec![KnapsackItem { tokens, value }] };
/// // The dearest does not fit beside another, so the two smaller ones are taken.
/// assert_eq!(solve(&[one(8, 10), one(5, 6), one(5, 6)], 10).picks, [None, Some(0), Some(0)]);
/// ```
pub fn solve(groups: &[ItemGroup], budget: usize) -> KnapsackSolution {
    // More than everything needs no greater table than everything.
    let most = groups.iter().map(|group| group.choices.iter().map(|c| c.tokens).max().unwrap_or(0));
    let budget = most.fold(0_usize, usize::saturating_add).min(budget);
    let cells = budget.saturating_add(1).saturating_mul(groups.len());
    // A pick is kept in one byte.
    let countable = groups.iter().all(|group| u8::try_from(group.choices.len()).is_ok());
    if cells <= CELLS_MAX && countable { exact(groups, budget) } else { greedy(groups, budget) }
}

// ------------------------------------------------------------------------------------------------------------ exact

fn exact(groups: &[ItemGroup], budget: usize) -> KnapsackSolution {
    // The greatest value for each budget, with the groups so far.
    let mut best = vec![0_u64; budget.saturating_add(1)];
    let mut rows: Vec<Vec<u8>> = Vec::with_capacity(groups.len());
    for group in groups {
        let before = best.clone();
        let mut row = vec![0_u8; best.len()];
        for (number, choice) in (1_u8..).zip(&group.choices) {
            let reached = best.iter_mut().zip(&mut row).skip(choice.tokens);
            for ((value, pick), without) in reached.zip(&before) {
                let with = without.saturating_add(choice.value);
                // Only what is better: the earlier group wins a tie.
                if with > *value {
                    (*value, *pick) = (with, number);
                }
            }
        }
        rows.push(row);
    }
    let value = best.last().copied().unwrap_or(0);
    let least = best.iter().position(|reached| *reached == value).unwrap_or(0);
    let mut left = least;
    let mut picks: Vec<Option<usize>> = Vec::with_capacity(groups.len());
    for (group, row) in groups.iter().zip(&rows).rev() {
        let pick = row.get(left).and_then(|number| usize::from(*number).checked_sub(1));
        let tokens = pick.and_then(|pick| group.choices.get(pick)).map_or(0, |choice| choice.tokens);
        left = left.saturating_sub(tokens);
        picks.push(pick);
    }
    picks.reverse();
    Bag { groups, budget, picks, tokens: least.saturating_sub(left), value }.closed(SolutionMethod::Exact)
}

// ----------------------------------------------------------------------------------------------------------- greedy

/// A step of a group from one choice to the next dearer one.
#[derive(Debug, Clone, Copy)]
struct Step {
    group: usize,
    from: Option<usize>,
    to: usize,
    tokens: usize,
    value: u64,
}

fn greedy(groups: &[ItemGroup], budget: usize) -> KnapsackSolution {
    let mut steps: Vec<Step> = groups.iter().enumerate().flat_map(|(number, group)| hull(number, group)).collect();
    // Stable, so that on equal gain the earlier group goes first and a group's steps keep their order.
    steps.sort_by(|a, b| more_gain(a, b).then(a.group.cmp(&b.group)));
    let mut bag = Bag::empty(groups, budget);
    for step in &steps {
        if bag.pick(step.group) == step.from && step.tokens <= bag.left() {
            bag.put(step.group, Some(step.to));
        }
    }
    bag.fill();
    bag.exchange();
    bag.fill();
    let alone = best_alone(groups, budget);
    if alone.value > bag.value { alone } else { bag }.closed(SolutionMethod::Greedy)
}

/// Greater gain per token first, compared without dividing.
fn more_gain(a: &Step, b: &Step) -> std::cmp::Ordering {
    let weight =
        |value: u64, tokens: usize| u128::from(value).saturating_mul(u128::try_from(tokens).unwrap_or(u128::MAX));
    weight(b.value, a.tokens).cmp(&weight(a.value, b.tokens))
}

/// The steps of a group whose gain per token only falls: the choices that are never a bad idea, in order.
fn hull(group: usize, choices: &ItemGroup) -> Vec<Step> {
    let mut order: Vec<(usize, KnapsackItem)> = choices.choices.iter().copied().enumerate().collect();
    order.sort_by_key(|(number, choice)| (choice.tokens, std::cmp::Reverse(choice.value), *number));
    let mut steps: Vec<Step> = Vec::new();
    let (mut tokens, mut value) = (0_usize, 0_u64);
    for (to, choice) in order {
        if choice.value <= value {
            continue;
        }
        let mut step =
            Step { group, from: None, to, tokens: choice.tokens.saturating_sub(tokens), value: choice.value - value };
        // A step before a steeper one is jumped over.
        while let Some(last) = steps.pop_if(|last| more_gain(&step, last).is_lt()) {
            step.tokens = step.tokens.saturating_add(last.tokens);
            step.value = step.value.saturating_add(last.value);
        }
        step.from = steps.last().map(|last| last.to);
        steps.push(step);
        (tokens, value) = (choice.tokens, choice.value);
    }
    steps
}

/// The bag with the one choice of the greatest value, and what fits beside it.
fn best_alone(groups: &[ItemGroup], budget: usize) -> Bag<'_> {
    let mut bag = Bag::empty(groups, budget);
    let all = groups
        .iter()
        .enumerate()
        .flat_map(|(number, group)| group.choices.iter().enumerate().map(move |(pick, choice)| (number, pick, choice)));
    if let Some((number, pick)) = first_best(all.filter(|(_, _, choice)| choice.tokens <= budget)) {
        bag.put(number, Some(pick));
    }
    bag.fill();
    bag
}

/// The first of those with the greatest value: its group and the number of the choice.
fn first_best<'a>(choices: impl Iterator<Item = (usize, usize, &'a KnapsackItem)>) -> Option<(usize, usize)> {
    let best = choices.fold(None::<(usize, usize, u64)>, |best, (number, pick, choice)| match best {
        Some((_, _, value)) if value >= choice.value => best,
        _ => Some((number, pick, choice.value)),
    });
    best.map(|(number, pick, _)| (number, pick))
}

/// What has been taken so far.
#[derive(Debug)]
struct Bag<'a> {
    groups: &'a [ItemGroup],
    budget: usize,
    picks: Vec<Option<usize>>,
    tokens: usize,
    value: u64,
}

impl<'a> Bag<'a> {
    fn empty(groups: &'a [ItemGroup], budget: usize) -> Self {
        Self { groups, budget, picks: vec![None; groups.len()], tokens: 0, value: 0 }
    }

    fn left(&self) -> usize {
        self.budget.saturating_sub(self.tokens)
    }

    fn pick(&self, group: usize) -> Option<usize> {
        self.picks.get(group).copied().flatten()
    }

    /// What a group costs and is worth now.
    fn taken(&self, group: usize) -> KnapsackItem {
        let choice = self.pick(group).and_then(|pick| self.groups.get(group)?.choices.get(pick));
        choice.copied().unwrap_or(KnapsackItem { tokens: 0, value: 0 })
    }

    fn put(&mut self, group: usize, pick: Option<usize>) {
        let before = self.taken(group);
        if let Some(slot) = self.picks.get_mut(group) {
            *slot = pick;
        }
        let after = self.taken(group);
        self.tokens = self.tokens.saturating_sub(before.tokens).saturating_add(after.tokens);
        self.value = self.value.saturating_sub(before.value).saturating_add(after.value);
    }

    /// Takes or betters whatever still fits, in the order of the groups.
    fn fill(&mut self) {
        for (number, group) in self.groups.iter().enumerate() {
            let now = self.taken(number);
            let room = self.left().saturating_add(now.tokens);
            let better = group.choices.iter().enumerate().filter(|(_, c)| c.tokens <= room && c.value > now.value);
            if let Some((_, pick)) = first_best(better.map(|(pick, choice)| (number, pick, choice))) {
                self.put(number, Some(pick));
            }
        }
    }

    /// Gives one group up for another where that is worth more.
    fn exchange(&mut self) {
        let mut looks = 0_usize;
        for out in 0..self.groups.len() {
            for (into, group) in self.groups.iter().enumerate() {
                looks = looks.saturating_add(1);
                if looks > EXCHANGES_MAX {
                    return;
                }
                let (given, had) = (self.taken(out), self.taken(into));
                if into == out || given.value == 0 {
                    continue;
                }
                let room = self.left().saturating_add(given.tokens).saturating_add(had.tokens);
                let wanted = had.value.saturating_add(given.value);
                let better = group.choices.iter().enumerate().filter(|(_, c)| c.tokens <= room && c.value > wanted);
                if let Some((_, pick)) = first_best(better.map(|(pick, choice)| (into, pick, choice))) {
                    self.put(out, None);
                    self.put(into, Some(pick));
                }
            }
        }
    }

    fn closed(self, method: SolutionMethod) -> KnapsackSolution {
        debug_assert!(self.tokens <= self.budget);
        KnapsackSolution { picks: self.picks, tokens: self.tokens, value: self.value, method }
    }
}

#[cfg(test)]
mod tests;
