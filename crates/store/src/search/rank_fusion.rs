//! Putting the rankings of one query together.
//!
//! A request of several sentences asks for several tools. The whole text ranks best what matches most of it, and each
//! sentence ranks best what it alone asks for; reciprocal rank fusion lets the first places of each count. The ranking by
//! the whole text need not be asked for: BM25 adds over terms, so it is the sum of the scores by sentence.
//!
//! Invariants
//! - RANK-1: the answer is a function of the scores. Equal scores in one ranking share a place, and equal scores in the
//!   answer are all kept, so that the caller can order them by tool id before cutting.

use std::collections::HashMap;
use std::hash::Hash;

/// How steeply places lose weight. Small, because each sentence usually asks for one tool, so first places count most.
const FUSION_CONSTANT: f64 = 1.0;
/// Places of a ranking that count when several are fused.
const FUSED_PLACES: usize = 50;

/// Documents with their scores, greater is better.
pub(crate) type Ranking<K> = Vec<(K, f64)>;

/// One ranking from those of the sentences: the best `limit`, best first, and all that score the same as the last of them.
/// A single ranking keeps its scores.
pub(crate) fn fuse<K: Copy + Ord + Hash>(mut rankings: Vec<Ranking<K>>, limit: usize) -> Ranking<K> {
    if rankings.len() < 2 {
        return best(rankings.pop().unwrap_or_default(), limit);
    }
    let mut whole: HashMap<K, f64> = HashMap::new();
    for (key, score) in rankings.iter().flatten() {
        *whole.entry(*key).or_default() += score;
    }
    rankings.push(whole.into_iter().collect());
    let mut fused: HashMap<K, f64> = HashMap::new();
    for ranking in rankings {
        let mut place = FUSION_CONSTANT;
        let mut passed = 0.0;
        let mut before: Option<f64> = None;
        for (key, score) in best(ranking, FUSED_PLACES) {
            if before.is_some_and(|before| before > score) {
                place += passed;
                passed = 0.0;
            }
            *fused.entry(key).or_default() += place.recip();
            passed += 1.0;
            before = Some(score);
        }
    }
    best(fused.into_iter().collect(), limit)
}

/// The best `limit` and all that score the same as the last of them.
fn best<K: Ord>(mut ranking: Ranking<K>, limit: usize) -> Ranking<K> {
    ranking.sort_unstable_by(|left, right| right.1.total_cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    let worst = limit.checked_sub(1).and_then(|last| ranking.get(last)).map(|(_, score)| *score);
    if let Some(worst) = worst {
        let keep = ranking.partition_point(|(_, score)| score.total_cmp(&worst).is_ge());
        ranking.truncate(keep);
    }
    ranking
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ranking_keeps_its_scores_and_all_that_equal_the_last() {
        let fused = fuse(vec![vec![("b", 1.0), ("a", 1.0), ("c", 2.0), ("d", 0.5)]], 2);
        assert_eq!(fused, [("c", 2.0), ("a", 1.0), ("b", 1.0)]);
    }

    #[test]
    fn the_first_place_of_each_sentence_comes_before_second_places() {
        let fused = fuse(vec![vec![("a", 9.0), ("x", 8.0), ("y", 7.0)], vec![("b", 1.0), ("z", 0.5)]], 10);
        let first: Vec<&str> = fused.iter().take(2).map(|(key, _)| *key).collect();
        assert_eq!((first, fused.len()), (vec!["a", "b"], 5));
    }

    #[test]
    fn equal_scores_share_a_place() {
        let fused = fuse(vec![vec![("a", 1.0), ("b", 1.0), ("c", 1.0)], vec![("d", 5.0)]], 10);
        let score = |key: &str| fused.iter().find(|(of, _)| *of == key).map(|(_, score)| *score);
        assert_eq!(score("a"), score("c"));
    }

    #[test]
    fn nothing_gives_nothing() {
        assert!(fuse::<u8>(vec![], 5).is_empty() && fuse::<u8>(vec![vec![], vec![]], 5).is_empty());
    }
}
