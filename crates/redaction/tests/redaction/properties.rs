//! What holds for every text: the work that it takes, and that nothing planted is left.

use proptest::prelude::*;
use redaction::REDACTED;
use serde_json::json;

use super::ENGINE;

/// Time that this thread has been on a core: what others do on the machine does not count.
fn on_cpu() -> u64 {
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    figures.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn work_grows_with_the_text_and_not_faster() {
    // Everything that makes a detector look far, over and over.
    let pieces = [
        "1 ",
        "1-",
        "1.",
        ":",
        "1:",
        "@",
        "a@",
        "eyJ-",
        "eyJ.",
        "sk-",
        "key=",
        "key=\"",
        "curl -u ",
        "kind: Secret\n",
        "://",
        "bearer ",
        "-----BEGIN PRIVATE KEY-----",
        "password is ",
        "+1 ",
        "(1) ",
        "ZXlK-",
        "PuTTY-User-Key-File-",
        "\"token\":\"",
        "GB82",
        "00 ",
        "|",
        "token:",
        "password=\"q7Zt4x\n",
        "secret='q7Zt4x8Kp\\'",
        "sk-q7Zt4x8Kp",
        "data:\nkind: Secret\n a: q7Zt4x8Kp\n",
    ];
    let cost = |text: &str| {
        let once = |_| {
            let before = on_cpu();
            let _ = ENGINE.findings(text);
            on_cpu() - before
        };
        (0..3).map(once).min().unwrap_or_default()
    };
    let text = |bytes: usize| pieces.map(|piece| piece.repeat(bytes / piece.len())).join("\n");
    // Eight times the text: linear work is eight times as much, quadratic work sixty-four times.
    let (small, large) = (cost(&text(2_000)), cost(&text(16_000)));
    assert!(large < small * 24, "{small} ns for the small text, {large} ns for the large one");
}

fn secrets() -> impl Strategy<Value = String> {
    prop_oneof![
        "ghp_[a-zA-Z0-9]{36}".prop_map(String::from),
        "glpat-[a-zA-Z0-9]{20}".prop_map(String::from),
        "AKIA[A-Z2-7]{16}".prop_map(String::from),
        "[a-z]{3,9}@[a-z]{3,9}\\.(com|org|de)".prop_map(String::from),
        "\\+49 30 [1-9][0-9]{6}".prop_map(String::from),
    ]
    .prop_filter("random enough to be real", |secret| {
        let mut letters: Vec<u8> = secret.bytes().skip(4).collect();
        letters.sort_unstable();
        letters.dedup();
        // What people write in place of a key has four of these in a row.
        let is_stand_in = secret.to_ascii_lowercase().contains("xxxx");
        !secret.starts_with(['g', 'A']) || (letters.len() >= 11 && !is_stand_in)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_panics_and_findings_are_places_of_the_text(text in "\\PC{0,200}|[ -~\\n]{0,300}|[0-9a-f:.@+() =\"'-]{0,200}") {
        let mut last = 0;
        for finding in ENGINE.findings(&text) {
            prop_assert!(finding.start >= last && finding.start < finding.end);
            prop_assert!(text.get(finding.start..finding.end).is_some(), "{finding:?}");
            last = finding.end;
        }
    }

    #[test]
    fn redacting_twice_changes_nothing(
        parts in prop::collection::vec(prop_oneof![
            secrets(), "[ -~]{0,20}", "(password|token|key|phone|call|ssn|iban)[ :=]{1,2}", "[0-9]{2,5}[ .-]", " ", "[:.@(+-]",
        ], 0..12)
    ) {
        let once = ENGINE.text(&parts.concat()).into_owned();
        prop_assert_eq!(ENGINE.text(&once), once.as_str());
    }

    #[test]
    fn a_planted_secret_is_gone(before in "[ -~]{0,40}", secret in secrets(), after in "[ -~]{0,40}") {
        let shown = ENGINE.text(&format!("{before} {secret} {after}")).into_owned();
        prop_assert!(!shown.contains(&secret), "{shown}");
        let value = json!({ "a": [{ "b": format!("{before} {secret} {after}") }], secret.as_str(): 1 });
        let shown = ENGINE.value(&value, None).unwrap().to_string();
        prop_assert!(!shown.contains(&secret), "{shown}");
    }

    #[test]
    fn no_length_ends_the_hiding_of_a_value(
        before in "[ -~]{0,20}", secret in "[a-zA-Z0-9]{8}([a-zA-Z0-9+/_.:=-]{0,400}|[a-zA-Z0-9]{1000,5000})",
        quote in prop::sample::select(vec!["", "\"", "'"]), name in "(password|client_secret|access_token)"
    ) {
        // Random enough that the name's rule takes it for a secret.
        let secret = format!("q7Zt4{secret}");
        let text = format!("{before} {name}={quote}{secret}{quote}");
        let shown = ENGINE.text(&text).into_owned();
        let tail = secret.get(secret.len() - 8..).unwrap();
        // Some are taken for no secret at all; of those that are hidden, nothing is left.
        let is_hidden = !shown.contains(secret.get(..12).unwrap());
        prop_assert!(!is_hidden || !shown.ends_with(&format!("{tail}{quote}")), "{text} is shown as {shown}");
    }

    #[test]
    fn values_with_secret_names_are_gone(value in "[a-z]{5,20}", name in "(user_)?(password|apiKey|client-secret|ACCESS_TOKEN)") {
        let planted = format!("{value}~");
        let shown = ENGINE.value(&json!({ "x": [{ name.as_str(): planted.as_str() }] }), None).unwrap().to_string();
        prop_assert!(!shown.contains(&planted) && shown.contains(REDACTED));
    }
}
