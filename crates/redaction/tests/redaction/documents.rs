//! Documents of JSON, also within texts: what is masked by name, by mark and by what stands beside it.

use redaction::{REDACTED, RedactionAdditions, RedactionError};
use serde_json::{Value, json};

use super::{ENGINE, described};

#[test]
fn fields_are_masked_by_mark_and_name_and_nothing_else_is() {
    let value = json!({
        "api_key": "sk-secret123456",
        "note": "ask a@b.org, the password is Tr0ub4dor&3x",
        "people": ["ann", "bob", null],
        "inner": "{\"password\":\"supersecret\",\"mail\":\"a@b.org\"}",
        "page_token": "abc",
        "a@b.org": 4_111_111_111_111_111_u64,
    });
    let schema = json!({ "properties": {
        "people": { "items": { "x-sensitivity": "pii" } }, "page_token": { "x-sensitivity": "none" } } });
    let shown = described(&value, &schema).0.unwrap();
    assert_eq!(shown["api_key"], REDACTED);
    assert_eq!(shown["people"], json!([REDACTED, REDACTED, null]));
    let inner: Value = serde_json::from_str(shown["inner"].as_str().unwrap()).unwrap();
    assert_eq!(inner, json!({ "password": REDACTED, "mail": "a@b.org" }));
    for same in ["note", "page_token", "a@b.org"] {
        assert_eq!(shown[same], value[same], "{same}");
    }
    assert_eq!(described(&json!({ "a": [1, "a@b.org"] }), &schema).0, None);
    // The words of older drafts: a tuple under `items`, what follows it, and `dependencies`.
    let older = json!({ "properties": { "pair": { "items": [{}, { "x-sensitivity": "pii" }], "additionalItems": {} } },
        "dependencies": { "pair": { "properties": { "owner": { "x-sensitivity": "pii" } } } } });
    let shown = described(&json!({ "pair": [1, "ann", 2], "owner": "bob" }), &older).0.unwrap();
    assert_eq!(shown, json!({ "pair": [1, REDACTED, 2], "owner": REDACTED }));
    let whole = json!({ "type": "string", "x-sensitivity": "secret" });
    assert_eq!(described(&json!("x"), &whole).0, Some(json!(REDACTED)));
}

#[test]
fn values_are_redacted_by_name_mark_and_content_at_every_depth() {
    let value = json!({
        "api_key": "sk-secret123456",
        "nested": [{ "password": "supersecret", "apiKey": { "a": 1 }, "tokensUsed": 12, "token": 7, "note": "ask a@b.org" }],
        "user": { "pin": "0000", "age": 44, "home": "x" },
        "mail bob@example.org": 1,
        "card": 4_111_111_111_111_111_u64,
        "phone": "481 7531",
        "inner": "{\"password\":\"supersecret\",\"n\":1}",
        "page_token": "abc",
        "empty_password": "",
    });
    let schema = json!({
        "properties": { "user": { "$ref": "#/$defs/user" }, "page_token": { "x-sensitivity": "none" } },
        "$defs": { "user": { "allOf": [{ "properties": { "pin": { "x-sensitivity": "secret" }, "age": { "x-sensitivity": true }, "home": { "x-sensitivity": "public" } } }] } },
    });
    let expected = json!({
        "api_key": REDACTED,
        "nested": [{ "password": REDACTED, "apiKey": REDACTED, "tokensUsed": 12, "token": 7, "note": "ask [EMAIL_REDACTED]" }],
        "user": { "pin": REDACTED, "age": REDACTED, "home": "x" },
        "mail [EMAIL_REDACTED]": 1,
        "card": "[CREDIT_CARD_REDACTED]",
        "phone": "[PHONE_REDACTED]",
        "inner": "{\"n\":1,\"password\":\"[REDACTED]\"}",
        "page_token": "abc",
        "empty_password": "",
    });
    let redacted = described(&value, &schema).1;
    // The order of members is not what is tested.
    let inner = |value: &Value| serde_json::from_str::<Value>(value["inner"].as_str().unwrap()).unwrap();
    assert_eq!(inner(&redacted), inner(&expected));
    for name in ["api_key", "nested", "user", "mail [EMAIL_REDACTED]", "card", "phone", "page_token", "empty_password"]
    {
        assert_eq!(redacted[name], expected[name], "{name}");
    }
}

