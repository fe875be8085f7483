//! Scrubbing: tables of what is found, and the property that nothing is left.

use base64::engine::general_purpose::STANDARD;
use contract::error::ErrorCode;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const KEY: &str = "s3cr/et+ké\"y";

#[test]
fn a_secret_is_found_in_every_form_programs_write_it() {
    let forms = [
        KEY.to_owned(),
        "s3cr/et+ké\\\"y".to_owned(),
        "s3cr\\/et+ké\\\"y".to_owned(),
        "s3cr/et+k\\u00e9\\\"y".to_owned(),
        "s3cr%2Fet%2Bk%C3%A9%22y".to_owned(),
        "s3cr%2fet%2bk%c3%a9%22y".to_owned(),
        "s3cr/et%2Bk%C3%A9%22y".to_owned(),
        KEY.bytes().map(|byte| format!("{byte:02x}")).collect(),
        KEY.bytes().map(|byte| format!("{byte:02X}")).collect(),
    ];
    for form in forms {
        let scrubbed = scrub(json!(format!("before {form} after")), &[("api", KEY)]);
        assert_eq!(scrubbed, "before [secret api] after", "{form}");
    }
}

/// A line end after every so many characters.
fn wrapped(text: &str, columns: usize, end: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(columns).map(|line| line.iter().collect::<String>()).collect::<Vec<_>>().join(end)
}

#[test]
fn a_secret_is_found_in_lines_and_in_groups() {
    let long = "correct-horse-battery-staple-".repeat(6);
    let hex = |sign: &str, between: &str| {
        long.bytes().map(|byte| format!("{sign}{byte:02x}")).collect::<Vec<_>>().join(between)
    };
    let words: Vec<String> =
        long.as_bytes().chunks(2).map(|pair| pair.iter().map(|byte| format!("{byte:02X}")).collect()).collect();
    let mut forms = vec![
        wrapped(&hex("", ""), 60, "\n"),
        wrapped(&hex("", ""), 64, "\r\n"),
        hex("", " "),
        hex("", ":"),
        hex("", "-").to_uppercase(),
        hex("%", ""),
        hex("%", "").to_uppercase(),
        hex("\\x", ""),
        hex("0x", ", "),
        words.join(" "),
        wrapped(&words.join(" "), 40, "\n"),
    ];
    for columns in [60, 64, 76] {
        for (engine, end) in [(STANDARD_NO_PAD, "\n"), (URL_SAFE_NO_PAD, "\r\n"), (STANDARD_NO_PAD, "\\n")] {
            forms.push(wrapped(&engine.encode(format!("ab{long}c")), columns, end));
        }
    }
    for form in forms {
        let scrubbed = scrub(json!(format!("é before {form} after")), &[("key", &long)]);
        let text = scrubbed.as_str().unwrap();
        assert!(
            text.starts_with("é before ") && text.ends_with(" after") && text.contains("[secret key]"),
            "{form}: {text}"
        );
        assert!(text.len() < 60, "{form}: {text}");
    }
}

#[test]
fn digits_of_something_else_stay() {
    let scrubber = Scrubber::new(&[("key", "s3cr3t-s3cr3t")]);
    for text in
        ["73:33:63:72", "7333 6372 3374", "the words that follow each other", "%73%33%63", "c2VjcmV0 c2VjcmV0", ""]
    {
        assert_eq!(scrubber.text(text), text);
    }
}

#[test]
fn base64_is_found_wherever_the_secret_stands_in_it() {
    for before in ["", "u", "us", "user:", "somebody:"] {
        for engine in [STANDARD, base64::engine::general_purpose::URL_SAFE] {
            let header = format!("Basic {}", engine.encode(format!("{before}{KEY}")));
            let scrubbed = scrub(json!(header), &[("api", KEY)]);
            let text = scrubbed.as_str().unwrap();
            assert!(text.contains("[secret api]"), "{header}: {text}");
        }
    }
}

