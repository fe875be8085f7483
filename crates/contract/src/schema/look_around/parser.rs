//! From the text of a pattern to its parts: ECMA-262 as JSON Schema uses it, with look-around.
//!
//! What only matters for captures is read and forgotten: names of groups, laziness. Flags are no part of ECMA-262 patterns,
//! but authors who think of another language write `(?i)`; that one and `(?s)` are understood, because they can be.

use std::iter::Peekable;
use std::str::Chars;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, HirKind};

use super::{NESTING_MAX, PatternFault};

/// One part of a pattern.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Class(ClassUnicode),
    Concat(Vec<Self>),
    Either(Vec<Self>),
    Repeat {
        node: Box<Self>,
        min: u32,
        max: Option<u32>,
    },
    Look {
        ahead: bool,
        negated: bool,
        node: Box<Self>,
    },
    /// A look-around that has its automaton already.
    Table {
        table: usize,
        negated: bool,
    },
    Start,
    End,
    Word {
        negated: bool,
    },
}

/// Repetitions above this are no pattern anybody needs.
const REPEAT_MAX: u32 = 100_000;

pub(super) fn parse(pattern: &str) -> Result<Node, PatternFault> {
    let mut parser = Parser { rest: pattern.chars().peekable(), insensitive: false, dot_all: false, depth: 0 };
    let node = parser.alternatives()?;
    if parser.rest.next().is_some() {
        // A closing parenthesis that nothing opened.
        return Err(PatternFault::Syntax);
    }
    Ok(node)
}

struct Parser<'p> {
    rest: Peekable<Chars<'p>>,
    insensitive: bool,
    dot_all: bool,
    depth: usize,
}

