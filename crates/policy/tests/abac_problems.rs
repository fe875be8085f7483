//! Every kind of broken policy is refused, with its name, its place and a message.
#![expect(clippy::unwrap_used, reason = "test crate")]

use gantry_policy::{POLICIES_MAX, POLICY_BYTES_MAX, POLICY_TEXT_BYTES_MAX, Policies, PolicyProblem};

fn problems(text: &str) -> Vec<PolicyProblem> {
    Policies::compile(text).err().unwrap_or_default()
}

#[test]
fn each_kind_of_broken_policy_is_named_and_placed() {
    // (text, policy, line, column, words of the message)
    for (text, policy, line, column, words) in [
        ("permit (principal, action resource);", "policy0", 1, 27, "unexpected token"),
        ("permit (principal, action, resource)", "policy0", 1, 37, "unexpected end of input"),
        ("\n\nallow (principal, action, resource);", "policy0", 3, 1, "invalid policy effect: allow"),
        (
            "permit (principal, action, resource)\nwhen { resource.colour == \"red\" };",
            "policy0",
            2,
            8,
            "attribute `colour` on entity type `Tool` not found",
        ),
        (
            "@id(\"x\")\npermit (principal, action, resource) when { resource.major == \"2\" };",
            "x",
            2,
            45,
            "the types Long and String are not compatible",
        ),
        ("permit (principal, action, resource) when { resource.major };", "policy0", 1, 45, "unexpected type"),
        ("permit (principal, action, resource == File::\"x\");", "policy0", 1, 40, "unrecognized entity type `File`"),
        ("permit (principal, action == Action::\"delete\", resource);", "policy0", 1, 30, "unrecognized action"),
        (
            "permit (principal, action, resource) when { principal.user == User::\"u\" };",
            "policy0",
            1,
            45,
            "unable to guarantee safety of access to optional attribute `user`",
        ),
        (
            "permit (principal, action, resource) when { context.arguments.text.getTag(\"to\") == \"x\" };",
            "policy0",
            1,
            45,
            "unable to guarantee safety of access to tag `\"to\"`",
        ),
        (
            "permit (principal, action, resource) when { context.arguments.number.hasTag(\"n\") && context.arguments.number.getTag(\"n\") == \"x\" };",
            "policy0",
            1,
            85,
            "the types Long and String are not compatible",
        ),
        (
            "@id(\"a\") permit (principal, action, resource);\n@id(\"a\") forbid (principal, action, resource);",
            "a",
            2,
            1,
            "another policy has the same id",
        ),
        (
            "permit (principal, action, resource);\n@id(\"policy0\") permit (principal, action, resource);",
            "policy0",
            2,
            1,
            "another policy has the same id",
        ),
        ("@id(\"\") permit (principal, action, resource);", "policy0", 1, 1, "1 to 128 characters"),
        ("permit (principal == ?principal, action, resource);", "policy0", 1, 1, "templates are not supported"),
        (
            "@obligations(\"redact=a, pray\") permit (principal, action, resource);",
            "policy0",
            1,
            1,
            "obligation `pray` is not known",
        ),
        ("@obligations(\"\") permit (principal, action, resource);", "policy0", 1, 1, "obligation `` is not known"),
        (
            "@obligations(\"require_approval\") forbid (principal, action, resource);",
            "policy0",
            1,
            1,
            "a forbid cannot have obligations",
        ),
        (
            "@obligation(\"redact=a\") permit (principal, action, resource);",
            "policy0",
            1,
            1,
            "annotation `@obligation` is not known",
        ),
        (
            "forbid (principal, action, resource) when { resource.side_effects == \"irreversable\" };",
            "policy0",
            1,
            1,
            "`resource.side_effects` is never `irreversable`",
        ),
        (
            "permit (principal, action, resource) when { [\"low\", \"mid\"].contains(context.risk) };",
            "policy0",
            1,
            1,
            "`context.risk` is never `mid`",
        ),
        (
            "permit (principal, action, resource) when { principal.roles.contains(\"root\") };",
            "policy0",
            1,
            1,
            "`principal.roles` is never `root`",
        ),
        (
            "// \u{fc}\nforbid (principal, action, resource) when { \"\u{fc}\" == \"\u{fc}\" && resource.major == \"x\" };",
            "policy0",
            2,
            59,
            "not compatible",
        ),
    ] {
        let found = problems(text);
        let [problem] = found.as_slice() else {
            assert_eq!(found.len(), 1, "{text}: {found:#?}");
            continue;
        };
        assert_eq!(problem.policy.as_deref(), Some(policy), "{text}");
        assert!(problem.message.contains(words), "{text}: {problem}");
        assert_eq!((problem.position.line, problem.position.column), (line, column), "{text}: {problem}");
    }
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_text() {
    let found = problems(
        "@id(\"one\") permit (principal, action, resource) when { resource.x };\n\
         @id(\"fine\") permit (principal, action, resource);\n\
         permit nothing;\n\
         @id(\"four\") @owner(\"me\") permit (principal, action, resource) when { context.y };",
    );
    let places: Vec<_> = found.iter().map(|problem| (problem.position.line, problem.policy.as_deref())).collect();
    assert_eq!(places, [(1, Some("one")), (3, Some("policy2")), (4, Some("four")), (4, Some("four"))]);
    let first = found.first().unwrap().to_string();
    assert!(first.starts_with("line 1, column 56: policy `one`: "), "{first}");
}

#[test]
fn texts_beyond_the_limits_are_refused() {
    let long = format!("// {}", "x".repeat(POLICY_TEXT_BYTES_MAX));
    let many = "permit(principal,action,resource);".repeat(POLICIES_MAX + 1);
    let one = format!(
        "permit (principal, action, resource) when {{ {} }};",
        "true || ".repeat(POLICY_BYTES_MAX / 8) + "true"
    );
    for (text, words) in
        [(long, "longer than 4194304 bytes"), (many, "more than 20000"), (one, "longer than 65536 bytes")]
    {
        let found = problems(&text);
        assert!(found.len() == 1 && found.iter().all(|problem| problem.message.contains(words)), "{found:?}");
    }
}

/// Ways to nest an expression `n` deep.
fn nested(n: usize) -> [String; 9] {
    [
        "(".repeat(n) + "true" + &")".repeat(n),
        "true||".repeat(n) + "true",
        "if true then ".repeat(n) + "true" + &" else false".repeat(n),
        "[".repeat(n) + "1" + &"]".repeat(n) + " == [1]",
        "{a:".repeat(n) + "1" + &"}".repeat(n) + " == {a: 1}",
        "(".repeat(n),
        "context".to_owned() + &".a".repeat(n),
        "1".to_owned() + &"+1".repeat(n) + " > 0",
        "true } ".to_owned() + &"when { true ".repeat(n) + &"} ".repeat(n - 1),
    ]
}

#[test]
fn no_depth_of_nesting_breaks_the_stack() {
    for n in [10, 16, 32, 255, 256, 1_000, 4_000] {
        for body in nested(n) {
            // Refused or not: it must come back.
            let result = Policies::compile(&format!("permit (principal, action, resource) when {{ {body} }};"));
            assert!(result.is_ok() || result.is_err_and(|found| !found.is_empty()));
        }
    }
}

#[test]
fn nesting_beyond_the_limits_is_refused_in_words() {
    for (body, words) in [
        ("(".repeat(33) + "true" + &")".repeat(33), "nested more than 32 deep"),
        ("true && ".repeat(257) + "true", "more than 256 operators"),
        ("context".to_owned() + &".a".repeat(17), "more than 16 steps"),
    ] {
        let found = problems(&format!("permit (principal, action, resource) when {{ {body} }};"));
        assert!(found.len() == 1 && found.iter().all(|problem| problem.message.contains(words)), "{found:?}");
    }
}

#[test]
fn a_flood_of_problems_is_cut() {
    assert_eq!(problems(&"permit nothing;".repeat(5_000)).len(), 100);
}

#[test]
fn suspicious_policies_are_warned_of_and_stay_in_force() {
    let policies = Policies::compile(
        "@id(\"fine\") permit (principal, action, resource);\n@id(\"dead\") permit (principal, action, resource) when { false };",
    )
    .unwrap();
    let warned: Vec<_> =
        policies.warnings().iter().map(|warning| (warning.position.line, warning.policy.as_deref())).collect();
    assert_eq!((warned.as_slice(), policies.len()), ([(2, Some("dead"))].as_slice(), 2));
}
