//! Shapes and assignments in texts: what goes, and what only looks like it and stays.

use redaction::{REDACTED, RedactionAdditions, RedactionKind};
use serde_json::json;

use super::{ENGINE, found, table};

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
