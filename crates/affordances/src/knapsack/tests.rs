//! The algebra of choosing: within the budget, the best there is, and more budget never gives less.

use proptest::prelude::*;

use super::*;

fn groups() -> impl Strategy<Value = Vec<ItemGroup>> {
    let choice = (0_usize..12, 0_u64..40).prop_map(|(tokens, value)| KnapsackItem { tokens, value });
    let group = proptest::collection::vec(choice, 0..4).prop_map(|choices| ItemGroup { choices });
    proptest::collection::vec(group, 0..7)
}

/// Every combination there is.
fn best_of_all(groups: &[ItemGroup], budget: usize) -> u64 {
    let Some((first, rest)) = groups.split_first() else { return 0 };
    let without = best_of_all(rest, budget);
    let fitting = first.choices.iter().filter(|choice| choice.tokens <= budget);
    fitting.map(|c| c.value + best_of_all(rest, budget - c.tokens)).fold(without, u64::max)
}

fn is_true(chosen: &KnapsackSolution, groups: &[ItemGroup], budget: usize) -> bool {
    let taken = chosen.picks.iter().zip(groups).filter_map(|(pick, group)| pick.map(|pick| group.choices[pick]));
    let (tokens, value) = taken.fold((0, 0), |(t, v), choice| (t + choice.tokens, v + choice.value));
    chosen.picks.len() == groups.len() && (tokens, value) == (chosen.tokens, chosen.value) && tokens <= budget
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_exact_way_finds_the_best_there_is(groups in groups(), budget in 0_usize..50) {
        let chosen = solve(&groups, budget);
        prop_assert!(is_true(&chosen, &groups, budget));
        prop_assert_eq!(chosen.method, SolutionMethod::Exact);
        prop_assert_eq!(chosen.value, best_of_all(&groups, budget));
    }

    #[test]
    fn a_greater_budget_never_gives_less(groups in groups(), budget in 0_usize..40, more in 0_usize..20) {
        prop_assert!(solve(&groups, budget + more).value >= solve(&groups, budget).value);
    }

    #[test]
    fn the_greedy_way_keeps_the_budget_and_gets_half_of_the_best_at_least(groups in groups(), budget in 0_usize..50) {
        let chosen = greedy(&groups, budget);
        prop_assert!(is_true(&chosen, &groups, budget));
        prop_assert!(chosen.value * 2 >= best_of_all(&groups, budget));
    }

    #[test]
    fn nothing_that_still_fits_is_left_out(groups in groups(), budget in 0_usize..50) {
        for chosen in [solve(&groups, budget), greedy(&groups, budget)] {
            for (group, pick) in groups.iter().zip(&chosen.picks) {
                let fits = |c: &KnapsackItem| c.value > 0 && c.tokens <= budget - chosen.tokens;
                prop_assert!(pick.is_some() || !group.choices.iter().any(fits));
            }
        }
    }
}

#[test]
fn on_equal_value_the_earlier_group_and_the_fewer_tokens_win() {
    let one = |tokens, value| ItemGroup { choices: vec![KnapsackItem { tokens, value }] };
    let same = [one(5, 7), one(5, 7), one(5, 7)];
    for chosen in [exact(&same, 10), greedy(&same, 10)] {
        assert_eq!(chosen.picks, [Some(0), Some(0), None]);
    }
    let group = ItemGroup { choices: vec![KnapsackItem { tokens: 9, value: 7 }, KnapsackItem { tokens: 4, value: 7 }] };
    for chosen in [exact(std::slice::from_ref(&group), 10), greedy(&[group], 10)] {
        assert_eq!((chosen.picks, chosen.tokens), (vec![Some(1)], 4));
    }
}

#[test]
fn a_great_problem_is_solved_greedily_and_nearly_as_well() {
    let groups: Vec<ItemGroup> = (0..500_usize)
        .map(|n| {
            let (tokens, value) = (50 + n * 37 % 400, 1000 + u64::try_from(n * 7919 % 9000).unwrap());
            let choices =
                vec![KnapsackItem { tokens, value: value * 10 }, KnapsackItem { tokens: 40, value: value * 3 }];
            ItemGroup { choices }
        })
        .collect();
    let (chosen, best) = (solve(&groups, 30_000), exact(&groups, 30_000));
    assert_eq!(chosen.method, SolutionMethod::Greedy);
    assert!(is_true(&chosen, &groups, 30_000));
    assert!(chosen.value * 100 >= best.value * 98, "{} of {}", chosen.value, best.value);
}