#[test]
fn names_and_texts_are_masked_where_their_schema_says_so() {
    let secret = json!({ "x-sensitivity": "secret" });
    let schema = json!({ "properties": {
        "people": { "propertyNames": secret },
        "inner": { "contentMediaType": "application/json", "contentSchema": { "properties": { "pin": secret } } },
        "whole": { "contentSchema": secret } } });
    let value = json!({ "people": { "ann": 1, "bob": 2 }, "inner": "{\"pin\":\"0000\",\"n\":1}", "whole": "any text" });
    let shown = described(&value, &schema).0.unwrap();
    let people = shown["people"].as_object().unwrap();
    assert!(people.len() == 2 && people.keys().all(|name| name.starts_with(REDACTED)), "{shown}");
    let inner: Value = serde_json::from_str(shown["inner"].as_str().unwrap()).unwrap();
    assert_eq!((inner, &shown["whole"]), (json!({ "pin": REDACTED, "n": 1 }), &json!(REDACTED)));
}

#[test]
fn a_value_goes_by_the_name_that_stands_beside_it_and_an_option_takes_the_next_argument() {
    let value = json!({
        "env": [{ "name": "DB_PASSWORD", "value": "hunter2xyz" }, { "name": "PAGE_SIZE", "value": "50" }],
        "headers": [{ "key": "X-Api-Key", "value": "plainword" }, { "name": "the password field", "value": "label" }],
        "command": ["psql", "--password", "plainword", "--port", "5432", "-token=abc", "next"],
        "empty": [{ "name": "token", "value": "" }, "--password"],
    });
    let expected = json!({
        "env": [{ "name": "DB_PASSWORD", "value": REDACTED }, { "name": "PAGE_SIZE", "value": "50" }],
        "headers": [{ "key": "X-Api-Key", "value": REDACTED }, { "name": "the password field", "value": "label" }],
        "command": ["psql", "--password", REDACTED, "--port", "5432", "-token=abc", "next"],
        "empty": [{ "name": "token", "value": "" }, "--password"],
    });
    assert_eq!(ENGINE.value(&value, None).unwrap(), expected);
}

#[test]
fn a_value_that_is_too_deep_is_an_error() {
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(ENGINE.value(&deep, None), Err(RedactionError::TooDeep));
}

/// `text` in so many strings of JSON.
fn wrapped(text: String, times: usize) -> String {
    (0..times).fold(text, |inner, _| json!({ "inner": inner }).to_string())
}

#[test]
fn no_bound_ends_the_masking_of_json_in_texts() {
    let deep = format!("{}{{\"password\":\"open-sesame\"}}{}", "[".repeat(150), "]".repeat(150));
    let long = json!({ "a": "x".repeat(1_100_000), "password": "open-sesame" }).to_string();
    let plain = json!({ "password": "open-sesame" }).to_string();
    let texts = (0..12).map(|times| wrapped(plain.clone(), times));
    for text in texts.chain([deep.clone(), long, wrapped(deep, 2)]) {
        let value = json!({ "outer": text, "beside": "plain" });
        let mut masked = value.clone();
        ENGINE.members(&mut masked, &["password"]);
        let by_name = ENGINE.fields(&value, None).unwrap().unwrap_or_default();
        for shown in [masked, by_name] {
            assert!(!shown.to_string().contains("open-sesame"), "{} bytes", text.len());
            assert_eq!(shown["beside"], "plain");
        }
    }
}

