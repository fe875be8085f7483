//! Putting several rankings of one query together.
//!
//! A request of several sentences asks for several tools. The whole text ranks best what matches most of it, and each
//! sentence ranks best what it alone asks for; reciprocal rank fusion lets the first places of each count. Scores of the
//! single rankings cannot be added: a short sentence has low scores all over.
//!
//! Invariants
//! - RANK-1: the answer is a function of the rankings. Equal scores are ordered by tool id.

use std::collections::HashMap;

/// How steeply places lose weight. Small, because each sentence usually asks for one tool, so first places count most.
const FUSION_CONSTANT: f64 = 2.0;

/// One document in a ranking.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ranked {
    /// The canonical id of the tool.
    pub(crate) tool: String,
    /// Greater is better.
    pub(crate) score: f64,
}

/// One ranking from several, best first, at most `limit` long. A single ranking keeps its scores.
pub(crate) fn fuse(mut rankings: Vec<Vec<Ranked>>, limit: usize) -> Vec<Ranked> {
    let mut fused = if rankings.len() > 1 {
        let mut scores: HashMap<String, f64> = HashMap::new();
        for ranking in rankings {
            let mut place = FUSION_CONSTANT;
            for ranked in sorted(ranking) {
                *scores.entry(ranked.tool).or_default() += place.recip();
                place += 1.0;
            }
        }
        scores.into_iter().map(|(tool, score)| Ranked { tool, score }).collect()
    } else {
        rankings.pop().unwrap_or_default()
    };
    fused = sorted(fused);
    fused.truncate(limit);
    fused
}

fn sorted(mut ranking: Vec<Ranked>) -> Vec<Ranked> {
    ranking.sort_unstable_by(|left, right| {
        right.score.total_cmp(&left.score).then_with(|| left.tool.as_bytes().cmp(right.tool.as_bytes()))
    });
    ranking
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(tools: &[(&str, f64)]) -> Vec<Ranked> {
        tools.iter().map(|(tool, score)| Ranked { tool: (*tool).to_owned(), score: *score }).collect()
    }

    #[test]
    fn one_ranking_keeps_its_scores_and_orders_equal_ones_by_tool() {
        let fused = fuse(vec![ranking(&[("bbb", 1.0), ("aaa", 1.0), ("ccc", 2.0), ("ddd", 0.5)])], 3);
        assert_eq!(fused, ranking(&[("ccc", 2.0), ("aaa", 1.0), ("bbb", 1.0)]));
    }

    #[test]
    fn the_first_place_of_each_sentence_comes_before_second_places() {
        let whole = ranking(&[("aaa", 9.0), ("xxx", 8.0), ("yyy", 7.0), ("bbb", 6.0)]);
        let fused = fuse(vec![whole, ranking(&[("aaa", 1.0)]), ranking(&[("bbb", 1.0)])], 10);
        assert_eq!(fused.iter().map(|ranked| ranked.tool.as_str()).collect::<Vec<_>>(), ["aaa", "bbb", "xxx", "yyy"]);
    }

    #[test]
    fn nothing_gives_nothing() {
        assert!(fuse(vec![], 5).is_empty() && fuse(vec![vec![], vec![]], 5).is_empty());
    }
}