#[test]
fn a_value_is_scrubbed_in_all_its_parts_and_otherwise_left_alone() {
    let given =
        json!({ "plain": ["x", 1, null, true], "hunter22": { "deep": "hunter22!" }, "pin": 87654321, "n": 8765432 });
    let scrubbed = scrub(given.clone(), &[("password", "hunter22"), ("pin", "87654321")]);
    let expected = json!({
        "plain": ["x", 1, null, true],
        "[secret password]": { "deep": "[secret password]!" },
        "pin": "[secret pin]",
        "n": 8765432,
    });
    assert_eq!(scrubbed, expected);
    assert_eq!(scrub(given.clone(), &[]), given);
}

#[test]
fn short_secrets_are_not_looked_for() {
    assert_eq!(scrub(json!("abcabc"), &[("tiny", "abc"), ("none", "")]), "abcabc");
    assert!(Scrubber::new(&[("tiny", "abc")]).is_empty());
}

#[test]
fn a_label_that_would_show_the_secret_is_not_used() {
    for (name, secret, text) in [
        ("hunter22", "hunter22", "it is hunter22"),
        ("x", "x]yy", "x]yyyy"),
        ("name", "secret", "the secret"),
        ("name", "redacted", "[secret is redacted"),
    ] {
        let scrubbed = scrub(json!(text), &[(name, secret)]);
        assert!(!scrubbed.as_str().unwrap().contains(secret), "{scrubbed}");
    }
}

#[test]
fn refusals_and_lines_of_a_log_are_scrubbed_and_nothing_shows_a_form() {
    let scrubber = Scrubber::new(&[("token", "t0ken-t0ken")]);
    let refusal = Refusal::new(ErrorCode::E3401, "bad t0ken-t0ken").hint("t0ken-t0ken").details(json!(["t0ken-t0ken"]));
    assert!(!format!("{:?}", scrubber.refusal(refusal)).contains("t0ken"));
    assert_eq!(scrubber.text("GET /?k=t0ken-t0ken"), "GET /?k=[secret token]");
    assert!(matches!(scrubber.text("nothing here"), Cow::Borrowed("nothing here")));
    assert!(!format!("{scrubber:?}").contains("t0ken"));
}

fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            into.push(key.clone());
            strings(value, into);
        }),
        _ => {}
    }
}

/// Secrets of few letters, so that labels, noise and secrets run into each other.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof!["[secr t\\]]{4,8}", "[ab]{4,6}", "\\PC{4,12}", "[a-zA-Z0-9/+=]{16,40}"]
        .prop_filter("long enough", |secret| secret.len() >= SECRET_BYTES_MIN)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_string_of_a_scrubbed_value_contains_a_secret(
        first in secret(),
        second in secret(),
        name in "[a-b\\[\\]secrt]{0,6}",
        pieces in prop::collection::vec((0_usize..7, "[a-b\\]\\[ secrt]{0,4}"), 1..8),
    ) {
        let text: String = pieces.iter().map(|(kind, noise)| match kind {
            0 => first.clone(),
            1 => second.clone(),
            2 => STANDARD.encode(&first),
            3 => percent_encoded(&second, ""),
            4 => json_escaped(&first),
            5 => STANDARD.encode(format!("u:{second}")),
            _ => noise.clone(),
        }).collect();
        let value = json!({ "text": text, "list": [text, { text.clone(): text }] });
        let scrubbed = scrub(value, &[(&name, &first), ("other", &second)]);
        let mut all = Vec::new();
        strings(&scrubbed, &mut all);
        let encoded = STANDARD_NO_PAD.encode(&first);
        let encoded = core_of(&encoded, 0, first.len());
        for text in all {
            prop_assert!(!text.contains(&first) && !text.contains(&second), "{text:?}");
            prop_assert!(!text.contains(&encoded), "{text:?} has {encoded:?}");
        }
    }

    #[test]
    fn values_without_the_secret_stay_as_they_are(text in "[a-y ]{0,40}") {
        let value = json!({ "text": text });
        prop_assert_eq!(scrub(value.clone(), &[("key", "zzzz-zzzz-zzzz")]), value);
    }
}
