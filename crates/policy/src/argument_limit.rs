//! Limits on the arguments of calls, carried in a token: "this agent may refund, but at most 100".
//!
//! A token carries a list and every entry whose pattern names the tool must hold. Delegation only appends, so "the child's
//! list contains the parent's" is the whole proof that nothing was widened.
//!
//! A limit on an argument that the call does not have is not met: what is absent cannot be shown to be within bounds. For
//! the same reason a limit that is itself wrong (a path that is none, a least above its most) is met by no call.
//! [`ArgumentLimit::check`] says so where a token is made, and where one is verified.
//!
//! Not here: comparing numbers (`number`), what lies below a path or URL (`scope`).

use base::SaturatingFrom as _;
use contract::ids::ToolId;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::grant::ToolPattern;
use crate::scope::{NetworkError, PathError, PathSubtree, UrlScope};

mod number;

use number::{compare, same};

/// Longest pointer, and longest text of `under`.
const TEXT_CHARS_MAX: usize = 1024;
/// Most values of `one_of`.
const ONE_OF_MAX: usize = 256;
/// How much of a list of allowed values a message shows.
const SHOWN_CHARS_MAX: usize = 200;

/// One limit: every bound that is there must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentLimit {
    /// Which tools it is about.
    pub tool_id: ToolPattern,
    /// Where in the parameters, as a JSON pointer (RFC 6901): `/amount`. Empty means the parameters as a whole.
    pub argument: String,
    /// The value is a number of at least this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// The value is a number of at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// The value is one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// The value is a string of at most this many characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u64>,
    /// The value is a path or URL at or below this one, by the rules of scopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
}

/// Why a limit is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Not RFC 6901.
    #[error(
        "the argument of a limit is a JSON pointer such as `/amount`, at most {TEXT_CHARS_MAX} characters, with `~0` for `~` and `~1` for `/`"
    )]
    Pointer,
    /// It would limit nothing.
    #[error("the limit on `{argument}` needs at least one of `min`, `max`, `one_of`, `max_length` and `under`")]
    Boundless { argument: String },
    /// No number is both.
    #[error("the limit on `{argument}` has a `min` above its `max`")]
    Crossed { argument: String },
    /// No value is one of none.
    #[error("the limit on `{argument}` must allow between 1 and {ONE_OF_MAX} values in `one_of`")]
    OneOf { argument: String },
    /// Neither of the two.
    #[error(
        "the limit on `{argument}` must have an absolute path or a URL in `under`, at most {TEXT_CHARS_MAX} characters"
    )]
    Under { argument: String },
    /// The path is refused.
    #[error("the limit on `{argument}` is refused: {problem}")]
    Path { argument: String, problem: PathError },
    /// The URL is refused.
    #[error("the limit on `{argument}` is refused: {problem}")]
    Url { argument: String, problem: NetworkError },
}

/// Which bound a call does not keep. Says the argument and the bound; the value is the caller's and stays with the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitBreach {
    /// Nothing is there.
    #[error("argument `{argument}` is limited and must be given")]
    Missing { argument: String },
    /// A string, say, where a number is limited.
    #[error("argument `{argument}` is limited and must be a {expected}")]
    Kind { argument: String, expected: &'static str },
    #[error("argument `{argument}` must be at least {min}")]
    Below { argument: String, min: Number },
    #[error("argument `{argument}` must be at most {max}")]
    Above { argument: String, max: Number },
    #[error("argument `{argument}` must be one of {allowed}")]
    NotOneOf { argument: String, allowed: String },
    #[error("argument `{argument}` must have at most {max_length} characters")]
    TooLong { argument: String, max_length: u64 },
    #[error("argument `{argument}` must be at or below `{under}`")]
    NotUnder { argument: String, under: String },
}

