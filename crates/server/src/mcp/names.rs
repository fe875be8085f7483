//! The names under which tools are shown to models: `^[A-Za-z0-9_-]{1,64}$`, because that is what their interfaces accept.
//!
//! `namespace.tool` becomes `namespace__tool`. Where that would be too long, or could be read in two ways, it is cut and a
//! digest of the id follows after a `-`, which no id contains; such a name is looked up, never taken apart.
//!
//! Invariants
//! - NAME-1: a name is a function of the id alone, so it means the same tool to everybody and for ever.
//! - NAME-2: two ids have two names (as far as 48 bits of SHA-256 tell them apart within one cut name).

use contract::canonical::Digest;
use contract::hex::lower_hex;
use contract::ids::ToolId;

/// Longest name.
const NAME_BYTES_MAX: usize = 64;
/// Hexadecimal digits of the digest.
const DIGEST_CHARS: usize = 12;
/// Between namespace and tool.
const JOINT: &str = "__";
/// Before the digest.
const MARK: char = '-';

/// The name of a tool.
pub(crate) fn exported(id: &ToolId) -> String {
    let plain = match id.namespace() {
        Some(namespace) => format!("{namespace}{JOINT}{}", id.local()),
        None => id.local().to_owned(),
    };
    // A joint inside a part, or an underscore that melts into it, would be read as another id.
    let clear = !id.local().contains(JOINT)
        && id.namespace().is_none_or(|namespace| !namespace.contains(JOINT) && !namespace.ends_with('_'));
    if clear && plain.len() <= NAME_BYTES_MAX { plain } else { cut(&plain, id.as_str()) }
}

/// The name of a prompt of a server: by the same rule, and as it is where the server stands without a namespace.
pub(crate) fn prompt(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        return name.to_owned();
    }
    let plain = format!("{namespace}{JOINT}{name}");
    let clear = !name.contains(JOINT)
        && !name.starts_with('_')
        && !namespace.contains(JOINT)
        && !namespace.ends_with('_')
        && !name.is_empty()
        && name.bytes().all(is_plain)
        && !is_cut(name);
    if clear && plain.len() <= NAME_BYTES_MAX {
        return plain;
    }
    let fitting: String = plain.chars().map(|c| if u8::try_from(c).is_ok_and(is_plain) { c } else { '_' }).collect();
    cut(&fitting, &format!("{namespace}.{name}"))
}

/// Namespace and name of a prompt whose name was not cut.
pub(crate) fn plain_prompt(exported: &str) -> Option<(&str, &str)> {
    exported.split_once(JOINT).filter(|(namespace, name)| prompt(namespace, name) == exported)
}

fn cut(plain: &str, whole: &str) -> String {
    let digest = lower_hex(Digest::of_bytes(whole.as_bytes()).as_bytes());
    let digest = digest.get(..DIGEST_CHARS).unwrap_or(&digest);
    let head: String = plain.chars().take(NAME_BYTES_MAX - DIGEST_CHARS - 1).collect();
    format!("{head}{MARK}{digest}")
}

/// Does it look like a name that was cut?
pub(crate) fn is_cut(name: &str) -> bool {
    let end = name.rsplit_once(MARK).map(|(_, end)| end);
    end.is_some_and(|end| end.len() == DIGEST_CHARS && end.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The id that an uncut name stands for.
pub(crate) fn plain_id(name: &str) -> Option<ToolId> {
    let id =
        name.split_once(JOINT).map_or_else(|| name.to_owned(), |(namespace, local)| format!("{namespace}.{local}"));
    id.parse().ok().filter(|id| exported(id) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn prompts_are_named_like_tools_and_led_back() {
        for (namespace, name, exported) in [
            ("notes", "summary", "notes__summary"),
            ("notes", "Daily-Plan", "notes__Daily-Plan"),
            ("", "any thing", "any thing"),
        ] {
            assert_eq!(prompt(namespace, name), exported);
            if !namespace.is_empty() {
                assert_eq!(plain_prompt(exported), Some((namespace, name)));
            }
        }
        let long = "x".repeat(80);
        let mut seen = HashSet::new();
        for name in ["two words", "two_words", "a__b", "_b", "", "naïve", "x-0123456789ab", &long, &format!("{long}y")]
        {
            let exported = prompt("notes", name);
            assert!(exported.len() <= 64 && exported.bytes().all(is_plain), "{exported}");
            assert!(seen.insert(exported.clone()), "{exported}");
            assert_eq!(plain_prompt(&exported).is_some(), name == "two_words", "{exported}");
        }
    }

    #[test]
    fn names_fit_and_never_coincide() {
        let long = "a".repeat(60);
        let ids = [
            "echo".to_owned(),
            "demo.echo".to_owned(),
            "demo.echo_tool".to_owned(),
            "one__two.three".to_owned(),
            "one.two__three".to_owned(),
            "one__two__three".to_owned(),
            "one_.two".to_owned(),
            format!("{long}.{long}"),
            format!("{long}.{long}b"),
            format!("demo.{long}"),
        ];
        let mut seen = HashSet::new();
        for id in &ids {
            let name = exported(&id.parse().unwrap());
            let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            assert!((1..=64).contains(&name.len()) && name.bytes().all(fits), "{name}");
            assert!(seen.insert(name.clone()), "{name}");
        }
        assert_eq!(exported(&"demo.echo_tool".parse().unwrap()), "demo__echo_tool");
        assert_eq!(exported(&"echo".parse().unwrap()), "echo");
        for id in ["echo", "demo.echo_tool"] {
            let id: ToolId = id.parse().unwrap();
            assert_eq!(plain_id(&exported(&id)), Some(id));
        }
        for none in ["one__two__three", "a-0123456789ab", "", "A", "__"] {
            assert_eq!(plain_id(none), None, "{none}");
        }
        assert!(exported(&"one.two__three".parse().unwrap()).starts_with("one__two__three-"));
    }
}
