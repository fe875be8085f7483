//! The model adapter: one way to any language model, for the built-ins that need one (LOCAL-014, X-50).
//!
//! It speaks two wire shapes, the `chat/completions` of OpenAI-compatible servers and the `api/chat` of Ollama, and asks
//! one question at a time, without streaming. Which server, which model and which key is configuration; no built-in has
//! another way out.
//!
//! Invariants
//! - MODEL-1: no redirect is followed and no proxy of the environment is used: the request, with its key, goes to the
//!   configured host or nowhere.
//! - MODEL-2: an answer is read up to `max_response_bytes` and within the time the call has left, never further.
//! - MODEL-3: what the server answered with an error is logged by status only; its text reaches neither log nor caller.
//!
//! Not here: retries and breakers (the kernel), prices (manifests and configuration), address checks for addresses that
//! callers choose. This address is the operator's own, and a local Ollama is on loopback.

use std::sync::OnceLock;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal, RefusalReason};
use outbound::ClientOptions;
use ports::executor::{ExecutionReach, ExecutorError, ResourceUsage};
use ports::tool_origin::{OriginParts, ToolOrigin};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};

use crate::origin::add_address;

mod config;
mod secret;
mod wire;

pub use config::{ModelConfig, ModelConfigError, ModelProvider};
pub use secret::ModelSecret;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections kept for the next call.
const IDLE_CONNECTIONS_MAX: usize = 8;
/// The longest pause that is passed on from a server that asks for one.
const RETRY_AFTER_MAX_SECONDS: u64 = 3600;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrompt {
    pub text: String,
    /// Tokens of the answer at most.
    pub tokens_max: u32,
    /// Whether the model for reasoning is asked, if there is one.
    pub reasoning: bool,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCompletion {
    pub text: String,
    /// The model that answered, as the server names it.
    pub model: String,
    /// Tokens of question and answer, if the server counted them.
    pub tokens: Option<u64>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl ModelCompletion {
    /// What the call used.
    pub fn usage(&self) -> ResourceUsage {
        ResourceUsage {
            tokens: self.tokens,
            network_bytes_sent: self.bytes_sent,
            network_bytes_received: self.bytes_received,
            ..ResourceUsage::default()
        }
    }
}

/// A client for the configured model. Cheap to make: the connection pool is built on first use.
#[derive(Debug)]
pub struct ModelClient {
    config: ModelConfig,
    endpoint: reqwest::Url,
    /// `None` if this machine cannot have one.
    http: OnceLock<Option<Client>>,
}

/// The refusal when an operation needs a model and none is configured.
pub fn not_configured(what: &str) -> Refusal {
    Refusal::new(ErrorCode::E3408, format!("{what} needs a language model, and none is configured"))
        .hint("set `[model] base_url` and `[model] model` in gantry.toml, or GANTRY_MODEL__BASE_URL and GANTRY_MODEL__MODEL")
        .retryable(false)
}

impl ModelClient {
    /// A client for a configuration; `None` if it names no server.
    ///
    /// # Errors
    /// The first fault of the configuration.
    pub fn from_config(config: &ModelConfig) -> Result<Option<Self>, ModelConfigError> {
        config.validate()?;
        let endpoint = config.endpoint()?;
        Ok(endpoint.map(|endpoint| Self { config: config.clone(), endpoint, http: OnceLock::new() }))
    }

    /// What policies hear of a tool that asks it: everything the tool is given may go there.
    pub fn origin(&self) -> ToolOrigin {
        let mut parts = OriginParts::default();
        add_address(&mut parts, self.endpoint.as_str());
        ToolOrigin::new(parts)
    }

    /// The model that a prompt goes to.
    pub fn model_for(&self, reasoning: bool) -> &str {
        match &self.config.reasoning_model {
            Some(model) if reasoning => model,
            _ => &self.config.model,
        }
    }

    /// Asks once. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Unreachable or failing server E3502, no answer in time E3503, rate limit of the server E3504.
    pub async fn complete(&self, prompt: &ModelPrompt, time_left: Duration) -> Result<ModelCompletion, ExecutorError> {
        let model = self.model_for(prompt.reasoning);
        let body = wire::request(self.config.provider, model, prompt);
        let bytes_sent = body.len() as u64;
        let timeout = time_left.min(Duration::from_millis(self.config.timeout_ms));
        let request = self
            .http()
            .map_err(ExecutorError::not_sent)?
            .post(self.endpoint.clone())
            .headers(self.headers())
            .body(body)
            .timeout(timeout);
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        if !response.status().is_success() {
            return Err(refused(response.status(), response.headers()));
        }
        let answer = self.read(response).await?;
        let answered = wire::answer(self.config.provider, &answer).ok_or_else(|| {
            let refusal = upstream(
                "the model server's answer could not be understood",
                "check that `[model] provider` and `[model] base_url` fit the server",
            );
            ExecutorError::may_have_run(refusal.retryable(false))
        })?;
        Ok(ModelCompletion {
            text: answered.text,
            model: answered.model.unwrap_or_else(|| model.to_owned()),
            tokens: answered.tokens,
            bytes_sent,
            bytes_received: answer.len() as u64,
        })
    }

    fn http(&self) -> Result<&Client, Refusal> {
        let built = self.http.get_or_init(|| {
            let options = ClientOptions {
                connect: Some(CONNECT_TIMEOUT),
                idle_per_host: IDLE_CONNECTIONS_MAX,
                ..ClientOptions::default()
            };
            outbound::operators_client(options)
                .inspect_err(|error| tracing::error!(%error, "the HTTP client for the model cannot be built"))
                .ok()
        });
        built.as_ref().ok_or_else(|| upstream("the model cannot be reached from this server", "see the server's log"))
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // INVARIANT: `validate` has let only visible ASCII through, so the key is a header value.
        if let Some(key) = &self.config.api_key
            && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }

    /// MODEL-2: stops at the limit, whatever length the server announced.
    async fn read(&self, mut response: Response) -> Result<Vec<u8>, ExecutorError> {
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))? {
            if answer.len() + chunk.len() > self.config.max_response_bytes {
                let limit = self.config.max_response_bytes;
                let refusal = upstream(
                    format!("the model server's answer is larger than {limit} bytes"),
                    "ask for less, or raise `[model] max_response_bytes`",
                );
                return Err(ExecutorError::may_have_run(refusal.retryable(false)));
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(answer)
    }
}

fn upstream(message: impl Into<String>, hint: &str) -> Refusal {
    Refusal::new(ErrorCode::E3502, message).hint(hint)
}

/// No answer at all.
fn unreachable(error: &reqwest::Error) -> ExecutorError {
    let kind = if error.is_timeout() {
        "timeout"
    } else if error.is_connect() {
        "connect"
    } else {
        "transfer"
    };
    tracing::warn!(kind, causes = ?causes(error), "the model server gave no answer");
    if error.is_timeout() {
        let refusal = Refusal::new(ErrorCode::E3503, "the model server did not answer in time")
            .hint("ask for less, allow the call more time, or raise `[model] timeout_ms`");
        return ExecutorError::may_have_run(refusal);
    }
    if error.is_connect() {
        return ExecutorError::not_sent(upstream(
            "the model server cannot be reached",
            "check that it runs and that `[model] base_url` is right",
        ));
    }
    let hint = "try again; if it stays, check the model server's log";
    ExecutorError::may_have_run(upstream("the model server broke off its answer", hint))
}

/// The chain of causes without the outermost error, which names the address.
fn causes(error: &reqwest::Error) -> Vec<String> {
    let mut chain = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        chain.push(error.to_string());
        cause = error.source();
    }
    chain
}

/// An answer that is a refusal, by its status alone (MODEL-3).
fn refused(status: StatusCode, headers: &HeaderMap) -> ExecutorError {
    tracing::warn!(status = status.as_u16(), "the model server refused");
    // What `retry_on_status_codes` is about: the status itself, and not that of the code it became.
    let refusal = status_refusal(status.as_u16(), headers).because(RefusalReason::UpstreamStatus(status.as_u16()));
    ExecutorError::new(refusal, ExecutionReach::of_status(status.as_u16()))
}

fn status_refusal(code: u16, headers: &HeaderMap) -> Refusal {
    match code {
        401 | 403 => upstream(
            "the model server does not accept this server's credentials",
            "set a valid key as `[model] api_key` or GANTRY_MODEL__API_KEY",
        )
        .retryable(false),
        404 => upstream(
            "the model server does not know the model or the address",
            "check `[model] base_url`, `[model] model` and `[model] reasoning_model`",
        )
        .retryable(false),
        408 | 504 => Refusal::new(ErrorCode::E3503, "the model server did not answer in time"),
        429 => {
            let mut refusal = Refusal::new(ErrorCode::E3504, "the model server's rate limit is reached")
                .hint("wait, then send the call again");
            refusal.retry_after_ms = retry_after_ms(headers);
            refusal
        }
        500.. => upstream(format!("the model server failed with status {code}"), "try again later"),
        300..=399 => {
            upstream("the model server answered with a redirect", "set `[model] base_url` to the final address")
                .retryable(false)
        }
        _ => upstream(
            format!("the model server refused the request with status {code}"),
            "check `[model] provider` and `[model] model`, or send a shorter text",
        )
        .retryable(false),
    }
}

/// Seconds only: a date would need the server's clock to agree with ours.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(seconds.min(RETRY_AFTER_MAX_SECONDS) * 1000)
}
