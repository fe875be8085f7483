//! The names under which tools are shown to models: `^[A-Za-z0-9_-]{1,64}$`, because that is what their interfaces accept.
//!
//! `namespace.tool` becomes `namespace__tool`. Where that would be too long, or could be read in two ways, it is cut and a
//! digest of the id follows after a `-`, which no id contains; such a name is looked up, never taken apart.
//!
//! Invariants
//! - NAME-1: a name is a function of the id alone, so it means the same tool to everybody and for ever.
//! - NAME-2: two ids have two names (as far as 48 bits of SHA-256 tell them apart within one cut name).

use contract::canonical::Digest;
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
    if clear && plain.len() <= NAME_BYTES_MAX {
        return plain;
    }
    let digest = Digest::of_bytes(id.as_str().as_bytes())
        .as_bytes()
        .iter()
        .take(DIGEST_CHARS / 2)
        .fold(String::with_capacity(DIGEST_CHARS), |text, byte| text + &format!("{byte:02x}"));
    let head: String = plain.chars().take(NAME_BYTES_MAX - DIGEST_CHARS - 1).collect();
    format!("{head}{MARK}{digest}")
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
