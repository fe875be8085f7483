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
    let scrubber = SecretScrubber::new(&[("key", "s3cr3t-s3cr3t")]);
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
    assert!(SecretScrubber::new(&[("tiny", "abc")]).is_empty());
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
    let scrubber = SecretScrubber::new(&[("token", "t0ken-t0ken")]);
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

/// One character, spelled in one of the ways in which programs write it; `again` escapes it once more.
fn spelled(character: char, way: u8, again: u8) -> String {
    let mut units = [0; 2];
    let units = character.encode_utf16(&mut units).iter();
    let mut bytes = [0; 4];
    let bytes = character.encode_utf8(&mut bytes).bytes();
    let once: String = match way {
        0 => units.map(|unit| format!("\\u{unit:04x}")).collect(),
        1 => units.map(|unit| format!("\\u{unit:04X}")).collect(),
        2 => bytes.map(|byte| format!("%{byte:02x}")).collect(),
        3 => bytes.map(|byte| format!("%{byte:02X}")).collect(),
        4 if character == ' ' => "+".to_owned(),
        5 if character == '/' => "\\/".to_owned(),
        4..=6 => json_escaped(&character.to_string()),
        _ => character.to_string(),
    };
    match again {
        0 => json_escaped(&once),
        1 => percent_encoded(&once, "-._~"),
        _ => once,
    }
}

#[test]
fn what_other_languages_write_is_found() {
    let secret = "k/é=&<S3 cr+t\"x";
    let scrubber = SecretScrubber::new(&[("api", secret)]);
    for text in [
        r#"k\/\u00e9=&<S3 cr+t\"x"#,
        r#"k/é=\u0026\u003cS3 cr+t\"x"#,
        r#"k/é\u003d\u0026\u003CS3 cr+t\"x"#,
        r#"k/\u00E9=&<S3 cr+t\"x"#,
        "k/%C3%A9=&%3CS3%20cr+t%22x",
        "k/é=&<S3%20cr+t\"x",
        "k/é=&<S3+cr%2Bt%22x",
        r#"{\\\"a\\\":\\\"k/\\u00e9=&<S3 cr+t\\\\\\\"x\\\"}"#,
        "k%252F%25C3%25A9%253D%2526%253CS3%2520cr%252Bt%2522x",
    ] {
        let scrubbed = scrubber.text(text);
        assert!(scrubbed.contains("[secret api]") && !scrubbed.contains("S3"), "{text} became {scrubbed}");
    }
    assert_eq!(scrubber.text("a\\u0026 100% of \\\"it\\\" + more"), "a\\u0026 100% of \\\"it\\\" + more");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_secret_is_found_however_each_of_its_characters_is_spelled(
        spelling in prop::collection::vec(("[a-zA-Z0-9/+=& \"<>é€😀:_.%-]", 0_u8..9, 0_u8..6), 6..24),
    ) {
        let secret: String = spelling.iter().map(|(character, ..)| character.as_str()).collect();
        let ways = spelling.iter().flat_map(|(text, way, again)| text.chars().map(|c| spelled(c, *way, *again)));
        let text: String = ways.collect();
        prop_assume!(Plain::of(&secret, "").is_some());
        let scrubber = SecretScrubber::new(&[("api", &secret)]);
        let scrubbed = scrubber.text(&format!("{{\"k\":\"{text}\"}}")).into_owned();
        prop_assert!(scrubbed.contains("[secret api]"), "{text} of {secret} became {scrubbed}");
    }

    #[test]
    fn places_of_escapes_are_places_of_the_text(text in "[\\\\%u0-9a-f+é😀]{0,60}", secret in "[\\\\%u0-9a-fé]{4,8}") {
        let scrubber = SecretScrubber::new(&[("api", &secret)]);
        let scrubbed = scrubber.text(&text).into_owned();
        prop_assert!(!scrubber.finds(&scrubbed));
    }
}
