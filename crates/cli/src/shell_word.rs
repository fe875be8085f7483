//! A text as a shell takes it: commands that are shown are meant to be copied.

/// One word of a command line.
pub(crate) fn quoted(text: &str) -> String {
    if !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '@' | ':' | '=' | '…'))
    {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_the_shell() {
        for (path, expected) in
            [("/a/b.c", "/a/b.c"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("KEY=…", "KEY=…"), ("$(rm)", "'$(rm)'")]
        {
            assert_eq!(quoted(path), expected);
        }
    }
}
