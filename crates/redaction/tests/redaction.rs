//! The engine as everybody uses it: tables of what goes and what stays, and what holds for every text.

#![expect(clippy::unwrap_used, reason = "a test may be blunt")]

use contract::schema::{PartMarks, SchemaMarks, Sensitivity};
use proptest::prelude::*;
use redaction::{
    REDACTED, RedactionAdditions, RedactionEngine, RedactionError, RedactionKind, ValueDescription, ValuePart,
};
use serde_json::{Value, json};
use std::sync::LazyLock;

static ENGINE: LazyLock<RedactionEngine> =
    LazyLock::new(|| RedactionEngine::new(&RedactionAdditions::default()).unwrap());

/// The marks of a schema, as the engine asks for them.
struct Described<'m>(PartMarks<'m>);

impl ValueDescription for Described<'_> {
    fn is_sensitive(&self) -> Option<bool> {
        match self.0.says() {
            Sensitivity::Unsaid => None,
            Sensitivity::Open => Some(false),
            Sensitivity::Sensitive => Some(true),
        }
    }

    fn part(&self, part: ValuePart<'_>) -> Option<Box<dyn ValueDescription + '_>> {
        let part = match part {
            ValuePart::Member(name) => self.0.member(name),
            ValuePart::Item(index) => self.0.item(index),
            ValuePart::Content => self.0.content(),
            ValuePart::Names => self.0.names(),
        };
        (!part.is_silent()).then(|| Box::new(Self(part)) as _)
    }
}

/// What is shown of a value that a schema describes: of its fields, and of everything.
fn described(value: &Value, schema: &Value) -> (Option<Value>, Value) {
    let marks = SchemaMarks::of(schema);
    let described = marks.as_ref().map(|marks| Described(marks.whole()));
    let described = described.as_ref().map(|described| described as &dyn ValueDescription);
    (ENGINE.fields(value, described).unwrap(), ENGINE.value(value, described).unwrap())
}

/// What is found of a kind, as text.
fn found(kind: RedactionKind, text: &str) -> Vec<&str> {
    ENGINE
        .findings(text)
        .into_iter()
        .filter(|it| it.kind == kind)
        .map(|it| text.get(it.start..it.end).unwrap())
        .collect()
}

/// Each text holds exactly what is named, or nothing.
fn table(kind: RedactionKind, rows: &[(&str, &str)]) {
    for (text, expected) in rows {
        let expected: Vec<&str> = if expected.is_empty() { Vec::new() } else { vec![expected] };
        assert_eq!(found(kind, text), expected, "{text}");
    }
}

