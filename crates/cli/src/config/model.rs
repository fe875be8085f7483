//! `[model]`: the language model behind some built-in tools.
//!
//! Its rules belong to `executors`, which uses it; here are only its names for people. Without `base_url` there is no
//! model, and what needs one says so.

use executors::ModelConfig;
use executors::model::{ModelProvider, ModelSecret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::SectionProblems;
use super::secret_text::SecretText;
use super::section::ConfigSection;

/// The language model behind some built-in tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct ModelKeys {
    /// How the endpoint is spoken to: `openai` for anything with `/v1/chat/completions`, `ollama` for `/api/chat`.
    pub(super) provider: ProviderChoice,
    /// Address of the endpoint, for example `http://127.0.0.1:11434` or `https://api.example.com/v1`.
    #[schemars(extend("x-unset" = "no model: `deep_reasoning`, translation and abstractive summaries answer E3408"))]
    pub(super) base_url: Option<String>,
    /// Model for translation, summaries and extraction.
    #[schemars(extend("x-unset" = "needed when `base_url` is set"))]
    pub(super) model: Option<String>,
    /// Model for `deep_reasoning`.
    #[schemars(extend("x-unset" = "the same as `model`"))]
    pub(super) reasoning_model: Option<String>,
    /// Key sent as bearer token. Better set by the variable than written into a file.
    #[schemars(extend("x-unset" = "none is sent"))]
    pub(super) api_key: Option<SecretText>,
    /// Milliseconds an answer may take at most. A call's own deadline may be sooner.
    #[schemars(range(min = 1_000, max = 600_000))]
    pub(super) timeout_ms: u64,
    /// Bytes an answer may have at most.
    #[schemars(range(min = 1_024, max = 67_108_864))]
    pub(super) max_response_bytes: usize,
}

impl Default for ModelKeys {
    fn default() -> Self {
        let usual = ModelConfig::default();
        Self {
            provider: ProviderChoice::Openai,
            base_url: None,
            model: None,
            reasoning_model: None,
            api_key: None,
            timeout_ms: usual.timeout_ms,
            max_response_bytes: usual.max_response_bytes,
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProviderChoice {
    Openai,
    Ollama,
}

impl ConfigSection for ModelKeys {
    const NAME: &'static str = "model";
    type Checked = Option<ModelConfig>;

    fn checked(self, problems: &mut SectionProblems<'_>) -> Option<ModelConfig> {
        let config = ModelConfig::from(self);
        if let Err(error) = config.validate() {
            problems.at_section(error.to_string());
            return None;
        }
        config.base_url.is_some().then_some(config)
    }
}

impl From<ModelKeys> for ModelConfig {
    fn from(keys: ModelKeys) -> Self {
        Self {
            provider: match keys.provider {
                ProviderChoice::Openai => ModelProvider::Openai,
                ProviderChoice::Ollama => ModelProvider::Ollama,
            },
            base_url: keys.base_url,
            model: keys.model.unwrap_or_default(),
            reasoning_model: keys.reasoning_model,
            api_key: keys.api_key.map(|secret| ModelSecret::new(secret.expose())),
            timeout_ms: keys.timeout_ms,
            max_response_bytes: keys.max_response_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_variables;
    use super::*;

    #[test]
    fn what_is_unset_is_as_the_executors_have_it() {
        assert_eq!(ModelConfig::from(ModelKeys::default()), ModelConfig::default());
    }

    #[test]
    fn a_model_without_a_name_is_a_problem_and_its_key_is_never_told() {
        let variables = [("BASE_URL", "http://127.0.0.1:1"), ("API_KEY", "sk-123")];
        let (section, problems) = of_variables::<ModelKeys>(&variables);
        assert!(section.is_none() && problems[0].contains("model") && !problems[0].contains("sk-123"), "{problems:?}");
        let keys: ModelKeys = serde_json::from_value(serde_json::json!({ "api_key": "sk-123" })).unwrap();
        assert!(!format!("{keys:?}").contains("sk-123"));
    }
}