impl Parser<'_> {
    fn eat(&mut self, wanted: char) -> bool {
        self.rest.next_if_eq(&wanted).is_some()
    }

    fn need(&mut self) -> Result<char, PatternFault> {
        self.rest.next().ok_or(PatternFault::Syntax)
    }

    fn alternatives(&mut self) -> Result<Node, PatternFault> {
        let mut branches = vec![self.sequence()?];
        while self.eat('|') {
            branches.push(self.sequence()?);
        }
        match (branches.pop(), branches.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                branches.extend(last);
                Ok(Node::Either(branches))
            }
        }
    }

    fn sequence(&mut self) -> Result<Node, PatternFault> {
        let mut parts = Vec::new();
        while let Some(&next) = self.rest.peek() {
            if matches!(next, '|' | ')') {
                break;
            }
            if let Some(part) = self.part()? {
                parts.push(self.repeated(part)?);
            }
        }
        Ok(Node::Concat(parts))
    }

    /// None for a group that only sets flags.
    fn part(&mut self) -> Result<Option<Node>, PatternFault> {
        let letter = self.need()?;
        Ok(Some(match letter {
            '^' => Node::Start,
            '$' => Node::End,
            '.' if self.dot_all => Node::Class(class(&[('\0', char::MAX)])),
            '.' => Node::Class(negated(class(&LINE_ENDS))),
            '(' => return self.group(),
            '[' => Node::Class(self.bracketed()?),
            '\\' => self.escaped()?,
            '*' | '+' | '?' => return Err(PatternFault::Syntax),
            other => Node::Class(self.folded(class(&[(other, other)]))?),
        }))
    }

    fn group(&mut self) -> Result<Option<Node>, PatternFault> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(PatternFault::TooLarge);
        }
        let outside = (self.insensitive, self.dot_all);
        let mut look = None;
        if self.eat('?') {
            match self.need()? {
                ':' => {}
                '=' => look = Some((true, false)),
                '!' => look = Some((true, true)),
                '<' if self.eat('=') => look = Some((false, false)),
                '<' if self.eat('!') => look = Some((false, true)),
                '<' => self.name()?,
                'P' if self.eat('<') => self.name()?,
                first => {
                    if self.flags(first)? {
                        self.depth -= 1;
                        return Ok(None);
                    }
                }
            }
        }
        let node = self.alternatives()?;
        if !self.eat(')') {
            return Err(PatternFault::Syntax);
        }
        (self.insensitive, self.dot_all) = outside;
        self.depth -= 1;
        Ok(Some(match look {
            Some((ahead, negated)) => Node::Look { ahead, negated, node: Box::new(node) },
            None => node,
        }))
    }

    /// Reads `i)`, `s-i:` and the like; whether the group ends with them, so that they hold from here on.
    fn flags(&mut self, first: char) -> Result<bool, PatternFault> {
        let (mut on, mut next) = (true, first);
        loop {
            match next {
                'i' => self.insensitive = on,
                's' => self.dot_all = on,
                '-' if on => on = false,
                ')' => return Ok(true),
                ':' => return Ok(false),
                _ => return Err(PatternFault::Syntax),
            }
            next = self.need()?;
        }
    }

    fn name(&mut self) -> Result<(), PatternFault> {
        loop {
            match self.need()? {
                '>' => return Ok(()),
                letter if letter.is_alphanumeric() || matches!(letter, '_' | '$') => {}
                _ => return Err(PatternFault::Syntax),
            }
        }
    }

    fn repeated(&mut self, node: Node) -> Result<Node, PatternFault> {
        let (min, max) = match self.rest.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => match self.counted() {
                Some(counts) => counts,
                // Not a count: the brace stands for itself and is the next part.
                None => return Ok(node),
            },
            _ => return Ok(node),
        };
        self.rest.next();
        self.eat('?');
        if matches!(self.rest.peek(), Some('*' | '+' | '?')) || max.is_some_and(|max| max < min) {
            return Err(PatternFault::Syntax);
        }
        if min > REPEAT_MAX || max.is_some_and(|max| max > REPEAT_MAX) {
            return Err(PatternFault::TooLarge);
        }
        Ok(Node::Repeat { node: Box::new(node), min, max })
    }

    /// `{2}`, `{2,}`, `{2,5}`; stands before the closing brace afterwards. Nothing is read if it is none of them.
    fn counted(&mut self) -> Option<(u32, Option<u32>)> {
        let mut ahead = self.rest.clone();
        ahead.next();
        let number = |ahead: &mut Peekable<Chars<'_>>| {
            let mut digits = String::new();
            while let Some(digit) = ahead.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            // What does not fit is larger than anything that is allowed.
            (!digits.is_empty()).then(|| digits.parse().unwrap_or(u32::MAX))
        };
        let min = number(&mut ahead)?;
        let max = if ahead.next_if_eq(&',').is_some() { number(&mut ahead) } else { Some(min) };
        if ahead.peek() != Some(&'}') {
            return None;
        }
        self.rest = ahead;
        Some((min, max))
    }

    fn escaped(&mut self) -> Result<Node, PatternFault> {
        match self.rest.peek() {
            Some('b' | 'B') => Ok(Node::Word { negated: self.need()? == 'B' }),
            Some('1'..='9') => Err(PatternFault::BackReference),
            Some('k') => Err(PatternFault::BackReference),
            _ => {
                let class = self.escape()?;
                Ok(Node::Class(self.folded(class)?))
            }
        }
    }

    /// What stands behind a backslash, as the characters it means.
    fn escape(&mut self) -> Result<ClassUnicode, PatternFault> {
        let one = |letter: char| class(&[(letter, letter)]);
        Ok(match self.need()? {
            'd' => class(&DIGITS),
            'D' => negated(class(&DIGITS)),
            'w' => class(&WORD),
            'W' => negated(class(&WORD)),
            's' => class(&SPACE),
            'S' => negated(class(&SPACE)),
            't' => one('\t'),
            'n' => one('\n'),
            'v' => one('\u{b}'),
            'f' => one('\u{c}'),
            'r' => one('\r'),
            '0' => one('\0'),
            'c' => match self.need()? {
                letter if letter.is_ascii_alphabetic() => {
                    one(char::from_u32(u32::from(letter) % 32).ok_or(PatternFault::Syntax)?)
                }
                _ => return Err(PatternFault::Syntax),
            },
            'x' => self.code(2)?.map_or_else(ClassUnicode::empty, one),
            'u' if self.eat('{') => {
                let mut digits = String::new();
                while let Some(digit) = self.rest.next_if(char::is_ascii_hexdigit) {
                    digits.push(digit);
                }
                let code = u32::from_str_radix(&digits, 16).map_err(|_| PatternFault::Syntax)?;
                if !self.eat('}') {
                    return Err(PatternFault::Syntax);
                }
                one(char::from_u32(code).ok_or(PatternFault::Syntax)?)
            }
            'u' => self.code(4)?.map_or_else(ClassUnicode::empty, one),
            kind @ ('p' | 'P') => self.property(kind)?,
            letter if letter.is_alphanumeric() => return Err(PatternFault::Syntax),
            letter => one(letter),
        })
    }

    /// So many hexadecimal digits. Half of a surrogate pair without its other half is no character of any text.
    fn code(&mut self, digits: usize) -> Result<Option<char>, PatternFault> {
        let unit = self.hexadecimal(digits)?;
        if !(0xd800..0xdc00).contains(&unit) {
            return Ok(char::from_u32(unit));
        }
        let mut ahead = self.rest.clone();
        if (ahead.next(), ahead.next()) != (Some('\\'), Some('u')) {
            return Ok(None);
        }
        let before = std::mem::replace(&mut self.rest, ahead);
        match self.hexadecimal(4) {
            Ok(low) if (0xdc00..0xe000).contains(&low) => {
                Ok(char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)))
            }
            _ => {
                self.rest = before;
                Ok(None)
            }
        }
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<u32, PatternFault> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.need()?.to_digit(16).ok_or(PatternFault::Syntax)?;
            code = code * 16 + digit;
        }
        Ok(code)
    }

    fn property(&mut self, kind: char) -> Result<ClassUnicode, PatternFault> {
        if !self.eat('{') {
            return Err(PatternFault::Syntax);
        }
        let mut name = String::new();
        loop {
            match self.need()? {
                '}' => break,
                letter if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '=') => name.push(letter),
                _ => return Err(PatternFault::Syntax),
            }
        }
        let hir = regex_syntax::parse(&format!(r"\{kind}{{{name}}}")).map_err(|_| PatternFault::Syntax)?;
        match hir.into_kind() {
            HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => Ok(class),
            _ => Err(PatternFault::Syntax),
        }
    }

    /// `[…]`, the opening bracket being read.
    fn bracketed(&mut self) -> Result<ClassUnicode, PatternFault> {
        let excluded = self.eat('^');
        let mut all = ClassUnicode::empty();
        loop {
            let first = match self.need()? {
                ']' => break,
                '\\' => self.class_escape()?,
                letter => class(&[(letter, letter)]),
            };
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && !matches!(ahead.next(), Some(']') | None);
            let (Some(from), true) = (single(&first), is_range) else {
                all.union(&first);
                continue;
            };
            self.rest.next();
            let last = match self.need()? {
                '\\' => self.class_escape()?,
                letter => class(&[(letter, letter)]),
            };
            match single(&last) {
                Some(to) if from <= to => all.union(&class(&[(from, to)])),
                Some(_) => return Err(PatternFault::Syntax),
                // `[a-\d]`: the dash stands for itself.
                None => [first, class(&[('-', '-')]), last].iter().for_each(|part| all.union(part)),
            }
        }
        let all = self.folded(all)?;
        Ok(if excluded { negated(all) } else { all })
    }

    fn class_escape(&mut self) -> Result<ClassUnicode, PatternFault> {
        if self.eat('b') { Ok(class(&[('\u{8}', '\u{8}')])) } else { self.escape() }
    }

    fn folded(&self, mut class: ClassUnicode) -> Result<ClassUnicode, PatternFault> {
        if self.insensitive {
            class.try_case_fold_simple().map_err(|_| PatternFault::Syntax)?;
        }
        Ok(class)
    }
}

const LINE_ENDS: [(char, char); 3] = [('\n', '\n'), ('\r', '\r'), ('\u{2028}', '\u{2029}')];
const DIGITS: [(char, char); 1] = [('0', '9')];
pub(super) const WORD: [(char, char); 4] = [('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];
const SPACE: [(char, char); 10] = [
    ('\t', '\r'),
    (' ', ' '),
    ('\u{a0}', '\u{a0}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{2000}', '\u{200a}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202f}', '\u{202f}'),
    ('\u{205f}', '\u{205f}'),
    ('\u{3000}', '\u{3000}'),
    ('\u{feff}', '\u{feff}'),
];

fn class(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(from, to)| ClassUnicodeRange::new(*from, *to)))
}

fn negated(mut class: ClassUnicode) -> ClassUnicode {
    class.negate();
    class
}

/// The only character of a class that has one.
fn single(class: &ClassUnicode) -> Option<char> {
    match class.ranges() {
        [only] if only.start() == only.end() => Some(only.start()),
        _ => None,
    }
}
