//! The parameters of a built-in, read by name.
//!
//! The kernel has validated them against the manifest already. Handlers still ask politely instead of indexing, because
//! a manifest can be registered anew with another schema and must then get an E3301 and never a panic.
//!
//! Not here: defaults and limits that belong to one tool.

use contract::error::{ErrorCode, Refusal};
use serde_json::{Map, Value};

/// Parameters that the tool cannot work with (E3301): what is wrong, and what to do.
pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::E3301, message).hint(hint)
}

/// Named parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolArguments<'p>(Option<&'p Map<String, Value>>);

impl<'p> ToolArguments<'p> {
    /// Of a whole call; anything but an object has no members.
    pub(crate) fn of(parameters: &'p Value) -> Self {
        Self(parameters.as_object())
    }

    /// The members of a nested object; none if it is absent.
    pub(crate) fn object(self, name: &str) -> Result<Self, Refusal> {
        match self.value(name) {
            None => Ok(Self(None)),
            Some(Value::Object(members)) => Ok(Self(Some(members))),
            Some(_) => Err(wrong(name, "an object")),
        }
    }

    /// A member of any type; `null` counts as absent.
    pub(crate) fn value(self, name: &str) -> Option<&'p Value> {
        self.0?.get(name).filter(|value| !value.is_null())
    }

    /// A text that may be left out.
    pub(crate) fn text(self, name: &str) -> Result<Option<&'p str>, Refusal> {
        self.value(name).map(|value| value.as_str().ok_or_else(|| wrong(name, "a string"))).transpose()
    }

    /// A text that must be there.
    pub(crate) fn required_text(self, name: &str) -> Result<&'p str, Refusal> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// A number that may be left out.
    pub(crate) fn number(self, name: &str) -> Result<Option<f64>, Refusal> {
        self.value(name).map(|value| value.as_f64().ok_or_else(|| wrong(name, "a number"))).transpose()
    }

    /// A whole number within bounds that may be left out.
    pub(crate) fn count(self, name: &str, bounds: std::ops::RangeInclusive<usize>) -> Result<Option<usize>, Refusal> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| bounds.contains(n));
        let expected = || format!("a whole number from {} to {}", bounds.start(), bounds.end());
        number.map(Some).ok_or_else(|| wrong(name, &expected()))
    }
}

/// The refusal for a parameter that this operation needs.
pub(crate) fn missing(name: &str) -> Refusal {
    invalid(format!("parameter `{name}` is missing"), format!("send `{name}`"))
}

fn wrong(name: &str, expected: &str) -> Refusal {
    invalid(format!("parameter `{name}` must be {expected}"), format!("send {expected} as `{name}`"))
}
