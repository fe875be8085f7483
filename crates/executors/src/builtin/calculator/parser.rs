//! From text to value in one pass: an operator-precedence parser that evaluates as it reads.
//!
//! No tree is built, because nothing needs one: an expression is evaluated once. What bounds the work is the text: at
//! most [`LENGTH_MAX`] characters, at most [`DEPTH_MAX`] levels, and every step constant (CALC-1), so the longest
//! hostile expression takes well under a millisecond and no clock has to be watched. (LOCAL-003)
//!
//! Grammar, loosest first: `+ -`, then `* / %`, then sign, then `^` (to the right), then numbers, constants,
//! `name(argument, …)` and parentheses. `-2^2` is −4 and `2^3^2` is 512, as in mathematics.
//!
//! Not here: multiplication without a sign (`2pi`). It is ambiguous after a division and refused with a hint.

use super::functions::{Arity, CONSTANTS, FUNCTIONS, Function};
use super::number::{Number, NumberError};
use contract::nearest::nearest;

/// Characters of an expression.
pub(super) const LENGTH_MAX: usize = 1000;
/// Levels of parentheses, signs and powers.
pub(super) const DEPTH_MAX: usize = 100;

/// Words that never belong into mathematics and are named as such (LOCAL-003).
const FORBIDDEN: &[&str] = &["import", "require", "eval", "function"];

/// Why an expression has no value, and where. Positions count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{}", place(*.at))]
pub(super) struct ExpressionError {
    pub(super) at: Option<usize>,
    pub(super) reason: Reason,
}

