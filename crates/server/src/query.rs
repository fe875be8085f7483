//! Query strings: known names only, once each, and wrong values named with what would be right.
//!
//! A misspelt filter that is silently ignored would answer another question than the one asked.

use std::fmt::Display;
use std::str::FromStr;

use contract::error::{ErrorCode, Refusal};
use contract::nearest::nearest;

/// The parameters of one request.
#[derive(Debug)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Reads a query string.
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Self, Refusal> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(Self(pairs)),
            Some((name, _)) => {
                let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                let refusal = Refusal::new(ErrorCode::E3004, format!("there is no query parameter `{shown}` here"));
                Err(match nearest(name, known.iter().copied()) {
                    Some(near) => refusal.hint(format!("did you mean `{near}`?")),
                    None if known.is_empty() => refusal.hint("leave the query string out"),
                    None => refusal.hint(format!("known parameters: {}", known.join(", "))),
                })
            }
        }
    }

    /// The value of a parameter that may stand once; empty counts as absent.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut values = self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let first = values.next();
        if values.next().is_some() {
            return Err(
                Refusal::new(ErrorCode::E3004, format!("query parameter `{name}` stands twice")).hint("send it once")
            );
        }
        Ok(first.filter(|value| !value.trim().is_empty()))
    }

    /// All values of a parameter that may be repeated or hold several, separated by commas.
    pub(crate) fn many(&self, name: &str) -> Vec<String> {
        let values = self.0.iter().filter(|(n, _)| n == name).flat_map(|(_, value)| value.split(','));
        values.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned).collect()
    }

    /// A whole number within a range.
    pub(crate) fn number<T>(&self, name: &str, range: std::ops::RangeInclusive<T>, default: T) -> Result<T, Refusal>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.one(name)? else { return Ok(default) };
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            Refusal::new(ErrorCode::E3004, format!("query parameter `{name}` is out of range")).hint(format!(
                "use a whole number from {} to {}",
                range.start(),
                range.end()
            ))
        })
    }

    /// One of some words.
    pub(crate) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, Refusal> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.map(Some).ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Refusal::new(ErrorCode::E3004, format!("query parameter `{name}` has an unknown value"))
                .hint(format!("use one of: {}", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["q", "limit", "tags", "tier"];

    fn refused(text: &str, ask: impl Fn(&QueryParameters) -> Result<(), Refusal>) -> String {
        let refusal = QueryParameters::parse(text, KNOWN).and_then(|query| ask(&query)).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::E3004, "{text}");
        format!("{}; {}", refusal.message, refusal.resolution())
    }

    #[test]
    fn wrong_parameters_are_named_with_the_remedy() {
        let limit = |query: &QueryParameters| query.number("limit", 1..=100_u32, 10).map(drop);
        let tier = |query: &QueryParameters| query.word("tier", &[("tenant", 1), ("agent", 2)]).map(drop);
        assert!(refused("limt=3", limit).contains("did you mean `limit`?"));
        assert!(refused("frobnicate=3", limit).contains("known parameters: q, limit, tags, tier"));
        for bad in ["limit=0", "limit=101", "limit=x", "limit=-1", "limit=1.5", "limit=99999999999999999999"] {
            assert!(refused(bad, limit).contains("from 1 to 100"), "{bad}");
        }
        assert!(refused("limit=1&limit=2", limit).contains("stands twice"));
        assert!(refused("tier=all", tier).contains("use one of: tenant, agent"));
    }

    #[test]
    fn lists_may_be_repeated_or_separated_by_commas() {
        let query = QueryParameters::parse("tags=a,b&tags=c%2Cd&tags=&q=x+y", KNOWN).unwrap();
        assert_eq!(query.many("tags"), ["a", "b", "c", "d"]);
        assert_eq!(query.one("q").unwrap(), Some("x y"));
        assert_eq!(query.number("limit", 1..=100_u32, 10).unwrap(), 10);
    }
}
