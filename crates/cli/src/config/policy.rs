//! `[policy]`: where policies come from, and who else is asked. (AUTH-006…008, DESIGN §8.6)
//!
//! Rules about the engine's address belong to `authorities`, which speaks to it; here is only what must be set together.
//! An engine that is half configured is refused: whoever wrote its address believes that it is asked.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths::ControlPath;
use super::problems::SectionProblems;
use super::secret_text::SecretText;
use super::section::ConfigSection;

/// Where policies come from, and who else is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct PolicyKeys {
    /// A `.cedar` file, or a folder whose `.cedar` files are read in the order of their names: the policies of the
    /// platform, which apply to every tenant. Watched for changes. Text that cannot be used leaves the former policies in
    /// force and is told in the log; if there are none yet, the server does not start. `gantry policy check` finds every
    /// problem beforehand.
    #[schemars(extend("x-unset" = "policies come by the API only"))]
    pub(super) file: Option<ControlPath>,
    /// The name of this installation's environment: what policies see as `context.environment`, for example `production`.
    pub(super) environment: String,
    /// A policy engine that is asked by HTTP after Gantry's own policies have allowed a call: `authorize` (`POST
    /// /v1/authorize`), `check_permission` (`POST /api/v1/abac/check-permission`) or `opa` (`POST /v1/data/…`). An engine
    /// that gives no answer refuses the call: E3205.
    pub(super) engine: EngineWord,
    /// Address of the engine, without the path of its API: `https://abac.example.com`, or `http://127.0.0.1:8181` on this
    /// machine.
    #[schemars(extend("x-unset" = "needed when `engine` is set"))]
    pub(super) engine_url: Option<String>,
    /// Path of the decision in OPA's data: package and rule, for example `gantry/authz`.
    #[schemars(extend("x-unset" = "needed when `engine` is `opa`"))]
    pub(super) engine_path: Option<String>,
    /// Milliseconds a decision of the engine may take. At the limit: E3205.
    #[schemars(range(min = 50, max = 10_000))]
    pub(super) engine_timeout_ms: u64,
    /// Token sent to the engine as bearer token. Better set by the variable than written into a file.
    #[schemars(extend("x-unset" = "none is sent"))]
    pub(super) engine_token: Option<SecretText>,
    /// Seconds a decision is remembered at most; 0 remembers none. A change of policies, activations, tenants or agents is
    /// in force at once whatever this says; a change inside an external engine only after this time.
    #[schemars(range(min = 0, max = 3_600))]
    pub(super) decision_cache_seconds: u64,
}

impl Default for PolicyKeys {
    fn default() -> Self {
        Self {
            file: None,
            environment: "local".to_owned(),
            engine: EngineWord::None,
            engine_url: None,
            engine_path: None,
            engine_timeout_ms: 500,
            engine_token: None,
            decision_cache_seconds: 300,
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EngineWord {
    None,
    Authorize,
    CheckPermission,
    Opa,
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct PolicySection {
    pub(crate) file: Option<PathBuf>,
    pub(crate) environment: String,
    pub(crate) engine: Option<EngineChoice>,
    pub(crate) decision_ttl: Duration,
}

/// A policy engine outside.
#[derive(Debug)]
pub(crate) struct EngineChoice {
    pub(crate) shape: EngineShape,
    pub(crate) url: String,
    pub(crate) timeout: Duration,
    pub(crate) token: Option<SecretText>,
}

/// How it is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineShape {
    Authorize,
    CheckPermission,
    Opa { path: String },
}

impl ConfigSection for PolicyKeys {
    const NAME: &'static str = "policy";
    type Checked = PolicySection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> PolicySection {
        if self.environment.is_empty() {
            problems.at("environment", "must not be empty: policies compare it");
        }
        PolicySection {
            file: self.file.as_ref().map(|file| PathBuf::from(file.as_str())),
            environment: self.environment.clone(),
            decision_ttl: Duration::from_secs(self.decision_cache_seconds),
            engine: self.engine(problems),
        }
    }
}

impl PolicyKeys {
    fn engine(self, problems: &mut SectionProblems<'_>) -> Option<EngineChoice> {
        let shape = match (self.engine, self.engine_path) {
            (EngineWord::Authorize, None) => EngineShape::Authorize,
            (EngineWord::CheckPermission, None) => EngineShape::CheckPermission,
            (EngineWord::Opa, Some(path)) => EngineShape::Opa { path },
            (EngineWord::Opa, None) => {
                problems.at("engine_path", "is needed for `opa`, for example gantry/authz");
                return None;
            }
            (EngineWord::Authorize | EngineWord::CheckPermission, Some(_)) => {
                problems.at("engine_path", "is for `opa` only; the path of this engine is fixed");
                return None;
            }
            (EngineWord::None, path) => {
                for (name, is_set) in [
                    ("engine_url", self.engine_url.is_some()),
                    ("engine_path", path.is_some()),
                    ("engine_token", self.engine_token.is_some()),
                ] {
                    if is_set {
                        problems.at(name, "is set, but `engine` is none, so nobody would be asked");
                    }
                }
                problems.idle(&["engine_timeout_ms"], "`engine`");
                return None;
            }
        };
        let Some(url) = self.engine_url else {
            problems.at("engine_url", "is needed when `engine` is set");
            return None;
        };
        let timeout = Duration::from_millis(self.engine_timeout_ms);
        Some(EngineChoice { shape, url, timeout, token: self.engine_token })
    }
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_variables;
    use super::*;

    #[test]
    fn without_configuration_nobody_else_is_asked() {
        let (section, problems) = of_variables::<PolicyKeys>(&[]);
        assert!(problems.is_empty() && section.engine.is_none() && section.file.is_none());
        assert_eq!((section.environment.as_str(), section.decision_ttl), ("local", Duration::from_secs(300)));
    }

    #[test]
    fn an_engine_is_configured_wholly_or_not_at_all() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);
        let url = ("ENGINE_URL", "http://127.0.0.1:8181");
        let cases: &[Case<'_>] = &[
            (&[("ENGINE", "authorize"), url], None),
            (&[("ENGINE", "opa"), url, ("ENGINE_PATH", "gantry/authz")], None),
            (&[("ENGINE", "opa"), url], Some("is needed for `opa`")),
            (&[("ENGINE", "authorize")], Some("is needed when `engine` is set")),
            (&[("ENGINE", "authorize"), url, ("ENGINE_PATH", "x")], Some("for `opa` only")),
            (&[url], Some("nobody would be asked")),
            (&[("ENGINE_TOKEN", "s3cret")], Some("nobody would be asked")),
            (&[("ENVIRONMENT", "")], Some("must not be empty")),
        ];
        for (variables, expected) in cases {
            let (section, problems) = of_variables::<PolicyKeys>(variables);
            match expected {
                None => assert!(problems.is_empty() && section.engine.is_some(), "{variables:?}: {problems:?}"),
                Some(word) => assert!(problems.len() == 1 && problems[0].contains(word), "{variables:?}: {problems:?}"),
            }
        }
    }

    #[test]
    fn the_engines_token_is_never_told() {
        let (section, _) = of_variables::<PolicyKeys>(&[
            ("ENGINE", "authorize"),
            ("ENGINE_URL", "https://a"),
            ("ENGINE_TOKEN", "s3cret"),
        ]);
        assert!(!format!("{section:?}").contains("s3cret"));
    }
}