impl ArgumentLimit {
    /// Is this a limit that some call can keep and some other cannot?
    pub fn check(&self) -> Result<(), LimitError> {
        if !is_pointer(&self.argument) {
            return Err(LimitError::Pointer);
        }
        let argument = || self.argument.clone();
        let bounds = [self.min.is_some(), self.max.is_some(), self.one_of.is_some(), self.max_length.is_some()];
        if !bounds.contains(&true) && self.under.is_none() {
            return Err(LimitError::Boundless { argument: argument() });
        }
        if let (Some(min), Some(max)) = (&self.min, &self.max)
            && compare(min, max).is_none_or(std::cmp::Ordering::is_gt)
        {
            return Err(LimitError::Crossed { argument: argument() });
        }
        if self.one_of.as_ref().is_some_and(|values| !(1..=ONE_OF_MAX).contains(&values.len())) {
            return Err(LimitError::OneOf { argument: argument() });
        }
        self.under.as_deref().map_or(Ok(()), |under| self.check_under(under))
    }

    fn check_under(&self, under: &str) -> Result<(), LimitError> {
        let argument = || self.argument.clone();
        if under.chars().count() > TEXT_CHARS_MAX {
            Err(LimitError::Under { argument: argument() })
        } else if under.starts_with('/') {
            PathSubtree::read(under).map(drop).map_err(|problem| LimitError::Path { argument: argument(), problem })
        } else if under.contains("://") {
            UrlScope::read_family(under).map(drop).map_err(|problem| LimitError::Url { argument: argument(), problem })
        } else {
            Err(LimitError::Under { argument: argument() })
        }
    }

    /// Is the limit about calls of this tool?
    pub fn applies_to(&self, tool: &ToolId) -> bool {
        self.tool_id.matches(tool)
    }

    /// Does a call with these arguments keep the limit?
    ///
    /// ```
    /// # use gantry_policy::ArgumentLimit;
    /// # use serde_json::json;
    /// let limit: ArgumentLimit =
    ///     serde_json::from_value(json!({ "tool_id": "refund", "argument": "/amount", "max": 100 })).unwrap();
    /// assert!(limit.holds(&json!({ "amount": 99.5 })).is_ok());
    /// assert_eq!(limit.holds(&json!({ "amount": 101 })).unwrap_err().to_string(), "argument `/amount` must be at most 100");
    /// assert!(limit.holds(&json!({})).is_err());
    /// ```
    pub fn holds(&self, arguments: &Value) -> Result<(), LimitBreach> {
        let argument = || self.argument.clone();
        let missing = || LimitBreach::Missing { argument: argument() };
        let value = arguments.pointer(&self.argument).ok_or_else(missing)?;
        self.holds_as_number(value)?;
        if let Some(allowed) = &self.one_of
            && !allowed.iter().any(|one| same(one, value))
        {
            return Err(LimitBreach::NotOneOf { argument: argument(), allowed: shown(allowed) });
        }
        if let Some(max_length) = self.max_length
            && count(self.text(value)?) > max_length
        {
            return Err(LimitBreach::TooLong { argument: argument(), max_length });
        }
        match &self.under {
            Some(under) if !is_under(self.text(value)?, under) => {
                Err(LimitBreach::NotUnder { argument: argument(), under: under.clone() })
            }
            _ => Ok(()),
        }
    }

