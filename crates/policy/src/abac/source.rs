//! The text of policies cut into statements, each with its place, before Cedar sees it.
//!
//! Each policy is parsed alone, so that one broken policy does not hide the others, every problem can name its policy, and
//! a statement that is too long is never handed to a recursive parser.

use super::depth::{Nesting, NestingError};

/// A place in a text, counted from 1 in lines and characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    pub line: usize,
    pub column: usize,
}

/// One policy's text: from its first token up to and including its `;`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Statement<'a> {
    /// In bytes from the start of the whole text.
    pub(super) offset: usize,
    pub(super) text: &'a str,
    /// Is it shallow enough to be parsed?
    pub(super) nesting: Result<(), NestingError>,
}

/// Where in `text` the byte `offset` stands.
pub(super) fn position(text: &str, offset: usize) -> SourcePosition {
    let before = text.char_indices().take_while(|(at, _)| *at < offset).map(|(_, c)| c);
    before.fold(SourcePosition { line: 1, column: 1 }, |at, c| match c {
        '\n' => SourcePosition { line: at.line + 1, column: 1 },
        _ => SourcePosition { column: at.column + 1, ..at },
    })
}

/// The statements of `text`. What follows the last `;` is one too, unless it is only space and comments.
pub(super) fn statements(text: &str) -> Vec<Statement<'_>> {
    let mut found = Vec::new();
    let mut open: Option<Open> = None;
    let mut state = State::Code;
    let mut previous = '\0';
    for (at, c) in text.char_indices() {
        let next = state.after(previous, c);
        match (state, next) {
            (State::Code, State::Comment) => {
                // A statement does not begin with the first slash of a comment.
                open = open.filter(|open| open.from + 1 != at);
            }
            (State::Code, _) => {
                if open.is_none() && !c.is_whitespace() {
                    open = Some(Open { from: at, nesting: Nesting::default(), checked: Ok(()) });
                }
                if let Some(open) = &mut open {
                    open.checked = open.checked.and_then(|()| open.nesting.take(c));
                }
                if c == ';' {
                    found.extend(open.take().and_then(|open| open.close(text, at + 1)));
                }
            }
            (State::Comment | State::Text | State::Escape, _) => {}
        }
        // The slash that ended a comment's opening must not open another one.
        previous = if state == State::Code && next == State::Code { c } else { '\0' };
        state = next;
    }
    found.extend(open.and_then(|open| open.close(text, text.trim_end().len())));
    found
}

/// A statement whose end has not come yet.
struct Open {
    from: usize,
    nesting: Nesting,
    checked: Result<(), NestingError>,
}

impl Open {
    fn close(self, whole: &str, to: usize) -> Option<Statement<'_>> {
        whole.get(self.from..to).map(|text| Statement { offset: self.from, text, nesting: self.checked })
    }
}

/// What a character stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    Comment,
    Text,
    Escape,
}

impl State {
    fn after(self, previous: char, c: char) -> Self {
        match (self, c) {
            (Self::Code, '"') | (Self::Escape, _) => Self::Text,
            (Self::Code, '/') if previous == '/' => Self::Comment,
            (Self::Comment, '\n' | '\r') | (Self::Text, '"') => Self::Code,
            (Self::Text, '\\') => Self::Escape,
            (same, _) => same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_strings_and_comments_end_nothing() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            (" // only; a comment", &[]),
            ("a;b;", &["a;", "b;"]),
            ("a // x; y\n b;\nc", &["a // x; y\n b;", "c"]),
            (r#"a ";\";" ; b;"#, &[r#"a ";\";" ;"#, "b;"]),
            ("// one\n// two\na;", &["a;"]),
            ("a;// tail", &["a;"]),
            ("a / b;\"//\";", &["a / b;", "\"//\";"]),
        ];
        for (text, expected) in cases {
            let got: Vec<_> = statements(text).iter().map(|s| s.text).collect();
            assert_eq!(got, expected, "{text:?}");
            for statement in statements(text) {
                assert!(text.get(statement.offset..).unwrap().starts_with(statement.text));
            }
        }
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        for (offset, line, column) in [(0, 1, 1), (2, 1, 2), (3, 2, 1), (99, 2, 2)] {
            assert_eq!(position("ä\nb", offset), SourcePosition { line, column }, "{offset}");
        }
    }
}
