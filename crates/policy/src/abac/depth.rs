//! How deep a policy's expression can be, told from its text before anything recursive sees it.
//!
//! Cedar parses, checks and evaluates by recursion without a limit of its own on the first two, so a few hundred brackets
//! would end the process. Counted are an upper bound's parts: brackets within brackets, steps of one access chain, and
//! operators that lean on each other.

/// Most brackets within brackets.
pub(super) const BRACKETS_MAX: usize = 32;
/// Most steps in one chain of accesses, such as `context.arguments.text.getTag("to")`.
pub(super) const STEPS_MAX: usize = 16;
/// Most `&&`, `||`, `+`, `-`, `*`, `!`, `if`, `when` and `unless` in one policy.
pub(super) const OPERATORS_MAX: usize = 128;

/// What is too deep about a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NestingError {
    #[error("brackets are nested more than {BRACKETS_MAX} deep")]
    Brackets,
    #[error("an access has more than {STEPS_MAX} steps")]
    Steps,
    #[error("there are more than {OPERATORS_MAX} operators: split the policy")]
    Operators,
}

/// Counts over the code of one policy, character by character; strings and comments are left out by the caller.
#[derive(Debug)]
pub(super) struct Nesting {
    /// The steps of the chain at hand, for each open bracket and outside of them.
    chains: Vec<usize>,
    operators: usize,
    word: String,
}

impl Default for Nesting {
    fn default() -> Self {
        Self { chains: vec![0], operators: 0, word: String::new() }
    }
}

impl Nesting {
    /// Takes the next character of code.
    pub(super) fn take(&mut self, c: char) -> Result<(), NestingError> {
        if c.is_alphanumeric() || c == '_' {
            // Longer words are no keywords.
            if self.word.len() < 8 {
                self.word.push(c);
            }
            return Ok(());
        }
        if matches!(std::mem::take(&mut self.word).as_str(), "if" | "when" | "unless") {
            self.operators += 2;
        }
        match c {
            '(' | '{' => self.chains.push(0),
            '[' => {
                self.step();
                self.chains.push(0);
            }
            ')' | '}' | ']' if self.chains.len() > 1 => {
                self.chains.pop();
            }
            '.' => self.step(),
            // Both characters of `&&` and `||` come by, hence the halves.
            '&' | '|' => self.operate(1),
            '+' | '-' | '*' | '!' => self.operate(2),
            ',' | '=' | '<' | '>' | ':' => self.end_chain(),
            _ => {}
        }
        if self.chains.len() > BRACKETS_MAX + 1 {
            Err(NestingError::Brackets)
        } else if self.chains.last().is_some_and(|steps| *steps > STEPS_MAX) {
            Err(NestingError::Steps)
        } else if self.operators > 2 * OPERATORS_MAX {
            Err(NestingError::Operators)
        } else {
            Ok(())
        }
    }

    fn step(&mut self) {
        if let Some(steps) = self.chains.last_mut() {
            *steps += 1;
        }
    }

    fn operate(&mut self, halves: usize) {
        self.operators += halves;
        self.end_chain();
    }

    fn end_chain(&mut self) {
        if let Some(steps) = self.chains.last_mut() {
            *steps = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), NestingError> {
        let mut nesting = Nesting::default();
        text.chars().try_for_each(|c| nesting.take(c))
    }

    #[test]
    fn each_way_to_nest_is_counted() {
        let (b, s, o) = (BRACKETS_MAX, STEPS_MAX, OPERATORS_MAX);
        for (text, expected) in [
            ("(".repeat(b) + &")".repeat(b), Ok(())),
            ("()".repeat(1000), Ok(())),
            ("({[".repeat(b), Err(NestingError::Brackets)),
            ("x".to_owned() + &".a".repeat(s), Ok(())),
            ("x".to_owned() + &".a".repeat(s + 1), Err(NestingError::Steps)),
            ("x".to_owned() + &" . a (1 < 2, 3)".repeat(s + 1), Err(NestingError::Steps)),
            ("x".to_owned() + &"[0]".repeat(s + 1), Err(NestingError::Steps)),
            ("x.a.b == y.a.b, ".repeat(1000), Ok(())),
            ("a && ".repeat(o), Ok(())),
            ("a && ".repeat(o + 1), Err(NestingError::Operators)),
            ("a + ".repeat(o + 1), Err(NestingError::Operators)),
            ("if a then b else ".repeat(o + 1), Err(NestingError::Operators)),
            ("when{a}".repeat(o + 1), Err(NestingError::Operators)),
            ("iffy whenever ".repeat(o + 1), Ok(())),
        ] {
            assert_eq!(check(&text), expected, "{}", text.chars().take(40).collect::<String>());
        }
    }
}