#[test]
fn a_document_in_prose_is_masked_by_name_as_one_that_stands_alone() {
    for (text, expected) in [
        (r#"result: {"password":"x"} done"#, r#"result: {"password":"[REDACTED]"} done"#),
        (
            "first [1, 2]\n{\n  \"user\": { \"ssn\": 7 }\n}\nlast { \"kept\":  1 }",
            "first [1, 2]\n{\"user\":{\"ssn\":\"[REDACTED]\"}}\nlast { \"kept\":  1 }",
        ),
        (r#"cut off: {"a":{"password":"x"},"b":"#, r#"cut off: {"a":{"password":"[REDACTED]"},"b":"#),
        (r#"call({ body: {"password":"x"} })"#, r#"call({ body: {"password":"[REDACTED]"} })"#),
    ] {
        let value = json!({ "said": text });
        let mut masked = value.clone();
        ENGINE.members(&mut masked, &["password", "ssn"]);
        assert_eq!(masked["said"], expected, "{text}");
        assert_eq!(ENGINE.fields(&value, None).unwrap().unwrap()["said"], expected, "{text}");
        assert_eq!(ENGINE.value(&value, None).unwrap()["said"], expected, "{text}");
    }
    let same = json!({ "said": "see [1], {}, {x} and [\"a\"]" });
    assert_eq!(ENGINE.fields(&same, None).unwrap(), None);
}

#[test]
fn what_is_almost_json_is_masked_by_name_as_json_is() {
    for (text, expected) in [
        // Cut off in the middle: of a value, of a list, of what stands around it.
        (r#"{"user":"ada","password":"open-ses"#, r#"{"user":"ada","password":"[REDACTED]""#),
        (r#"{"user":"ada","password":["open","ses"#, r#"{"user":"ada","password":"[REDACTED]""#),
        (r#"…da","password": "open-sesame"}"#, r#"…da","password": "[REDACTED]"}"#),
        (r#"{"n":NaN,"password":"open-sesame"}"#, r#"{"n":NaN,"password":"[REDACTED]"}"#),
        (r#"{"password":"open-sesame",}"#, r#"{"password":"[REDACTED]",}"#),
        (r#"[{"password":{"a":"open-sesame"},},]"#, r#"[{"password":"[REDACTED]",},]"#),
        ("{'user': 'ada', 'password': 'open-sesame'}", "{'user': 'ada', 'password': '[REDACTED]'}"),
        ("{'password': 'open'sesame', 'n': None}", "{'password': '[REDACTED]', 'n': None}"),
        (r#"{password: "open-sesame", n: 1}"#, r#"{password: "[REDACTED]", n: 1}"#),
        (
            r#"here is the record: {"password": "open-sesame", } thanks"#,
            r#"here is the record: {"password": "[REDACTED]", } thanks"#,
        ),
        (r#"{"ｐａｓｓｗｏｒｄ": "open-sesame", "n": NaN}"#, r#"{"ｐａｓｓｗｏｒｄ": "[REDACTED]", "n": NaN}"#),
        (r#"{"pass\u0077ord": "open-sesame", "n": NaN}"#, r#"{"pass\u0077ord": "[REDACTED]", "n": NaN}"#),
        (r#"{\"password\": \"open-sesame\", \"n\": NaN}"#, r#"{\"password\": \"[REDACTED]\", \"n\": NaN}"#),
        (r#"{"a": {"password": "open-sesame", "n": NaN}}"#, r#"{"a": {"password": "[REDACTED]", "n": NaN}}"#),
        (r#"{"password": open-sesame, "n": NaN}"#, r#"{"password": "[REDACTED]", "n": NaN}"#),
    ] {
        let value = json!({ "said": text });
        let mut masked = value.clone();
        ENGINE.members(&mut masked, &["password"]);
        assert_eq!(masked["said"], expected, "{text}");
        let mut again = masked.clone();
        ENGINE.members(&mut again, &["password"]);
        assert_eq!(again, masked, "{text}");
        assert_eq!(ENGINE.fields(&value, None).unwrap().unwrap()["said"], expected, "{text}");
        assert!(!ENGINE.value(&value, None).unwrap().to_string().contains("open"), "{text}");
    }
    // A member that nothing else would give away: it goes because somebody has named it.
    let mut value = json!({ "said": "{'balance': 12.50, 'name': 'Ada', 'n': NaN" });
    ENGINE.members(&mut value, &["balance"]);
    assert_eq!(value["said"], "{'balance': \"[REDACTED]\", 'name': 'Ada', 'n': NaN");
    for same in
        ["the password: see the safe", "{'a': 'b', 'n': NaN", "if (x) { y(\"a\"); } // note: z", "\"max_tokens\": 5,"]
    {
        assert_eq!(ENGINE.fields(&json!({ "said": same }), None).unwrap(), None, "{same}");
    }
}

#[test]
fn a_name_that_looks_like_the_name_of_a_secret_is_one() {
    for name in ["ｐａｓｓｗｏｒｄ", "pass\u{200b}word", "\u{feff}password", "𝗽𝗮𝘀𝘀𝘄𝗼𝗿𝗱", "pass\u{ad}word\u{fe0f}"]
    {
        let value = json!({ name: "x", "text": format!("said {{\"{name}\":\"x\"}} aloud") });
        let mut masked = value.clone();
        ENGINE.members(&mut masked, &["password"]);
        for shown in [masked, ENGINE.fields(&value, None).unwrap().unwrap_or_default()] {
            assert_eq!(shown[name], REDACTED, "{name:?}");
            assert_eq!(shown["text"], format!("said {{\"{name}\":\"{REDACTED}\"}} aloud"), "{name:?}");
        }
    }
    // Whoever asks for a name in another form means the same one.
    let mut value = json!({ "password": "x" });
    ENGINE.members(&mut value, &["ｐａｓｓｗｏｒｄ"]);
    assert_eq!(value["password"], REDACTED);
}

#[test]
fn a_text_that_never_comes_to_rest_is_not_shown() {
    // What takes the place of a match is matched again.
    let additions = RedactionAdditions { patterns: vec!["[A-Z]{3,}x?".into()], ..RedactionAdditions::default() };
    let engine = ENGINE.with(&additions).unwrap();
    assert_eq!(engine.text("see ABCx and more"), REDACTED);
    assert_eq!(engine.text("see nothing"), "see nothing");
}
