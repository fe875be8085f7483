//! The engine of `redaction` behind the kernel's port.
//!
//! Nothing is decided here. What an operator or a tenant adds to the rules comes in with the engine.

use std::borrow::Cow;

use kernel::ports::redactor::{RedactError, Redactor};
use redaction::{Additions, AdditionsError, Engine};
use serde_json::Value;

/// Redacts with an engine.
#[derive(Debug)]
pub(crate) struct Redacting(Engine);

impl Redacting {
    /// With the rules that are built in.
    pub(crate) fn new() -> Result<Self, AdditionsError> {
        Engine::new(&Additions::default()).map(Self)
    }
}

impl Redactor for Redacting {
    fn value(&self, value: &Value, schema: Option<&Value>) -> Result<Value, RedactError> {
        self.0.value(value, schema).map_err(|error| RedactError(Box::new(error)))
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.text(text)
    }

    fn members(&self, value: &mut Value, names: &[Box<str>]) {
        self.0.members(value, names);
    }
}
