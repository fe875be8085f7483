//! `ID` or `ID@VERSION`, as people write a tool on the command line.

use std::str::FromStr;

/// A tool, perhaps in some version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolReference {
    /// An id or an alias; the registry knows whether it exists.
    pub(crate) tool: String,
    /// A version, a range, or `LATEST`.
    pub(crate) version: Option<String>,
}

/// Why a text is not a reference to a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write a tool as `id` or `id@version`, for example demo.word_stats@1.0.0")]
pub(crate) struct ToolReferenceError;

impl FromStr for ToolReference {
    type Err = ToolReferenceError;
    fn from_str(text: &str) -> Result<Self, ToolReferenceError> {
        let (tool, version) = match text.split_once('@') {
            Some((tool, version)) if !version.is_empty() => (tool, Some(version.to_owned())),
            Some(_) => return Err(ToolReferenceError),
            None => (text, None),
        };
        if tool.is_empty() { Err(ToolReferenceError) } else { Ok(Self { tool: tool.to_owned(), version }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_follows_the_at_sign() {
        for (text, expected) in [
            ("calculator", Some(("calculator", None))),
            ("demo.word_stats@1.0.0", Some(("demo.word_stats", Some("1.0.0")))),
            ("x@>=1 <2", Some(("x", Some(">=1 <2")))),
            ("x@", None),
            ("@1", None),
            ("", None),
        ] {
            let got = text.parse::<ToolReference>().ok();
            assert_eq!(got.as_ref().map(|r| (r.tool.as_str(), r.version.as_deref())), expected, "{text}");
        }
    }
}
