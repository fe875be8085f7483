//! `[model]`: the language model behind some built-in tools.
//!
//! Its rules belong to `executors`, which uses it; here are only its names for people. Without `base_url` there is no
//! model, and what needs one says so.

use base::SaturatingFrom as _;
use executors::ModelConfig;
use executors::model::{ModelProvider, ModelSecret};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const PROVIDER: ConfigKey = ConfigKey {
    section: "model",
    name: "provider",
    kind: KeyKind::Choice(&["openai", "ollama"]),
    default: Some("openai"),
    unset: "",
    doc: "How the endpoint is spoken to: `openai` for anything with `/v1/chat/completions`, `ollama` for `/api/chat`.",
    since: "0.1",
};

/// Where the model is.
pub(crate) const BASE_URL: ConfigKey = ConfigKey {
    section: "model",
    name: "base_url",
    kind: KeyKind::Text,
    default: None,
    unset: "no model: `deep_reasoning`, translation and abstractive summaries answer E3408",
    doc: "Address of the endpoint, for example `http://127.0.0.1:11434` or `https://api.example.com/v1`.",
    since: "0.1",
};

const MODEL: ConfigKey = ConfigKey {
    section: "model",
    name: "model",
    kind: KeyKind::Text,
    default: None,
    unset: "needed when `base_url` is set",
    doc: "Model for translation, summaries and extraction.",
    since: "0.1",
};

const REASONING_MODEL: ConfigKey = ConfigKey {
    section: "model",
    name: "reasoning_model",
    kind: KeyKind::Text,
    default: None,
    unset: "the same as `model`",
    doc: "Model for `deep_reasoning`.",
    since: "0.1",
};

const API_KEY: ConfigKey = ConfigKey {
    section: "model",
    name: "api_key",
    kind: KeyKind::Secret,
    default: None,
    unset: "none is sent",
    doc: "Key sent as bearer token. Better set by the variable than written into a file.",
    since: "0.1",
};

const TIMEOUT_MS: ConfigKey = ConfigKey {
    section: "model",
    name: "timeout_ms",
    kind: KeyKind::Integer(1_000..=600_000),
    default: Some("120000"),
    unset: "",
    doc: "Milliseconds an answer may take at most. A call's own deadline may be sooner.",
    since: "0.1",
};

const MAX_RESPONSE_BYTES: ConfigKey = ConfigKey {
    section: "model",
    name: "max_response_bytes",
    kind: KeyKind::Integer(1_024..=67_108_864),
    default: Some("4194304"),
    unset: "",
    doc: "Bytes an answer may have at most.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] =
    &[&PROVIDER, &BASE_URL, &MODEL, &REASONING_MODEL, &API_KEY, &TIMEOUT_MS, &MAX_RESPONSE_BYTES];

/// The model, if one is set.
pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Option<ModelConfig> {
    let config = from(settings);
    if let Err(error) = config.validate() {
        problems.push(ConfigProblem::new("[model]", error.to_string()));
        return None;
    }
    config.base_url.is_some().then_some(config)
}

fn from(settings: &EffectiveSettings) -> ModelConfig {
    let text = |key| settings.text(key).map(str::to_owned);
    ModelConfig {
        provider: match settings.text(&PROVIDER) {
            Some("ollama") => ModelProvider::Ollama,
            _ => ModelProvider::Openai,
        },
        base_url: text(&BASE_URL),
        model: text(&MODEL).unwrap_or_default(),
        reasoning_model: text(&REASONING_MODEL),
        api_key: settings.text(&API_KEY).map(ModelSecret::new),
        timeout_ms: settings.integer(&TIMEOUT_MS),
        max_response_bytes: usize::saturating_from(settings.integer(&MAX_RESPONSE_BYTES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn settings(variables: &[(&str, &str)]) -> EffectiveSettings {
        let environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>();
        EffectiveSettings::gather(None, &environment, Vec::new()).unwrap()
    }

    #[test]
    fn defaults_here_are_the_defaults_of_the_executors() {
        assert_eq!(from(&settings(&[])), ModelConfig::default());
    }

    #[test]
    fn a_model_without_a_name_is_a_problem_and_its_key_is_never_told() {
        let variables = [("GANTRY_MODEL__BASE_URL", "http://127.0.0.1:1"), ("GANTRY_MODEL__API_KEY", "sk-123")];
        let mut problems = Vec::new();
        assert!(read(&settings(&variables), &mut problems).is_none());
        assert!(problems[0].to_string().contains("model"));
        assert!(!format!("{problems:?}{:?}", settings(&variables)).contains("sk-123"));
    }
}