#[test]
fn telephone_numbers_of_many_countries_go_and_other_numbers_stay() {
    table(
        RedactionKind::Phone,
        &[
            ("+14155552671", "+14155552671"),
            ("+1 (415) 555-2671", "+1 (415) 555-2671"),
            ("+1-448-414-3381x060", "+1-448-414-3381x060"),
            ("+44 20 7946 0958", "+44 20 7946 0958"),
            ("+49 (0)30 901820", "+49 (0)30 901820"),
            ("+33 1 70 18 99 00, thanks", "+33 1 70 18 99 00"),
            ("+86-138-1234-5678", "+86-138-1234-5678"),
            ("+972 3 123 4567", "+972 3 123 4567"),
            ("0049 30 901820", "0049 30 901820"),
            ("(415) 555-2671", "(415) 555-2671"),
            ("(415)555-2671 ext. 12", "(415)555-2671 ext. 12"),
            ("415.555.2671", "415.555.2671"),
            ("415 555 2671", "415 555 2671"),
            ("1-800-555-0199", "1-800-555-0199"),
            ("001-668-040-8670x1711", "001-668-040-8670x1711"),
            ("(03) 5327 5996", "(03) 5327 5996"),
            ("020 7946 0958", "020 7946 0958"),
            ("02.27.96.63.08", "02.27.96.63.08"),
            ("0660 565 36 45", "0660 565 36 45"),
            ("06-65334860", "06-65334860"),
            ("my phone number is 5551234567", "5551234567"),
            ("call me at 555-0134", "555-0134"),
            ("Tel: 481 7531", "481 7531"),
            ("Fax:33 93 31", "33 93 31"),
            ("9761 9808 office", "9761 9808"),
            (r#"{"phone":"555-123-4567"}"#, "555-123-4567"),
            (r"first\n415-555-2671", "415-555-2671"),
            ("481 7531", ""),
            ("on 2026-03-14 09:26:53", ""),
            ("14.03.2026", ""),
            ("1700000000", ""),
            ("1700000000000", ""),
            ("order 5551234567", ""),
            ("3.14159265358979", ""),
            ("10 000 000", ""),
            ("v1.2.3.4", ""),
            ("e8e4df51-2054-49b0-ab1c-516ac95c691d", ""),
            ("018f3c2e-7b1a-7c3d-9e4f-000000000001", ""),
            ("ABC-123-456-7890", ""),
            ("66 137 Sim Street", ""),
            ("call a taxi to 14 3684 Court Street", ""),
            ("zip 46718", ""),
            ("$415 555 2671", ""),
            ("192.168.100.200", ""),
            ("pages 100-200, 300-400", ""),
            ("[1,2,3,4,5,6,7,8,9,10]", ""),
        ],
    );
}

#[test]
fn cards_go_by_brand_and_check_digit() {
    table(
        RedactionKind::CreditCard,
        &[
            ("4111111111111111", "4111111111111111"),
            ("4111 1111 1111 1111", "4111 1111 1111 1111"),
            ("4111-1111-1111-1111", "4111-1111-1111-1111"),
            ("card 5555555555554444 12/27", "5555555555554444"),
            ("2223003122003222", "2223003122003222"),
            ("3782 822463 10005", "3782 822463 10005"),
            ("30569309025904", "30569309025904"),
            ("6011111111111117", "6011111111111117"),
            ("3530111333300000", "3530111333300000"),
            ("6200000000000005", "6200000000000005"),
            ("my card 4222222222222 is lost", "4222222222222"),
            ("4222222222222", ""),
            ("charge the card 3593067066594108", "3593067066594108"),
            ("3593067066594108", ""),
            ("charge the card 3593067066594109", ""),
            ("4111111111111112", ""),
            ("1234567890123456", ""),
            ("0.4111111111111111", ""),
            ("x4111111111111111", ""),
            ("41111111111111111111111", ""),
            ("1700000000000000", ""),
        ],
    );
}

#[test]
fn social_security_numbers_go() {
    table(
        RedactionKind::Ssn,
        &[
            ("447-60-5371", "447-60-5371"),
            ("SSN: 447605371", "447605371"),
            ("social security number 447 60 5371", "447 60 5371"),
            ("my ssn is 000-12-3456", "000-12-3456"),
            ("000-12-3456", ""),
            ("666-12-3456", ""),
            ("447-00-5371", ""),
            ("447605371", ""),
            ("447-60-53711", ""),
            ("AB-447-60-5371", ""),
        ],
    );
}

#[test]
fn addresses_of_machines_go_and_versions_stay() {
    table(
        RedactionKind::IpAddress,
        &[
            ("from 86.231.85.193 blocked", "86.231.85.193"),
            ("http://10.0.0.1:8080/x", "10.0.0.1"),
            ("10.1.2.0/24", "10.1.2.0"),
            (r#"{"ip":"192.0.2.1"}"#, "192.0.2.1"),
            (r#"{"ip":"2001:db8::8a2e:370:7334"}"#, "2001:db8::8a2e:370:7334"),
            ("ip=fe80::1", "fe80::1"),
            ("version 1.2.3.4", ""),
            ("v1.2.3.4", ""),
            ("Chrome/120.0.0.0", ""),
            ("1.2.3.4-beta", ""),
            ("1.2.3.4.5", ""),
            ("256.1.1.1", ""),
            ("12:34:56", ""),
        ],
    );
}

#[test]
fn accounts_and_addresses_of_people_go() {
    table(
        RedactionKind::Iban,
        &[("pay to DE89 3704 0044 0532 0130 00 now", "DE89 3704 0044 0532 0130 00"), ("DE88370400440532013000", "")],
    );
    table(
        RedactionKind::Email,
        &[("a.b+c@example.co.uk", "a.b+c@example.co.uk"), ("logo@2x.png", ""), ("user@host", "")],
    );
}

/// Keys are put together here, so that nobody who scans this repository finds any.
fn key(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn keys_of_providers_go_wherever_they_stand() {
    let (hex32, hex40, hex64) = (
        "9f86d081884c7d659a2feaa0c55ad015",
        "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3",
        "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    );
    let mixed = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC3dE5fG7hJ9kL2mN4pQ6rS8tU0vW";
    let cut = |length: usize| mixed.get(..length).unwrap();
    let keys = [
        key(&["AKIA", "Z7QW4ERTY2UIOP5A"]),
        key(&["AIza", cut(35)]),
        key(&["ghp_", cut(36)]),
        key(&["ghs_", cut(45)]),
        key(&["github_pat_", cut(22), "_", cut(59)]),
        key(&["glpat-", cut(20)]),
        key(&["xoxb-", "263594206564-2343594206574-", cut(24)]),
        key(&["xoxp-", "41684372915-1320496754-45609968301-", hex32]),
        key(&["sk_live_", cut(24)]),
        key(&["sk-", "proj-", cut(48)]),
        key(&["sk-ant-", "api03-", cut(60), "AA"]),
        key(&["sk-", "secret123456"]),
        key(&["SK", hex32]),
        key(&["SG.", cut(22), ".", mixed.get(3..46).unwrap()]),
        key(&["npm_", cut(36)]),
        key(&["pypi-", "AgEIcHlwaS5vcmc", cut(60)]),
        key(&["dop_v1_", hex64]),
        key(&["hvs.", cut(60), cut(30)]),
        key(&["shpat_", hex32]),
        key(&["key-", hex32]),
        key(&[hex32, "-us12"]),
        key(&["hf_", "qWeRtYuIoPaSdFgHjKlZxCvBnMqWeRtYuI"]),
        key(&["gsk_", cut(52)]),
        key(&["lin_api_", cut(40)]),
        key(&["dapi", hex32]),
        key(&["rubygems_", hex40, "9a2fe1b7"]),
        key(&["110201543", ":AA", "HdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"]),
        key(&["whsec_", cut(32)]),
        key(&["acme_live_", cut(32)]),
        key(&["NRAK-", "7J3KQ9ZP2LX8MV4TR6WYB1CDE5F"]),
        key(&["https://hooks.slack.com/services/", "T024TTTTT/BBB72BBL/AZAAA9u0pA4ad666eMgbi555"]),
        key(&["eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.", "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"]),
        key(&[
            "-----BEGIN RSA ",
            "PRIVATE KEY-----\nMIIEowIBAAKCAQEAxyz0123456789abcdef\nAAAA\n-----END RSA PRIVATE KEY-----",
        ]),
    ];
    for key in &keys {
        for text in [
            key.clone(),
            format!("I retried with {key} and then it worked."),
            format!("export X=\"{key}\""),
            format!("{{\"a\": \"{key}\"}}"),
        ] {
            assert_eq!(found(RedactionKind::Secret, &text), [key], "{text}");
        }
        assert!(found(RedactionKind::Secret, &format!("Q{key}")).len() <= 1, "{key}");
    }
}

#[test]
fn what_is_assigned_to_a_secret_name_goes() {
    let cases = [
        ("password = \"hunter2!\"", "hunter2!"),
        ("DB_PASSWORD=correct-horse7", "correct-horse7"),
        ("my password is Tr0ub4dor&3", "Tr0ub4dor"),
        ("api_key: 'f3A9bC27dE51'", "f3A9bC27dE51"),
        (r#"{"client_secret":"8Xh2kQ9vPz"}"#, "8Xh2kQ9vPz"),
        (r#""{\"apiToken\":\"8Xh2kQ9vPz\"}""#, "8Xh2kQ9vPz"),
        ("x-api-key: 8Xh2kQ9vPz31", "8Xh2kQ9vPz31"),
        ("https://h/p?access_token=8Xh2kQ9vPz31&page=2", "8Xh2kQ9vPz31"),
        ("token := \"8Xh2kQ9vPz31aa\"", "8Xh2kQ9vPz31aa"),
        ("System.setProperty(\"ACME_TOKEN\", \"8Xh2kQ9vPz31aa\")", "8Xh2kQ9vPz31aa"),
        ("- name: ACME_TOKEN\n  value: \"8Xh2kQ9vPz31aa\"", "8Xh2kQ9vPz31aa"),
        ("<password>hunter2abc</password>", "hunter2abc"),
        ("--password hunter2abc", "hunter2abc"),
        ("Authorization: Bearer 8Xh2kQ9vPz31aa", "8Xh2kQ9vPz31aa"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA=="),
        ("curl -u admin:s3cr3tpw https://example.org", "admin:s3cr3tpw"),
        ("postgres://app:s3cr3tpw@db/x", "app:s3cr3tpw"),
        ("heroku_api_key=12345678-ABCD-4bcd-9012-1234567890ab", "12345678-ABCD-4bcd-9012-1234567890ab"),
    ];
    for (text, secret) in cases {
        assert_eq!(found(RedactionKind::Secret, text), [secret], "{text}");
    }
}

/// Characters that are random enough, as many as are wanted.
fn random(length: usize) -> String {
    let mut state = 0x2545_f491_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let letters = b"abcdefghijkmnopqrstuvwyzABCDEFGHJKLMNPQRSTUVWYZ23456789";
        char::from(*letters.get(usize::try_from(state).unwrap() % letters.len()).unwrap())
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_secret_of_any_length_is_hidden_to_its_end() {
    for length in [200, 255, 256, 257, 300, 511, 512, 513, 600, 2_047, 2_048, 2_049, 5_000, 17_000, 40_000] {
        let secret = random(length);
        let forms = [
            (format!("password={secret}"), "password="),
            (format!("export API_TOKEN={secret}\nnext"), "export API_TOKEN="),
            (format!("password = \"{secret}\" next"), "password = \""),
            (format!("{{\"client_secret\":\"{secret}\"}}"), "{\"client_secret\":\""),
            (format!("password='{secret}"), "password='"),
            (format!("Authorization: Bearer {secret} next"), "Authorization: Bearer "),
            (format!("sk-proj-{secret} next"), ""),
            (format!("postgres://app:{secret}@db/x"), "postgres://"),
            (format!("curl -u admin:{secret} https://example.org"), "curl -u "),
            (format!("eyJhbGciOiJIUzI1NiJ9.eyJ{secret}.{secret} next"), ""),
            (format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----"), ""),
        ];
        for (text, before) in forms {
            let shown = ENGINE.text(&text).into_owned();
            let tail = secret.get(length - 12..).unwrap();
            assert!(shown.starts_with(before) && !shown.contains(tail), "{length}: {}…", text.get(..40).unwrap());
            assert!(shown.len() < 120, "{length}: {shown}");
        }
    }
}

#[test]
fn what_stands_inside_of_a_value_does_not_end_it() {
    let cases = [
        (r#"{"password":"hunter2!\"quoted\"tail9"}"#, "tail9"),
        (r#""{\"password\":\"hunter2!\\\"quoted\\\"tail9\"}""#, "tail9"),
        ("password=hunter2=tail9 next", "tail9"),
        ("password=hunter2äßtail9 next", "tail9"),
        ("password=\"hunter2xyz\ntail9\" next", "tail9"),
        ("password   \t         :            hunter2tail9", "tail9"),
        (r#"\\\\\\\"password\\\\\\\":\\\\\\\"hunter2tail9\\\\\\\""#, "tail9"),
        ("password_of_the_database_of_the_second_site_in_the_north_of_the_country=hunter2tail9", "tail9"),
    ];
    for (text, tail) in cases {
        let shown = ENGINE.text(text).into_owned();
        assert!(!shown.contains(tail), "{text} is shown as {shown}");
    }
}

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
fn what_only_looks_like_a_secret_stays() {
    let cases = [
        "tokensUsed: 1234567890123",
        "\"max_tokens\": 4096, \"token_count\": 17",
        "token_type: bearer12345",
        "password: ${DB_PASSWORD}",
        "password = os.environ['PASSWORD']",
        "api_key = <your api key>",
        "API_KEY=xxxxxxxxxxxxxxxxxxxxxxxx",
        "secret: {{ vault.secret }}",
        "apiKey = config.apiKey2",
        "passwordVariable: 'PASSWORD'",
        "credentialsId: '29f63271-dc2f-4734-8221-5b31b5169bac'",
        "SECRET_NAME = \"NEXUS-GPT4-API-KEY\"",
        "keyword: \"Befaehigung_P2\"",
        "commit 9a038989604e8da62ecddbe2094b16ce1b778be1",
        "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "cache_key: \"d41d8cd98f00b204e9800998ecf8427e\"",
        "nextPageToken: \"8Xh2kQ9vPz31aa\"",
        "public_key = \"8Xh2kQ9vPz31aaBB\"",
        "AKIAIOSFODNN7EXAMPLE",
        "AKIAXXXXXXXXXXXXXXXX",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "sk-container-id-1",
        "https://user:password@example.org",
        "https://example.org/a@b",
        "bearer of good news 2024",
        "basic authentication",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n-----END PUBLIC KEY-----",
        "test_internal_api_org_inclusion_with_href",
        "018f3c2e-7b1a-7c3d-9e4f-000000000001",
    ];
    for text in cases {
        assert_eq!(found(RedactionKind::Secret, text), Vec::<&str>::new(), "{text}");
    }
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

#[test]
fn additions_count_for_the_engine_that_has_them() {
    let additions = RedactionAdditions {
        values: vec!["open \"sesame\"".into(), "abc".into()],
        names: vec!["badge_number".into(), "*_dossier".into()],
        exempt: vec!["session_token".into()],
        patterns: vec![r"\bEMP-\d{4}\b".into()],
    };
    let engine = ENGINE.with(&additions).unwrap();
    assert_eq!(engine.text("say open \"sesame\" to EMP-1234, abc"), "say [REDACTED] to [REDACTED], abc");
    assert_eq!(engine.text(r#"{"a":"open \"sesame\""}"#), r#"{"a":"[REDACTED]"}"#);
    let shown = engine
        .value(&json!({ "badgeNumber": 1, "hr-dossier": "x", "session_token": "x", "token": "x" }), None)
        .unwrap();
    assert_eq!(
        shown,
        json!({ "badgeNumber": REDACTED, "hr-dossier": REDACTED, "session_token": "x", "token": REDACTED })
    );
    assert_eq!(ENGINE.text("EMP-1234"), "EMP-1234");
    assert!(ENGINE.with(&RedactionAdditions { patterns: vec!["(".into()], ..RedactionAdditions::default() }).is_err());
    assert!(
        ENGINE
            .with(&RedactionAdditions { values: vec![String::new(); 1_001], ..RedactionAdditions::default() })
            .is_err()
    );
}

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