    fn holds_as_number(&self, value: &Value) -> Result<(), LimitBreach> {
        let argument = || self.argument.clone();
        if self.min.is_none() && self.max.is_none() {
            return Ok(());
        }
        let Value::Number(number) = value else {
            return Err(LimitBreach::Kind { argument: argument(), expected: "number" });
        };
        // What cannot be compared is not within.
        match (&self.min, &self.max) {
            (Some(min), _) if compare(number, min).is_none_or(std::cmp::Ordering::is_lt) => {
                Err(LimitBreach::Below { argument: argument(), min: min.clone() })
            }
            (_, Some(max)) if compare(number, max).is_none_or(std::cmp::Ordering::is_gt) => {
                Err(LimitBreach::Above { argument: argument(), max: max.clone() })
            }
            _ => Ok(()),
        }
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, LimitBreach> {
        let other = || LimitBreach::Kind { argument: self.argument.clone(), expected: "string" };
        value.as_str().ok_or_else(other)
    }
}

// ----------------------------------------------------------------------------------------------------------- parts

/// RFC 6901: empty, or tokens after slashes, in which `~` is followed by 0 or 1.
fn is_pointer(text: &str) -> bool {
    (text.is_empty() || text.starts_with('/'))
        && text.chars().count() <= TEXT_CHARS_MAX
        && text.split('~').skip(1).all(|after| after.starts_with(['0', '1']))
}

/// Is the path or URL at or below `under`? Neither is ever below one of the other.
fn is_under(value: &str, under: &str) -> bool {
    if under.starts_with('/') {
        matches!((PathSubtree::read(under), PathSubtree::read(value)), (Ok(outer), Ok(inner)) if outer.covers(&inner))
    } else {
        matches!((UrlScope::read_family(under), UrlScope::read_one(value)), (Ok(outer), Ok(inner)) if outer.covers(&inner))
    }
}

fn count(text: &str) -> u64 {
    u64::saturating_from(text.chars().count())
}

/// The allowed values as JSON, cut to what fits a message.
fn shown(allowed: &[Value]) -> String {
    let whole: String = allowed.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    let mut cut: String = whole.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    if cut.len() < whole.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limit(bounds: &Value) -> ArgumentLimit {
        let mut limit = json!({ "tool_id": "refund", "argument": "/x" });
        limit.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        serde_json::from_value(limit).unwrap()
    }

    #[test]
    fn every_bound_that_is_there_must_hold() {
        for (bounds, value, breach) in [
            (json!({ "max": 100 }), json!(100), None),
            (json!({ "max": 100 }), json!(100.0), None),
            (json!({ "max": 100 }), json!(100.000_000_1), Some("must be at most 100")),
            (json!({ "max": 100 }), json!("99"), Some("must be a number")),
            (json!({ "max": 100 }), json!(null), Some("must be a number")),
            (json!({ "min": 1, "max": 9 }), json!(0), Some("must be at least 1")),
            (json!({ "min": -1.5 }), json!(-1), None),
            (json!({ "max": 9_007_199_254_740_992_u64 }), json!(9_007_199_254_740_993_u64), Some("must be at most")),
            (json!({ "min": 9, "max": 1 }), json!(5), Some("must be at least 9")),
            (json!({ "one_of": ["a", 1, { "k": [1.0] }] }), json!("a"), None),
            (json!({ "one_of": ["a", 1, { "k": [1.0] }] }), json!(1.0), None),
            (json!({ "one_of": ["a", 1, { "k": [1.0] }] }), json!({ "k": [1] }), None),
            (json!({ "one_of": ["a", 1] }), json!("1"), Some("must be one of \"a\", 1")),
            (json!({ "one_of": [] }), json!("1"), Some("must be one of")),
            (json!({ "max_length": 3 }), json!("äöü"), None),
            (json!({ "max_length": 3 }), json!("abcd"), Some("must have at most 3 characters")),
            (json!({ "max_length": 3 }), json!([1]), Some("must be a string")),
            (json!({ "under": "/data" }), json!("/data/a b"), None),
            (json!({ "under": "/data" }), json!("/data/../etc"), Some("must be at or below `/data`")),
            (json!({ "under": "/data" }), json!("/database"), Some("must be at or below `/data`")),
            (json!({ "under": "/data" }), json!("data"), Some("must be at or below `/data`")),
            (json!({ "under": "/data" }), json!("file:///data"), Some("must be at or below `/data`")),
            (json!({ "under": "https://h/v1" }), json!("https://H:443/v1/users?id=../3#x"), None),
            (json!({ "under": "https://h/v1" }), json!("http://h/v1"), Some("must be at or below `https://h/v1`")),
            (json!({ "under": "https://h/v1" }), json!("https://h/v1/../v2"), Some("must be at or below")),
            (json!({ "under": "https://h" }), json!("https://h@evil/"), Some("must be at or below")),
            (json!({ "under": "https://h" }), json!("https://h\\@evil/"), Some("must be at or below")),
            (json!({ "under": "https://h" }), json!("https://evil?https://h"), Some("must be at or below")),
            (json!({ "under": "https://h" }), json!("/data"), Some("must be at or below")),
            (json!({ "under": "https://*.h.org" }), json!("https://a.h.org/x"), None),
            (json!({ "under": "https://*.h.org" }), json!("https://h.org/x"), Some("must be at or below")),
            (json!({ "under": "https://*.h.org" }), json!("https://*.h.org/x"), Some("must be at or below")),
            (json!({ "under": "https://h:*" }), json!("https://h:*"), Some("must be at or below")),
            (json!({ "under": "nonsense" }), json!("nonsense"), Some("must be at or below `nonsense`")),
            (json!({ "max": 9, "one_of": [1, 20] }), json!(20), Some("must be at most 9")),
        ] {
            let got = limit(&bounds).holds(&json!({ "x": value })).map_err(|breach| breach.to_string());
            match (breach, &got) {
                (None, Ok(())) => {}
                (Some(text), Err(message)) => assert!(message.contains(text), "{bounds} {value}: {message}"),
                _ => panic!("{bounds} {value}: {got:?}"),
            }
        }
    }

    #[test]
    fn what_is_absent_is_not_within() {
        let limit = limit(&json!({ "max": 1 }));
        for arguments in [json!({}), json!([]), json!(null), json!({ "X": 0 })] {
            assert_eq!(limit.holds(&arguments), Err(LimitBreach::Missing { argument: "/x".into() }));
        }
    }

    #[test]
    fn a_breach_tells_the_bound_and_never_the_value() {
        for bounds in
            [json!({ "max": 1 }), json!({ "one_of": [1] }), json!({ "max_length": 1 }), json!({ "under": "/a" })]
        {
            let message = limit(&bounds).holds(&json!({ "x": "sesame-4711" })).unwrap_err().to_string();
            assert!(!message.contains("sesame") && message.contains("`/x`"), "{message}");
        }
    }

    #[test]
    fn a_limit_is_checked_at_the_door() {
        let at = |argument: &str| ArgumentLimit { argument: argument.into(), ..limit(&json!({ "max": 1 })) };
        for fine in ["", "/x", "/a/0/b", "/a~1b~0", "/"] {
            assert_eq!(at(fine).check(), Ok(()), "{fine}");
        }
        for bad in ["x", "/a~", "/a~2", "#/x", &format!("/{}", "x".repeat(TEXT_CHARS_MAX))] {
            assert_eq!(at(bad).check(), Err(LimitError::Pointer), "{bad}");
        }
        for (bounds, problem) in [
            (json!({}), "needs at least one of"),
            (json!({ "min": 2, "max": 1 }), "`min` above its `max`"),
            (json!({ "min": 1.5, "max": 1 }), "`min` above its `max`"),
            (json!({ "one_of": [] }), "between 1 and 256 values"),
            (json!({ "under": "data" }), "an absolute path or a URL"),
            (json!({ "under": "/data/.." }), "must not contain `..`"),
            (json!({ "under": "https://u@h" }), "must not carry a user name"),
            (json!({ "under": "https://h/?q" }), "must not carry a query"),
        ] {
            let problem_found = limit(&bounds).check().unwrap_err().to_string();
            assert!(problem_found.contains(problem), "{bounds}: {problem_found}");
        }
        for fine in [json!({ "min": 1, "max": 1 }), json!({ "max_length": 0 }), json!({ "under": "https://*.h.org/x" })]
        {
            assert_eq!(limit(&fine).check(), Ok(()), "{fine}");
        }
    }

    #[test]
    fn a_limit_is_about_the_tools_its_pattern_names() {
        let of = |tool: &str| ArgumentLimit { tool_id: tool.parse().unwrap(), ..limit(&json!({ "max": 1 })) };
        let refund: ToolId = "pay.refund".parse().unwrap();
        assert!(of("*").applies_to(&refund) && of("pay.*").applies_to(&refund) && of("pay.refund").applies_to(&refund));
        assert!(!of("refund").applies_to(&refund) && !of("other.*").applies_to(&refund));
    }
}
