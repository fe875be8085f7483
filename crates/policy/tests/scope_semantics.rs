//! What scopes cover, told three ways: a table of cases, a check over a whole small vocabulary that "covers the scope" is
//! "covers all it covers", and noise.
#![expect(clippy::panic, reason = "test crate")]

use gantry_policy::{NetworkError, PathError, PermissionScope, ScopeError};
use proptest::prelude::*;

fn scope(text: &str) -> PermissionScope {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_granted_scope_covers_what_the_table_says() {
    for (granted, required, expected) in [
        // Everything, and everything of a kind.
        ("*", "anything:at:all", true),
        ("*", "filesystem:read:/data", true),
        ("tool:*", "tool:web_search", true),
        ("tool:*", "tool:a:b", true),
        ("tool:*", "tools:a", false),
        ("tool:*", "tool:", false),
        ("tool:*", "tool", false),
        ("tool:a:*", "tool:a:b", true),
        ("tool:a:*", "tool:a:*", true),
        ("tool:a:*", "tool:a:b:*", true),
        ("tool:a:*", "tool:a", false),
        ("tool:a:*", "tool:a:", false),
        ("tool:a:*", "tool:ab:c", false),
        ("tool:a:*", "tool:*", false),
        ("tool:a", "*", false),
        ("tool:*", "*", false),
        // Other kinds: letter by letter.
        ("credentials:aws_s3", "credentials:aws_s3", true),
        ("credentials:aws_s3", "credentials:aws_s3_admin", false),
        ("credentials:aws_s3", "credentials:AWS_S3", false),
        ("credentials:aws_s3", "credentials:*", false),
        ("database:postgresql:read", "database:postgresql:read", true),
        ("database:postgresql:read", "database:postgresql:write", false),
        ("database:postgresql:*", "database:postgresql:write", true),
        ("database:postgresql", "database:postgresql:read", false),
        ("credentials:arn:aws:s3:::x", "credentials:arn:aws:s3:::x", true),
        // Files: by whole segments, and one mode is not the other.
        ("filesystem:read:/data", "filesystem:read:/data", true),
        ("filesystem:read:/data", "filesystem:read:/data/x", true),
        ("filesystem:read:/data", "filesystem:read:/data/", true),
        ("filesystem:read:/data/", "filesystem:read:/data", true),
        ("filesystem:read:/data", "filesystem:read://data/./x", true),
        ("filesystem:read:/data", "filesystem:read:/database", false),
        ("filesystem:read:/data", "filesystem:read:/", false),
        ("filesystem:read:/data", "filesystem:write:/data", false),
        ("filesystem:write:/data", "filesystem:read:/data", false),
        ("filesystem:read:/", "filesystem:read:/etc/passwd", true),
        ("filesystem:read:/", "filesystem:read:*", true),
        ("filesystem:read:*", "filesystem:read:/", true),
        ("filesystem:read:*", "filesystem:write:/data", false),
        ("filesystem:*", "filesystem:write:/data", true),
        ("filesystem:*", "filesystem:read:*", true),
        ("filesystem:read:/", "filesystem:*", false),
        ("filesystem:read:/a:b", "filesystem:read:/a:b/c", true),
        // `..` never helps, in no dress and not against a wide grant.
        ("filesystem:read:/data", "filesystem:read:/data/../etc", false),
        ("filesystem:read:/data", "filesystem:read:/data/x/../y", false),
        ("filesystem:read:/data", "filesystem:read:/data/%2e%2e/etc", false),
        ("filesystem:read:/data", "filesystem:read:/data%2f..", false),
        ("filesystem:read:/data", "filesystem:read:/data\\..\\etc", false),
        ("filesystem:read:/data", "filesystem:read:data/x", false),
        ("filesystem:read:/", "filesystem:read:/data/..", false),
        ("filesystem:*", "filesystem:read:/data/..", false),
        ("filesystem:*", "filesystem:exec:/data", false),
        ("filesystem:*", "filesystem:", false),
        ("*", "filesystem:read:/data/..", true),
        // Network: origins.
        ("network:https://h.org", "network:https://h.org", true),
        ("network:https://h.org", "network:https://H.ORG/", true),
        ("network:https://h.org", "network:HTTPS://h.org", true),
        ("network:https://h.org", "network:https://h.org:443/a", true),
        ("network:https://h.org:443", "network:https://h.org", true),
        ("network:http://h.org:80", "network:http://h.org", true),
        ("network:https://h.org", "network:https://h.org:80", false),
        ("network:https://h.org", "network:http://h.org", false),
        ("network:https://h.org", "network:https://h.org:8443", false),
        ("network:https://h.org", "network:https://a.h.org", false),
        ("network:https://h.org", "network:https://h.org.evil.net", false),
        ("network:https://h.org", "network:https://h.org@evil.net", false),
        ("network:https://h.org", "network:https://h.org.", false),
        ("network:wss://h.org", "network:wss://h.org:443", true),
        ("network:tcp://h.org", "network:tcp://h.org", true),
        ("network:tcp://h.org", "network:tcp://h.org:5432", false),
        // Network: paths.
        ("network:https://h.org/v1", "network:https://h.org/v1/users", true),
        ("network:https://h.org/v1/", "network:https://h.org/v1", true),
        ("network:https://h.org/v1", "network:https://h.org/v10", false),
        ("network:https://h.org/v1", "network:https://h.org", false),
        ("network:https://h.org/v1", "network:https://h.org/v1/../v2", false),
        ("network:https://h.org/v1", "network:https://h.org/v1/%2E%2e/v2", false),
        ("network:https://h.org/v1", "network:https://h.org/v1/..;/v2", false),
        ("network:https://h.org", "network:https://h.org/?q", false),
        // Network: families of hosts.
        ("network:https://*.example.com", "network:https://api.example.com/x", true),
        ("network:https://*.example.com", "network:https://a.b.example.com", true),
        ("network:https://*.example.com", "network:https://example.com", false),
        ("network:https://*.example.com", "network:https://evilexample.com", false),
        ("network:https://*.example.com", "network:https://*.eu.example.com", true),
        ("network:https://api.example.com", "network:https://*.example.com", false),
        ("network:https://*.example.com/v1", "network:https://api.example.com/v2", false),
        // Network: addresses.
        ("network:http://[::1]:8080", "network:http://[0:0::1]:8080/x", true),
        ("network:http://[::1]:8080", "network:http://[::1]", false),
        ("network:http://127.0.0.1", "network:http://127.1", false),
        ("network:http://127.0.0.1", "network:http://2130706433", false),
        // Network: stars after a colon, and places without a scheme.
        ("network:*", "network:https://api.example.com", true),
        ("network:*", "network:h.org:443", true),
        ("network:*", "network:https://u@h.org", false),
        ("network:https:*", "network:https://any.example/x", true),
        ("network:https:*", "network:http://any.example/x", false),
        ("network:https://h.org:*", "network:https://h.org", true),
        ("network:https://h.org:*", "network:https://h.org:8443/x", true),
        ("network:https://h.org:*", "network:https://a.org:8443", false),
        ("network:tcp://h.org:*", "network:tcp://h.org", false),
        ("network:h.org:5432", "network:H.org:5432", true),
        ("network:h.org:5432", "network:h.org:5433", false),
        ("network:h.org:5432", "network:h.org", false),
        ("network:h.org", "network:h.org:5432", false),
        ("network:h.org:443", "network:https://h.org", false),
        ("network:https://h.org", "network:h.org:443", false),
        ("network:h.org:*", "network:h.org:5432", true),
        ("network:h.org:*", "network:h.org", false),
        ("network:*.h.org:5432", "network:a.h.org:5432", true),
        ("network:[::1]:*", "network:[::1]:80", true),
    ] {
        assert_eq!(scope(granted).covers(required), expected, "{granted} covers {required}");
    }
}

#[test]
fn what_is_not_a_scope_is_refused_with_its_reason() {
    use ScopeError::{Mode, Network, Path, Shape, Star};
    let long = format!("tool:{}", "x".repeat(1020));
    for (text, reason) in [
        ("", Shape),
        ("x", Shape),
        (":x", Shape),
        ("x:", Shape),
        ("X:y", Shape),
        ("a b:c", Shape),
        ("a:b c", Shape),
        ("a:\u{7}", Shape),
        ("a1:b", Shape),
        (&long, Shape),
        ("tool:web_*", Star),
        ("tool:**", Star),
        ("tool:*:x", Star),
        ("tool:a:*:*", Star),
        ("filesystem:read:/data*", Star),
        ("filesystem:read:/data/*", Star),
        ("filesystem:read:/a:*", Star),
        ("filesystem:read", Mode),
        ("filesystem:/data", Mode),
        ("filesystem:*:/data", Mode),
        ("filesystem:exec:/data", Mode),
        ("filesystem:read:data", Path(PathError::Relative)),
        ("filesystem:read:/data/..", Path(PathError::Upwards)),
        ("filesystem:read:/data%2Fx", Path(PathError::Ambiguous)),
        ("filesystem:read:\\data", Path(PathError::Relative)),
        ("network:https://", Network(NetworkError::Host)),
        ("network:https:///x", Network(NetworkError::Host)),
        ("network:https://*", Network(NetworkError::Host)),
        ("network:https://a.*.org", Network(NetworkError::Host)),
        ("network:https://h.org.", Network(NetworkError::Host)),
        ("network:https://bücher.de", Network(NetworkError::Host)),
        ("network:https://h.org:", Network(NetworkError::Port)),
        ("network:https://h.org:0", Network(NetworkError::Port)),
        ("network:https://h.org:65536", Network(NetworkError::Port)),
        ("network:https://h.org:0443", Network(NetworkError::Port)),
        ("network:https://h.org:+443", Network(NetworkError::Port)),
        ("network:https://h.org:*/x", Network(NetworkError::Port)),
        ("network:https://u:p@h.org", Network(NetworkError::UserInfo)),
        ("network:u@h.org", Network(NetworkError::UserInfo)),
        ("network:https://h.org/a*", Network(NetworkError::Star)),
        ("network:https://h.org/?q=1", Network(NetworkError::Query)),
        ("network:https://h.org#x", Network(NetworkError::Query)),
        ("network:https:/h.org", Network(NetworkError::Shape)),
        ("network:h.org/x", Network(NetworkError::Shape)),
        ("network://h.org", Network(NetworkError::Shape)),
        ("network:https://h.org\\x", Network(NetworkError::Shape)),
        ("network:https://h.org/../x", Network(NetworkError::Path(PathError::Upwards))),
        ("network:a:b:c", Network(NetworkError::Host)),
        ("network:::1", Network(NetworkError::Host)),
    ] {
        assert_eq!(text.parse::<PermissionScope>(), Err(reason), "{text:?}");
        // And as a requirement only the scope that asks nothing covers it.
        assert!(scope("*").covers(text), "{text:?}");
        for wide in ["filesystem:*", "network:*", "tool:*", "a:*", "x:*"] {
            assert!(!scope(wide).covers(text), "{wide} {text:?}");
        }
    }
}

#[test]
fn scopes_are_plain_strings_as_data() {
    let text = r#"["*","filesystem:read:/data/","network:https://H.org:443"]"#;
    let scopes: Vec<PermissionScope> = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&scopes).unwrap(), text, "the text is kept as it was written");
    assert!(serde_json::from_str::<PermissionScope>(r#""filesystem:read:/..""#).is_err());
}

// ------------------------------------------------------------------------------------------------ a whole vocabulary

/// Scopes in every form, over few names, so that many of them contain each other.
fn vocabulary() -> Vec<PermissionScope> {
    let mut texts: Vec<String> =
        ["*", "tool:*", "tool:a", "tool:a:*", "tool:a:b", "tool:a:b:*", "other:a", "filesystem:*"]
            .map(str::to_owned)
            .to_vec();
    for mode in ["read", "write"] {
        for path in ["*", "/", "/a", "/a/", "/a/b", "/ab", "//a/./b"] {
            texts.push(format!("filesystem:{mode}:{path}"));
        }
    }
    for scheme in ["http", "https", "tcp"] {
        for host in ["h.org", "*.h.org", "a.h.org", "*.a.h.org", "[::1]", "https"] {
            for port in ["", ":443", ":9", ":*", "/x", "/x/y", ":443/x"] {
                texts.push(format!("network:{scheme}://{host}{port}"));
            }
        }
        texts.push(format!("network:{scheme}:*"));
    }
    for host in ["h.org", "*.h.org", "a.h.org", "*.a.h.org", "[::1]", "https"] {
        for port in ["", ":443", ":*"] {
            texts.push(format!("network:{host}{port}"));
        }
    }
    texts.push("network:*".to_owned());
    texts.iter().map(|text| scope(text)).collect()
}

/// Requirements without stars: each name of the vocabulary, and beside each a name that it does not have.
fn requirements() -> Vec<String> {
    let mut texts: Vec<String> = [
        "tool:a",
        "tool:z",
        "tool:a:b",
        "tool:a:z",
        "tool:a:b:z",
        "other:a",
        "other:z",
        "filesystem:read:/x/..",
        "nothing",
    ]
    .map(str::to_owned)
    .to_vec();
    for mode in ["read", "write"] {
        for path in ["/", "/z", "/a", "/a/z", "/a/b", "/a/b/z", "/ab", "/ab/z"] {
            texts.push(format!("filesystem:{mode}:{path}"));
        }
    }
    let hosts = ["h.org", "a.h.org", "z.h.org", "z.a.h.org", "z.org", "[::1]", "[::2]", "https", "http", "tcp"];
    for host in hosts {
        for scheme in ["http", "https", "tcp", "zzz"] {
            for rest in
                ["", ":80", ":443", ":9", ":7", "/x", "/z", "/x/y", "/x/z", ":443/x", ":443/z", ":9/x", ":7/x/y"]
            {
                texts.push(format!("network:{scheme}://{host}{rest}"));
            }
        }
        texts.extend(["", ":443", ":7"].map(|port| format!("network:{host}{port}")));
    }
    texts
}

#[test]
fn to_cover_a_scope_is_to_cover_all_that_it_covers() {
    let (scopes, requirements) = (vocabulary(), requirements());
    let table: Vec<Vec<bool>> =
        scopes.iter().map(|scope| requirements.iter().map(|required| scope.covers(required)).collect()).collect();
    for (outer, covered_by_outer) in scopes.iter().zip(&table) {
        for (inner, covered_by_inner) in scopes.iter().zip(&table) {
            let contained = covered_by_inner.iter().zip(covered_by_outer).all(|(inner, outer)| !inner || *outer);
            assert_eq!(outer.covers_scope(inner), contained, "{outer} covers {inner}");
            assert_eq!(outer.covers(inner.as_str()), contained, "{outer} covers {inner} as a requirement");
        }
    }
}

#[test]
fn covering_is_reflexive_and_transitive() {
    let scopes = vocabulary();
    let covers: Vec<Vec<bool>> =
        scopes.iter().map(|outer| scopes.iter().map(|inner| outer.covers_scope(inner)).collect()).collect();
    for (at, row) in covers.iter().enumerate() {
        assert!(row[at], "{}", scopes[at]);
        for (middle, _) in row.iter().enumerate().filter(|(_, covered)| **covered) {
            for (inner, covered) in covers[middle].iter().enumerate() {
                assert!(!covered || row[inner], "{} {} {}", scopes[at], scopes[middle], scopes[inner]);
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- noise

/// A path of few segments, spelled in one of many ways.
fn any_path() -> impl Strategy<Value = String> {
    let segment = proptest::sample::select(vec!["a", "b", "ab", ".", "", "..."]);
    proptest::collection::vec(segment, 0..5).prop_map(|segments| format!("/{}", segments.join("/")))
}

/// The segments that count.
fn plain(path: &str) -> Vec<&str> {
    path.split('/').filter(|segment| !["", "."].contains(segment)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn paths_are_covered_exactly_by_their_beginnings(outer in any_path(), inner in any_path()) {
        let expected = plain(&inner).starts_with(&plain(&outer));
        prop_assert_eq!(scope(&format!("filesystem:read:{outer}")).covers(&format!("filesystem:read:{inner}")), expected);
        let url = |path: &str| format!("network:https://h.org{path}");
        prop_assert_eq!(scope(&url(&outer)).covers(&url(&inner)), expected);
    }

    #[test]
    fn a_way_up_is_covered_by_no_place(before in any_path(), after in any_path(), up in "(\\.|%2[eE]){2}") {
        let file = format!("filesystem:read:{before}/{up}{after}");
        let url = format!("network:https://h.org{before}/{up}{after}");
        prop_assert!(!scope("filesystem:*").covers(&file) && !scope("network:*").covers(&url));
    }

    #[test]
    fn any_text_is_read_or_refused_and_covers_itself_if_read(
        text in "(filesystem:(read|write):/?|network:(https?://)?|[a-z]{1,4}:)?[a-z.*:/@%\\[\\]\\\\ 0-9é?#-]{0,24}",
    ) {
        if let Ok(scope) = text.parse::<PermissionScope>() {
            prop_assert!(scope.covers(&text) && scope.covers_scope(&scope));
            prop_assert_eq!(scope.as_str(), text.as_str());
        }
        for other in ["filesystem:*", "network:*", "filesystem:read:/a", "network:https://*.h.org", "tool:*"] {
            let covered = scope(other).covers(&text);
            prop_assert!(!covered || text.parse::<PermissionScope>().is_ok_and(|inner| scope(other).covers_scope(&inner)));
        }
    }
}
