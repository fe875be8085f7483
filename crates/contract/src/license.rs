//! Licences by SPDX (MAN-023): is a text an SPDX licence expression?
//!
//! `MIT`, `Apache-2.0 OR MIT`, `GPL-2.0-only WITH Classpath-exception-2.0`, `(MIT AND BSD-3-Clause)`, `LicenseRef-Ours`. The
//! identifiers are those of the SPDX licence list 3.28.0, the deprecated ones included, because `GPL-3.0` is what people write.
//! `Proprietary` is none of them and is accepted alone.

use std::fmt;

use crate::nearest::nearest;

const IDENTIFIERS: &str = include_str!("license/identifiers.txt");
const EXCEPTIONS: &str = include_str!("license/exceptions.txt");
/// The one word beside SPDX.
const PROPRIETARY: &str = "Proprietary";

/// Why a text is no licence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LicenseError {
    /// No licence or exception has this identifier; perhaps this one is meant.
    UnknownIdentifier { word: String, near: Option<&'static str> },
    /// Identifiers do not stand where they can.
    Malformed,
}

impl fmt::Display for LicenseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIdentifier { word, near } => {
                write!(f, "`{word}` is no SPDX identifier")?;
                match near {
                    Some(near) => write!(f, "; did you mean `{near}`?"),
                    None => f.write_str(": see https://spdx.org/licenses, or write `LicenseRef-…` or `Proprietary`"),
                }
            }
            Self::Malformed => f.write_str("is no SPDX expression: write, for example, `MIT` or `Apache-2.0 OR MIT`"),
        }
    }
}

impl std::error::Error for LicenseError {}

/// Checks a licence.
///
/// ```
/// # use gantry_contract::license::check;
/// assert!(check("Apache-2.0 OR MIT").is_ok());
/// assert!(check("Apache 2").is_err());
/// ```
pub fn check(text: &str) -> Result<(), LicenseError> {
    if text == PROPRIETARY {
        return Ok(());
    }
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut depth = 0_u32;
    let mut expects = Expects::Operand;
    for word in spaced.split_whitespace() {
        expects = match (expects, word) {
            (Expects::Operand, "(") => {
                depth = depth.saturating_add(1);
                Expects::Operand
            }
            (Expects::Operator | Expects::OperatorOrWith, ")") => {
                depth = depth.checked_sub(1).ok_or(LicenseError::Malformed)?;
                Expects::Operator
            }
            (Expects::Operator | Expects::OperatorOrWith, "AND" | "OR") => Expects::Operand,
            (Expects::OperatorOrWith, "WITH") => Expects::Exception,
            (Expects::Operator | Expects::OperatorOrWith, _)
            | (Expects::Operand | Expects::Exception, "AND" | "OR" | "WITH" | "(" | ")") => {
                return Err(LicenseError::Malformed);
            }
            (Expects::Operand, word) => {
                identifier(word)?;
                Expects::OperatorOrWith
            }
            (Expects::Exception, word) => {
                known(word, EXCEPTIONS)?;
                Expects::Operator
            }
        };
    }
    match expects {
        Expects::Operator | Expects::OperatorOrWith if depth == 0 => Ok(()),
        _ => Err(LicenseError::Malformed),
    }
}

/// What may come next.
#[derive(Debug, Clone, Copy)]
enum Expects {
    Operand,
    Operator,
    /// After a licence.
    OperatorOrWith,
    /// After `WITH`.
    Exception,
}

fn identifier(word: &str) -> Result<(), LicenseError> {
    let own = word.strip_prefix("LicenseRef-").or_else(|| word.strip_prefix("DocumentRef-"));
    if own.is_some_and(|own| {
        !own.is_empty() && own.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':'))
    }) {
        return Ok(());
    }
    // `GPL-2.0+`: this version or a later one.
    known(word, IDENTIFIERS).or_else(|error| match word.strip_suffix('+') {
        Some(bare) => known(bare, IDENTIFIERS),
        None => Err(error),
    })
}

fn known(word: &str, list: &'static str) -> Result<(), LicenseError> {
    if list.lines().any(|line| line == word) {
        return Ok(());
    }
    let near = list.lines().find(|line| line.eq_ignore_ascii_case(word)).or_else(|| nearest(word, list.lines()));
    Err(LicenseError::UnknownIdentifier { word: word.chars().take(100).collect(), near })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_and_expressions_of_spdx_are_licences_and_nothing_else_is() {
        for text in [
            "MIT",
            "Apache-2.0",
            "GPL-3.0",
            "GPL-2.0+",
            "Proprietary",
            "MIT OR Apache-2.0",
            "(MIT AND BSD-3-Clause) OR LicenseRef-Ours-1.0",
            "GPL-2.0-only WITH Classpath-exception-2.0",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "MIT Apache-2.0",
            "OR MIT",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT WITH",
            "MIT WITH MIT",
            "free",
            "LicenseRef-",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_slip_is_told_with_what_was_probably_meant() {
        for (text, near) in [("mit", "MIT"), ("Apache-2", "Apache-2.0"), ("apache-2.0", "Apache-2.0")] {
            assert!(check(text).unwrap_err().to_string().ends_with(&format!("did you mean `{near}`?")), "{text}");
        }
    }
}
