//! The shell guard: text on a shell's line must stay a word, not become a command.
//!
//! Refused are the characters that end a command, join two, redirect or substitute, wherever they stand, because quoting
//! is exactly what an attack undoes first. Honest text pays for `AT&T` and `a > b`; an author whose field needs them
//! should hand the text over as an argument, where no guard is needed.
//!
//! Not here: `$NAME` (reading a variable runs nothing, and `A$AP` is a name), parentheses (`sqrt(16)`; a subshell can only
//! start where a command can), a leading `-` (a matter for `pattern`: whether it is an option depends on the program).

/// What older systems deleted from every text.
const DELETED: [char; 7] = ['|', '&', ';', '`', '$', '(', ')'];

pub(super) fn broken_by(text: &str) -> Option<&'static str> {
    let mut after_dollar = false;
    for c in text.chars() {
        let rule = match c {
            '\0' => Some("it has a NUL character"),
            '\n' | '\r' => Some("it has a line break, which ends a command"),
            ';' | '|' | '&' => Some("it has a control operator: `;`, `|` or `&`"),
            '`' => Some("it has a backtick, which substitutes a command"),
            '<' | '>' => Some("it has a redirection: `<` or `>`"),
            '(' | '{' | '[' if after_dollar => Some("it has a substitution: `$(`, `${` or `$[`"),
            _ => None,
        };
        if rule.is_some() {
            return rule;
        }
        after_dollar = c == '$';
    }
    None
}

/// The text without the seven characters.
pub(super) fn strip(text: &str) -> String {
    text.chars().filter(|c| !DELETED.contains(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::expectations::{names_the_rule, tells_apart};
    use super::*;

    const HOSTILE: [&str; 20] = [
        "; rm -rf /",
        "x; reboot",
        "a|b",
        "a || b",
        "a && b",
        "sleep 10 &",
        "`id`",
        "$(id)",
        "${IFS}cat",
        "$[1+1]",
        "a\nid",
        "a\r\nid",
        "x > /etc/passwd",
        "x>>y",
        "< /etc/shadow",
        "<(id)",
        "'; id; '",
        "\" | tee x; \"",
        "a\0b",
        "2>&1",
    ];

    const HONEST: [&str; 20] = [
        "",
        "report.txt",
        "O'Brien",
        "sqrt(16)",
        "$5.00",
        "US$ 20",
        "A$AP Rocky",
        "100 %",
        "a-b_c.d",
        "-5",
        "hello world",
        "say \"hi\"",
        "what?",
        "yes!",
        "C:\\temp",
        "a=b, c=d",
        "x {y} [z]",
        "~/notes",
        "größe",
        "日本語 * text",
    ];

    #[test]
    fn commands_are_refused_and_words_pass() {
        tells_apart(broken_by, &HOSTILE, &HONEST);
    }

    #[test]
    fn the_broken_rule_is_named() {
        names_the_rule(
            broken_by,
            &[("a;b", "control operator"), ("$(a)", "substitution"), ("a\nb", "line break"), ("a>b", "redirection")],
        );
    }

    #[test]
    fn stripping_deletes_the_seven_characters_and_nothing_else() {
        assert_eq!(strip("a|b&c;d`e$f(g)h>i\n"), "abcdefgh>i\n");
    }
}
