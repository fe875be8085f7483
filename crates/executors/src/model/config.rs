//! The `[model]` section of the configuration.
//!
//! No server is the default: a fresh installation sends nothing to anybody. The built-ins that need a model then answer
//! E3408 and name these keys.

use reqwest::Url;
use serde::Deserialize;

use super::secret::ModelSecret;

/// Which wire shape the server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelProvider {
    /// `POST {base_url}/v1/chat/completions`: OpenAI, DeepSeek, vLLM, llama.cpp, LM Studio and many more.
    #[default]
    Openai,
    /// `POST {base_url}/api/chat`.
    Ollama,
}

/// The language model that built-in tools may ask.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// `openai` (default) or `ollama`. Since 0.1.
    pub provider: ModelProvider,
    /// Address of the server, with or without `/v1`. Unset (default) means no model. Since 0.1.
    pub base_url: Option<String>,
    /// Model for translation, summaries and extraction. Needed when `base_url` is set. Since 0.1.
    pub model: String,
    /// Model for `deep_reasoning`; default: the same as `model`. Since 0.1.
    pub reasoning_model: Option<String>,
    /// Key sent as bearer token; default none. Since 0.1.
    pub api_key: Option<ModelSecret>,
    /// Milliseconds an answer may take at most, 1,000 to 600,000, default 120,000. A call's own deadline may be sooner.
    /// Since 0.1.
    pub timeout_ms: u64,
    /// Bytes an answer may have at most, 1 KiB to 64 MiB, default 4 MiB. Since 0.1.
    pub max_response_bytes: usize,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            provider: ModelProvider::Openai,
            base_url: None,
            model: String::new(),
            reasoning_model: None,
            api_key: None,
            timeout_ms: 120_000,
            max_response_bytes: 4 << 20,
        }
    }
}

/// Why the `[model]` section cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelConfigError {
    #[error("`[model] base_url` must be an address such as `http://127.0.0.1:11434` or `https://api.example.com/v1`")]
    BaseUrl,
    #[error(
        "`[model] base_url` must not contain a user, a password, a query or a fragment; put the key into `api_key`"
    )]
    BaseUrlParts,
    #[error("`[model] model` must name a model when `base_url` is set")]
    ModelMissing,
    #[error("`[model] {0}` must be a model name of at most 200 visible characters")]
    ModelName(&'static str),
    #[error("`[model] api_key` must be visible ASCII characters without spaces")]
    ApiKey,
    #[error("`[model] timeout_ms` must be from 1000 to 600000")]
    Timeout,
    #[error("`[model] max_response_bytes` must be from 1024 to 67108864")]
    ResponseBytes,
}

impl ModelConfig {
    /// Checks every key.
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(&self) -> Result<(), ModelConfigError> {
        self.endpoint()?;
        if self.base_url.is_some() && self.model.is_empty() {
            return Err(ModelConfigError::ModelMissing);
        }
        let named = |name: &str| name.len() <= 200 && name.chars().all(|c| !c.is_control() && !c.is_whitespace());
        if !named(&self.model) {
            return Err(ModelConfigError::ModelName("model"));
        }
        if self.reasoning_model.as_ref().is_some_and(|name| name.is_empty() || !named(name)) {
            return Err(ModelConfigError::ModelName("reasoning_model"));
        }
        let visible =
            |key: &ModelSecret| !key.expose().is_empty() && key.expose().bytes().all(|b| b.is_ascii_graphic());
        if self.api_key.as_ref().is_some_and(|key| !visible(key)) {
            return Err(ModelConfigError::ApiKey);
        }
        if !(1_000..=600_000).contains(&self.timeout_ms) {
            return Err(ModelConfigError::Timeout);
        }
        if !(1_024..=64 << 20).contains(&self.max_response_bytes) {
            return Err(ModelConfigError::ResponseBytes);
        }
        Ok(())
    }

    /// Where questions go; `None` if no server is configured.
    pub(super) fn endpoint(&self) -> Result<Option<Url>, ModelConfigError> {
        let Some(base) = self.base_url.as_deref() else { return Ok(None) };
        let base = base.trim_end_matches('/');
        let path = match self.provider {
            ModelProvider::Openai if base.ends_with("/v1") => "/chat/completions",
            ModelProvider::Openai => "/v1/chat/completions",
            ModelProvider::Ollama => "/api/chat",
        };
        let given = Url::parse(base).map_err(|_| ModelConfigError::BaseUrl)?;
        if !matches!(given.scheme(), "http" | "https") || given.host_str().is_none() {
            return Err(ModelConfigError::BaseUrl);
        }
        let bare = given.username().is_empty()
            && given.password().is_none()
            && given.query().is_none()
            && given.fragment().is_none();
        if !bare {
            return Err(ModelConfigError::BaseUrlParts);
        }
        Url::parse(&format!("{base}{path}")).map(Some).map_err(|_| ModelConfigError::BaseUrl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut ModelConfig)) -> ModelConfig {
        let mut config = ModelConfig {
            base_url: Some("http://localhost:11434".into()),
            model: "m".into(),
            ..ModelConfig::default()
        };
        change(&mut config);
        config
    }

    #[test]
    fn the_endpoint_follows_from_provider_and_address() {
        use ModelProvider::{Ollama, Openai};
        for (provider, base, expected) in [
            (Openai, "https://api.example.com", "https://api.example.com/v1/chat/completions"),
            (Openai, "https://api.example.com/v1/", "https://api.example.com/v1/chat/completions"),
            (Openai, "http://gateway:8080/llm", "http://gateway:8080/llm/v1/chat/completions"),
            (Ollama, "http://127.0.0.1:11434", "http://127.0.0.1:11434/api/chat"),
        ] {
            let config = with(|c| (c.provider, c.base_url) = (provider, Some(base.into())));
            assert_eq!(config.endpoint().unwrap().unwrap().as_str(), expected);
        }
    }

    #[test]
    fn each_faulty_key_is_named() {
        assert_eq!(ModelConfig::default().validate(), Ok(()));
        assert_eq!(with(|_| ()).validate(), Ok(()));
        for (config, expected) in [
            (with(|c| c.base_url = Some("localhost".into())), ModelConfigError::BaseUrl),
            (with(|c| c.base_url = Some("ftp://host".into())), ModelConfigError::BaseUrl),
            (with(|c| c.base_url = Some("http://u:p@host".into())), ModelConfigError::BaseUrlParts),
            (with(|c| c.base_url = Some("http://host?key=1".into())), ModelConfigError::BaseUrlParts),
            (with(|c| c.model = String::new()), ModelConfigError::ModelMissing),
            (with(|c| c.model = "a b".into()), ModelConfigError::ModelName("model")),
            (with(|c| c.reasoning_model = Some(String::new())), ModelConfigError::ModelName("reasoning_model")),
            (with(|c| c.api_key = Some(ModelSecret::new("a\nb"))), ModelConfigError::ApiKey),
            (with(|c| c.timeout_ms = 0), ModelConfigError::Timeout),
            (with(|c| c.max_response_bytes = 1), ModelConfigError::ResponseBytes),
        ] {
            assert_eq!(config.validate(), Err(expected));
        }
    }
}
