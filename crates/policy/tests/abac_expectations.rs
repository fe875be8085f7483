//! Expectations: the table that authors write beside their policies.

use gantry_policy::{Policies, PolicyExpectations};

const EXAMPLE_POLICIES: &str = include_str!("../../../examples/policies/policies.cedar");
const EXAMPLE_EXPECTATIONS: &str = include_str!("../../../examples/policies/expectations.toml");

#[test]
fn the_example_policies_do_what_their_table_says() {
    let policies = Policies::compile(EXAMPLE_POLICIES).unwrap();
    let table = PolicyExpectations::parse(EXAMPLE_EXPECTATIONS).unwrap();
    assert_eq!(table.policies, ["policies.cedar"]);
    assert!(policies.warnings().is_empty());
    let outcomes = table.run(&policies);
    assert_eq!(outcomes.len(), 11);
    for outcome in &outcomes {
        assert!(outcome.passed, "{}: {:?}", outcome.name, outcome.differences);
    }
}

#[test]
fn each_difference_is_told() {
    let policies = Policies::compile(
        "@id(\"a\") @obligations(\"require_approval\") permit (principal, action, resource) when { context.hour == 22 };",
    )
    .unwrap();
    let table = PolicyExpectations::parse(
        r#"
        [[case]]
        name = "offset and string"
        agent = "x"
        tool = "abc"
        time = "2026-01-07T23:30:00+01:00"
        expect = "deny"
        policies = ["b"]
        obligations = []

        [[case]]
        name = "default time"
        agent = "x"
        tool = "abc"
        expect = "allow"
        "#,
    )
    .unwrap();
    let differences: Vec<_> =
        table.run(&policies).into_iter().map(|outcome| (outcome.passed, outcome.differences)).collect();
    let expected = [
        (
            false,
            vec![
                "expected deny, got allow: permitted by `a`".to_owned(),
                "expected to be determined by `b`, was by `a`".to_owned(),
                "expected the obligations none, got `require_approval`".to_owned(),
            ],
        ),
        (false, vec!["expected allow, got deny: no policy permits this".to_owned()]),
    ];
    assert_eq!(differences, expected);
}

#[test]
fn broken_tables_are_refused_with_their_place() {
    let row = "[[case]]\nname = \"n\"\nagent = \"a\"\ntool = \"abc\"\nexpect = \"deny\"\n";
    for (text, line, words) in [
        ("".to_owned(), 1, "no `[[case]]`"),
        ("colour = 1".to_owned(), 1, "unknown field `colour`"),
        ("[[case]\n".to_owned(), 1, ""),
        (format!("{row}rolles = []\n"), 1, "unknown field `rolles`"),
        (format!("{row}roles = [\"root\"]\n"), 1, "unknown variant `root`"),
        (format!("{row}side_effects = \"none\"\n"), 1, "unknown variant `none`"),
        (format!("{row}time = 2026-01-07T12:00:00\n"), 1, "with an offset"),
        (format!("{row}time = \"noon\"\n"), 1, "with an offset"),
        (format!("{row}time = 12\n"), 1, "with an offset"),
        (format!("{row}arguments = {{ a = inf }}\n"), 1, "infinite"),
        (format!("{row}scopes = [\"x\"]\n"), 1, "a scope is"),
        (format!("{row}obligations = [\"pray\"]\n"), 1, "`pray` is not known"),
        (format!("{row}obligations = [\"require_approval\"]\n"), 1, "a denial has no obligations"),
        (format!("{row}\n{row}"), 7, "another case has the same name"),
        (row.replace("abc", "A"), 1, "tool id `A`"),
        (row.replace("deny", "maybe"), 1, "unknown variant `maybe`"),
        (row.replace("agent = \"a\"\n", ""), 1, "missing field `agent`"),
    ] {
        let problems = PolicyExpectations::parse(&text).unwrap_err();
        let problem = problems.first().unwrap();
        assert_eq!((problems.len(), problem.position.line), (1, line), "{text}: {problem}");
        assert!(problem.message.contains(words), "{text}: {problem}");
    }
}

#[test]
fn problems_of_several_cases_are_told_together() {
    let text = "[[case]]\nname = \"one\"\n[[case]]\nagent = 1\n";
    let cases: Vec<_> = PolicyExpectations::parse(text).unwrap_err().into_iter().map(|problem| problem.case).collect();
    assert_eq!(cases, [Some("one".to_owned()), Some("2".to_owned())]);
}
