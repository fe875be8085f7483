//! The engine of `redaction` behind the kernel's port: the rules of everybody, of each tenant, and of one call.
//!
//! ```text
//! everybody ── of_tenant ──▶ with what the tenant's rules add ── knowing ──▶ with the values of the call's credentials
//! ```
//!
//! Values of credentials are fetched for the call and live as long as it (DESIGN §6.4); they are looked for in every form in
//! which programs put a value into text, as executors do in what a tool says. Logs and traces, which belong to no tenant,
//! go by everybody's rules and those of all tenants at once.
//!
//! Not here: what is found (`redaction`), how rules are written (`config::redaction`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use contract::ids::TenantId;
use contract::schema::{PartMarks, Sensitivity};
use executors::process::scrub::SecretScrubber;
use ports::redactor::{GivenCredentials, RedactError, Redactor};
use ports::secret_source::{SecretError, SecretSource};
use redaction::{AdditionsError, RedactionAdditions, RedactionEngine, ValueDescription, ValuePart};
use serde_json::Value;

use crate::config::redaction::RedactionSection;

/// Redacts with an engine.
#[derive(Debug, Clone)]
pub(crate) struct ConfiguredRedactor {
    engine: RedactionEngine,
    rule_set: Arc<Rules>,
}

/// What the engines of all calls come from.
#[derive(Debug)]
struct Rules {
    built_in: RedactionEngine,
    tenants: HashMap<TenantId, RedactionEngine>,
    /// Everything anybody has added.
    all: RedactionEngine,
    secrets: Arc<dyn SecretSource>,
}

impl ConfiguredRedactor {
    /// With the rules that are built in and those of the configuration. A rule that cannot be used is an error.
    pub(crate) fn new(section: &RedactionSection, secrets: Arc<dyn SecretSource>) -> Result<Self, AdditionsError> {
        let built_in = RedactionEngine::new(&RedactionAdditions::default())?;
        let engine = built_in.with(&section.additions(|tenant| tenant.is_none()))?;
        let tenants = section
            .tenants()
            .map(|tenant| {
                let own = section.additions(|whose| whose.is_none_or(|whose| whose == tenant));
                Ok((tenant.clone(), built_in.with(&own)?))
            })
            .collect::<Result<_, AdditionsError>>()?;
        let all = built_in.with(&section.additions(|_| true))?;
        Ok(Self { engine, rule_set: Arc::new(Rules { built_in, tenants, all, secrets }) })
    }

    /// For what belongs to no tenant: the log, and traces.
    pub(crate) fn of_all(&self) -> impl for<'a> Fn(&'a str) -> Cow<'a, str> + Send + Sync + 'static {
        let engine = self.rule_set.all.clone();
        move |text| engine.text(text)
    }
}

/// The marks of a schema, as the engine asks for them.
struct Described<'m>(PartMarks<'m>);

impl ValueDescription for Described<'_> {
    fn is_sensitive(&self) -> Option<bool> {
        match self.0.says() {
            Sensitivity::Unsaid => None,
            Sensitivity::Open => Some(false),
            Sensitivity::Sensitive => Some(true),
        }
    }

    fn part(&self, part: ValuePart<'_>) -> Option<Box<dyn ValueDescription + '_>> {
        let part = match part {
            ValuePart::Member(name) => self.0.member(name),
            ValuePart::Item(index) => self.0.item(index),
            ValuePart::Content => self.0.content(),
            ValuePart::Names => self.0.names(),
        };
        (!part.is_silent()).then(|| Box::new(Self(part)) as _)
    }
}

#[async_trait]
impl Redactor for ConfiguredRedactor {
    fn value(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        let described = marks.cloned().map(Described);
        self.engine.value(value, described.as_ref().map(|it| it as _)).map_err(|error| RedactError(Box::new(error)))
    }

    fn fields(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        let described = marks.cloned().map(Described);
        self.engine.fields(value, described.as_ref().map(|it| it as _)).map_err(|error| RedactError(Box::new(error)))
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.engine.text(text)
    }

    fn finds(&self, text: &str) -> bool {
        !self.rule_set.built_in.findings(text).is_empty()
    }

    fn is_secret(&self, name: &str, text: &str) -> bool {
        self.engine.is_secret(name, text)
    }

    fn members(&self, value: &mut Value, names: &[Box<str>]) {
        self.engine.members(value, names);
    }

    fn of_tenant(&self, tenant: &TenantId) -> Option<Arc<dyn Redactor>> {
        let engine = self.rule_set.tenants.get(tenant)?.clone();
        Some(Arc::new(Self { engine, rule_set: Arc::clone(&self.rule_set) }))
    }

