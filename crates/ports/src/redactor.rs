//! Taking out of values and texts what must not be seen, before they are written anywhere (VALID-009 to VALID-012).
//!
//! The kernel decides *what* is shown in audit records, logs and results; what in it is a secret or somebody's personal datum
//! is decided behind this port. Not here: the rules, and streams of tools, which are cleaned of the secrets a tool was given.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use contract::error::Refusal;
use contract::ids::TenantId;
use contract::schema::PartMarks;
use serde_json::Value;

/// What [`WithholdingRedactor`] shows.
const WITHHELD: &str = "[REDACTED]";

/// Why something could not be redacted. It must not be written then (E3304).
#[derive(Debug, thiserror::Error)]
#[error("the value cannot be redacted")]
pub struct RedactError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// The credentials that a call's tool is given: whose they are, and their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenCredentials {
    pub tenant: TenantId,
    pub names: Vec<Box<str>>,
}

/// Redacts. Pure: the same goes in, the same comes out; never waits, except in [`Redactor::knowing`]; takes time in
/// proportion to what it is given.
#[async_trait]
pub trait Redactor: Send + Sync + fmt::Debug {
    /// The value with words in place of what must not be seen. `marks` are those of the value's schema, if it has any; what they
    /// mark as sensitive goes. An error means that nothing of the value may be shown.
    fn value(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Value, RedactError>;

    /// The value without what its sensitive fields hold: those that `marks` mark, and those whose name says so, also in
    /// JSON that stands in a string. Texts are left as they are. `None` if the value has none. An error means that nothing of
    /// the value may be shown.
    fn fields(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError>;

    /// The text with words in place of what must not be seen.
    fn text<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// Does something stand in the text that must not be seen, by rules that nobody can add to? The answer is the same on every
    /// server of a release.
    fn finds(&self, text: &str) -> bool {
        *self.text(text) != *text
    }

    /// Is a setting of this name and text a secret? Personal data are none. The default knows none.
    fn is_secret(&self, name: &str, text: &str) -> bool {
        let _ = (name, text);
        false
    }

    /// Puts a word in place of every member with one of these names, at every depth, whatever it holds, also in JSON that
    /// stands in a string.
    fn members(&self, value: &mut Value, names: &[Box<str>]);

    /// The one for calls of this tenant, if it adds to the rules; else this one is.
    fn of_tenant(&self, tenant: &TenantId) -> Option<Arc<dyn Redactor>> {
        // Named for whoever implements it.
        let _ = tenant;
        None
    }

    /// This one, which knows the values of these credentials as well, for as long as a call lasts. An error means that
    /// they could not be had, and that nothing may be shown in which one of them could stand. The default knows none.
    async fn knowing(&self, given: &GivenCredentials) -> Result<Option<Arc<dyn Redactor>>, RedactError> {
        let _ = given;
        Ok(None)
    }
}

/// What may be kept of a refusal: its own words, without what must not be seen. The code stays.
pub fn redacted(redactor: &dyn Redactor, mut refusal: Refusal) -> Refusal {
    refusal.message = redactor.text(&refusal.message).into_owned();
    refusal.hint = refusal.hint.map(|hint| redactor.text(&hint).into_owned());
    // Details that cannot be redacted are left out.
    refusal.details = refusal.details.and_then(|details| redactor.value(&details, None).ok().map(Box::new));
    refusal.reason = refusal.reason.map(|reason| Box::new(reason.map_texts(|text| redactor.text(&text).into_owned())));
    refusal
}

/// Shows nothing at all: for kernels of tests and measurements, whose records nobody reads. Members that must be masked are
/// masked with everything around them.
#[derive(Debug, Clone, Copy, Default)]
pub struct WithholdingRedactor;

#[async_trait]
impl Redactor for WithholdingRedactor {
    fn value(&self, _: &Value, _: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        Ok(WITHHELD.into())
    }

    /// A result is for its caller, and these kernels know no fields.
    fn fields(&self, _: &Value, _: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        Ok(None)
    }

    fn text<'a>(&self, _: &'a str) -> Cow<'a, str> {
        WITHHELD.into()
    }

    /// It looks at nothing.
    fn finds(&self, _: &str) -> bool {
        false
    }

    fn members(&self, value: &mut Value, _: &[Box<str>]) {
        *value = WITHHELD.into();
    }
}
