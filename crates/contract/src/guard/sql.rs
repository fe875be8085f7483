//! The sql guard: text in a statement must stay a literal.
//!
//! It assumes the worst about the tool, that the text is pasted between quotes, and the best about people, that they
//! write names, apostrophes and semicolons. So no word and no character is refused by itself: `select a seat`, `O'Brien`
//! and `drop me a line; thanks` pass. Refused is what makes a statement out of it:
//!
//! - a statement after a quote or a semicolon, recognised by its second word (`DROP TABLE`, `DELETE FROM`, `SELECT … FROM`);
//! - `UNION SELECT`, and a sub-select or a call of a known tool of attackers after a quote;
//! - a condition that is always true or that compares after a quote (`' OR 1=1`, `' or ''='`);
//! - comments, where they cut something off: `/*`; `--` after a quote or semicolon or at the very end; `#` likewise.
//!
//! An apostrophe between two letters is spelling, not a way out, as far as comments go (`it's late -- really` passes). What
//! is refused with good reason although it may be honest: `first sit; select a seat from the list` is a valid second
//! statement, `'yes' -- he said` a valid comment, and a text that ends in `--` would cut off what follows it.
//!
//! Tokens are read on the fly and looked ahead by a bounded number, so the work is linear and no list is kept.
//!
//! Not here: escapes of other layers (`%27`): values arrive decoded. A number field needs `type: integer`, not a guard.

mod tokens;

use tokens::{Token, Tokens};

/// Words that join conditions.
const CONNECTIVES: [&str; 3] = ["or", "and", "xor"];

/// How many brackets, quotes and semicolons may stand between a way out and the statement that uses it.
const SKIP_MAX: usize = 8;

pub(super) fn broken_by(text: &str) -> Option<&'static str> {
    if text.contains('\0') {
        return Some("it has a NUL character");
    }
    let mut seen = Seen::default();
    let last = last_clauses(text);
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next() {
        let rule = match token {
            Token::Quote { spelling } => {
                // `x'or` is only spelt like `d'Or`: with a connective it is a way out as well.
                if !spelling || matches!(tokens.peek(), Some(Token::Word(word)) if contains(&CONNECTIVES, word)) {
                    seen.way_out = true;
                    seen.outside = !seen.outside;
                }
                after_way_out(tokens, text, &last)
                    .or_else(|| always_true_after_quote(tokens))
                    .or_else(|| compares_literals(tokens))
            }
            Token::Symbol(';') => {
                seen.way_out = true;
                after_way_out(tokens, text, &last)
            }
            Token::BlockComment => Some("it has a block comment"),
            Token::LineComment if seen.way_out || tokens.is_at_end() => Some("it has a comment that cuts off the rest"),
            Token::Symbol('#') if seen.way_out && (seen.quote_before || tokens.is_at_end()) => {
                Some("it has a comment that cuts off the rest")
            }
            Token::Word(word) => word_rule(word, tokens, &seen, text, &last),
            Token::Operator("||" | "&&") => condition(tokens, &seen),
            Token::LineComment | Token::Number(_) | Token::Operator(_) | Token::Symbol(_) => None,
        };
        if rule.is_some() {
            return rule;
        }
        seen.quote_before = matches!(token, Token::Quote { .. });
        seen.bracket_before = token == Token::Symbol('(');
    }
    None
}

/// Deletes comment markers, and semicolons that are not the last thing.
pub(super) fn strip(text: &str) -> String {
    let end = text.trim_end().len();
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if c == ';' && at + 1 < end {
            continue;
        }
        out.push(c);
        // Checked after every character, so that a deletion cannot join a new marker unseen.
        if ["--", "/*", "*/"].iter().any(|marker| out.ends_with(marker)) {
            out.truncate(out.len() - 2);
        }
    }
    out
}

// ------------------------------------------------------------------------------------------------------------ rules

/// What stood before the token that is looked at.
#[derive(Debug, Default)]
struct Seen {
    /// A quote that is not spelling, or a semicolon: what follows may be outside the literal.
    way_out: bool,
    /// After an odd number of such quotes: outside, if the text is pasted between quotes.
    outside: bool,
    quote_before: bool,
    bracket_before: bool,
}

/// Where the last `FROM` and the last `SET` are, so that "is there one further on" costs nothing.
#[derive(Debug, Default)]
struct LastClauses {
    from: usize,
    set: usize,
}

fn last_clauses(text: &str) -> LastClauses {
    let mut last = LastClauses::default();
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next() {
        if let Token::Word(word) = token {
            if word.eq_ignore_ascii_case("from") {
                last.from = tokens.offset(text);
            } else if word.eq_ignore_ascii_case("set") {
                last.set = tokens.offset(text);
            }
        }
    }
    last
}

