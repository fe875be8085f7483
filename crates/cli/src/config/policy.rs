//! `[policy]`: where policies come from, and who else is asked. (AUTH-006…008, DESIGN §8.6)
//!
//! Rules about the engine's address belong to `authorities`, which speaks to it; here is only what must be set together.
//! An engine that is half configured is refused: whoever wrote its address believes that it is asked.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "policy";

/// Where the platform's policies are.
pub(crate) const FILE: ConfigKey = ConfigKey {
    section: SECTION,
    name: "file",
    kind: KeyKind::Text,
    default: None,
    unset: "policies come by the API only",
    doc: "A `.cedar` file, or a folder whose `.cedar` files are read in the order of their names: the policies of the \
          platform, which apply to every tenant. Watched for changes. Text that cannot be used leaves the former policies in \
          force and is told in the log; if there are none yet, the server does not start. `gantry policy check` finds every \
          problem beforehand.",
    since: "0.1",
};

const ENVIRONMENT: ConfigKey = ConfigKey {
    section: SECTION,
    name: "environment",
    kind: KeyKind::Text,
    default: Some("local"),
    unset: "",
    doc: "The name of this installation's environment: what policies see as `context.environment`, for example `production`.",
    since: "0.1",
};

const ENGINE: ConfigKey = ConfigKey {
    section: SECTION,
    name: "engine",
    kind: KeyKind::Choice(&["none", "authorize", "check_permission", "opa"]),
    default: Some("none"),
    unset: "",
    doc: "A policy engine that is asked by HTTP after Gantry's own policies have allowed a call: `authorize` \
          (`POST /v1/authorize`), `check_permission` (`POST /api/v1/abac/check-permission`) or `opa` (`POST /v1/data/…`). \
          An engine that gives no answer refuses the call: E3205.",
    since: "0.1",
};

/// Where the engine is.
pub(crate) const ENGINE_URL: ConfigKey = ConfigKey {
    section: SECTION,
    name: "engine_url",
    kind: KeyKind::Text,
    default: None,
    unset: "needed when `engine` is set",
    doc: "Address of the engine, without the path of its API: `https://abac.example.com`, or `http://127.0.0.1:8181` on this \
          machine.",
    since: "0.1",
};

/// Where OPA's decision is.
pub(crate) const ENGINE_PATH: ConfigKey = ConfigKey {
    section: SECTION,
    name: "engine_path",
    kind: KeyKind::Text,
    default: None,
    unset: "needed when `engine` is `opa`",
    doc: "Path of the decision in OPA's data: package and rule, for example `gantry/authz`.",
    since: "0.1",
};

const ENGINE_TIMEOUT_MS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "engine_timeout_ms",
    kind: KeyKind::Integer(50..=10_000),
    default: Some("500"),
    unset: "",
    doc: "Milliseconds a decision of the engine may take. At the limit: E3205.",
    since: "0.1",
};

/// What is shown to the engine.
pub(crate) const ENGINE_TOKEN: ConfigKey = ConfigKey {
    section: SECTION,
    name: "engine_token",
    kind: KeyKind::Secret,
    default: None,
    unset: "none is sent",
    doc: "Token sent to the engine as bearer token. Better set by the variable than written into a file.",
    since: "0.1",
};

const DECISION_CACHE_SECONDS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "decision_cache_seconds",
    kind: KeyKind::Integer(0..=3_600),
    default: Some("300"),
    unset: "",
    doc: "Seconds a decision is remembered at most; 0 remembers none. A change of policies, activations, tenants or agents \
          is in force at once whatever this says; a change inside an external engine only after this time.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &FILE,
    &ENVIRONMENT,
    &ENGINE,
    &ENGINE_URL,
    &ENGINE_PATH,
    &ENGINE_TIMEOUT_MS,
    &ENGINE_TOKEN,
    &DECISION_CACHE_SECONDS,
];

