//! Taking out of values and texts what must not be seen, before they are written anywhere (VALID-009 to VALID-012).
//!
//! The kernel decides *what* is shown in audit records, logs and results; what in it is a secret or somebody's personal datum
//! is decided behind this port. Not here: the rules, and streams of tools, which are cleaned of the secrets a tool was given.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

/// What [`Withhold`] shows.
const WITHHELD: &str = "[REDACTED]";

/// Why something could not be redacted. It must not be written then (E3304).
#[derive(Debug, thiserror::Error)]
#[error("the value cannot be redacted")]
pub struct RedactError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Redacts. Pure: the same goes in, the same comes out; never waits; takes time in proportion to what it is given.
pub trait Redactor: Send + Sync + fmt::Debug {
    /// The value with words in place of what must not be seen. `schema` describes the value; what it marks as sensitive
    /// goes. An error means that nothing of the value may be shown.
    fn value(&self, value: &Value, schema: Option<&Value>) -> Result<Value, RedactError>;

    /// The text with words in place of what must not be seen.
    fn text<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// Puts a word in place of every member with one of these names, at every depth, whatever it holds.
    fn members(&self, value: &mut Value, names: &[Box<str>]);
}

/// Shows nothing at all: for kernels of tests and measurements, whose records nobody reads. Members that must be masked are
/// masked with everything around them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Withhold;

impl Redactor for Withhold {
    fn value(&self, _: &Value, _: Option<&Value>) -> Result<Value, RedactError> {
        Ok(WITHHELD.into())
    }

    fn text<'a>(&self, _: &'a str) -> Cow<'a, str> {
        WITHHELD.into()
    }

    fn members(&self, value: &mut Value, _: &[Box<str>]) {
        *value = WITHHELD.into();
    }
}