/// A statement that starts behind a quote or semicolon.
fn after_way_out(mut tokens: Tokens<'_>, text: &str, last: &LastClauses) -> Option<&'static str> {
    for _ in 0..SKIP_MAX {
        match tokens.next()? {
            Token::Quote { .. } | Token::Symbol(';' | ')' | '(') => {}
            Token::Word(word) if is_statement(word, tokens, text, last) => {
                return Some("it has a statement after a quote or semicolon");
            }
            _ => return None,
        }
    }
    None
}

/// Is this word, with what follows it, the beginning of a statement rather than of a sentence?
fn is_statement(word: &str, mut tokens: Tokens<'_>, text: &str, last: &LastClauses) -> bool {
    const OBJECTS: [&str; 22] = [
        "table",
        "database",
        "schema",
        "view",
        "index",
        "user",
        "role",
        "function",
        "procedure",
        "proc",
        "trigger",
        "sequence",
        "login",
        "type",
        "extension",
        "tablespace",
        "temp",
        "temporary",
        "unique",
        "or",
        "materialized",
        "domain",
    ];
    let here = tokens.offset(text);
    let second = tokens.next();
    let second_is = |words: &[&str]| matches!(second, Some(Token::Word(w)) if contains(words, w));
    let named_second = matches!(second, Some(Token::Word(_) | Token::Quote { .. } | Token::Symbol('[')));
    match word.to_ascii_lowercase().as_str() {
        "drop" | "alter" | "create" => second_is(&OBJECTS),
        "delete" => second_is(&["from"]) || (named_second && last.from > here),
        "insert" | "replace" | "merge" => second_is(&["into"]),
        "update" => named_second && last.set > here,
        "select" => {
            let expression =
                matches!(second, Some(Token::Number(_) | Token::Symbol('*' | '(' | '@' | '[') | Token::Quote { .. }));
            expression || last.from > here || (named_second && tokens.next() == Some(Token::Symbol('(')))
        }
        "grant" | "revoke" => second_is(&["all", "select", "insert", "update", "delete", "execute", "role", "usage"]),
        "waitfor" | "pragma" | "xp_cmdshell" => true,
        "shutdown" => ends_statement(second) || second_is(&["with"]),
        "truncate" => second_is(&["table"]) || (named_second && ends_statement(tokens.next())),
        "exec" => named_second && (is_procedure(second) || ends_statement(tokens.next())),
        "execute" => second_is(&["immediate", "xp_cmdshell", "sp_executesql"]),
        "call" => named_second && tokens.next() == Some(Token::Symbol('(')),
        "attach" | "detach" => second_is(&["database"]),
        "declare" => second == Some(Token::Symbol('@')),
        "load" => second_is(&["data", "file", "xml"]),
        "copy" => named_second && matches!(tokens.next(), Some(Token::Word(w)) if contains(&["from", "to"], w)),
        _ => false,
    }
}

/// Nothing, or a sign that no sentence has after its second word.
fn ends_statement(token: Option<Token<'_>>) -> bool {
    matches!(
        token,
        None | Some(
            Token::LineComment | Token::BlockComment | Token::Quote { .. } | Token::Symbol(';' | '(' | '@' | '.' | '#')
        )
    )
}

fn is_procedure(token: Option<Token<'_>>) -> bool {
    let prefixed = |word: &str| word.get(..3).is_some_and(|start| contains(&["sp_", "xp_"], start));
    matches!(token, Some(Token::Word(word)) if prefixed(word))
}

fn word_rule(word: &str, mut tokens: Tokens<'_>, seen: &Seen, text: &str, last: &LastClauses) -> Option<&'static str> {
    const WEAPONS: [&str; 9] = [
        "sleep",
        "pg_sleep",
        "benchmark",
        "load_file",
        "extractvalue",
        "updatexml",
        "xp_cmdshell",
        "randomblob",
        "char",
    ];
    if contains(&["or", "and", "xor", "having", "where"], word) {
        return condition(tokens, seen);
    }
    if word.eq_ignore_ascii_case("union") {
        return unites(tokens).then_some("it has UNION SELECT");
    }
    if word.eq_ignore_ascii_case("into") {
        let writes = matches!(tokens.next(), Some(Token::Word(w)) if contains(&["outfile", "dumpfile"], w));
        return writes.then_some("it writes a file");
    }
    if seen.way_out && contains(&WEAPONS, word) && tokens.next() == Some(Token::Symbol('(')) {
        return Some("it calls a function after a quote");
    }
    let sub_select = seen.way_out && seen.bracket_before && word.eq_ignore_ascii_case("select");
    (sub_select && is_statement(word, tokens, text, last)).then_some("it has a sub-select after a quote")
}

fn unites(mut tokens: Tokens<'_>) -> bool {
    for _ in 0..SKIP_MAX {
        match tokens.next() {
            Some(Token::Word(word)) if contains(&["all", "distinct"], word) => {}
            Some(Token::Symbol('(')) => {}
            Some(Token::Word(word)) => return word.eq_ignore_ascii_case("select"),
            _ => return false,
        }
    }
    false
}

/// A comparison behind `OR`, `AND` and their like: of literals, of a thing with itself, or any after a way out.
fn condition(mut tokens: Tokens<'_>, seen: &Seen) -> Option<&'static str> {
    let left = operand(&mut tokens);
    let broken = match tokens.next()? {
        Token::Operator(operator) if is_comparison(operator) => {
            let right = operand(&mut tokens);
            let same = match (left.value, right.value) {
                (Some(Token::Number(_)), Some(Token::Number(_))) => true,
                (Some(Token::Word(left)), Some(Token::Word(right))) => left.eq_ignore_ascii_case(right),
                _ => false,
            };
            same || left.quoted || right.quoted || seen.way_out
        }
        // These are English too: literals make them comparisons.
        Token::Word(word) if contains(&["like", "rlike", "regexp", "glob", "between"], word) => {
            left.is_literal() && seen.way_out || seen.outside && operand(&mut tokens).is_literal()
        }
        Token::Word(word) if word.eq_ignore_ascii_case("in") => {
            seen.way_out && tokens.next() == Some(Token::Symbol('('))
        }
        Token::Word(word) if word.eq_ignore_ascii_case("is") => seen.way_out && ends_in_null(tokens),
        _ => false,
    };
    broken.then_some(CONDITION)
}

const CONDITION: &str = "it has a condition in place of a value";

fn is_comparison(operator: &str) -> bool {
    !matches!(operator, "||" | "&&")
}

/// `'='` and its like, however long the literals on both sides are.
fn compares_literals(mut tokens: Tokens<'_>) -> Option<&'static str> {
    let compares = matches!(tokens.next(), Some(Token::Operator(operator)) if is_comparison(operator));
    (compares && matches!(tokens.next(), Some(Token::Quote { .. }))).then_some(CONDITION)
}

fn ends_in_null(mut tokens: Tokens<'_>) -> bool {
    (0..2).any(|_| matches!(tokens.next(), Some(Token::Word(word)) if word.eq_ignore_ascii_case("null")))
}

/// `' OR 1`, `' or true or '`: always true without any comparison.
fn always_true_after_quote(mut tokens: Tokens<'_>) -> Option<&'static str> {
    for _ in 0..SKIP_MAX {
        if tokens.peek() != Some(Token::Symbol(')')) {
            break;
        }
        tokens.next();
    }
    match tokens.next()? {
        Token::Word(word) if contains(&CONNECTIVES, word) => {}
        Token::Operator("||" | "&&") => {}
        _ => return None,
    }
    let fact = operand(&mut tokens);
    let constant = match fact.value {
        Some(Token::Number(_)) => true,
        Some(Token::Word(word)) => contains(&["true", "false"], word),
        _ => false,
    };
    let ends = match tokens.next() {
        None
        | Some(Token::LineComment | Token::BlockComment | Token::Symbol(';' | '#' | ')') | Token::Quote { .. }) => true,
        Some(Token::Word(word)) => contains(&CONNECTIVES, word),
        Some(Token::Number(_) | Token::Operator(_) | Token::Symbol(_)) => false,
    };
    (constant && ends).then_some(CONDITION)
}

/// One side of a comparison, with or without quotes, brackets, calls and arithmetic.
#[derive(Debug, Default)]
struct Operand<'t> {
    quoted: bool,
    /// Its first word or number.
    value: Option<Token<'t>>,
}

impl Operand<'_> {
    fn is_literal(&self) -> bool {
        self.quoted || matches!(self.value, Some(Token::Number(_)))
    }
}

/// Reads an operand; two words that nothing joins are the end of one, so a sentence is soon left.
fn operand<'t>(tokens: &mut Tokens<'t>) -> Operand<'t> {
    const TOKENS_MAX: usize = 16;
    let mut operand = Operand::default();
    let mut in_quotes = false;
    let mut joined = true;
    for _ in 0..TOKENS_MAX {
        match tokens.peek() {
            Some(Token::Quote { .. }) => {
                operand.quoted = true;
                in_quotes = !in_quotes;
                joined = in_quotes;
            }
            Some(Token::Word(word)) if operand.value.is_none() && word.eq_ignore_ascii_case("not") => {}
            Some(token @ (Token::Word(_) | Token::Number(_))) if joined || in_quotes => {
                operand.value = operand.value.or(Some(token));
                joined = false;
            }
            Some(Token::Symbol(sign)) if in_quotes || "()@-+~!.*/%^[],".contains(sign) => joined = true,
            _ => break,
        }
        tokens.next();
    }
    operand
}

fn contains(words: &[&str], word: &str) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