/// The section's values.
#[derive(Debug)]
pub(crate) struct PolicySection {
    pub(crate) file: Option<PathBuf>,
    pub(crate) environment: String,
    pub(crate) engine: Option<EngineChoice>,
    pub(crate) decision_ttl: Duration,
}

/// A policy engine outside.
pub(crate) struct EngineChoice {
    pub(crate) shape: EngineShape,
    pub(crate) url: String,
    pub(crate) timeout: Duration,
    pub(crate) token: Option<String>,
}

/// How it is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineShape {
    Authorize,
    CheckPermission,
    Opa { path: String },
}

impl fmt::Debug for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineChoice").field("shape", &self.shape).field("url", &self.url).finish_non_exhaustive()
    }
}

impl PolicySection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        let environment = settings.text(&ENVIRONMENT).unwrap_or_default();
        if environment.is_empty() {
            problems.push(ConfigProblem::new(ENVIRONMENT.title(), "must not be empty: policies compare it"));
        }
        Self {
            file: settings.text(&FILE).map(PathBuf::from),
            environment: environment.to_owned(),
            engine: engine(settings, problems),
            decision_ttl: Duration::from_secs(settings.integer(&DECISION_CACHE_SECONDS)),
        }
    }
}

fn engine(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Option<EngineChoice> {
    let (url, path) = (settings.text(&ENGINE_URL), settings.text(&ENGINE_PATH));
    let shape = match (settings.text(&ENGINE), path) {
        (Some("authorize"), None) => EngineShape::Authorize,
        (Some("check_permission"), None) => EngineShape::CheckPermission,
        (Some("opa"), Some(path)) => EngineShape::Opa { path: path.to_owned() },
        (Some("opa"), None) => {
            problems.push(ConfigProblem::new(ENGINE_PATH.title(), "is needed for `opa`, for example gantry/authz"));
            return None;
        }
        (Some("authorize" | "check_permission"), Some(_)) => {
            problems
                .push(ConfigProblem::new(ENGINE_PATH.title(), "is for `opa` only; the path of this engine is fixed"));
            return None;
        }
        _ => {
            for key in [&ENGINE_URL, &ENGINE_PATH, &ENGINE_TOKEN] {
                if settings.text(key).is_some() {
                    problems.push(ConfigProblem::new(
                        key.title(),
                        "is set, but `engine` is none, so nobody would be asked",
                    ));
                }
            }
            problems.extend(settings.idle(&[&ENGINE_TIMEOUT_MS], "`engine`"));
            return None;
        }
    };
    let Some(url) = url else {
        problems.push(ConfigProblem::new(ENGINE_URL.title(), "is needed when `engine` is set"));
        return None;
    };
    Some(EngineChoice {
        shape,
        url: url.to_owned(),
        timeout: Duration::from_millis(settings.integer(&ENGINE_TIMEOUT_MS)),
        token: settings.text(&ENGINE_TOKEN).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(variables: &[(&str, &str)]) -> (PolicySection, Vec<String>) {
        let environment: BTreeMap<String, String> =
            variables.iter().map(|(k, v)| (format!("GANTRY_POLICY__{k}"), (*v).to_owned())).collect();
        let settings = EffectiveSettings::gather(None, &environment, Vec::new()).unwrap();
        let mut problems = Vec::new();
        let section = PolicySection::read(&settings, &mut problems);
        (section, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn without_configuration_nobody_else_is_asked() {
        let (section, problems) = read(&[]);
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
            let (section, problems) = read(variables);
            match expected {
                None => assert!(problems.is_empty() && section.engine.is_some(), "{variables:?}: {problems:?}"),
                Some(word) => assert!(problems.len() == 1 && problems[0].contains(word), "{variables:?}: {problems:?}"),
            }
        }
    }

    #[test]
    fn the_engines_token_is_never_told() {
        let (section, _) = read(&[("ENGINE", "authorize"), ("ENGINE_URL", "https://a"), ("ENGINE_TOKEN", "s3cret")]);
        assert!(!format!("{section:?}").contains("s3cret"));
    }
}