    async fn knowing(&self, given: &GivenCredentials) -> Result<Option<Arc<dyn Redactor>>, RedactError> {
        let mut found = Vec::new();
        for name in &given.names {
            match self.rule_set.secrets.secret(&given.tenant, name).await {
                Ok(secret) => found.push((name, secret)),
                // What is not there cannot be shown.
                Err(SecretError::Missing) => {}
                Err(error) => return Err(RedactError(Box::new(error))),
            }
        }
        let texts = found.iter().filter_map(|(name, secret)| {
            // A line end at the end of a file is how it was written, not part of the secret.
            Some((&***name, std::str::from_utf8(secret.expose()).ok()?.trim_end_matches(['\r', '\n'])))
        });
        let secrets = SecretScrubber::new(&texts.collect::<Vec<_>>());
        Ok((!secrets.is_empty()).then(|| Arc::new(Knowing { rules: self.clone(), secrets }) as _))
    }
}

/// Redacts for one call, whose credentials it knows.
struct Knowing {
    rules: ConfiguredRedactor,
    secrets: SecretScrubber,
}

#[async_trait]
impl Redactor for Knowing {
    fn value(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        self.rules.value(&self.secrets.value(value.clone()), marks)
    }

    fn fields(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        self.rules.fields(value, marks)
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.secrets.text(text) {
            Cow::Borrowed(text) => self.rules.text(text),
            Cow::Owned(scrubbed) => Cow::Owned(self.rules.text(&scrubbed).into_owned()),
        }
    }

    fn members(&self, value: &mut Value, names: &[Box<str>]) {
        self.rules.members(value, names);
    }
}

impl fmt::Debug for Knowing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Knowing").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ports::secret_source::SecretValue;
    use serde_json::json;

    use super::*;
    use crate::config::GantryConfig;

    /// Has one secret for one tenant; everything of another cannot be had.
    #[derive(Debug)]
    struct Vault;

    #[async_trait]
    impl SecretSource for Vault {
        async fn secret(&self, tenant: &TenantId, name: &str) -> Result<SecretValue, SecretError> {
            match (tenant.as_str(), name) {
                ("acme", "mail") => Ok(SecretValue::new("plain words of acme\n").unwrap()),
                ("acme", _) => Err(SecretError::Missing),
                _ => Err(SecretError::Unavailable("away".into())),
            }
        }
    }

    fn redacting(tables: &[&str]) -> ConfiguredRedactor {
        let rules = format!("[{}]", tables.join(","));
        let environment = BTreeMap::from([("GANTRY_REDACTION__RULES".to_owned(), rules)]);
        let section = GantryConfig::from_sources(None, &environment, Vec::new()).unwrap().redaction;
        ConfiguredRedactor::new(&section, Arc::new(Vault)).unwrap()
    }

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn the_values_of_a_calls_credentials_are_taken_out_in_every_form_and_no_others() {
        let redacting = redacting(&[]);
        let given = |whose: &str, name: &str| GivenCredentials { tenant: tenant(whose), names: vec![name.into()] };
        let knowing = redacting.knowing(&given("acme", "mail")).await.unwrap().unwrap();
        for (form, rest) in [
            ("plain words of acme", ""),
            // The last digit has two bits of the value and belongs to whatever follows.
            ("cGxhaW4gd29yZHMgb2YgYWNtZQ==", "Q=="),
            ("706c61696e20776f726473206f662061636d65", ""),
            ("plain%20words%20of%20acme", ""),
        ] {
            let shown = knowing.value(&json!({ "note": format!("<{form}>") }), None).unwrap();
            assert_eq!(shown, json!({ "note": format!("<[secret mail]{rest}>") }), "{form}");
            assert_eq!(knowing.text(form), format!("[secret mail]{rest}"));
        }
        assert_eq!(knowing.text("a@example.com"), "[EMAIL_REDACTED]", "the other rules stay");
        assert!(!format!("{knowing:?}").contains("plain words"));
        assert!(redacting.knowing(&given("acme", "none")).await.unwrap().is_none());
        assert!(redacting.knowing(&given("other", "mail")).await.is_err(), "it might be anything");
    }

    #[tokio::test]
    async fn what_a_tenant_adds_is_for_its_calls_and_for_what_belongs_to_nobody() {
        let redacting = redacting(&[
            r#"{ "patterns": ["EMP-[0-9]{6}"] }"#,
            r#"{ "tenant": "acme", "names": ["badge*"], "patterns": ["case [0-9]+"] }"#,
        ]);
        let acme = redacting.of_tenant(&tenant("acme")).unwrap();
        assert!(redacting.of_tenant(&tenant("other")).is_none());
        let value = json!({ "badge_no": "x1", "text": "case 77 of EMP-123456" });
        let shown = acme.value(&value, None).unwrap();
        assert_eq!(shown, json!({ "badge_no": "[REDACTED]", "text": "[REDACTED] of [REDACTED]" }));
        let shown = redacting.value(&value, None).unwrap();
        assert_eq!(shown, json!({ "badge_no": "x1", "text": "case 77 of [REDACTED]" }));
        assert_eq!(redacting.of_all()("case 77 of EMP-123456"), "[REDACTED] of [REDACTED]");
        let given = GivenCredentials { tenant: tenant("acme"), names: vec!["mail".into()] };
        let knowing = acme.knowing(&given).await.unwrap().unwrap();
        assert_eq!(knowing.text("case 1: plain words of acme"), "[REDACTED]: [secret mail]", "both");
    }
}
