//! The words, numbers, quotes and signs of a text that may be SQL, one at a time.
//!
//! Quotes are tokens of their own and never enclose anything: whether a text starts inside or outside a literal is not
//! known, so `' OR '` must not disappear into a string.
//!
//! Not here: what a sequence of tokens means (`sql`).

use std::str::Chars;

/// One piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Word(&'t str),
    Number(&'t str),
    /// One of `'`, `"` and the backtick; spelling if it is an apostrophe between two letters.
    Quote {
        spelling: bool,
    },
    /// `--`
    LineComment,
    /// `/*` or `*/`
    BlockComment,
    /// A comparison or a doubled sign.
    Operator(&'static str),
    Symbol(char),
}

/// A place in the text; copying it is looking ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens<'t> {
    rest: &'t str,
    before: Option<char>,
}

/// Longest first.
const OPERATORS: [&str; 11] = ["<=>", "<>", "!=", "<=", ">=", "==", "||", "&&", "=", "<", ">"];

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { rest: text, before: None }
    }

    /// Bytes of `text`, which must be the one this started with, that have been read.
    pub(super) fn offset(&self, text: &str) -> usize {
        text.len() - self.rest.len()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.trim_start().is_empty()
    }

    pub(super) fn peek(mut self) -> Option<Token<'t>> {
        self.next()
    }

    pub(super) fn next(&mut self) -> Option<Token<'t>> {
        let trimmed = self.rest.trim_start();
        if trimmed.len() < self.rest.len() {
            self.before = Some(' ');
            self.rest = trimmed;
        }
        let first = trimmed.chars().next()?;
        let token = match first {
            '\'' | '"' | '`' => {
                let after = trimmed.chars().nth(1);
                let letters = self.before.is_some_and(char::is_alphabetic) && after.is_some_and(char::is_alphabetic);
                self.skip(1);
                Token::Quote { spelling: first == '\'' && letters }
            }
            '-' if trimmed.starts_with("--") => {
                self.skip(2);
                Token::LineComment
            }
            '/' if trimmed.starts_with("/*") => {
                self.skip(2);
                Token::BlockComment
            }
            '*' if trimmed.starts_with("*/") => {
                self.skip(2);
                Token::BlockComment
            }
            c if c.is_ascii_digit() => Token::Number(self.take(|c| c.is_alphanumeric() || c == '.')),
            c if is_letter(c) => Token::Word(self.take(|c| is_letter(c) || c.is_numeric() || c == '$')),
            _ => self.sign(first),
        };
        Some(token)
    }

    fn sign(&mut self, first: char) -> Token<'t> {
        match OPERATORS.iter().find(|operator| self.rest.starts_with(**operator)) {
            Some(operator) => {
                self.skip(operator.len());
                Token::Operator(operator)
            }
            None => {
                self.skip(1);
                Token::Symbol(first)
            }
        }
    }

    fn skip(&mut self, count: usize) {
        let mut chars: Chars<'t> = self.rest.chars();
        for _ in 0..count {
            self.before = chars.next().or(self.before);
        }
        self.rest = chars.as_str();
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let length = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.before = taken.chars().next_back();
        self.rest = rest;
        taken
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '\u{2019}'
}