fn place(at: Option<usize>) -> String {
    at.map_or_else(String::new, |at| format!(" (at position {at})"))
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {LENGTH_MAX} characters")]
    TooLong,
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("the character `{0}` is not allowed{1}")]
    Character(char, &'static str),
    #[error("the word `{0}` is not allowed")]
    Forbidden(&'static str),
    #[error("unknown name `{name}`{}", did_you_mean(*.nearest))]
    UnknownName { name: String, nearest: Option<&'static str> },
    #[error("`{0}` is a function: write `{0}(…)`")]
    FunctionWithoutArguments(&'static str),
    #[error("`{0}` is a constant, not a function")]
    ConstantCalled(String),
    #[error("`{name}` takes {arity}, not {given}")]
    Arguments { name: &'static str, arity: Arity, given: usize },
    #[error("a number is missing before `{0}`")]
    OperandMissing(char),
    #[error("it ends where a number is missing")]
    EndsEarly,
    #[error("an operator is missing before `{0}`: write `*` to multiply")]
    OperatorMissing(char),
    #[error("a parenthesis is not closed")]
    Unclosed,
    #[error("a parenthesis is closed that was never opened")]
    Unopened,
    #[error("a comma separates arguments of a function; write numbers without thousands separators")]
    Comma,
    #[error("`{0}` is not a number")]
    Literal(String),
    #[error(transparent)]
    Value(#[from] NumberError),
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

/// The value of an expression.
pub(super) fn evaluate(expression: &str) -> Result<Number, ExpressionError> {
    check_characters(expression)?;
    let mut parser = Parser { text: expression, position: 0, depth: 0 };
    if parser.peek().is_none() {
        return Err(ExpressionError { at: None, reason: Reason::Empty });
    }
    let value = parser.expression(0)?;
    match parser.peek() {
        None => Ok(value),
        Some(b')') => Err(parser.fault(Reason::Unopened)),
        Some(b',') => Err(parser.fault(Reason::Comma)),
        Some(other) => Err(parser.fault(Reason::OperatorMissing(char::from(other)))),
    }
}

/// The whitelist. After it the text is ASCII, so that bytes are characters.
fn check_characters(expression: &str) -> Result<(), ExpressionError> {
    let mut count = 0;
    for (index, character) in expression.chars().enumerate() {
        count = index + 1;
        if count > LENGTH_MAX {
            return Err(ExpressionError { at: None, reason: Reason::TooLong });
        }
        let allowed = character.is_ascii_alphanumeric()
            || character.is_ascii_whitespace()
            || matches!(character, '+' | '-' | '*' | '/' | '(' | ')' | '.' | '^' | '%' | ',');
        if !allowed {
            let shown = if character.is_control() { '\u{fffd}' } else { character };
            let reason = Reason::Character(shown, instead_of(character));
            return Err(ExpressionError { at: Some(count), reason });
        }
    }
    debug_assert!(count <= LENGTH_MAX);
    Ok(())
}

/// What people mean by characters that are not in the whitelist.
fn instead_of(character: char) -> &'static str {
    match character {
        '×' | '·' | '∙' => ", write `*`",
        '÷' | ':' => ", write `/`",
        '−' | '–' | '—' => ", write `-`",
        '√' => ", write `sqrt(…)`",
        'π' => ", write `pi`",
        '!' => ", write `factorial(…)`",
        '²' | '³' => ", write `^2` or `^3`",
        '[' | '{' | ']' | '}' => ", write round parentheses",
        '=' => ", give one expression, not an equation",
        '_' | '\'' => ", write numbers without separators",
        '$' | '€' | '£' => ", leave currencies out",
        '&' | '|' | '<' | '>' => ", only arithmetic is supported",
        _ => "",
    }
}

#[derive(Debug)]
struct Parser<'t> {
    text: &'t str,
    position: usize,
    depth: usize,
}

type Step = Result<Number, ExpressionError>;

/// How tightly an operator holds its left and right side.
fn binding(operator: u8) -> Option<(u8, u8)> {
    match operator {
        b'+' | b'-' => Some((1, 2)),
        b'*' | b'/' | b'%' => Some((3, 4)),
        b'^' => Some((8, 7)),
        _ => None,
    }
}

/// A sign holds its operand tighter than `*` and looser than `^`.
const SIGN_BINDING: u8 = 5;

impl<'t> Parser<'t> {
    fn fault(&self, reason: Reason) -> ExpressionError {
        self.fault_at(self.position, reason)
    }

    fn fault_at(&self, position: usize, reason: Reason) -> ExpressionError {
        debug_assert!(position <= self.text.len());
        ExpressionError { at: Some(position + 1), reason }
    }

    /// The next byte that is not white space, without taking it.
    fn peek(&mut self) -> Option<u8> {
        while self.byte().is_some_and(|b| b.is_ascii_whitespace()) {
            self.position += 1;
        }
        self.byte()
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    /// Takes bytes while they fit and gives them back.
    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'t str {
        let start = self.position;
        while self.byte().is_some_and(&fits) {
            self.position += 1;
        }
        self.text.get(start..self.position).unwrap_or_default()
    }

    fn expression(&mut self, least: u8) -> Step {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.fault(Reason::TooDeep));
        }
        let mut left = self.operand()?;
        while let Some(operator) = self.peek()
            && let Some((holds_left, holds_right)) = binding(operator)
            && holds_left >= least
        {
            let at = self.position;
            self.position += 1;
            let right = self.expression(holds_right)?;
            let result = match operator {
                b'+' => left.add(right),
                b'-' => left.sub(right),
                b'*' => left.mul(right),
                b'/' => left.div(right),
                b'%' => left.modulo(right),
                _ => left.pow(right),
            };
            left = result.map_err(|error| self.fault_at(at, error.into()))?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operand(&mut self) -> Step {
        match self.peek() {
            None => Err(self.fault(Reason::EndsEarly)),
            Some(b'+') => {
                self.position += 1;
                self.expression(SIGN_BINDING)
            }
            Some(b'-') => {
                let at = self.position;
                self.position += 1;
                let value = self.expression(SIGN_BINDING)?;
                value.negated().map_err(|error| self.fault_at(at, error.into()))
            }
            Some(b'(') => {
                self.position += 1;
                let value = self.expression(0)?;
                self.close()?;
                Ok(value)
            }
            Some(b'0'..=b'9' | b'.') => self.literal(),
            Some(letter) if letter.is_ascii_alphabetic() => self.name(),
            Some(other) => Err(self.fault(Reason::OperandMissing(char::from(other)))),
        }
    }

    fn close(&mut self) -> Result<(), ExpressionError> {
        match self.peek() {
            Some(b')') => {
                self.position += 1;
                Ok(())
            }
            None => Err(self.fault(Reason::Unclosed)),
            Some(b',') => Err(self.fault(Reason::Comma)),
            Some(other) => Err(self.fault(Reason::OperatorMissing(char::from(other)))),
        }
    }

    fn literal(&mut self) -> Step {
        let start = self.position;
        self.take_while(|b| b.is_ascii_digit() || b == b'.');
        // `2e3` is a number, `2e` is two and a letter: the exponent is taken only if a digit follows.
        if matches!(self.byte(), Some(b'e' | b'E')) {
            let mark = self.position;
            self.position += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            if self.take_while(|b| b.is_ascii_digit()).is_empty() {
                self.position = mark;
            }
        }
        let text = self.text.get(start..self.position).unwrap_or_default();
        let points = text.bytes().filter(|b| *b == b'.').count();
        if points > 1 || !text.bytes().any(|b| b.is_ascii_digit()) || text.starts_with(".e") {
            return Err(self.fault_at(start, Reason::Literal(text.to_owned())));
        }
        Number::literal(text).map_err(|error| self.fault_at(start, error.into()))
    }

    fn name(&mut self) -> Step {
        let start = self.position;
        let written = self.take_while(|b| b.is_ascii_alphanumeric());
        let lowered;
        let name = if written.bytes().any(|b| b.is_ascii_uppercase()) {
            lowered = written.to_ascii_lowercase();
            lowered.as_str()
        } else {
            written
        };
        let called = self.peek() == Some(b'(');
        if let Some((_, value)) = CONSTANTS.iter().find(|(constant, _)| *constant == name) {
            if called {
                return Err(self.fault_at(start, Reason::ConstantCalled(name.to_owned())));
            }
            return Ok(Number::Float(*value));
        }
        let Some(function) = Function::find(name) else {
            return Err(self.fault_at(start, unknown(written, name)));
        };
        if !called {
            return Err(self.fault_at(start, Reason::FunctionWithoutArguments(function.name)));
        }
        self.position += 1;
        let arguments = self.arguments()?;
        if !function.arity.takes(arguments.len()) {
            let reason = Reason::Arguments { name: function.name, arity: function.arity, given: arguments.len() };
            return Err(self.fault_at(start, reason));
        }
        function.run(&arguments).map_err(|error| self.fault_at(start, error.into()))
    }

    /// The arguments up to and with the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<Number>, ExpressionError> {
        let mut arguments = Vec::with_capacity(2);
        if self.peek() == Some(b')') {
            self.position += 1;
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression(0)?);
            if self.peek() != Some(b',') {
                self.close()?;
                return Ok(arguments);
            }
            self.position += 1;
        }
    }
}

/// A name that is not in the whitelist: named as forbidden, or with the nearest that is.
fn unknown(written: &str, lowered: &str) -> Reason {
    if let Some(word) = FORBIDDEN.iter().find(|word| lowered.contains(**word)) {
        return Reason::Forbidden(word);
    }
    let known = FUNCTIONS.iter().map(|f| f.name).chain(CONSTANTS.iter().map(|(name, _)| *name));
    let shown: String = written.chars().take(40).collect();
    Reason::UnknownName { nearest: nearest(lowered, known), name: shown }
}
